"""ttrpc's frames: ten bytes of header, then data. Bytes in, frames out; nothing is kept beyond one frame."""

import struct
from typing import NamedTuple

from supervisor.model.errors import Code
from supervisor.ttrpc.faults import CallFailed

REQUEST, RESPONSE, DATA = 1, 2, 3
FIRST_PRIVATE = 0x80  # types from here on are no ttrpc: two programs of one house may agree on them
REMOTE_CLOSED, REMOTE_OPEN, NO_DATA = 1, 2, 4
MAX_DATA = 4 * 1024 * 1024
LAST_STREAM = 0xFFFFFFFF

_HEADER = struct.Struct(">IIBB")  # length of the data, stream, type, flags


class Frame(NamedTuple):
    stream: int
    type: int
    flags: int = 0
    data: bytes = b""


class Oversize(NamedTuple):
    """A frame with more data than is taken; the data is gone."""

    stream: int
    type: int
    length: int


def encode(frame: Frame) -> bytes:
    """CallFailed, RESOURCE_EXHAUSTED, when a peer would not take it."""
    stream, kind, flags, data = frame
    if len(data) > MAX_DATA:
        raise too_large(len(data))
    return _HEADER.pack(len(data), stream, kind, flags) + data


def too_large(length: int) -> CallFailed:
    return CallFailed(Code.RESOURCE_EXHAUSTED, f"a message of {length} bytes: more than {MAX_DATA} fit in no frame")


class Decoder:
    """Keeps less than one frame. Data of a frame that is too large is dropped as it comes."""

    def __init__(self) -> None:
        self._kept = bytearray()
        self._wanted = _HEADER.size  # so many bytes make the kept ones a header, or a frame
        self._skipped: Oversize | None = None
        self._to_skip = 0
        self.completed = 0  # frames; so a caller sees whether the one that is kept is another

    @property
    def kept_bytes(self) -> int:
        """Of a frame that has begun and is not complete."""
        return len(self._kept)

    def feed(self, data: bytes) -> list[Frame | Oversize]:
        """The frames that are complete with `data`, however the bytes are cut into pieces."""
        if self._kept:
            self._kept += data
            if len(self._kept) < self._wanted:
                return []
            data = bytes(self._kept)
            self._kept.clear()
        found: list[Frame | Oversize] = []
        at = 0
        while True:
            if self._skipped is not None:
                at += self._skip(len(data) - at)
                if self._to_skip:
                    return found
                found.append(self._skipped)
                self._skipped = None
            if (rest := len(data) - at) < _HEADER.size:
                self._wanted = _HEADER.size
                break
            length, stream, kind, flags = _HEADER.unpack_from(data, at)
            if length > MAX_DATA:
                self._skipped, self._to_skip = Oversize(stream, kind, length), length
                at += _HEADER.size
                continue
            if rest < _HEADER.size + length:
                self._wanted = _HEADER.size + length
                break
            end = at + _HEADER.size + length
            found.append(Frame(stream, kind, flags, data[at + _HEADER.size : end]))
            self.completed += 1
            at = end
        self._kept += data[at:] if at else data
        return found

    def _skip(self, there: int) -> int:
        taken = min(there, self._to_skip)
        self._to_skip -= taken
        return taken
