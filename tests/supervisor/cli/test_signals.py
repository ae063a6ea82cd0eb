"""A signal is noticed at once, also while the main thread stands in a read of which the signal does not wake it."""

import queue
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from supervisor.cli.proxy import LEAVE_SECONDS, Presses, SignalProxy
from supervisor.cli.signals import Signals
from supervisor.cli.terminal import Resizes
from tests.supervisor.cli.fake_attach import LIMIT_SECONDS, Pty
from tests.supervisor.descriptors import held_now, opened_since


@pytest.fixture
def signals() -> Iterator[Signals]:
    with Signals() as signals:
        yield signals


def unnoticed(number: signal.Signals, waiting: socket.socket) -> bytes:
    """Read from `waiting` in the main thread, and give the signal to another one, which is as if it had come in the
    moment before the read."""
    waiting.settimeout(LIMIT_SECONDS)
    other = threading.Thread(target=lambda: signal.pthread_kill(threading.get_ident(), number))
    other.start()
    try:
        return waiting.recv(1)
    finally:
        other.join()


@pytest.fixture
def answered() -> Iterator[tuple[socket.socket, Callable[[], object]]]:
    """A socket to wait at, and what ends the wait."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, lambda: theirs.send(b"x")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1], ids=lambda number: number.name)
def test_it_is_passed_on_while_output_is_waited_for(
    signals: Signals, number: signal.Signals, answered: tuple[socket.socket, Callable[[], object]]
) -> None:
    sent: queue.SimpleQueue[str] = queue.SimpleQueue()
    waiting, answer = answered

    def kill(text: str) -> None:
        sent.put(text)
        answer()

    proxy = SignalProxy(signals, kill, lambda: None, lambda: None)
    with ExitStack() as stack:
        stack.callback(proxy.end)
        proxy.begin()
        proxy.started()
        assert unnoticed(number, waiting) == b"x"
    assert sent.get_nowait() == str(int(number))
    assert sent.empty()


def test_a_new_size_is_passed_on_while_output_is_waited_for(
    signals: Signals, pty: Pty, answered: tuple[socket.socket, Callable[[], object]]
) -> None:
    waiting, answer = answered

    def resized(rows: int, columns: int) -> None:
        if (rows, columns) == (50, 132):
            answer()

    pty.resize(24, 80)
    with Resizes(pty.slave, signals, resized, known=(24, 80)):
        pty.resize(50, 132)
        assert unnoticed(signal.SIGWINCH, waiting) == b"x"


def test_signals_before_the_start_wait_for_it_and_come_in_their_order(signals: Signals) -> None:
    sent: queue.SimpleQueue[str] = queue.SimpleQueue()
    proxy = SignalProxy(signals, sent.put, lambda: None, lambda: None)
    with ExitStack() as stack:
        stack.callback(proxy.end)
        proxy.begin()
        signal.raise_signal(signal.SIGUSR2)
        signal.raise_signal(signal.SIGHUP)
        with pytest.raises(queue.Empty):
            sent.get(timeout=0.1)
        proxy.started()
        assert [sent.get(timeout=LIMIT_SECONDS) for _ in range(2)] == [
            str(int(signal.SIGUSR2)),
            str(int(signal.SIGHUP)),
        ]


def test_afterwards_all_is_as_before() -> None:
    held, threads = held_now(), {*threading.enumerate()}
    before = signal.getsignal(signal.SIGUSR1), signal.set_wakeup_fd(-1)
    with Signals() as signals:
        with signals.calling((signal.SIGUSR1, signal.SIGUSR2), print):
            assert signal.getsignal(signal.SIGUSR1) not in (signal.SIG_DFL, signal.SIG_IGN)
        assert signal.getsignal(signal.SIGUSR1) == before[0]
    assert signal.set_wakeup_fd(before[1]) == -1
    assert not opened_since(held)
    assert {*threading.enumerate()} <= threads  # those of earlier tests may end meanwhile


def test_an_ignored_signal_stays_ignored(signals: Signals) -> None:
    before = signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    try:
        with signals.calling((signal.SIGUSR1,), print):
            assert signal.getsignal(signal.SIGUSR1) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_the_third_press_within_two_seconds_is_the_last() -> None:
    def last(*times: float) -> list[bool]:
        presses = Presses()
        return [presses.is_last(each) for each in times]

    assert last(0, 0.5, 1.0) == [False, False, True]
    assert last(0, 1, LEAVE_SECONDS, 2.5) == [False, False, False, True]
    assert last(0, 3, 6, 9) == [False] * 4


def test_the_third_ctrl_c_is_not_sent_and_leaves(signals: Signals, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("supervisor.cli.proxy.LEAVE_SECONDS", 60.0)
    sent: queue.SimpleQueue[str] = queue.SimpleQueue()
    proxy = SignalProxy(signals, sent.put, lambda: None, lambda: sent.put("left"))
    with ExitStack() as stack:
        stack.callback(proxy.end)
        proxy.begin()
        proxy.started()
        came = []
        for _ in range(3):
            signal.raise_signal(signal.SIGINT)
            came.append(sent.get(timeout=LIMIT_SECONDS))
    assert came == ["2", "2", "left"]
