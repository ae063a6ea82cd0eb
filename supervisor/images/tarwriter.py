"""A tar stream's bytes: the one writer of whatever exitd makes a tar of. Pure: an entry in, its header out.

The format is ustar, with a pax header before each entry that does not fit into it: long names, large numbers, times
with a fraction, xattrs. What is written here, `tar.py` reads as the same entry. Sources: POSIX.1-2017 pax, "ustar
Interchange Format" and "pax Extended Header"; SCHILY.xattr as star(1) and GNU tar have it.
"""

import os
from collections.abc import Iterator

from supervisor.images.tar import BLOCK_BYTES, MOST_EXTENDED_BYTES, XATTR, BadTar, TarEntry, TarKind

END = bytes(2 * BLOCK_BYTES)
_TYPES = {
    TarKind.FILE: b"0",
    TarKind.HARDLINK: b"1",
    TarKind.SYMLINK: b"2",
    TarKind.DIRECTORY: b"5",
    TarKind.FIFO: b"6",
}
_CHARACTER, _BLOCK, _PAX = b"3", b"4", b"x"
_NAME_BYTES = 100  # of the fields name and linkname
_MOST_ID, _MOST_SIZE, _MOST_SECONDS = 8**7 - 1, 8**11 - 1, 8**11 - 1  # that fit into octal fields


def header(entry: TarEntry) -> bytes:
    """Return all blocks before the entry's content. A directory's name gets a slash at its end. Raises BadTar: names
    and xattrs together are larger than an archive may have them."""
    name, target = os.fsencode(entry.name), os.fsencode(entry.target)
    if entry.kind is TarKind.DIRECTORY and not name.endswith(b"/"):
        name += b"/"
    records = b"".join(_records(entry, name, target))
    if len(records) > MOST_EXTENDED_BYTES:
        raise BadTar(f"{entry.name[:80]!r}: {len(records)} bytes of names and attributes")
    extended = _block(b"pax", _PAX, len(records)) + padded(records) if records else b""
    return extended + _block(
        name,
        _type(entry),
        entry.size_bytes if entry.kind is TarKind.FILE else 0,
        entry=entry,
        target=target,
    )


def padding(size_bytes: int) -> bytes:
    """Return what follows a content of this size."""
    return bytes(-size_bytes % BLOCK_BYTES)


def padded(data: bytes) -> bytes:
    return data + padding(len(data))


def _type(entry: TarEntry) -> bytes:
    if entry.kind is TarKind.DEVICE:
        return _BLOCK if entry.is_block else _CHARACTER
    return _TYPES[entry.kind]


def _records(entry: TarEntry, name: bytes, target: bytes) -> Iterator[bytes]:
    """Yield what the ustar fields cannot hold."""
    texts = [("path", name), ("linkpath", target)]
    if not all(_is_utf8(text) for _, text in texts):
        yield _record("hdrcharset", b"BINARY")
    for key, text in texts:
        if len(text) > _NAME_BYTES or not text.isascii():
            yield _record(key, text)
    for key, number, most in (
        ("uid", entry.uid, _MOST_ID),
        ("gid", entry.gid, _MOST_ID),
        ("size", entry.size_bytes, _MOST_SIZE),
    ):
        if number > most:
            yield _record(key, b"%d" % number)
    seconds, ns = divmod(entry.mtime_ns, 10**9)
    if ns or not 0 <= seconds <= _MOST_SECONDS:
        yield _record("mtime", _time(entry.mtime_ns))
    for key in sorted(entry.xattrs):
        yield _record(XATTR + key, entry.xattrs[key])


def _time(time_ns: int) -> bytes:
    seconds, ns = divmod(abs(time_ns), 10**9)
    fraction = f".{ns:09d}".rstrip("0") if ns else ""
    return f"{'-' if time_ns < 0 else ''}{seconds}{fraction}".encode()


def _record(key: str, value: bytes) -> bytes:
    """`LENGTH KEY=VALUE\\n`, where the length counts its own digits."""
    rest = b" " + os.fsencode(key) + b"=" + value + b"\n"
    length = len(rest)
    while len(b"%d" % length) + len(rest) != length:
        length = len(b"%d" % length) + len(rest)
    return b"%d" % length + rest


def _block(name: bytes, kind: bytes, size: int, *, entry: TarEntry | None = None, target: bytes = b"") -> bytes:
    found = entry or TarEntry("", TarKind.FILE)
    seconds = min(max(found.mtime_ns // 10**9, 0), _MOST_SECONDS)
    before = b"".join(
        (
            name[:_NAME_BYTES].ljust(_NAME_BYTES, b"\0"),
            _octal(found.mode & 0o7777, 8),
            _octal(min(found.uid, _MOST_ID), 8),
            _octal(min(found.gid, _MOST_ID), 8),
            _octal(min(size, _MOST_SIZE), 12),
            _octal(seconds, 12),
        )
    )
    after = b"".join(
        (
            kind,
            target[:_NAME_BYTES].ljust(_NAME_BYTES, b"\0"),
            b"ustar\x0000",
            bytes(64),  # names of user and group: numbers alone are the same on both sides
            _octal(os.major(found.device), 8),
            _octal(os.minor(found.device) & _MOST_ID, 8),
        )
    )
    checksum = sum(before) + 8 * 0x20 + sum(after)
    return (before + b"%06o\0 " % checksum + after).ljust(BLOCK_BYTES, b"\0")


def _octal(number: int, width: int) -> bytes:
    return b"%0*o\0" % (width - 1, number)


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True
