"""A tree of files as the bytes of a tar, also while containers write there: nothing is followed, nothing but
directories and regular files is opened, and names, depth and attributes have bounds."""

import errno
import os
import stat
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import suppress

from shim import native
from shim.frozen import frozen, replace
from supervisor.images import idxattrs, tarwriter
from supervisor.images.tar import MOST_ID, BadTar, TarEntry, TarKind
from supervisor.images.unpack import MOST_DEPTH, kept_xattrs
from supervisor.model.errors import WrongState
from supervisor.model.idranges import IdRange
from supervisor.system import regular

CHUNK_BYTES = 128 << 10
MOST_XATTR_BYTES = 64 << 10  # of one file: as much as listxattr(2) gives of names alone
MOST_LINKS = 100_000  # files of several names that are remembered; what comes after them is packed once for each name
DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
PLACE = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC

Cross = Callable[[int], int]  # takes a descriptor, and returns one of what is mounted there, or itself


@frozen
class FoundEntry:
    """What the packer has come to. `fd` is an O_PATH descriptor, valid during the call."""

    fd: int
    name: str  # in the tar
    status: os.stat_result


Shape = Callable[[FoundEntry], Iterable[TarEntry] | None]  # None: an entry as usual; else these, and nothing of it


def pack(
    top_fd: int,
    name: str,
    *,
    cross: Cross | None = None,
    fuse: bool = False,
    shape: Shape | None = None,
    inside: Callable[[FoundEntry], Iterable[TarEntry]] | None = None,
    ids: IdRange | None = None,
) -> Generator[bytes, None, None]:
    """Yield the tar of what `top_fd` (O_PATH is enough) names, under `name`; a directory's content is below it. With
    the name `.` the entries of a directory are `./NAME`.

    Close it where it is not read to its end: it holds descriptors. `cross`: asked about each file and directory.
    `fuse`: files of FUSE file systems are read. `shape`: asked about each file and directory what it becomes. `inside`:
    asked about each directory for entries in it that no file has. `ids`: owners become what they are in the container
    that has these.

    Raises WrongState, naming the entry, for what changes so that no tar can hold it, is too deep, or has too many
    attributes; OSError.
    """
    packer = _Packer(cross, shape, inside, fuse=fuse, ids=ids)
    try:
        yield from _collected(packer.all(os.dup(top_fd), name))
    finally:
        packer.close()


def entry_of(
    name: str,
    status: os.stat_result,
    *,
    target: str = "",
    xattrs: Mapping[str, bytes] | None = None,
    ids: IdRange | None = None,
) -> TarEntry:
    """Return the entry of a file; of a regular one without its size."""
    uid, gid = (status.st_uid, status.st_gid) if ids is None else map(ids.inside, (status.st_uid, status.st_gid))
    return TarEntry(
        name,
        _KINDS[stat.S_IFMT(status.st_mode)],
        mode=stat.S_IMODE(status.st_mode),
        uid=min(uid, MOST_ID),
        gid=min(gid, MOST_ID),
        mtime_ns=status.st_mtime_ns,
        target=target,
        xattrs=xattrs or {},
        device=status.st_rdev if stat.S_IFMT(status.st_mode) in (stat.S_IFCHR, stat.S_IFBLK) else 0,
        is_block=stat.S_ISBLK(status.st_mode),
    )


def xattrs_of(path: int | str, name: str) -> Mapping[str, bytes]:
    """Return the attributes that a tar keeps. Raises WrongState when they are too many."""
    found: dict[str, bytes] = {}
    try:
        names = os.listxattr(path)
    except OSError as error:
        if error.errno in (errno.ENOTSUP, errno.EPERM, errno.EACCES):
            return {}
        raise
    size = 0
    for key in kept_xattrs(dict.fromkeys(names, b"")):
        with suppress(OSError):  # removed meanwhile, or not for everybody to see
            found[key] = os.getxattr(path, key)
            size += len(key) + len(found[key])
        if size > MOST_XATTR_BYTES:
            raise WrongState(f"{name!r} has more than {MOST_XATTR_BYTES} bytes of attributes (xattr)")
    return found


_KINDS = {
    stat.S_IFREG: TarKind.FILE,
    stat.S_IFDIR: TarKind.DIRECTORY,
    stat.S_IFLNK: TarKind.SYMLINK,
    stat.S_IFIFO: TarKind.FIFO,
    stat.S_IFCHR: TarKind.DEVICE,
    stat.S_IFBLK: TarKind.DEVICE,
}


@frozen
class _PackedLevel:
    """A directory that is open, and the names in it that are still to come."""

    fd: int
    name: str
    rest: list[str]
    mounted: tuple[int, int] | None  # where it is another file system's top


