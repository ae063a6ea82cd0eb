"""The daemon comes back, and what has become of its containers meanwhile is reported as it was."""

import contextlib
import os
import pathlib
import signal
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.api.client import Unreachable
from tests.system import lives, oracle
from tests.system.daemons import Daemon
from tests.system.oracle import (
    AT_ONCE,
    BY_KERNEL,
    WHEN_TOLD,
    Revived,
    Subject,
    begun,
    down,
    end_and_judge,
    inspect,
    shim_of,
)
from tests.system.processes import gone, killed
from tests.system.runtimes import Gates
from tests.system.waits import LIMIT_SECONDS, scaled, until

pytestmark = pytest.mark.observed()
START_SECONDS = 10.0  # of a start that nothing holds up, on a busy machine


def test_containers_that_end_while_the_daemon_is_down_have_their_codes_and_policies_apply_once(daemon: Daemon) -> None:
    count = scaled(50, least=12)
    subjects = [begun(daemon, code=n) for n in range(1, count)]
    again = begun(daemon, "[ $code -gt 100 ] || read line </mnt/go", code=100, restart="on-failure:1")
    with down(daemon):
        for subject in (*subjects, again):
            subject.go()
        inits = [int(path.name) for path in pathlib.Path("/proc").glob("[0-9]*") if _runs_in(path, daemon)]
        until(lambda: all(map(gone, inits)), "not all have ended")
    up = Revived(daemon)
    oracle.over(up, again)
    with daemon.client() as client:
        assert [row.code for row in lives.ledger(client, again.id)] == [100, 101]
        assert [lives.last_exit(client, subject.id).code for subject in subjects] == list(range(1, count))
    assert set(end_and_judge(daemon, *subjects, again)) == {"exited by record"}


def _runs_in(path: pathlib.Path, daemon: Daemon) -> bool:
    """A shim of this daemon: it leaves when its container has ended."""
    with contextlib.suppress(OSError):
        return os.readlink(path / "cwd").startswith(str(daemon.state / "c"))
    return False


def test_a_shim_killed_with_the_daemon_down_leaves_the_code_to_the_keeper(daemon: Daemon) -> None:
    subject = begun(daemon)
    seen = inspect(daemon, subject)
    with down(daemon):
        killed(seen.shim.pid)
        subject.go()
        until(lambda: gone(seen.init.pid), "the keeper does not reap")
    assert end_and_judge(daemon, subject) == ["exited by keeper"]


def ended_unobserved(daemon: Daemon, subject: Subject) -> None:
    """While daemon, shim and keeper are all dead."""
    seen = inspect(daemon, subject)
    with down(daemon):
        killed(daemon.keeper_pid())
        killed(seen.shim.pid)
        subject.go()
        until(lambda: gone(seen.init.pid), "nobody reaps")


def test_with_daemon_shim_and_keeper_all_killed_the_exit_is_unknown_and_says_why(daemon: Daemon) -> None:
    subject = begun(daemon)
    ended_unobserved(daemon, subject)
    up = Revived(daemon)
    oracle.over(up, subject)
    with daemon.client() as client:
        (row,) = lives.ledger(client, subject.id)
        assert (row.kind, row.cause, row.source) == ("unknown", "monitors-killed", "none")
        assert not row.HasField("code") and not row.HasField("number")
    assert end_and_judge(daemon, subject) == ["unknown by none"]


def test_an_end_that_nobody_observed_counts_as_a_failure_for_the_policy(daemon: Daemon) -> None:
    subject = begun(daemon, "[ $code -gt 0 ] || read line </mnt/go", code=0, restart="on-failure:1")
    ended_unobserved(daemon, subject)
    assert end_and_judge(daemon, subject) == ["exited by record", "unknown by none"]


def test_a_container_that_lost_shim_and_keeper_is_said_to_be_nobodys_and_ends_with_its_code(daemon: Daemon) -> None:
    subject = begun(daemon)
    seen = inspect(daemon, subject)
    killed(daemon.keeper_pid())
    killed(seen.shim.pid)
    until(lambda: inspect(daemon, subject).monitored_by == "other", "not said to be without its monitors")
    subject.go()
    assert set(end_and_judge(daemon, subject)) <= BY_KERNEL


def test_a_killed_shim_does_not_cost_the_code_and_the_restart_policy_fires(daemon: Daemon) -> None:
    subject = begun(daemon, "[ $code -gt 7 ] || read line </mnt/go", code=7, restart="on-failure:1")
    killed(shim_of(daemon, subject))
    subject.go()
    up = Revived(daemon)
    oracle.over(up, subject)
    with daemon.client() as client:
        assert [row.code for row in lives.ledger(client, subject.id)] == [7, 8]
    assert end_and_judge(daemon, subject) == ["exited by keeper", "exited by record"]


