"""Passes exitctl's input to the container."""

import os
import select
import sys
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

from supervisor.api.attachment import Attachment
from supervisor.cli import keys

STDIN = 0
CHUNK_BYTES = 64 * 1024
JOIN_SECONDS = 2.0


class Input:
    """`with Input(...)`: a thread passes input on, until its end, the session's end or the detach keys.

    `closes`: the end of the input closes the container's stdin.
    """

    def __init__(self, attachment: Attachment, *, detach_keys: bytes, detach: Callable[[], None], closes: bool) -> None:
        self._attachment = attachment
        self._keys = detach_keys
        self._matcher = keys.Matcher(detach_keys)
        self._detach = detach
        self._closes = closes
        self._over = os.pipe2(os.O_CLOEXEC)
        self._thread = threading.Thread(target=self._work, name="input", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._attachment.cancel()  # so that a container that does not read blocks nothing
        os.close(self._over[1])
        self._thread.join(JOIN_SECONDS)

    def _work(self) -> None:
        while (portion := self._portion()) is not None:
            passed, leave = self._matcher.feed(portion)
            if not portion:
                passed += self._matcher.rest()
            if passed and not self._attachment.write(passed) and not self._keys:
                return  # the input is lost; detach keys are awaited even so
            if leave:
                self._detach()
                return
            if not portion:
                self._end()
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

    def _end(self) -> None:
        if self._closes:
            self._attachment.close_stdin()
        else:
            self._attachment.end_input()
