"""The terminal on which exitctl was started: raw while a container uses it, and restored on every way out."""

import contextlib
import os
import queue
import signal
import termios
import threading
import tty
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, Self

from shim.undo import undone_on_failure
from supervisor.cli.signals import JOIN_SECONDS, Signals

ENDING = (signal.SIGHUP, signal.SIGTERM, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)


def size_of(fd: int) -> tuple[int, int] | None:
    """Return (rows, columns), or None if it is no terminal or does not know its size."""
    try:
        columns, rows = os.get_terminal_size(fd)
    except OSError:
        return None
    return (rows, columns) if rows and columns else None


class Raw:
    """`with Raw(fd, signals, wake):` makes every key a byte, Ctrl-C and Ctrl-Z included.

    A signal that would end exitctl first restores the terminal; SIGINT does so by its exception. It ends the main
    thread's wait by `wake`, which is called in another thread. Use it in the main thread only.
    """

    def __init__(self, fd: int, signals: Signals, wake: Callable[[], None]) -> None:
        self._fd = fd
        self._signals = signals
        self._wake = wake
        self._saved: list[Any] = []
        self._mine = True
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        self._saved = termios.tcgetattr(self._fd)
        ending = [number for number in ENDING if signal.getsignal(number) is signal.SIG_DFL]
        self._stack.enter_context(self._signals.calling(ending, lambda _: self._wake(), self._end))
        self._stack.enter_context(self._signals.calling((signal.SIGCONT,), self._continued))
        with undone_on_failure(self._leave):
            self._make_raw()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave()

    def _leave(self) -> None:
        self._give_back()
        self._stack.close()

    def _make_raw(self) -> None:
        tty.setraw(self._fd, termios.TCSANOW)  # what was typed ahead belongs to the container

    def _give_back(self) -> None:
        """Restore at once: TCSADRAIN would wait forever for a terminal that Ctrl-S has stopped. May run twice, if a
        signal interrupts it."""
        self._mine = False
        with contextlib.suppress(termios.error):  # hung up: there is no terminal any more
            termios.tcsetattr(self._fd, termios.TCSANOW, self._saved)

    def _end(self, number: int, _: FrameType | None) -> None:
        self._give_back()
        signal.signal(number, signal.SIG_DFL)
        signal.raise_signal(number)

    def _continued(self, _: int) -> None:
        """While exitctl was stopped, a shell had the terminal and may have changed it. Called in another thread."""
        if self._mine:
            self._make_raw()


class Resizes:
    """`with Resizes(fd, signals, resize):` calls `resize` for every new size of the terminal, in a separate thread,
    since that may take a while."""

    def __init__(
        self, fd: int, signals: Signals, resize: Callable[[int, int], None], known: tuple[int, int] | None = None
    ) -> None:
        self._fd = fd
        self._signals = signals
        self._resize = resize
        self._known = known
        self._notes: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._stack = contextlib.ExitStack()
        self._thread = threading.Thread(target=self._work, name="resize", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._stack.enter_context(self._signals.calling((signal.SIGWINCH,), lambda _: self._notes.put(True)))
        self._notes.put(True)  # the size may have changed before there was a handler
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()
        self._notes.put(False)
        self._thread.join(JOIN_SECONDS)  # what it calls is about to be closed

    def _work(self) -> None:
        while self._notes.get():
            size = size_of(self._fd)
            if size is not None and size != self._known:
                self._resize(*size)
                self._known = size
