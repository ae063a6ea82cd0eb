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

JOIN_SECONDS = 2.0
ENDING = (signal.SIGHUP, signal.SIGTERM, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)


def size_of(fd: int) -> tuple[int, int] | None:
    """Return (rows, columns), or None if it is no terminal or does not know its size."""
    try:
        columns, rows = os.get_terminal_size(fd)
    except OSError:
        return None
    return (rows, columns) if rows and columns else None


class Raw:
    """`with Raw(fd):` makes every key a byte, Ctrl-C and Ctrl-Z included.

    A signal that would end exitctl first restores the terminal; SIGINT does so by its exception. Use it in the main
    thread only.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._saved: list[Any] = []
        self._mine = True
        self._handlers = Handlers()

    def __enter__(self) -> Self:
        self._saved = termios.tcgetattr(self._fd)
        self._handlers.put(tuple(n for n in ENDING if signal.getsignal(n) is signal.SIG_DFL), self._end)
        self._handlers.put((signal.SIGCONT,), self._continued)
        with undone_on_failure(self._leave):
            self._make_raw()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave()

    def _leave(self) -> None:
        self._give_back()
        self._handlers.restore()

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

    def _continued(self, _: int, __: FrameType | None) -> None:
        """While exitctl was stopped, a shell had the terminal and may have changed it."""
        if self._mine:
            self._make_raw()


class Resizes:
    """`with Resizes(fd, tell):` calls `tell` for every new size of the terminal, in a separate thread. The signal
    handler only puts a note into a queue, since it may have interrupted anything."""

    def __init__(self, fd: int, tell: Callable[[int, int], None], known: tuple[int, int] | None = None) -> None:
        self._fd = fd
        self._tell = tell
        self._told = known
        self._notes: queue.SimpleQueue[bool] = queue.SimpleQueue()  # its put is reentrant, made for this
        self._handlers = Handlers()
        self._thread = threading.Thread(target=self._work, name="resize", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._handlers.put((signal.SIGWINCH,), lambda _, __: self._notes.put(True))
        self._notes.put(True)  # the size may have changed before there was a handler
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._handlers.restore()
        self._notes.put(False)
        self._thread.join(JOIN_SECONDS)  # what it calls is about to be closed

    def _work(self) -> None:
        while self._notes.get():
            size = size_of(self._fd)
            if size is not None and size != self._told:
                self._tell(*size)
                self._told = size


class Handlers:
    """Signal handlers, for a while. Ignored signals stay ignored, as nohup wants it."""

    def __init__(self) -> None:
        self._former: dict[int, Any] = {}

    def put(self, numbers: tuple[signal.Signals, ...], handler: Callable[[int, FrameType | None], None]) -> None:
        for number in numbers:
            if signal.getsignal(number) != signal.SIG_IGN:
                self._former[number] = signal.signal(number, handler)

    def restore(self) -> None:
        for number, handler in self._former.items():
            signal.signal(number, handler)
        self._former.clear()
