"""A disk that takes the ring's blocks when the test has it do so."""

import contextlib
import os
import threading

import pytest

from shim.native import BlockThread
from supervisor.store.blockwriter import BlockWriter
from supervisor.store.ringends import RingEnds

WAITS_SECONDS = 0.001  # so long the loop waits for this disk


class SlowDisk:
    """For the length of the block, blocks on their way into the ring stand still, until `go`. With an `error` they fail
    then; `writes_first`: and are in the file all the same."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, error: OSError | None = None) -> None:
        self.error, self.writes_first = error, False
        self.may_go = threading.Event()
        self._monkeypatch = monkeypatch
        self._patched = contextlib.ExitStack()

    def __enter__(self) -> "SlowDisk":
        begin = BlockWriter.begin

        def held(writer: BlockWriter, data: bytes, offset: int) -> None:
            writer._thread = _Held(writer._thread, writer.event_fd, self)  # type: ignore[assignment]
            begin(writer, data, offset)

        def impatient(ends: RingEnds, _: float) -> bool:
            return ends.await_end(WAITS_SECONDS)

        patched = self._patched.enter_context(self._monkeypatch.context())
        patched.setattr(BlockWriter, "begin", held)
        patched.setattr(RingEnds, "has_ended", impatient)
        return self

    def go(self) -> None:
        self.may_go.set()

    def __exit__(self, *_: object) -> None:
        self._patched.close()
        self.go()


class _Held:
    def __init__(self, own: BlockThread, event_fd: int, by: SlowDisk) -> None:
        self._own, self._event_fd, self._by = own, event_fd, by
        self._is_begun = False

    def begin(self, data: bytes, offset: int) -> None:
        threading.Thread(target=self._begin, args=(data, offset)).start()

    def _begin(self, data: bytes, offset: int) -> None:
        assert self._by.may_go.wait(30)
        self._is_begun = self._by.error is None or self._by.writes_first
        if self._is_begun:
            self._own.begin(data, offset)
        else:
            os.eventfd_write(self._event_fd, 1)

    def written(self) -> tuple[int, float]:
        written = self._own.written() if self._is_begun else (0, 0.0)
        if self._by.error is not None:
            raise self._by.error
        return written

    def close(self) -> None:
        self._own.close()
