"""exitd is killed at any system call of a pod's life that containerd leaves to it: every call is answered, and both
ends are reported once, with their codes."""

import pathlib
from collections import Counter
from dataclasses import dataclass

from protos.exitd.v1 import exitd_pb2
from tests.system import lives
from tests.system.containerd.sandboxes import LIFE, Controller, controlled, relay_gone
from tests.system.daemons import Daemon
from tests.system.kill_matrix.calls import killed_at_each
from tests.system.kill_matrix.table import row
from tests.system.kill_matrix.tasklife import Reviver
from tests.system.waits import until


@dataclass(frozen=True)
class Lived:
    """The names of both, what was answered about them, and the events."""

    pod: str
    member: str
    answers: tuple[int, int, int, int]
    events: tuple[list[tuple[str, int]], list[tuple[str, int]]]


def live(controller: Controller) -> Lived:
    """As containerd drives it."""
    pod = controller.pod(hostname="web-0")
    relay = pod.connection.relay()
    pid = pod.started()
    whole = pod.wait()
    member = pod.member("app", "/bin/sh", "-c", "exit 43", pid=pid)
    ended = member.waited(member.started())
    deleted = member.delete()
    pod.stop()
    over = pod.waited(whole).exit_status
    pod.shutdown()
    pod.connection.close()
    relay_gone(controller, relay)
    return Lived(
        pod.id,
        member.id,
        (ended, deleted, over, pod.deleted().exit_status),
        (controller.events.of(pod.id), controller.events.of(member.id)),
    )


def test_exitd_killed_at_any_system_call_of_a_pods_life_is_not_noticed(
    killable: Daemon, tmp_path: pathlib.Path
) -> None:
    with controlled(killable, tmp_path) as controller:

        def lived() -> Lived:
            with Reviver(killable):
                return live(controller)

        def judge(found: Lived, case: str) -> Counter[str]:
            assert found.answers == (43, 43, 0, 0), case
            assert found.events == ([], list(zip(LIFE, (0, 0, 43, 43), strict=True))), case
            with killable.client() as client:
                until(lambda: client.list(all_of_them=True) == (), f"{case}: something is left")
                told = [(e.name, lives.word(e)) for e in client.exits(exitd_pb2.ExitsRequest())]
            mine = sorted(each for each in told if each[0] in (found.pod, found.member))
            assert mine == sorted([(found.pod, "exited 0"), (found.member, "exited 43")]), case
            return Counter(told=1)

        killed_at_each(killable, row("pod of containerd's, at calls").count, lived, judge)
