"""isulad-shim's contract: commands in a container that runs; with real runc."""

import contextlib
import os
import shutil
import signal
from collections.abc import Iterator

import pytest

from tests.system import tinyroot
from tests.system.isulad import Daemon, Shim, command, outcome
from tests.system.processes import cgroup_pids, end_process
from tests.system.waits import SCALE, wait_readable

BYTES = int(500_000_000 * SCALE)
DETACHED = 12


@pytest.fixture
def box(isulad: Daemon, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shim]:
    """A container that runs, and at the end nothing in it but its init."""
    monkeypatch.setenv("PATH", isulad.environment()["PATH"])
    made = isulad.container("box", "/bin/sleep", "1000").create()
    made.start()
    init = int((made.state / "pid").read_text())
    yield made
    assert cgroup_pids(isulad.cgroup) == {init}
    made.signal(signal.SIGKILL)
    assert (made.told(), made.ended()) == (137, 0)


@pytest.mark.parametrize("code", [0, 1, 2, 43, 255])
def test_its_code_comes_on_stdout_and_the_shim_ends_with_0(box: Shim, code: int) -> None:
    one = command(box, "one", "/bin/sh", "-c", f"exit {code}")
    assert one.outcome("20") == (code, 0, "")
    assert (one.directory / "exit.json").read_bytes().count(b'"exec":"one"') == 1


def test_a_signals_death_is_128_and_its_number(box: Shim) -> None:
    assert command(box, "one", "/bin/sh", "-c", "kill -TERM $$").outcome() == (143, 0, "")


def test_one_that_takes_too_long_is_ended_and_is_no_code(box: Shim) -> None:
    one = command(box, "one", "/bin/sleep", "1000")
    assert one.outcome("1") == (None, 2, "")


@pytest.mark.parametrize("terminal", [False, True])
def test_one_that_does_not_exist_is_reported_on_stderr_and_in_the_runtimes_log(box: Shim, terminal: bool) -> None:
    one = command(box, "one", "/no/such/program", terminal=terminal)
    code, status, words = one.outcome()
    assert (code, status) == (None, 1)
    assert words.startswith("shim-error: runtime: ") and words.count("\n") == 1
    assert "no such file" in (one.directory / "log.json").read_text()
    assert not (one.directory / "pid").exists()


def test_one_in_a_container_that_is_gone_is_refused(isulad: Daemon, box: Shim) -> None:
    other = isulad.container("other", "/bin/true")
    code, status, words = command(other, "one", "/bin/true").outcome()
    assert (code, status, words.partition(":")[0]) == (None, 1, "shim-error")


def test_much_output_arrives_whole_though_its_reader_is_slow(box: Shim) -> None:
    with open(box.bundle / "rootfs" / "big", "wb") as file:
        file.truncate(BYTES)
    one = command(box, "one", "/bin/cat", "/big")
    client = one.client()
    shim = one.begin()
    size = len(client.read())
    assert not wait_readable(box.fifo_fd, 0.2)  # a pause in which everything on the way fills up
    while part := client.read():
        assert not part.strip(b"\0")
        size += len(part)
    assert size == BYTES
    assert outcome(shim) == (0, 0, "")
    client.close()


def test_what_is_written_to_it_arrives_and_ends(box: Shim) -> None:
    one = command(box, "one", "/bin/sh", "-c", "cat; echo over >&2")
    client = one.client()
    shim = one.begin()
    client.write(b"hello\n")
    assert client.read_until(b"hello\n") == b"hello\n"
    client.close("in")
    assert (client.read_to_end(), client.read_to_end("err")) == (b"", b"over\n")
    assert outcome(shim) == (0, 0, "")
    client.close()


def test_one_that_leaves_a_process_behind_returns_all_the_same(box: Shim) -> None:
    one = command(box, "one", "/bin/sh", "-c", "sleep 1000 & exit 7")
    client = one.client()
    assert one.outcome() == (7, 0, "")
    client.close()
    for pid in cgroup_pids(box.daemon.cgroup) - {int((box.state / "pid").read_text())}:
        end_process(pid)


def test_a_terminal_takes_its_sizes_from_the_fifo(box: Shim) -> None:
    tinyroot.make(box.bundle / "rootfs", ("stty",))
    script = "stty size; read go; stty size; read go; stty size; exit 43"
    size = {"height": 33, "width": 44}
    one = command(box, "one", "/bin/sh", "-c", script, terminal=True, consoleSize=size)
    os.mkfifo(sizes := one.directory / "resize_fifo", 0o600)
    one.change(resizeFifo=str(sizes))
    client = one.client()
    shim = one.begin()
    client.read_until(b"33 44\r\n")
    for text, seen in ((b"132 50", b"50 132\r\n"), (b"\0".join((b"x y", b"7 0", b"100 40", b"")), b"40 100\r\n")):
        fd = os.open(sizes, os.O_WRONLY | os.O_NONBLOCK)  # the shim is its reader, and stays it
        os.write(fd, text)
        os.close(fd)
        while unread(sizes):
            assert not wait_readable(box.pidfd, 0.005)
        client.write(b"\n")
        client.read_until(seen)
    assert outcome(shim) == (43, 0, "")
    client.close()


def unread(path: os.PathLike[str]) -> bool:
    """Whether something lies in a fifo."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        return wait_readable(fd, 0)
    finally:
        os.close(fd)


def test_a_detached_ones_directory_may_be_removed_as_soon_as_its_pid_is_there(box: Shim) -> None:
    for n in range(DETACHED):
        one = command(box, f"e{n}", "/bin/sh", "-c", "echo x >>/dev/ran; exit 7")
        shim_fd = one.detached()
        while not (one.directory / "pid").exists():
            if wait_readable(shim_fd, 0.002):
                assert (one.directory / "pid").exists(), "the shim ended without a word"
        while one.directory.exists():
            with contextlib.suppress(FileNotFoundError):  # its shim took its own socket along at that moment
                shutil.rmtree(one.directory)
        assert wait_readable(shim_fd)
        assert os.waitstatus_to_exitcode(os.waitpid(pid_of(shim_fd), 0)[1]) == 0
        os.close(shim_fd)
    count = command(box, "count", "/bin/sh", "-c", "exit $(wc -l </dev/ran)")
    assert count.outcome() == (DETACHED, 0, "")


def pid_of(pidfd: int) -> int:
    with open(f"/proc/self/fdinfo/{pidfd}") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("Pid:"))