class _Packer:
    def __init__(
        self,
        cross: Cross | None,
        shape: Shape | None,
        inside: Callable[[FoundEntry], Iterable[TarEntry]] | None,
        *,
        fuse: bool,
        ids: IdRange | None,
    ) -> None:
        self._cross, self._shape, self._inside, self._fuse, self._ids = cross, shape, inside, fuse, ids
        self._levels: list[_PackedLevel] = []
        self._links: dict[tuple[int, int], str] = {}

    def close(self) -> None:
        while self._levels:
            os.close(self._levels.pop().fd)

    def all(self, top_fd: int, name: str) -> Iterator[bytes]:
        """Takes the descriptor."""
        yield from self._one(top_fd, name, None)
        while self._levels:
            level = self._levels[-1]
            if not level.rest:
                os.close(self._levels.pop().fd)
                continue
            below = level.rest.pop()
            try:
                fd = os.open(below, PLACE, dir_fd=level.fd)
            except FileNotFoundError:
                continue  # removed since the directory was read
            fd, mounted = self._crossed(fd)
            yield from self._one(fd, f"{level.name}/{below}", mounted)
        yield tarwriter.END

    def _crossed(self, fd: int) -> tuple[int, tuple[int, int] | None]:
        """A mount that shows the tree around it, as one of the host's whole root does, is not entered again."""
        if self._cross is None:
            return fd, None
        other = self._cross(fd)
        if other == fd:
            return fd, None
        status = os.fstat(other)
        mounted = status.st_dev, status.st_ino
        if any(level.mounted == mounted for level in self._levels):
            os.close(other)
            raise WrongState("a mount of the container has the container's own files in it; copy less at once")
        return other, mounted

    def _one(self, fd: int, name: str, mounted: tuple[int, int] | None) -> Iterator[bytes]:
        """Takes the descriptor."""
        try:
            status = os.fstat(fd)
            shaped = self._shape(FoundEntry(fd, name, status)) if self._shape is not None else None
            if shaped is not None:
                for entry in shaped:
                    yield _header(entry)
                return
            match stat.S_IFMT(status.st_mode):
                case stat.S_IFDIR:
                    yield self._enter(fd, name, status, mounted)
                    for entry in self._inside(FoundEntry(fd, name, status)) if self._inside is not None else ():
                        yield _header(entry)
                case stat.S_IFREG:
                    yield from self._file(fd, name, status)
                case stat.S_IFLNK:
                    yield _header(entry_of(name, status, target=os.readlink("", dir_fd=fd), ids=self._ids))
                case stat.S_IFSOCK:
                    pass  # nothing to connect to is left of one
                case _:
                    yield _header(entry_of(name, status, ids=self._ids))
        finally:
            os.close(fd)

    def _enter(self, fd: int, name: str, status: os.stat_result, mounted: tuple[int, int] | None) -> bytes:
        if len(self._levels) >= MOST_DEPTH:
            raise WrongState(f"{name[:80]!r}...: more than {MOST_DEPTH} directories in each other")
        directory_fd = os.open(".", DIRECTORY, dir_fd=fd)
        level = _PackedLevel(directory_fd, name, [], mounted)
        self._levels.append(level)
        if native.file_system(directory_fd) not in regular.MADE_UP:  # what /proc has are no files
            level.rest.extend(sorted(os.listdir(directory_fd), reverse=True))
        return _header(entry_of(name, status, xattrs=self._xattrs(directory_fd, name), ids=self._ids))

    def _file(self, fd: int, name: str, status: os.stat_result) -> Iterator[bytes]:
        key = status.st_dev, status.st_ino
        if status.st_nlink > 1 and key in self._links:
            entry = entry_of(name, status, target=self._links[key], ids=self._ids)
            yield _header(replace(entry, kind=TarKind.HARDLINK))
            return
        try:
            file_fd = regular.open_found(fd, name, fuse=self._fuse)
        except regular.NotRegular as error:
            raise WrongState(f"{name!r}: {error.strerror}") from error
        try:
            size = os.fstat(file_fd).st_size
            entry = entry_of(name, status, xattrs=self._xattrs(file_fd, name), ids=self._ids)
            yield _header(replace(entry, size_bytes=size))
            yield from _content(file_fd, size, name)
        finally:
            os.close(file_fd)
        if status.st_nlink > 1 and len(self._links) < MOST_LINKS:
            self._links[key] = name

    def _xattrs(self, fd: int, name: str) -> Mapping[str, bytes]:
        found = xattrs_of(fd, name)
        ids = self._ids
        if ids is None or idxattrs.NAMES.isdisjoint(found):
            return found
        return {key: idxattrs.inside(key, value, ids) for key, value in found.items()}


def _content(file_fd: int, size: int, name: str) -> Iterator[bytes]:
    """As many bytes as the header says: what is added meanwhile is left out."""
    left = size
    while left:
        data = os.read(file_fd, min(left, CHUNK_BYTES))
        if not data:
            raise WrongState(f"{name!r} became shorter while it was read; try again")
        left -= len(data)
        yield data
    yield tarwriter.padding(size)


def _header(entry: TarEntry) -> bytes:
    try:
        return tarwriter.header(entry)
    except BadTar as error:
        raise WrongState(str(error)) from error


def _collected(parts: Iterator[bytes]) -> Iterator[bytes]:
    """Small parts come together, so that a message has more than one header in it."""
    held = bytearray()
    for part in parts:
        held += part
        if len(held) >= CHUNK_BYTES:
            yield bytes(held)
            held.clear()
    if held:
        yield bytes(held)
