"""A tar stream as entries, each limited before it is trusted: nothing larger than a limit is ever read into memory.

Python's tarfile reads one header block (numbers, checksum, ustar prefix). What spans several blocks is read here,
because tarfile reads an extended header of any length at once, and parses some without end. Formats: ustar, pax, and
GNU's long names. Sources: tar(5), POSIX.1-2017 pax, "Extended Header Keyword/Value Pairs".
"""

import re
import sys
import tarfile
from collections.abc import Mapping
from enum import Enum
from functools import cache
from typing import Protocol

from shim.frozen import field, frozen
from shim.patterns import LatePattern

BLOCK_BYTES = 512
MOST_EXTENDED_BYTES = 1 << 20  # of a pax header or a long name
MOST_EXTENDED_IN_A_ROW = 16
MOST_NAME_BYTES = 4095  # PATH_MAX without its NUL
MOST_ID = 2**32 - 2  # -1 means "unchanged" to chown(2)
EARLIEST_SECONDS, LATEST_SECONDS = -(2**31), 2**34 - 2**31 - 1  # what ext4 can store
XATTR = "SCHILY.xattr."
_SPARSE = "GNU.sparse."
_MTIME = LatePattern(r"(-?)([0-9]{1,20})(?:\.([0-9]*))?", re.ASCII)


class BadTar(ValueError):
    """Not a tar, an incomplete one, or one with something in it that images do not have."""


class TarSource(Protocol):
    """Bytes in order. `read` returns up to `most` bytes, none at the end; `skip` passes over bytes, fewer at the
    end."""

    def read(self, most: int) -> bytes: ...

    def skip(self, count: int) -> None: ...


class TarKind(Enum):
    """The kinds of entries that an archive may have."""

    FILE = "file"
    DIRECTORY = "directory"
    SYMLINK = "symbolic link"
    HARDLINK = "hard link"
    FIFO = "fifo"
    DEVICE = "device node"


@cache
def _kinds() -> Mapping[bytes, TarKind]:
    """Called with the first archive: exitd starts without tarfile."""
    return {
        tarfile.REGTYPE: TarKind.FILE,
        tarfile.AREGTYPE: TarKind.FILE,
        tarfile.CONTTYPE: TarKind.FILE,
        tarfile.DIRTYPE: TarKind.DIRECTORY,
        tarfile.SYMTYPE: TarKind.SYMLINK,
        tarfile.LNKTYPE: TarKind.HARDLINK,
        tarfile.FIFOTYPE: TarKind.FIFO,
        tarfile.CHRTYPE: TarKind.DEVICE,
        tarfile.BLKTYPE: TarKind.DEVICE,
    }


@frozen
class TarEntry:
    """One entry as the archive names it: `name` and `target` are not checked yet. Only a file has a size. `device` is a
    number as makedev(3) has it, which the reader leaves out: no node is made of one."""

    name: str
    kind: TarKind
    size_bytes: int = 0
    mode: int = 0o644
    uid: int = 0
    gid: int = 0
    mtime_ns: int = 0
    target: str = ""
    xattrs: Mapping[str, bytes] = field(default_factory=dict)
    device: int = 0
    is_block: bool = False