def test_a_killed_shim_is_reported_and_never_leaves_two_inits(daemon: Daemon) -> None:
    subject = begun(daemon)
    seen = inspect(daemon, subject)
    assert seen.monitored_by == "shim"
    killed(seen.shim.pid)
    until(lambda: inspect(daemon, subject).monitored_by == "keeper", "still said to be the shim's")
    until(lambda: inspect(daemon, subject).shim.pid != seen.shim.pid, "no replacement")
    assert inspect(daemon, subject).init == seen.init
    assert len(subject.truth()) == 1
    subject.go()
    assert end_and_judge(daemon, subject) == ["exited by keeper"]


def test_a_daemon_restart_starts_no_finished_container_again(daemon: Daemon) -> None:
    policies = ("no", "on-failure:1", "always", "unless-stopped")
    subjects = [begun(daemon, AT_ONCE if policy != "no" else WHEN_TOLD, restart=policy) for policy in policies]
    subjects[0].go()
    with daemon.client() as client:
        for subject in subjects[2:]:
            client.stop(subject.id, 0)
    for subject in subjects[:2]:
        oracle.over(Revived(daemon), subject)
    before = [len(subject.truth()) for subject in subjects]
    for _ in range(2):
        with down(daemon):
            pass
        assert {inspect(daemon, subject).phase for subject in subjects} == {pb.PHASE_EXITED}
    assert [len(subject.truth()) for subject in subjects] == before
    end_and_judge(daemon, *subjects)


def test_one_stopped_shim_does_not_keep_the_daemon_from_serving_within_two_seconds(daemon: Daemon) -> None:
    silent, other = begun(daemon), begun(daemon, code=44)
    shim = shim_of(daemon, silent)
    began = time.monotonic()
    daemon.kill()
    daemon.start()
    usual = time.monotonic() - began
    os.kill(shim, signal.SIGSTOP)
    daemon.kill()
    silent.go()
    began = time.monotonic()
    daemon.start()
    other.go()
    assert time.monotonic() - began < 3 * usual + 2.0
    assert end_and_judge(daemon, other, silent) == ["exited by record", "exited by zombie"]


def test_five_hundred_stale_run_directories_do_not_delay_the_daemon_and_are_removed(daemon: Daemon) -> None:
    with contextlib.ExitStack() as stack:
        stack.enter_context(down(daemon))
        for number in range(500):
            directory = daemon.state / "c" / f"{number:064x}" / "1"
            directory.mkdir(parents=True)
            os.mkfifo(directory / "exit_fifo")
            (directory / "lock").touch()
            (directory / "exit.json").touch()
        began = time.monotonic()
    assert time.monotonic() - began < START_SECONDS
    oracle.nothing_left(daemon)


def test_fifos_that_nobody_else_has_open_do_not_hang_a_restart(daemon: Daemon) -> None:
    """No writer: its shim is dead, and no keeper to start another. No reader: the other one ends without a daemon."""
    without_writer, without_reader = begun(daemon), begun(daemon, code=44)
    seen = inspect(daemon, without_writer)
    with down(daemon):
        killed(daemon.keeper_pid())
        killed(seen.shim.pid)
        without_reader.go()
        began = time.monotonic()
    assert time.monotonic() - began < START_SECONDS
    until(lambda: inspect(daemon, without_writer).monitored_by == "other", "not said to be without its monitors")
    assert inspect(daemon, without_writer).phase == pb.PHASE_RUNNING
    without_writer.go()
    said = end_and_judge(daemon, without_reader, without_writer)
    assert "exited by record" in said and set(said) <= {"exited by record"} | BY_KERNEL


@pytest.mark.parametrize("way", ["stop", "rm"])
def test_a_container_whose_shim_was_killed_with_the_daemon_down_is_stopped_and_removed_at_the_first_try(
    daemon: Daemon, way: str
) -> None:
    subject = begun(daemon)
    shim = shim_of(daemon, subject)
    with down(daemon):
        killed(shim)
    with daemon.client() as client:
        if way == "stop":
            client.stop(subject.id, 0)
            assert lives.last_exit(client, subject.id).signal == signal.SIGKILL
        client.remove(subject.id, force=way == "rm")
        assert set(oracle.judge(client, subject)) == {"signaled by keeper"}
    oracle.nothing_left(daemon)


