"""Sends input to a container, over one attachment after another: nothing is typed twice, and nothing is left out.

exitd can be killed at any moment, and what it had of the input by then may be with the container or not. So the last of
it is kept here, and the container's shim, which counts the bytes it has passed on, says what has to be sent again.
"""

import threading
from collections import deque
from collections.abc import Callable

from supervisor.api.attachment import Attachment

PIPE_BYTES = 64 * 1024  # between exitd and a shim: as much of what exitd has written may not be with the container


class SentInput:
    """What was sent and may have to be sent again. Pure. Every number of bytes counts from the session's first."""

    def __init__(self) -> None:
        self._kept = bytearray()
        self._kept_from = 0
        self._begun_at: int | None = None  # the shim's count when the session began; None: it does not count
        self._attached_at = 0  # where the present attachment's input begins
        self._is_first = True

    @property
    def sent_bytes(self) -> int:
        return self._kept_from + len(self._kept)

    def begin(self, shim_bytes: int | None) -> bytes | None:
        """Note a new attachment, and return what is to be sent over it first; None: that is not known, and what was
        not certain to have come is lost. `shim_bytes`: the shim's count of all input so far; None: it says none."""
        first, self._is_first = self._is_first, False
        if first:
            self._begun_at = shim_bytes
            return b""
        if shim_bytes is None or self._begun_at is None:
            lost = len(self._kept)
            self._forget(self.sent_bytes)
            self._attached_at = self.sent_bytes
            return None if lost else b""
        come = max(shim_bytes - self._begun_at, 0)
        if come > self.sent_bytes:  # another client sends, too: which of the bytes have come is not known
            lost = len(self._kept)
            self._forget(self.sent_bytes)
            self._attached_at, self._begun_at = self.sent_bytes, shim_bytes - self.sent_bytes
            return None if lost else b""
        missing = come < self._kept_from  # the shim has lost what exitd had written
        self._forget(come)
        self._attached_at = self._kept_from
        return None if missing else bytes(self._kept)

    def send(self, data: bytes) -> None:
        """Note that this is being sent."""
        self._kept += data

    def taken(self, count: int) -> None:
        """Note that exitd has written so much of the present attachment's input into the pipe to the shim."""
        self._forget(self._attached_at + count - PIPE_BYTES)

    def _forget(self, until: int) -> None:
        count = min(max(until - self._kept_from, 0), len(self._kept))
        del self._kept[:count]
        self._kept_from += count


class Sender:
    """A thread sends what it is given; the caller waits only once `most_bytes` are queued. Methods may be called
    from any thread."""

    def __init__(self, most_bytes: int, closes: bool) -> None:
        """`closes`: the end of the input closes the container's stdin."""
        self._most_bytes = most_bytes
        self._closes = closes
        self._changed = threading.Condition()
        self._queue: deque[bytes] = deque()
        self._queued_bytes = 0
        self._again = b""  # to be sent first, and noted already
        self._input = SentInput()
        self._attachment: Attachment | None = None
        self._ended = self._over = self._ended_there = self._writing = False
        self._thread = threading.Thread(target=self._work, name="sender", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def attach(self, attachment: Attachment) -> bool:
        """Send over this attachment from now on. Return False if some input may be lost."""
        started = attachment.started
        with self._changed:
            again = self._input.begin(started.stdin_bytes if started.counted else None)
            self._again = again or b""
            self._attachment, self._ended_there = attachment, False
            self._changed.notify_all()
        return again is not None

    def taken(self, count: int) -> None:
        with self._changed:
            self._input.taken(count)

    def give(self, data: bytes) -> bool:
        """Have it sent. Return False if the session is over."""
        with self._changed:
            self._changed.wait_for(lambda: self._over or self._queued_bytes < self._most_bytes)
            if self._over:
                return False
            self._queue.append(data)
            self._queued_bytes += len(data)
            self._changed.notify_all()
            return True

    def end(self) -> None:
        """Nothing more will be given."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def flush(self, seconds: float) -> None:
        """Wait until everything given was sent; not longer than this, nor while there is no attachment."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._over or self._attachment is None or not (self._has_work() or self._writing), seconds
            )

    def stop(self, seconds: float) -> None:
        with self._changed:
            self._over = True
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join(seconds)

    def _has_work(self) -> bool:
        return bool(self._again or self._queue)

    def _work(self) -> None:
        while (step := self._next()) is not None:
            attachment, data = step
            if not data:
                self._end_on(attachment)
            else:
                is_written = attachment.write(data)
                with self._changed:
                    self._writing = False
                    if not is_written and self._attachment is attachment:  # it is over; the next one sends this again
                        self._attachment = None
                    self._changed.notify_all()

    def _next(self) -> tuple[Attachment, bytes] | None:
        """Return what to send next and where; no data at the end of the input; None when the session is over."""
        with self._changed:
            self._changed.wait_for(
                lambda: (
                    self._over
                    or (self._attachment is not None and (self._has_work() or (self._ended and not self._ended_there)))
                )
            )
            if self._over or self._attachment is None:
                return None
            data, self._again = self._again, b""
            if not data and self._queue:
                data = self._queue.popleft()
                self._queued_bytes -= len(data)
                self._input.send(data)
                self._changed.notify_all()
            self._writing = bool(data)
            if not data:
                self._ended_there = True
            return self._attachment, data

    def _end_on(self, attachment: Attachment) -> None:
        work: Callable[[], object] = attachment.close_stdin if self._closes else attachment.end_input
        work()