class TarReader:
    """`next` returns the next entry, `read` the current one's content. Every error is a BadTar."""

    def __init__(self, source: TarSource) -> None:
        self._source = source
        self._left_bytes = 0  # of the current entry's content
        self._padding_bytes = 0

    def next(self) -> TarEntry | None:
        """Return None at the end: a block of zeros, or no more bytes."""
        self._finish()
        extended: dict[str, bytes] = {}
        for _ in range(MOST_EXTENDED_IN_A_ROW):
            block = _read_up_to(self._source, BLOCK_BYTES)
            if not block.strip(b"\0"):
                if extended:
                    raise BadTar("ends after an extended header")
                return None
            header = _header(block)
            if header.type == tarfile.XHDTYPE:
                extended.update(_pax(self._extended(header)))
            elif header.type == tarfile.XGLTYPE:
                self._extended(header)  # comments, such as git's; no image has defaults for all later entries
            elif header.type == tarfile.GNUTYPE_LONGNAME:
                extended["path"] = self._extended(header).split(b"\0")[0]
            elif header.type == tarfile.GNUTYPE_LONGLINK:
                extended["linkpath"] = self._extended(header).split(b"\0")[0]
            else:
                return self._entry(header, extended)
        raise BadTar(f"more than {MOST_EXTENDED_IN_A_ROW} extended headers for one entry")

    def read(self, most: int) -> bytes:
        """Return up to `most` bytes of the current entry's content; none at its end."""
        data = self._source.read(min(most, self._left_bytes))
        if not data and self._left_bytes and most:
            raise BadTar("ends in the middle of an entry's content")
        self._left_bytes -= len(data)
        return data

    def _finish(self) -> None:
        self._source.skip(self._left_bytes + self._padding_bytes)
        self._left_bytes = self._padding_bytes = 0

    def _extended(self, header: "tarfile.TarInfo") -> bytes:
        if not 0 <= header.size <= MOST_EXTENDED_BYTES:
            raise BadTar(f"an extended header of {header.size} bytes")
        data = _read_up_to(self._source, header.size)
        padding = _read_up_to(self._source, -header.size % BLOCK_BYTES)
        if len(data) < header.size or len(padding) < -header.size % BLOCK_BYTES:
            raise BadTar("ends in the middle of an extended header")
        return data

    def _entry(self, header: "tarfile.TarInfo", extended: Mapping[str, bytes]) -> TarEntry:
        name = _text(extended, "path", header.name)
        kind = _kinds().get(header.type)
        if header.type == tarfile.GNUTYPE_SPARSE or any(key.startswith(_SPARSE) for key in extended):
            raise BadTar(f"{name!r} is a sparse entry, which images do not have (write the archive without --sparse)")
        if kind is None:
            raise BadTar(f"{name!r} has the unknown type {header.type!r}")
        size = _number(extended, "size", header.size)
        if size < 0:
            raise BadTar(f"{name!r} has a negative size")
        self._left_bytes = size if kind is TarKind.FILE else 0
        self._padding_bytes = -self._left_bytes % BLOCK_BYTES
        return TarEntry(
            name,
            kind,
            self._left_bytes,
            header.mode & 0o7777,
            _id(extended, "uid", header.uid, name),
            _id(extended, "gid", header.gid, name),
            _mtime_ns(extended, header.mtime),
            _text(extended, "linkpath", header.linkname),
            {key.removeprefix(XATTR): value for key, value in extended.items() if key.startswith(XATTR)},
        )


def _read_up_to(source: TarSource, count: int) -> bytes:
    data = b""
    while len(data) < count and (more := source.read(count - len(data))):
        data += more
    return data


def _header(block: bytes) -> "tarfile.TarInfo":
    try:
        return tarfile.TarInfo.frombuf(block, sys.getfilesystemencoding(), "surrogateescape")
    except (tarfile.HeaderError, ValueError) as error:
        raise BadTar(f"not a tar header ({error})") from error


def _pax(data: bytes) -> dict[str, bytes]:
    """`LENGTH KEY=VALUE\\n`, the length counting itself. An empty value takes the key back."""
    records: dict[str, bytes] = {}
    at = 0
    while at < len(data) and data[at : at + 1] != b"\0":
        space = data.find(b" ", at, at + 8)
        length = int(data[at:space]) if space > at and data[at:space].isdigit() else 0
        key, equals, value = data[space + 1 : at + length - 1].partition(b"=")
        if at + length > len(data) or length < 5 or data[at + length - 1 : at + length] != b"\n" or not equals:
            raise BadTar(f"a pax header with a wrong record at byte {at}")
        records[_decode(key)] = value
        at += length
    return {key: value for key, value in records.items() if value or key.startswith(XATTR)}


def _decode(data: bytes) -> str:
    return data.decode(sys.getfilesystemencoding(), "surrogateescape")


def _text(extended: Mapping[str, bytes], key: str, otherwise: str) -> str:
    if key in extended and len(extended[key]) > MOST_NAME_BYTES:
        raise BadTar(f"a {key} of {len(extended[key])} bytes, more than {MOST_NAME_BYTES}")
    text = _decode(extended[key]) if key in extended else otherwise
    if "\0" in text:
        raise BadTar(f"a zero byte in the {key} {text[:80]!r}")
    return text


def _number(extended: Mapping[str, bytes], key: str, otherwise: int) -> int:
    value = extended.get(key)
    if value is None:
        return otherwise
    if not re.fullmatch(rb"-?[0-9]{1,20}", value):
        raise BadTar(f"a pax header with the {key} {value[:40]!r}")
    return int(value)


def _id(extended: Mapping[str, bytes], key: str, otherwise: int, name: str) -> int:
    number = _number(extended, key, otherwise)
    if not 0 <= number <= MOST_ID:
        raise BadTar(f"{name!r} has the {key} {number}")
    return number


def _mtime_ns(extended: Mapping[str, bytes], otherwise: int | float) -> int:
    """Limited to what file systems can store."""
    seconds, nanoseconds = int(otherwise), 0
    if "mtime" in extended:
        match = _MTIME.fullmatch(_decode(extended["mtime"]))
        if not match:
            raise BadTar(f"a pax header with the mtime {extended['mtime'][:40]!r}")
        seconds, nanoseconds = int(match[2]), int((match[3] or "")[:9].ljust(9, "0"))
        if match[1]:
            seconds, nanoseconds = -seconds, -nanoseconds
    return max(EARLIEST_SECONDS, min(seconds, LATEST_SECONDS)) * 10**9 + nanoseconds