def test_exitd_killed_in_the_middle_of_a_create_leaves_no_shim_that_nobody_knows(daemon: Daemon, gates: Gates) -> None:
    gates.close("create.after")
    subject = oracle.observed(daemon, oracle.fresh_name(), runtime=str(gates.runtime))
    with ThreadPoolExecutor(1) as pool, daemon.client() as client:
        creating = pool.submit(client.create, subject.spec)
        gates.reached("create.after")
        with down(daemon), pytest.raises(Unreachable):
            creating.result(LIMIT_SECONDS)
    oracle.nothing_left(daemon)
    assert subject.truth() == {}


def test_exitd_killed_inside_a_delete_leaves_the_name_to_a_new_container_that_nobody_touches(
    daemon: Daemon, gates: Gates
) -> None:
    first = begun(daemon, runtime=str(gates.runtime))
    shim = shim_of(daemon, first)
    gates.close("delete.before")
    first.go()
    in_shim = gates.reached("delete.before")
    killed(shim)
    in_daemon = until(lambda: (pid := gates.reached("delete.before")) != in_shim and pid, "exitd does not delete")
    with down(daemon):
        gates.open()
        until(lambda: gone(in_daemon), "the command outlives the daemon")
    up = Revived(daemon)
    oracle.removed(up, first)
    second = oracle.observed(daemon, oracle.fresh_name(), WHEN_TOLD, 44, runtime=str(gates.runtime))
    second.spec.name = first.name
    oracle.created(up, second)
    oracle.started(up, second)
    second.go()
    with daemon.client() as client:
        assert oracle.judge(client, first).total() == 1
    assert end_and_judge(daemon, second) == ["exited by record"]


@contextlib.contextmanager
def pretended_boot(directory: pathlib.Path) -> Iterator[tuple[pathlib.Path, tuple[str, ...]]]:
    """A mount namespace whose boot id is a file's content; the file, and what to put before a command to be in it."""
    file = directory / "boot_id"
    file.write_text("11111111-1111-4111-8111-111111111111\n")
    script = 'mount --bind "$0" /proc/sys/kernel/random/boot_id && echo ready && exec cat'
    words = ["unshare", "--mount", "--propagation", "private", "sh", "-c", script, str(file)]
    holder = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert holder.stdin is not None and holder.stdout is not None
    try:
        assert holder.stdout.readline() == b"ready\n"
        yield file, ("nsenter", f"--mount=/proc/{holder.pid}/ns/mnt", "--")
    finally:
        holder.stdin.close()
        holder.stdout.close()
        holder.wait(LIMIT_SECONDS)


def test_after_a_reboot_everything_that_ran_is_unknown_and_each_policy_applies_once(
    tmp_path: pathlib.Path,
) -> None:
    with pretended_boot(tmp_path) as (boot_id, wrapper), oracle.warm_daemon(wrapper=wrapper) as daemon:
        policies = ("no", "on-failure:3", "always", "unless-stopped")
        running = {policy: begun(daemon, restart=policy) for policy in policies}
        stopped = {policy: begun(daemon, restart=policy) for policy in policies}
        with daemon.client() as client:
            for subject in stopped.values():
                client.stop(subject.id, 0)
        daemon.kill()
        boot_id.write_text("22222222-2222-4222-8222-222222222222\n")
        daemon.start()
        rebooted = [subject for policy, subject in running.items() if policy != "no"] + [stopped["always"]]
        for subject in rebooted:
            # It runs a moment before the start is answered, which exitd's phase says.
            until(
                lambda s=subject: len(s.truth()) == 2 and inspect(daemon, s).phase == pb.PHASE_RUNNING,  # type: ignore[misc]
                f"{subject.spec.restart} is not started again",
            )
        everybody = [*running.values(), *stopped.values()]
        before = [_told(daemon, subject) for subject in everybody]
        for _ in range(2):
            with down(daemon):
                pass
            assert [_told(daemon, subject) for subject in everybody] == before
        for subject in running.values():
            assert [(row.kind, row.cause) for row in _rows(daemon, subject)] == [("unknown", "host-rebooted")]
        for subject in stopped.values():
            assert [row.kind for row in _rows(daemon, subject)] == ["signaled"]
        up = Revived(daemon)
        for subject in everybody:
            oracle.removed(up, subject)
        oracle.nothing_left(daemon)


def _rows(daemon: Daemon, subject: Subject) -> list[pb.Exit]:
    with daemon.client() as client:
        return lives.ledger(client, subject.id)


def _told(daemon: Daemon, subject: Subject) -> tuple[int, int, int, int]:
    """Phase and run, how many ends are reported, and how many runs really began."""
    seen = inspect(daemon, subject)
    return seen.phase, seen.run, len(_rows(daemon, subject)), len(subject.truth())
