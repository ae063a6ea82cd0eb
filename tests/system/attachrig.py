"""Attached clients of real containers: begun before the container's first byte, read in threads of their own."""

import os
import signal
import threading

from supervisor.api.attachment import Attachment
from supervisor.api.client import Client
from tests.system.daemonrig import LIMIT_SECONDS, spec, until


def created(client: Client, *args: str, **fields: object) -> str:
    return client.create(spec(*args, **fields)).id


def attached(client: Client, *args: str, **fields: object) -> tuple[str, Attachment]:
    """A container that runs, attached to before its start."""
    container = created(client, *args, **fields)
    it = client.attach(container)
    client.start(container)
    return container, it


class Reader:
    """Reads all replies in a thread of its own."""

    def __init__(self, it: Attachment) -> None:
        self.out, self.err, self.dropped = bytearray(), bytearray(), 0
        self.failure: BaseException | None = None
        self._thread = threading.Thread(target=self._read, args=(it,), daemon=True)
        self._thread.start()

    def _read(self, it: Attachment) -> None:
        try:
            for reply in it:
                self.out += reply.stdout
                self.err += reply.stderr
                self.dropped = reply.dropped or self.dropped
        except BaseException as error:
            self.failure = error

    def until(self, text: bytes) -> None:
        until(lambda: text in self.out, f"{text!r}")

    def ended(self) -> "Reader":
        self._thread.join(LIMIT_SECONDS)
        assert not self._thread.is_alive(), "the output does not end"
        assert self.failure is None, repr(self.failure)
        return self


def kill_shim(client: Client, container: str) -> None:
    """Dead when this returns."""
    until(lambda: client.inspect(container).HasField("shim"), "a shim")
    shim = client.inspect(container).shim
    assert shim.pid > 1
    os.kill(shim.pid, signal.SIGKILL)
    until(lambda: client.inspect(container).shim != shim, "the end of the shim")


def taken(it: Attachment, text: bytes) -> bytes:
    """What is read until `text` has come. After the limit it is detached, and the test fails."""
    read, limit = b"", threading.Timer(LIMIT_SECONDS, it.cancel)
    limit.start()
    try:
        while text not in read:
            reply = next(it, None)
            assert reply is not None, f"no {text!r} in {read!r}"
            read += reply.stdout
    finally:
        limit.cancel()
    return read
