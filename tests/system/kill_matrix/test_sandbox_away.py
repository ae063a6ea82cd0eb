"""The sandbox of a pod that containerd leaves to exitd ends while exitd is away, and then its relay is killed: what
containerd was answered stays true, and exitd stores it when it is back."""

import os
import pathlib
import signal

import pytest

from protos.containerd import sandbox_pb2 as sb
from protos.exitd.v1 import exitd_pb2
from tests.system import lives
from tests.system.containerd.sandboxes import SANDBOX, Pod, controlled, relay_gone
from tests.system.daemons import Daemon
from tests.system.kill_matrix.calls import halting, is_dead
from tests.system.kill_matrix.table import WORD, Case, cases
from tests.system.processes import killed
from tests.system.waits import until, wait_readable

CODE = 128 + signal.SIGKILL


def killed_over_its_word(daemon: Daemon, pod: Pod, relay: int) -> None:
    """Of the sandbox's shutdown."""
    gone = daemon.state / "shimv2" / "gone"
    with halting(relay, ("rename", 1)) as reached:
        pod.connection.begin(SANDBOX, "ShutdownSandbox", sb.ShutdownSandboxRequest(sandbox_id=pod.id))
        until(lambda: [path for path in gone.glob("*") if not path.suffix], "the relay leaves no word")
        reached()
        os.kill(relay, signal.SIGKILL)
    until(lambda: is_dead(relay), "the relay does not die")


@pytest.mark.parametrize("case", cases("pod of containerd's, its end while exitd is away"), ids=str)
def test_a_pods_end_while_exitd_is_away_is_the_same_after_its_relay_was_killed(
    killable: Daemon, tmp_path: pathlib.Path, case: Case
) -> None:
    with controlled(killable, tmp_path) as controller:
        pod = controller.pod()
        pid, relay, whole = pod.started(), pod.connection.relay(), pod.wait()
        pidfd = os.pidfd_open(pid)
        killable.kill()
        os.kill(pid, signal.SIGKILL)
        assert wait_readable(pidfd)
        os.close(pidfd)
        answers = [] if case.moment == "after its end" else [pod.waited(whole)]
        if case.moment == WORD:
            killed_over_its_word(killable, pod, relay)
        else:
            if case.moment == "after its shutdown":
                pod.shutdown()
            killed(relay)
        deleted = pod.deleted()  # containerd asks for it when it has lost the relay
        killable.start()
        with killable.client() as client:
            until(lambda: client.list(all_of_them=True) == (), "exitd has not removed it")
            (end,) = [each for each in client.exits(exitd_pb2.ExitsRequest()) if each.name == pod.id]
        relay_gone(controller, relay)
        assert controller.events.of(pod.id) == []  # containerd publishes a sandbox's itself
    assert lives.word(end) == "signaled 9"
    assert (deleted.exit_status, deleted.exited_at) == (CODE, end.at)
    assert all((each.exit_status, each.exited_at) == (CODE, end.at) for each in answers)
