"""Containers with a terminal, under a shim of their own and under its replacement."""

import errno
import os
import pathlib
import re
import signal
from typing import Any

from tests.system import keepers, streams, tinyroot
from tests.system.keepers import Keeper, Node
from tests.system.streams import attached, control, finish, kill_container, log_of, replace, terminal, texts
from tests.system.waits import SCALE, wait_readable

COUNT = max(20_000, int(1_000_000 * SCALE))
COUNTED = b"".join(b"%d\r\n" % i for i in range(1, COUNT + 1))
TICKS = os.sysconf("SC_CLK_TCK")


def make(node: Node, keeper: Keeper, script: str, **has: Any) -> keepers.Run:
    bundle = terminal(node.bundle("/bin/sh", "-c", script))
    return streams.make(keeper, "box", bundle, tty=True, **has)


def size_seen(said: bytes) -> str:
    found = re.search(rb"\d+ \d+", said)
    return found[0].decode() if found else ""


def test_a_count_to_a_million_comes_through_a_terminal_to_the_byte(node: Node, keeper: Keeper) -> None:
    run = make(node, keeper, f"seq 1 {COUNT}; exit 43")
    with attached(run, "out") as client:
        run.start()
        assert client.read_to_end() == COUNTED
    assert wait_readable(run.shim_pidfd)
    assert texts(log_of(run)) == COUNTED
    written = run.record()
    assert written is not None and written.code == 43
    assert not (run.directory / "console.sock").exists()
    finish(node, keeper, run)


def test_what_a_client_types_is_echoed_and_read(node: Node, keeper: Keeper) -> None:
    run = make(node, keeper, "read line; echo got $line; exit 43")
    with attached(run, "in,out") as client:
        run.start()
        client.write(b"hello\n")
        assert client.read_to_end() == b"hello\r\ngot hello\r\n"
    assert wait_readable(run.shim_pidfd)
    finish(node, keeper, run)


def test_a_terminal_that_nobody_has_open_waits_for_the_next_without_work(node: Node, keeper: Keeper) -> None:
    """It is hung up in between: poll(2) says so at once, as often as it is asked."""
    last = "trap 'exit 43' USR1; echo two; while :; do sleep 0.05; done"
    run = make(node, keeper, f"echo one; exec 0<&- 1>&- 2>&-; sleep 0.5; exec 1<>/dev/console; {last}")
    with attached(run, "out") as client:
        run.start()
        client.read_until(b"one\r\n")
        before = worked(run.shim_pid)
        client.read_until(b"two\r\n")
        assert worked(run.shim_pid) - before < 0.05
        os.kill(run.created.pid, signal.SIGUSR1)
    assert wait_readable(run.shim_pidfd)
    assert texts(log_of(run)) == b"one\r\ntwo\r\n"
    finish(node, keeper, run)


def worked(pid: int) -> float:
    """Seconds of a processor's time."""
    return sum(map(int, pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")")[1].split()[11:13])) / TICKS


def test_much_input_with_a_reader_that_is_late_arrives_whole(node: Node, keeper: Keeper) -> None:
    lines, line = 2000, b"x" * 99 + b"\n"
    run = make(node, keeper, f"echo up; sleep 0.3; head -n {lines} | wc -c; exit 43")
    with attached(run, "in,out", "drop") as client:
        run.start()
        client.read_until(b"up")
        client.write(line * lines)
        # What the terminal echoes of it, the kernel may drop; so that need not end with a whole line.
        assert client.read_to_end().endswith(b"%d\r\n" % (lines * len(line)))
    assert wait_readable(run.shim_pidfd)
    finish(node, keeper, run)


def test_the_first_size_is_the_plans_and_a_client_changes_it(node: Node, keeper: Keeper) -> None:
    bundle = terminal(node.bundle("/bin/sh", "-c", "stty size; read go; stty size; read go"))
    tinyroot.make(bundle / "rootfs", ("stty",))
    run = streams.make(keeper, "box", bundle, tty=True, rows=33, cols=44)
    with attached(run, "in,out") as client:
        run.start()
        assert size_seen(client.read_until(b"\n")) == "33 44"
        client.control.ok("resize", rows=50, cols=132)
        client.write(b"\n")
        client.read_until(b"50 132")
        client.write(b"\n")
    assert wait_readable(run.shim_pidfd)
    finish(node, keeper, run)


def test_what_only_pipes_have_is_refused(node: Node, keeper: Keeper) -> None:
    run = make(node, keeper, "exec sleep 1000")
    run.start()
    read_fd, write_fd = os.pipe()
    with control(run) as other:
        assert other.refused("close-stdin") == errno.ENOTTY
        assert other.refused("attach", [write_fd], streams="err", mode="drop") == errno.ENOTTY
        assert other.refused("resize", rows=70_000, cols=1) == errno.EINVAL
    os.close(read_fd)
    os.close(write_fd)
    kill_container(run)
    finish(node, keeper, run)


def test_a_replacement_goes_on_with_the_terminal_and_nothing_hangs_up(node: Node, keeper: Keeper) -> None:
    script = "trap 'echo hung up' HUP; while read line; do echo got $line; done"
    run = make(node, keeper, script)
    with attached(run, "in,out") as client:
        run.start()
        client.write(b"one\n")
        client.read_until(b"got one\r\n")
    run.kill_shim()
    replace(keeper, run)
    with attached(run, "in,out") as client:
        client.write(b"two\n")
        assert client.read_until(b"got two\r\n") == b"two\r\ngot two\r\n"
        client.control.ok("resize", rows=10, cols=10)
        client.write(b"\x04")
        client.read_to_end()
    assert run.ended()
    assert wait_readable(run.shim_pidfd)
    assert texts(log_of(run)).startswith(b"one\r\ngot one\r\ntwo\r\ngot two\r\n")
    finish(node, keeper, run)


def test_a_runtime_that_sends_no_terminal_fails_the_create(node: Node, keeper: Keeper) -> None:
    bundle = node.bundle("/bin/true")  # its configuration says no terminal, and runc refuses a console socket then
    run = streams.make(keeper, "box", bundle, tty=True)
    assert run.failed.stage == "runtime"
    finish(node, keeper, run)
