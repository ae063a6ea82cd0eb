"""System calls that fail in keeper and shim for want of descriptors, memory or processes, or because a disk does: what
says nothing about a container is not taken for an answer, and what could not be written down is not lost.

strace makes them fail (inject=CALL:error=ERRNO), from the start or for as long as it is attached. docs/errnos.md has a
row for each place.
"""

import contextlib
import errno
import itertools
import os
import pathlib
import signal
import socket
import subprocess
import time
from collections.abc import Iterator

import pytest

from shim import fields, launch, programs
from tests.system import streams
from tests.system.keepers import Keeper, Node, Run
from tests.system.streams import finish
from tests.system.test_keeper import reconnect
from tests.system.waits import LIMIT_SECONDS, until, wait_readable

NUMBERS = itertools.count()
OPENS = "open,openat"
PAUSES = 3  # of a quarter of a second each


class Failing:
    """The calls of one process that have failed by now: the time of each in seconds."""

    def __init__(self, log: pathlib.Path) -> None:
        self._log = log

    def times(self) -> list[float]:
        lines = self._log.read_text().splitlines()
        return [float(line.split()[0]) for line in lines if "(INJECTED)" in line]


@contextlib.contextmanager
def failing(node: Node, pid: int, calls: str, error: str) -> Iterator[Failing]:
    """All these calls of the process fail for the length of the block, and work again after it."""
    log = node.directory / f"faults{next(NUMBERS)}"
    words = ["strace", "-qq", "-ttt", "-o", str(log), "-e", f"trace={calls}", "-e", f"inject={calls}:error={error}"]
    tracer = subprocess.Popen([*words, "-p", str(pid)], stderr=subprocess.DEVNULL)
    status = pathlib.Path(f"/proc/{pid}/status")
    try:
        until(lambda: f"TracerPid:\t{tracer.pid}\n" in status.read_text(), "strace is not attached")
        until(log.exists, "strace has not begun")
        yield Failing(log)
    finally:
        tracer.send_signal(signal.SIGTERM)
        tracer.wait(LIMIT_SECONDS)


def bundle(node: Node) -> pathlib.Path:
    return node.bundle("/bin/sh", "-c", "exit 43")


def codes(keeper: Keeper) -> list[tuple[str, int | None]]:
    return [(entry.id, entry.code) for entry in keeper.entries()]


def ended_under_its_shim(run: Run) -> None:
    """The shim has recorded the end, and has left."""
    assert wait_readable(run.shim_pidfd)
    written = run.record()
    assert written is not None and written.code == 43


# -- the keeper


def test_a_zombie_that_the_keeper_cannot_read_keeps_its_end_until_it_can(node: Node, keeper: Keeper) -> None:
    run = keeper.make("box", bundle(node))
    run.kill_shim()
    with failing(node, keeper.process.pid, OPENS, "ENFILE") as failed:
        run.start()
        assert run.ended()
        until(lambda: len(failed.times()) > 4, "the keeper looks again")
        assert codes(keeper) == []
    until(lambda: codes(keeper) == [("box", 43)], "the entry")
    finish(node, keeper, run)


def test_an_entry_that_cannot_be_written_is_tried_again(node: Node, keeper: Keeper) -> None:
    run = keeper.make("box", bundle(node))
    run.kill_shim()
    with failing(node, keeper.process.pid, "pwrite64", "EIO") as failed:
        run.start()
        assert run.ended()
        until(lambda: len(failed.times()) > 1, "the keeper tries again")
        assert codes(keeper) == []
        first = failed.times()[0]
        keeper.process.send_signal(signal.SIGHUP)  # an upgrade keeps the time, too
        tried = len(failed.times())
        until(lambda: len(failed.times()) > tried + 1, "the keeper tries again")
    until(lambda: codes(keeper) == [("box", 43)], "the entry")
    (entry,) = keeper.entries()
    assert entry.realtime_ns / 1e9 <= first  # the end is not dated when it could be written
    reconnect(keeper)
    finish(node, keeper, run)


