"""An exec's input as the requests of an Attach, and its output, put together. Pure."""

from typing import Any

from exitd_client import errors, values
from exitd_client.messages import message

MOST_BYTES = 16 << 20  # of an exec's output, unless the caller says otherwise
CHUNK_BYTES = 64 << 10
ALIVE = ("created", "starting", "running", "paused")


def is_alive(container: values.Container) -> bool:
    """Return whether its run goes on or is yet to begin. A pod's own end is not what is waited for by its name."""
    return container.phase in ALIVE and "pod" not in container.spec


def requests(begun: values.Exec, input: bytes | None) -> list[Any]:
    """Return all that is sent in an Attach: the start, and the whole input with its end."""
    make = message("AttachRequest")
    start = message("AttachStart")(
        id=begun.container, exec_id=begun.id, stdin=input is not None, stdout=True, stderr=True, lossless=True
    )
    if input is None:
        return [make(start=start)]
    parts = (input[at : at + CHUNK_BYTES] for at in range(0, len(input), CHUNK_BYTES))
    return [make(start=start), *(make(stdin=part) for part in parts), make(close_stdin=True)]


class Output:
    """What has come so far. At most `most_bytes` are kept."""

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
        self._parts: dict[str, list[bytes]] = {"stdout": [], "stderr": []}
        self._size = 0

    def add(self, reply: Any) -> None:
        """Take one reply. Raises OutputTooLong."""
        kind = reply.WhichOneof("item")
        if kind not in self._parts:
            return
        part = getattr(reply, kind)
        self._size += len(part)
        if self._size > self._most:
            raise errors.OutputTooLong(f"it wrote more than {self._most} bytes")
        self._parts[kind].append(part)

    @property
    def stdout(self) -> bytes:
        return b"".join(self._parts["stdout"])

    @property
    def stderr(self) -> bytes:
        return b"".join(self._parts["stderr"])
