"""ttrpc's frames: ten bytes of header, then data. Bytes in, frames out; no more than one frame is kept."""

import struct
from typing import NamedTuple

from supervisor.model.errors import Code
from supervisor.ttrpc.faults import CallFailed

REQUEST, RESPONSE, DATA = 1, 2, 3
FIRST_PRIVATE = 0x80  # types from here on are not ttrpc's: two cooperating programs may agree on them
REMOTE_CLOSED, REMOTE_OPEN, NO_DATA = 1, 2, 4
MAX_DATA = 4 * 1024 * 1024
LAST_STREAM = 0xFFFFFFFF

_HEADER = struct.Struct(">IIBB")  # length of the data, stream, type, flags


class Frame(NamedTuple):
    """One frame of the protocol. `type` is the kind of message."""

    stream: int
    type: int
    flags: int = 0
    data: bytes = b""


class Oversize(NamedTuple):
    """A frame with more data than is accepted; the data was dropped."""

    stream: int
    type: int
    length: int


def encode(frame: Frame) -> bytes:
    """Raises CallFailed, RESOURCE_EXHAUSTED, when a peer would not accept it."""
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
        self._wanted = _HEADER.size  # number of bytes that complete the header or the frame
        self._skipped: Oversize | None = None
        self._to_skip = 0
        self.completed = 0  # number of frames; shows a caller whether the incomplete one is another

    @property
    def kept_bytes(self) -> int:
        """Return the number of bytes of an incomplete frame."""
        return len(self._kept)

    def feed(self, data: bytes) -> list[Frame | Oversize]:
        """Return the frames that `data` completes, however the bytes are divided."""
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
