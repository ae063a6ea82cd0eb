"""The terminal is raw while a container has it, and as it was on every way out: real terminals, real signals."""

import os
import queue
import select
import signal
import subprocess
import sys
import termios
from collections.abc import Iterator

import pytest

from supervisor.cli import terminal
from supervisor.cli.signals import Signals
from tests.supervisor.cli.fake_attach import LIMIT_SECONDS, Pty

# What a child does with the terminal on its stdin. It says `raw` on stdout when it has it.
CHILD = """
import os, select, signal, sys
from supervisor.cli.signals import Signals
from supervisor.cli.terminal import Raw
{before}
with Signals() as signals, Raw(0, signals, {wake}):
    os.write(1, b"raw")
    {within}
"""
# In short pieces: Python looks for signals between calls; one that comes just before a long call does not end it.
FOR_EVER = "while True: select.select([], [], [], 0.05)"
ANOTHER_THREAD = "threading.Timer(0.1, lambda: signal.pthread_kill(threading.get_ident(), signal.SIGTERM)).start()"
UNTIL_A_KEY = "while not select.select([0], [], [], 0.05)[0]: pass"


def child(pty: Pty, within: str, before: str = "", wake: str = "lambda: None") -> "subprocess.Popen[bytes]":
    """Has made the terminal raw when this returns."""
    process = subprocess.Popen(
        [sys.executable, "-c", CHILD.format(within=within, before=before, wake=wake)],
        stdin=pty.slave,
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    said(process, b"raw")
    assert pty.is_raw()
    return process


def said(process: "subprocess.Popen[bytes]", word: bytes) -> None:
    assert process.stdout is not None
    ready, _, _ = select.select([process.stdout], [], [], LIMIT_SECONDS)
    assert ready and os.read(process.stdout.fileno(), len(word)) == word


def ended(process: "subprocess.Popen[bytes]") -> int:
    with process:
        return process.wait(LIMIT_SECONDS)


@pytest.fixture
def signals() -> Iterator[Signals]:
    with Signals() as signals:
        yield signals


def raw(fd: int, signals: Signals) -> terminal.Raw:
    return terminal.Raw(fd, signals, lambda: None)


def test_the_terminal_is_raw_inside_and_as_before_afterwards(pty: Pty, signals: Signals) -> None:
    handlers = [signal.getsignal(number) for number in terminal.ENDING]
    with raw(pty.slave, signals):
        assert pty.is_raw()
        assert not termios.tcgetattr(pty.slave)[1] & termios.OPOST
        os.write(pty.master, b"\x03\x1a\x04\r")  # Ctrl-C, Ctrl-Z, Ctrl-D, Enter: bytes like any other
        assert os.read(pty.slave, 16) == b"\x03\x1a\x04\r"
    assert pty.modes() == pty.before
    assert [signal.getsignal(number) for number in terminal.ENDING] == handlers


def test_an_exception_gives_the_terminal_back(pty: Pty, signals: Signals) -> None:
    with pytest.raises(ZeroDivisionError), raw(pty.slave, signals):
        raise ZeroDivisionError
    assert pty.modes() == pty.before


def test_what_was_typed_ahead_is_not_thrown_away(pty: Pty, signals: Signals) -> None:
    os.write(pty.master, b"ls\n")
    with raw(pty.slave, signals):
        assert os.read(pty.slave, 16) == b"ls\n"


@pytest.mark.parametrize("number", terminal.ENDING, ids=lambda number: number.name)
def test_a_signal_that_ends_the_program_gives_the_terminal_back_first(pty: Pty, number: signal.Signals) -> None:
    process = child(pty, FOR_EVER)
    process.send_signal(number)
    assert ended(process) == -number
    assert pty.modes() == pty.before


def test_a_signal_that_the_main_thread_does_not_notice_ends_the_program_all_the_same(pty: Pty) -> None:
    """It is given to another thread while the main one reads, which is then as if it had come just before the read."""
    within = f"{ANOTHER_THREAD}; os.read(end, 1); os.read(end, 1)"
    process = child(
        pty, within, before="import threading; end, other = os.pipe()", wake='lambda: os.write(other, b"x")'
    )
    assert ended(process) == -signal.SIGTERM
    assert pty.modes() == pty.before


def test_sigint_from_outside_gives_the_terminal_back(pty: Pty) -> None:
    process = child(pty, FOR_EVER, before="sys.excepthook = lambda *_: None")
    process.send_signal(signal.SIGINT)
    assert ended(process) in (-signal.SIGINT, 1)
    assert pty.modes() == pty.before


def test_a_signal_that_was_ignored_stays_ignored(pty: Pty) -> None:
    ignoring = "signal.signal(signal.SIGHUP, signal.SIG_IGN); signal.signal(signal.SIGUSR1, lambda *_: None)"
    process = child(pty, f"{UNTIL_A_KEY}\n    signal.raise_signal(signal.SIGHUP)", before=ignoring)
    os.write(pty.master, b"x")
    assert ended(process) == 0
    assert pty.modes() == pty.before


def test_after_a_stop_from_outside_the_terminal_is_raw_again(pty: Pty) -> None:
    process = child(pty, f"{UNTIL_A_KEY}\n    os.write(1, b'going on')\n    {FOR_EVER}")
    process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
    termios.tcsetattr(pty.slave, termios.TCSANOW, pty.before)  # as a shell does, which has the terminal meanwhile
    process.send_signal(signal.SIGCONT)
    os.write(pty.master, b"x")  # no line: only a raw terminal gives it out
    said(process, b"going on")
    assert pty.is_raw()
    process.terminate()
    assert ended(process) == -signal.SIGTERM
    assert pty.modes() == pty.before


def test_a_terminal_that_has_hung_up_is_no_error_on_the_way_out(signals: Signals) -> None:
    master, slave = os.openpty()
    with raw(slave, signals):
        os.close(master)
    os.close(slave)


def test_each_new_size_is_reported_once_from_the_first_on(pty: Pty, signals: Signals) -> None:
    reported: queue.SimpleQueue[tuple[int, int]] = queue.SimpleQueue()
    pty.resize(24, 80)
    with terminal.Resizes(pty.slave, signals, lambda rows, columns: reported.put((rows, columns))):
        assert reported.get(timeout=LIMIT_SECONDS) == (24, 80)
        signal.raise_signal(signal.SIGWINCH)  # the same size: nothing new
        pty.resize(50, 132)
        signal.raise_signal(signal.SIGWINCH)
        assert reported.get(timeout=LIMIT_SECONDS) == (50, 132)
    assert signal.getsignal(signal.SIGWINCH) is signal.SIG_DFL
    assert reported.empty()


def test_what_is_no_terminal_has_no_size(pty: Pty) -> None:
    pty.resize(3, 7)
    assert terminal.size_of(pty.slave) == (3, 7)
    pty.resize(0, 0)
    assert terminal.size_of(pty.slave) is None
    with open(os.devnull) as null:
        assert terminal.size_of(null.fileno()) is None
