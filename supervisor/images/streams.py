"""Streams of bytes from a file to a tar: part of a file, decompressed by gzip or zstd, counted and hashed on the
way."""

import hashlib
import os
import subprocess
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import BinaryIO

from shim.frozen import field, mutable
from supervisor.images import tools
from supervisor.images.deadline import Deadline
from supervisor.images.facts import ImageLimits
from supervisor.images.tar import TarSource
from supervisor.model.errors import BadImage, ImageTooLarge

CHUNK_BYTES = 1 << 18
KEPT_NAME_BYTES = 128  # memory that a name takes besides its characters
GZIP_CHUNK_BYTES = 1 << 14  # small: what follows a member is copied once per member
GZIP, ZSTD, XZ, BZIP2 = b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"\xfd7zXZ\0", b"BZh"


@mutable
class Budget:
    """What one load has left of its limits. Bytes are those of the uncompressed tars: files and headers."""

    limits: ImageLimits
    deadline: Deadline | None = None
    used_bytes: int = 0
    used_entries: int = 0
    kept_bytes: int = 0  # of names in memory

    def pass_bytes(self, count: int) -> None:
        """Count bytes that take only time."""
        if self.deadline:
            self.deadline.check()

    def spend_bytes(self, count: int) -> None:
        self.pass_bytes(count)
        self.used_bytes += count
        if self.used_bytes > self.limits.total_bytes:
            raise ImageTooLarge(f"the image unpacks to more than the limit of {self.limits.total_bytes} bytes")

    def spend_entry(self) -> None:
        self.used_entries += 1
        if self.used_entries > self.limits.entries:
            raise ImageTooLarge(f"the image has more than the limit of {self.limits.entries} entries")

    def keep_name(self, name: str) -> None:
        """Count memory that a name takes until the end of the load. Raises ImageTooLarge."""
        self.kept_bytes += KEPT_NAME_BYTES + len(name)
        if self.kept_bytes > self.limits.kept_bytes:
            raise ImageTooLarge(f"the image's names take more than the limit of {self.limits.kept_bytes} bytes")


@mutable
class Slice:
    """A part of an open file, which the caller owns; length -1: to its end."""

    file: BinaryIO
    offset: int = 0
    size_bytes: int = -1

    def read(self, most: int) -> bytes:
        if self.size_bytes >= 0:
            most = min(most, self.size_bytes)
        data = os.pread(self.file.fileno(), most, self.offset) if most > 0 else b""
        self._pass(len(data))
        return data

    def skip(self, count: int) -> None:
        self._pass(min(count, self.size_bytes) if self.size_bytes >= 0 else count)

    def _pass(self, count: int) -> None:
        self.offset += count
        if self.size_bytes >= 0:
            self.size_bytes -= count


def _read_past(source: TarSource, count: int) -> None:
    while count > 0 and (data := source.read(min(count, CHUNK_BYTES))):
        count -= len(data)


@mutable
class Hashed:
    """Hashes and counts what is read from `source`; `spend` is called with each number of bytes."""

    source: TarSource
    spend: Callable[[int], None]
    count: int = 0
    _sha256: "hashlib._Hash" = field(default_factory=lambda: hashlib.sha256())

    def read(self, most: int) -> bytes:
        data = self.source.read(most)
        self._sha256.update(data)
        self.count += len(data)
        self.spend(len(data))
        return data

    def skip(self, count: int) -> None:
        _read_past(self, count)

    def drain(self) -> str:
        """Read to the end and return the digest of everything."""
        while self.read(CHUNK_BYTES):
            pass
        return f"sha256:{self._sha256.hexdigest()}"


@mutable
class Gunzip:
    """RFC 1952, any number of members, as pigz and others write them; zeros may follow."""

    source: TarSource
    where: str
    _member: "zlib._Decompress | None" = None
    _ahead: bytes = b""

    def read(self, most: int) -> bytes:
        while most > 0:
            if not self._ahead:
                self._ahead = self.source.read(GZIP_CHUNK_BYTES)
            if self._member is None:
                self._ahead = self._ahead.lstrip(b"\0")
                if not self._ahead:
                    if more := self.source.read(GZIP_CHUNK_BYTES):
                        self._ahead = more
                        continue
                    return b""
                self._member = zlib.decompressobj(wbits=31)
            if data := self._inflate(self._member, most):
                return data
        return b""

    def skip(self, count: int) -> None:
        _read_past(self, count)

    def _inflate(self, member: "zlib._Decompress", most: int) -> bytes:
        at_end = not self._ahead
        try:
            data = member.decompress(self._ahead, most)
        except zlib.error as error:
            raise BadImage(f"{self.where}: not a whole gzip file ({error})") from error
        self._ahead = member.unconsumed_tail
        if member.eof:
            self._ahead, self._member = member.unused_data, None
        elif at_end and not data:
            raise BadImage(f"{self.where}: not a whole gzip file (it ends too early)")
        return data


@mutable
class Piped:
    """The output of a program that decompresses."""

    process: "subprocess.Popen[bytes]"
    where: str

    def read(self, most: int) -> bytes:
        assert self.process.stdout is not None
        data = self.process.stdout.read(most)
        if not data and most and self.process.wait(tools.DEATH_SECONDS) != 0:
            raise BadImage(f"{self.where}: {self.process.args!r} could not unpack it")
        return data

    def skip(self, count: int) -> None:
        _read_past(self, count)


@contextmanager
def uncompressed(packed: Slice, where: str) -> Iterator[TarSource]:
    """Yield the plain bytes of `packed`, or `packed` itself if it is not compressed.

    The first bytes decide, never a media type or a file name. Raises BadImage for an unknown format.
    """
    magic = os.pread(packed.file.fileno(), 6, packed.offset)
    if magic.startswith((XZ, BZIP2)):
        raise BadImage(f"{where}: compressed with xz or bzip2; only gzip and zstd are known here")
    if magic.startswith(ZSTD):
        with _unzstd(packed, where) as plain:
            yield plain
        return
    yield Gunzip(packed, where) if magic.startswith(GZIP) else packed


@contextmanager
def _unzstd(packed: Slice, where: str) -> Iterator[TarSource]:
    if packed.offset or 0 <= packed.size_bytes < os.fstat(packed.file.fileno()).st_size:
        raise BadImage(f"{where}: compressed with zstd inside an archive, which is not known here")
    packed.file.seek(0)
    process = tools.start([tools.find("zstd"), "-dcq"], stdin=packed.file, stdout=subprocess.PIPE)
    try:
        yield Piped(process, where)
    finally:
        tools.end(process)