@pytest.mark.parametrize("error", ["ENOMEM", "ENFILE"])
def test_a_keeper_that_cannot_accept_rests_and_then_does(node: Node, keeper: Keeper, error: str) -> None:
    with failing(node, keeper.process.pid, "accept4", error) as failed:
        client = launch.connect(str(keeper.state), LIMIT_SECONDS)
        until(lambda: len(failed.times()) > 2 * PAUSES, "the keeper tries again")
        times = failed.times()
        assert times[2 * PAUSES] - times[0] > 0.2 * PAUSES  # ENFILE: twice each time
    question = fields.encode("exitd-list", [("at", 999)])
    # Without a descriptor for one more it hangs up, with the one it saves for that: perhaps as its calls work again.
    with contextlib.closing(client), contextlib.suppress(*([ConnectionError] if error == "ENFILE" else [])):
        assert launch.ask(client, question, [])[0].kind == "exitd-ok"
    with contextlib.closing(launch.connect(str(keeper.state), LIMIT_SECONDS)) as later:
        assert launch.ask(later, question, [])[0].kind == "exitd-ok"


def test_a_shim_that_the_keeper_cannot_begin_is_refused_and_another_one_begins(node: Node, keeper: Keeper) -> None:
    with failing(node, keeper.process.pid, "vfork,fork,clone,clone3", "EAGAIN"):
        with pytest.raises(launch.KeeperRefused) as caught:
            keeper.make("first", bundle(node))
        assert caught.value.number == errno.EAGAIN
    keeper.last.clean()
    second = keeper.make("second", bundle(node))
    second.start()
    ended_under_its_shim(second)
    finish(node, keeper, second)


@pytest.mark.parametrize(("calls", "number"), [("pidfd_open", errno.EMFILE), (OPENS, errno.ENFILE)])
def test_a_shim_that_the_keeper_cannot_name_is_none(node: Node, keeper: Keeper, calls: str, number: int) -> None:
    with failing(node, keeper.process.pid, calls, errno.errorcode[number]):
        with pytest.raises(launch.KeeperRefused) as caught:
            keeper.make("first", bundle(node))
        assert caught.value.number == number
    keeper.last.clean()
    second = keeper.make("second", bundle(node))
    second.start()
    ended_under_its_shim(second)
    finish(node, keeper, second)


def test_a_keeper_that_cannot_go_into_the_background_ends_at_once(node: Node) -> None:
    node.state.mkdir(mode=0o700)
    inject = ["strace", "-qq", "-o", "/dev/null", "-e", "inject=fork,vfork,clone,clone3:error=EAGAIN"]
    words = [*inject, str(programs.find("exitd-keeper")), "--state", str(node.state)]
    assert subprocess.run(words, timeout=LIMIT_SECONDS).returncode == 1


# -- the shim


def test_a_shim_that_can_begin_no_process_says_so_and_leaves_nothing(node: Node, keeper: Keeper) -> None:
    shim = node.traced_shim("-o", "/dev/null", "-e", "inject=vfork,fork,clone,clone3:error=EAGAIN")
    run = keeper.make("box", bundle(node), shim=shim)
    assert (run.failed.stage, run.failed.errno) == ("runtime", errno.EAGAIN)
    assert wait_readable(run.shim_pidfd)
    finish(node, keeper, run)


@pytest.mark.parametrize(
    ("call", "error"), [("fsopen", "ENOSYS"), ("fsopen", "EPERM"), ("fsopen", "ENODEV"), ("fsmount", "EPERM")]
)
def test_a_shim_that_may_make_no_file_system_finds_the_pid_in_the_run_directory(
    node: Node, keeper: Keeper, call: str, error: str
) -> None:
    run = keeper.make(
        "box", bundle(node), shim=node.traced_shim("-o", "/dev/null", "-e", f"inject={call}:error={error}")
    )
    assert int((run.directory / "pid").read_text()) == run.created.pid
    run.start()
    ended_under_its_shim(run)
    finish(node, keeper, run)


@pytest.mark.parametrize(
    ("call", "number"), [("fsopen", errno.EMFILE), ("fsconfig", errno.ENOMEM), ("fsmount", errno.ENFILE)]
)
def test_a_shim_without_memory_or_descriptor_for_a_file_system_says_so_and_leaves_nothing(
    node: Node, keeper: Keeper, call: str, number: int
) -> None:
    shim = node.traced_shim("-o", "/dev/null", "-e", f"inject={call}:error={errno.errorcode[number]}")
    run = keeper.make("box", bundle(node), shim=shim)
    assert (run.failed.stage, run.failed.errno) == ("answers", number)
    assert wait_readable(run.shim_pidfd)
    finish(node, keeper, run)


