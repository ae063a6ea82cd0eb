"""Passes exitctl's input to the container."""

import os
import select
import sys
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

from supervisor.cli import keys
from supervisor.cli.sending import Sender

STDIN = 0
CHUNK_BYTES = 64 * 1024
JOIN_SECONDS = 2.0
FLUSH_SECONDS = 1.0  # from the detach keys until what was typed before them must have been sent


class Input:
    """`with Input(...)`: a thread reads the input, until its end, the session's end or the detach keys; the sender
    passes it on. Detach keys are found even while the container reads nothing."""

    def __init__(self, sender: Sender, *, detach_keys: bytes, detach: Callable[[], None]) -> None:
        self._sender = sender
        self._matcher = keys.Matcher(detach_keys)
        self._detach = detach
        self._over = os.pipe2(os.O_CLOEXEC)
        self._thread = threading.Thread(target=self._work, name="input", daemon=True)

    def __enter__(self) -> Self:
        self._sender.start()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._over[1])
        self._sender.stop(JOIN_SECONDS)
        self._thread.join(JOIN_SECONDS)

    def _work(self) -> None:
        while (portion := self._portion()) is not None:
            passed, leave = self._matcher.feed(portion)
            if not portion:
                passed += self._matcher.rest()
            if passed and not self._sender.give(passed):
                return
            if leave:
                self._sender.flush(FLUSH_SECONDS)
                self._detach()
                return
            if not portion:
                self._sender.end()
                return

    def _portion(self) -> bytes | None:
        """Return what there is, empty at the end; None when the session has ended."""
        if sys.stdin is None:
            return b""  # it was closed, and the descriptor may be another file's by now
        poll = select.poll()
        for fd in (STDIN, self._over[0]):
            poll.register(fd, select.POLLIN)
        while True:
            if any(fd == self._over[0] for fd, _ in poll.poll()):
                os.close(self._over[0])
                return None
            try:
                return os.read(STDIN, CHUNK_BYTES)
            except BlockingIOError:
                continue  # another process that reads this terminal was quicker
            except OSError:
                return b""  # it has hung up
