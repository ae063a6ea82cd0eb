"""Real processes that end: children of a shell, which reaps them or does not, as it is told."""

import contextlib
import os
import pathlib
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from shim import native
from supervisor.external import observe
from supervisor.external.observe import Sight
from supervisor.model.errors import BadRequest, NoSuchProcess
from supervisor.model.evidence import Pending
from supervisor.model.foreign import UNTOLD
from supervisor.model.values import Exited, ExitStatus, Process, Signaled, Source, Unknown
from supervisor.monitor import probe
from tests.supervisor.descriptors import held_now, opened_since

SECONDS = 30.0
TELLS, READABLE = probe.pidfd().works, probe.zombie().works  # this kernel, this user
# Starts a child that ends as it is told after a line of input, says its pid, and reaps it; or stays away for ever.
CHILD = "read line; {}"
REAPS = ["bash", "-c", 'bash -c "$0" <&0 & echo $!; wait']
NEVER_REAPS = [
    sys.executable,
    "-Sc",
    """import signal, subprocess, sys
child = subprocess.Popen(["bash", "-c", *sys.argv[1:]])
print(child.pid, flush=True)
signal.pause()""",
]


@contextlib.contextmanager
def strangers_child(end: str, parents: list[str] = REAPS) -> Iterator[tuple[int, "subprocess.Popen[bytes]"]]:
    parent = subprocess.Popen([*parents, CHILD.format(end)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert parent.stdin is not None and parent.stdout is not None
    try:
        yield int(parent.stdout.readline()), parent
    finally:
        with contextlib.suppress(BrokenPipeError):
            parent.stdin.close()
        parent.kill()
        parent.wait(SECONDS)
        parent.stdout.close()


def go(parent: "subprocess.Popen[bytes]") -> None:
    assert parent.stdin is not None
    parent.stdin.write(b"go\n")
    parent.stdin.flush()


@pytest.mark.parametrize(
    ("end", "status"),
    [
        *(("exit 0", Exited(0)), ("exit 7", Exited(7)), ("exit 137", Exited(137)), ("exit 255", Exited(255))),
        *(("kill -KILL $BASHPID", Signaled(9)), ("kill -TERM $BASHPID", Signaled(15))),
    ],
)
def test_the_kernel_reports_how_a_strangers_child_ended(end: str, status: ExitStatus) -> None:
    with strangers_child(end) as (pid, parent), Sight.of(pid) as sight:
        assert sight.look() == Pending()
        assert sight.wait(0) is None
        go(parent)
        report = sight.wait(SECONDS)
        assert report is not None
        known = (status, Source.PIDFD) if TELLS else (Unknown(UNTOLD), Source.NONE)
        assert (report.status, report.source, report.init) == (*known, sight.process)


def test_a_zombie_that_nobody_reaps_is_read_after_a_while() -> None:
    with strangers_child("exit 7", NEVER_REAPS) as (pid, parent), Sight.of(pid) as sight:
        go(parent)
        report = sight.wait(SECONDS)
        assert report is not None
        assert (report.status, report.source) == (Exited(7 if READABLE else 0), Source.ZOMBIE)
        assert native.process_stat(pid)[0] == "Z"


def test_one_that_is_a_zombie_already_is_watched_too() -> None:
    with strangers_child("exit 9", NEVER_REAPS) as (pid, parent):
        with Sight.of(pid) as first:
            go(parent)
            assert first.wait(SECONDS) is not None
        with Sight.of(pid) as sight:
            report = sight.wait(SECONDS)
            assert report is not None and report.status == Exited(9 if READABLE else 0)


def test_a_zombie_whose_status_may_not_be_read_is_not_guessed_at() -> None:
    with (
        strangers_child("exit 7", NEVER_REAPS) as (pid, parent),
        Sight.of(pid, zombie_readable=False) as sight,
    ):
        go(parent)
        assert sight.wait(2.5) is None


def test_where_the_kernel_does_not_report_the_end_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    def silent(pidfd: int) -> int | None:
        raise OSError(25, os.strerror(25))

    monkeypatch.setattr(native, "pidfd_exit_status", silent)
    with strangers_child("exit 7") as (pid, parent), Sight.of(pid) as sight:
        go(parent)
        report = sight.wait(SECONDS)
        assert report is not None and (report.status, report.source) == (Unknown(UNTOLD), Source.NONE)


def test_what_has_gone_and_what_was_started_at_another_time_is_no_such_process() -> None:
    child = subprocess.Popen(["true"])
    child.wait(SECONDS)
    with pytest.raises(NoSuchProcess):
        Sight.of(child.pid)
    with pytest.raises(NoSuchProcess):
        Sight.of(os.getpid(), native.process_stat(os.getpid())[2] + 1)


@pytest.mark.parametrize("pid", [0, -1, 2**40])
def test_what_is_no_pid_is_refused(pid: int) -> None:
    with pytest.raises((BadRequest, NoSuchProcess)):
        Sight.of(pid)


def test_a_thread_is_refused_with_the_name_of_its_process() -> None:
    script = "import threading as t, sys; x = t.Thread(target=input); x.start(); print(x.native_id, flush=True)"
    child = subprocess.Popen(["python3", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdout is not None
    thread = int(child.stdout.readline())
    with pytest.raises(BadRequest, match=f"thread of process {child.pid}"):
        Sight.of(thread)
    child.communicate(b"\n", SECONDS)


def test_nothing_stays_open_of_what_was_refused_or_closed() -> None:
    before = held_now()
    with pytest.raises(NoSuchProcess):
        Sight.of(os.getpid(), 1)
    with Sight.of(os.getpid()) as sight:
        assert sight.fileno() == sight.pidfd
        assert sum(opened_since(before).values()) == 1
        sight.close()
    assert not opened_since(before)


def test_a_process_that_was_signalled_by_nobody_of_us_lives_on() -> None:
    with strangers_child("exit 0") as (pid, _):
        with Sight.of(pid) as sight:
            assert sight.wait(0.05) is None
        os.kill(pid, signal.SIGCONT)


def test_names_and_times_are_what_proc_shows() -> None:
    me = Process(os.getpid(), native.process_stat(os.getpid())[2])
    assert observe.command_of(me.pid) == pathlib.Path("/proc/self/comm").read_text().strip()
    assert observe.command_of(2**30) == "" == observe.cgroup_of(2**30)
    assert observe.started_ns(me, 10**18, 10**12) == 10**18 - 10**12 + me.started_ticks * 10**9 // observe.TICKS
    assert observe.memory_kills("") is None
