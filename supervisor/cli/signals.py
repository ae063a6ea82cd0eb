"""Signals that exitctl heeds, noticed at once whatever its main thread is doing."""

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from types import FrameType, TracebackType
from typing import Self

from shim.undo import undone_on_failure

JOIN_SECONDS = 2.0
Handler = Callable[[int, FrameType | None], None]


def nothing(_: int, __: FrameType | None) -> None:
    """A handler: the signal neither ends the program nor is ignored, so that Python writes it to the wakeup
    descriptor."""


class Signals:
    """`with Signals() as signals:` calls functions for signals, in a separate thread. Use it in the main thread only,
    and one at a time.

    A handler in Python runs in the main thread between two of its instructions. A signal that arrives just before the
    main thread begins to read, or that the kernel gives to another thread, would have to wait for the end of the read.
    The handler in C, which writes the signal's number to a pipe, runs in any case (signal.set_wakeup_fd).
    """

    def __init__(self) -> None:
        self._calls: dict[int, Callable[[int], None]] = {}
        self._thread = threading.Thread(target=self._work, name="signals", daemon=True)
        self._read = self._write = self._former = -1

    def __enter__(self) -> Self:
        self._read, self._write = os.pipe2(os.O_CLOEXEC)
        with undone_on_failure(self._close_pipe):
            os.set_blocking(self._write, False)
            self._thread.start()
        self._former = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        return self

    def _close_pipe(self) -> None:
        os.close(self._write)
        os.close(self._read)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        signal.set_wakeup_fd(self._former)
        os.close(self._write)
        self._thread.join(JOIN_SECONDS)
        if not self._thread.is_alive():
            os.close(self._read)

    @contextlib.contextmanager
    def calling(
        self, numbers: Iterable[signal.Signals], call: Callable[[int], None], handler: Handler = nothing
    ) -> Iterator[None]:
        """Call `call` with the number of each of these signals that comes; it must be quick. `handler` runs too, in the
        main thread, sooner or later. Ignored signals stay ignored, as nohup wants it."""
        former = {}
        try:
            for number in numbers:
                if signal.getsignal(number) != signal.SIG_IGN:
                    self._calls[number] = call
                    former[number] = signal.signal(number, handler)
            yield
        finally:
            for number, before in former.items():
                signal.signal(number, before)
                del self._calls[number]

    def _work(self) -> None:
        while numbers := os.read(self._read, 64):
            for number in numbers:
                if (call := self._calls.get(number)) is not None:
                    call(number)
