"""Keeps ends on the disk from the moment they are reported until the database has them.

A file of pages beside the database. A report waits for one write of one block, with O_DSYNC: half the time of a commit.
Each block has a number, a checksum, and the identity of its database. After a crash, `blocks`
finds those that were written as a whole; one that was torn has not been reported. A page is written again only when the
database no longer needs it.
"""

import os
import struct
import zlib
from collections import deque
from pathlib import Path

from shim.frozen import frozen
from shim.undo import undone_on_failure
from supervisor.model.errors import CannotStart
from supervisor.store.blockwriter import BlockWriter

MAGIC = b"\xffexr"  # no text begins like this, so what an overwritten block has left is never taken for a block
VERSION = 1
HEAD = struct.Struct("<4sHH16sQII")  # magic, version, pages, identity, number, bytes of payload, checksum
PAGE_BYTES = 4096
PAGES = 256
BLOCK_PAGES = 32  # of one block, at most


class RingFull(Exception):
    """There is no room for the block until the database has flushed what it was given."""


@frozen
class Block:
    """One block as it lies in the file. Numbers rise, from 1 on, and none is given twice."""

    number: int
    payload: bytes


def encode(identity: bytes, number: int, payload: bytes) -> bytes:
    """Return the block's bytes, filled up to whole pages. Raises RingFull when they are more than BLOCK_PAGES."""
    pages = -(-(HEAD.size + len(payload)) // PAGE_BYTES)
    if pages > BLOCK_PAGES:
        raise RingFull(f"a block of {len(payload)} bytes")
    head = HEAD.pack(MAGIC, VERSION, pages, identity, number, len(payload), 0)
    head = head[:-4] + zlib.crc32(payload, zlib.crc32(head)).to_bytes(4, "little")
    return (head + payload).ljust(pages * PAGE_BYTES, b"\0")


def blocks(data: bytes, identity: bytes) -> list[Block]:
    """Return the whole blocks of this database, by number. Raises CannotStart when a newer exitd has written one."""
    found = list[Block]()
    for start in range(0, len(data) - HEAD.size + 1, PAGE_BYTES):
        magic, version, _, owner, number, length, checksum = HEAD.unpack_from(data, start)
        if magic != MAGIC:
            continue
        if version > VERSION:
            raise CannotStart(f"written by a newer exitd (version {version}, this one knows {VERSION}); start that one")
        payload = data[start + HEAD.size : start + HEAD.size + length]
        head = data[start : start + HEAD.size - 4] + bytes(4)
        if owner == identity and len(payload) == length and zlib.crc32(payload, zlib.crc32(head)) == checksum:
            found.append(Block(number, payload))
    return sorted(found, key=lambda block: block.number)


@frozen
class Placed:
    """A block as it is in the file, and where in the file."""

    data: bytes
    offset: int


class Ring:
    """The open file. Belongs to one event loop. One block at a time is written: `begin`, `has_ended`, `finish`."""

    def __init__(self, path: Path, identity: bytes) -> None:
        """Open the file, or make it, with all of its pages written. Raises OSError."""
        self._identity = identity
        self._used: deque[tuple[int, int, int]] = deque()  # number, first page, pages: oldest first
        self._next_page = 0
        flags = os.O_RDWR | os.O_CREAT | os.O_DSYNC | os.O_NOFOLLOW | os.O_CLOEXEC
        self._fd = os.open(path, flags, 0o600)
        with undone_on_failure(lambda: os.close(self._fd)):
            missing = PAGES * PAGE_BYTES - os.fstat(self._fd).st_size
            if missing > 0:  # written, not only reserved: the first write to a reserved page takes as long as a new one
                os.pwrite(self._fd, bytes(missing), PAGES * PAGE_BYTES - missing)
                os.fsync(self._fd)
            self._writer = BlockWriter(str(path), BLOCK_PAGES * PAGE_BYTES)

    def read(self) -> bytes:
        """Return the whole file. Raises OSError."""
        return os.pread(self._fd, PAGES * PAGE_BYTES, 0)

    @property
    def is_half_full(self) -> bool:
        """Whether blocks have more than half of the pages."""
        return sum(pages for _, _, pages in self._used) > PAGES // 2

    def place(self, number: int, payload: bytes) -> Placed:
        """Give the block its pages, which no other gets until `free`. Raises RingFull."""
        data = encode(self._identity, number, payload)
        pages = len(data) // PAGE_BYTES
        page = self._place_for(pages)
        self._used.append((number, page, pages))
        self._next_page = page + pages
        return Placed(data, page * PAGE_BYTES)

    def begin(self, placed: Placed) -> None:
        """Begin to write a block where it was placed."""
        self._writer.begin(placed.data, placed.offset)

    def has_ended(self, seconds: float) -> bool:
        """Wait so long at most for the write under way. Return whether it has ended."""
        return self._writer.has_ended(seconds)

    @property
    def event_fd(self) -> int:
        """Readable when the write under way has ended."""
        return self._writer.event_fd

    def finish(self) -> float:
        """Return how many seconds the write that has ended took; the block is on the disk. Raises OSError, after which
        it may be."""
        return self._writer.finish()

    def free(self, number: int) -> None:
        """The database has all blocks up to this number on the disk: their pages may be written again."""
        while self._used and self._used[0][0] <= number:
            self._used.popleft()

    def close(self) -> None:
        """Repeatable."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
            self._writer.close()

    def _place_for(self, pages: int) -> int:
        """Return the first page for a block, which is in one piece. Raises RingFull."""
        after = self._next_page
        if not self._used:
            return after if after + pages <= PAGES else 0
        oldest = self._used[0][1]
        if after > oldest and after + pages > PAGES:
            after = 0
        if after + pages > (PAGES if after > oldest else oldest):
            raise RingFull(f"{pages} pages")
        return after