def test_a_shim_without_a_descriptor_for_its_word_to_the_keeper_tries_again(node: Node, keeper: Keeper) -> None:
    """Its first socket is the one it listens on."""
    shim = node.traced_shim("-o", "/dev/null", "-e", "inject=socket:error=EMFILE:when=2..4")
    run = keeper.make("box", bundle(node), shim=shim)
    assert run.created.keeper_knows
    run.start()
    ended_under_its_shim(run)
    finish(node, keeper, run)


def reads_input(node: Node, keeper: Keeper) -> Run:
    """A container that ends with its input."""
    run = streams.make(keeper, "box", node.bundle("/bin/sh", "-c", "cat; exit 43"), stdin=True)
    run.start()
    return run


def test_an_input_that_is_closed_while_the_keeper_cannot_be_asked_ends_once_it_can(node: Node, keeper: Keeper) -> None:
    run = reads_input(node, keeper)
    with streams.control(run) as control, failing(node, run.shim_pid, "connect", "ECONNREFUSED") as failed:
        control.ok("close-stdin")
        until(lambda: len(failed.times()) > 1, "the shim asks again")
        assert not run.ended(0)
    ended_under_its_shim(run)
    finish(node, keeper, run)


def test_an_input_that_is_closed_ends_although_the_run_directory_is_gone(node: Node, keeper: Keeper) -> None:
    run = reads_input(node, keeper)
    with streams.control(run) as control:
        (run.directory / "lock").unlink()
        control.ok("close-stdin")
        assert run.ended()
    ended_under_its_shim(run)
    finish(node, keeper, run)


def test_a_copy_of_an_input_that_came_to_a_keeper_late_is_given_up(node: Node) -> None:
    """A keeper that stood still while it was asked has what the shim has long closed."""
    keeper = node.keeper()
    run = reads_input(node, keeper)
    with streams.control(run) as control, failing(node, run.shim_pid, "connect", "ECONNREFUSED") as failed:
        keeper.close()
        keeper = node.keeper()
        with open(f"/proc/{run.shim_pid}/fd/13", "wb") as copy:
            asked: list[tuple[str, str | int]] = [
                ("pid", run.created.pid),
                ("started", run.created.started),
                ("oom", ""),
                ("seat", 13),
            ]
            assert keeper.socket is not None
            launch.ask(keeper.socket, fields.encode("exitd-register", [*launch.key("box", 1), *asked]), [copy.fileno()])
        control.ok("close-stdin")
        until(lambda: len(failed.times()) > 1, "the shim knocks again")
        assert not run.ended(0)
    ended_under_its_shim(run)
    finish(node, keeper, run)
    keeper.close()


def test_a_shim_moves_what_there_is_while_its_keeper_stands_still(node: Node, keeper: Keeper) -> None:
    run = reads_input(node, keeper)
    with streams.control(run) as control:
        keeper.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, keeper.process.pid, os.WSTOPPED | os.WNOWAIT)
        asked = time.monotonic()
        control.ok("close-stdin")
        control.count("in")
        assert time.monotonic() - asked < 1.8  # a shim that waits for a keeper's answer waits for 2 s (ANSWER_MS)
        keeper.process.send_signal(signal.SIGCONT)
    ended_under_its_shim(run)
    finish(node, keeper, run)


def test_a_shim_that_cannot_accept_rests_and_then_does(node: Node, keeper: Keeper) -> None:
    run = keeper.make("box", node.bundle("/bin/sleep", "1000"))
    run.start()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
        client.settimeout(LIMIT_SECONDS)
        with failing(node, run.shim_pid, "accept4", "ENOMEM") as failed:
            client.connect(str(run.directory / "control.sock"))
            until(lambda: len(failed.times()) > PAUSES, "the shim tries again")
            times = failed.times()
            assert times[PAUSES] - times[0] > 0.2 * PAUSES
        client.send(fields.encode("exitd-control", [("op", "counters")]))
        assert fields.decode(client.recv(4096)).kind == "exitd-counters"
    os.kill(run.created.pid, signal.SIGKILL)
    assert wait_readable(run.shim_pidfd)
    finish(node, keeper, run)


def test_a_record_that_cannot_be_written_leaves_the_end_to_the_keeper(node: Node, keeper: Keeper) -> None:
    run = keeper.make("box", bundle(node))
    with failing(node, run.shim_pid, "pwrite64", "EIO"):
        run.runtime_command("start", run.id)  # it may be deleted before that returns
        assert wait_readable(run.shim_pidfd)
    until(lambda: codes(keeper) == [("box", 43)], "the entry")
    assert os.pread(run.record_fd, 1, 0) == b"\0"
    finish(node, keeper, run)
