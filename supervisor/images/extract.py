"""A tar put into a directory that others may use meanwhile: no link in it is followed, and nothing outside is touched.

| entry | becomes |
|---|---|
| absolute name, `..`, through a symbolic link or a file | refused, by its name |
| file, symbolic link, fifo, hard link to an earlier entry | made; what has its name goes first, but no directory |
| directory | made, or the one that is there; never in place of a file |
| device node | left out, and counted |

What was made before an entry is refused stays, as with cp(1). In a container with users of its own, a directory or a
mounted file that is there and belongs to none of them keeps its owner, mode, attributes and times.
"""

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress

from shim.frozen import frozen
from shim.undo import undone_on_failure
from supervisor.images import idxattrs
from supervisor.images.pack import DIRECTORY, PLACE, Cross
from supervisor.images.tar import BadTar, TarEntry, TarKind, TarReader
from supervisor.images.unpack import kept_xattrs, make_special, safe_path
from supervisor.model.errors import BadRequest, WrongState
from supervisor.model.idranges import IdRange
from supervisor.system import regular

CHUNK_BYTES = 128 << 10
MOST_TIMES = 100_000  # directories whose times are set; the others have that of their last entry
PERMISSIONS = 0o777
NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC

Parts = tuple[str, ...]


@frozen
class Keeping:
    """What of an entry's facts the file gets. Without its owner a file belongs to the process that makes it, and is
    neither set-user-id nor set-group-id: another's program would become this user's."""

    owner: bool = False
    xattrs: bool = False
    top: bool = False  # facts of the entry `.` for the directory itself
    ids: IdRange | None = None  # of the container whose files these are: it has the owners of entries, and what is made


@frozen
class ExtractedCounts:
    """How many entries were made, and how many device nodes were left out."""

    entries: int = 0
    left_out: int = 0


class ChunkSource:
    """A tar in parts, as `TarReader` reads it."""

    def __init__(self, parts: Iterator[bytes]) -> None:
        self._parts = parts
        self._held = memoryview(b"")

    def read(self, most: int) -> bytes:
        if not self._fill():
            return b""
        data = bytes(self._held[:most])
        self._held = self._held[most:]
        return data

    def skip(self, count: int) -> None:
        while count and self._fill():
            passed = min(count, len(self._held))
            self._held = self._held[passed:]
            count -= passed

    def _fill(self) -> bool:
        while not self._held:
            part = next(self._parts, None)
            if part is None:
                return False
            self._held = memoryview(part)
        return True


def extract(tar: TarReader, into_fd: int, keeping: Keeping, cross: Cross | None = None) -> ExtractedCounts:
    """Put all entries below the directory. `cross`: asked about each directory on the way, as `pack` does.

    Raises BadRequest for a tar that is none, or has an entry that cannot be; WrongState, naming the entry, for what
    is in its way and what the file system refuses.
    """
    work = _Extraction(into_fd, keeping, cross)
    name = "the archive"
    try:
        while (entry := tar.next()) is not None:
            name = entry.name
            work.put(entry, tar.read)
        work.set_times()
    except BadTar as error:
        raise BadRequest(f"{name!r}: {error}") from error
    except WrongState as error:
        raise WrongState(f"{name!r}: {error}") from error
    except OSError as error:
        raise WrongState(f"{name!r}: {error.strerror or error}") from error
    finally:
        work.close()
    return ExtractedCounts(work.entries, work.left_out)


class _Extraction:
    def __init__(self, into_fd: int, keeping: Keeping, cross: Cross | None) -> None:
        self.entries = self.left_out = 0
        self._top_fd, self._keeping, self._cross = os.dup(into_fd), keeping, cross
        self._times: dict[Parts, int] = {}
        self._parent: tuple[Parts, int] | None = None  # of the last entry, usually that of the next one

    def close(self) -> None:
        self._forget_parent()
        os.close(self._top_fd)

    def put(self, entry: TarEntry, read: Callable[[int], bytes]) -> None:
        path = safe_path(entry.name)
        if not path:
            if entry.kind is not TarKind.DIRECTORY:
                raise BadTar("not a directory, and has no name")
            if self._keeping.top:
                self._directory_facts(os.dup(self._top_fd), path, entry)
            return
        if entry.kind is TarKind.DEVICE:
            self.left_out += 1
            return
        at_fd, name = self._at(path), path[-1]
        match entry.kind:
            case TarKind.DIRECTORY:
                self._make_directory(path, entry)
            case TarKind.FILE:
                self._file(at_fd, name, entry, read)
            case TarKind.HARDLINK:
                self._link(path, entry.target)
            case _:
                self._clear(at_fd, name)
                self._special(at_fd, name, entry)
        self.entries += 1

    def set_times(self) -> None:
        """Of directories, after everything in them was made."""
        for path, when in self._times.items():
            with suppress(FileNotFoundError, NotADirectoryError):  # another has removed or replaced it
                fd = self._walk(path, make=False)
                try:
                    if self._may_change(fd):
                        os.utime(f"/proc/self/fd/{fd}", ns=(when, when))
                finally:
                    os.close(fd)

    def _make_directory(self, path: Parts, entry: TarEntry) -> None:
        at_fd, name = self._at(path), path[-1]
        there = _look(at_fd, name)
        if there is None:
            os.mkdir(name, 0o700, dir_fd=at_fd)
            found_fd = self._made(at_fd, name, stat.S_IFDIR)
        elif not stat.S_ISDIR(there.st_mode):
            raise WrongState("a directory cannot take the place of what is there; remove it first")
        else:
            found_fd = self._step(at_fd, name, make=False)
        if found_fd is not None:
            self._directory_facts(found_fd, path, entry)

    def _directory_facts(self, found_fd: int, path: Parts, entry: TarEntry) -> None:
        """Closes the descriptor."""
        try:
            fd = os.open(".", DIRECTORY, dir_fd=found_fd)
        finally:
            os.close(found_fd)
        try:
            if self._may_change(fd):
                self._facts(fd, entry)
        finally:
            os.close(fd)
        if len(self._times) < MOST_TIMES:
            self._times[path] = entry.mtime_ns

    def _file(self, at_fd: int, name: str, entry: TarEntry, read: Callable[[int], bytes]) -> None:
        in_place = self._clear(at_fd, name, keep_busy=True)
        fd = _open_busy(at_fd, name) if in_place else os.open(name, NEW, 0o600, dir_fd=at_fd)
        try:
            if not in_place and self._keeping.ids is not None:
                os.fchown(fd, *[self._keeping.ids.first] * 2)
            while data := read(CHUNK_BYTES):
                _write(fd, data)
            if self._may_change(fd):
                self._facts(fd, entry)
                os.utime(fd, ns=(entry.mtime_ns, entry.mtime_ns))
        except BaseException:
            if not in_place:  # half a file is none
                with suppress(OSError):
                    os.unlink(name, dir_fd=at_fd)
            raise
        finally:
            os.close(fd)

    def _link(self, path: Parts, target: str) -> None:
        source = safe_path(target)
        there_fd = os.dup(self._at(source, make=False)) if source else -1
        try:
            there = _look(there_fd, source[-1]) if source else None
            if there is None or stat.S_ISDIR(there.st_mode):
                raise BadTar(f"a hard link to {target!r}, which is no file that was put there")
            if source != path:
                at_fd = self._at(path)
                self._clear(at_fd, path[-1])
                os.link(source[-1], path[-1], src_dir_fd=there_fd, dst_dir_fd=at_fd, follow_symlinks=False)
        finally:
            if there_fd >= 0:
                os.close(there_fd)

    def _special(self, at_fd: int, name: str, entry: TarEntry) -> None:
        make_special(entry, name, at_fd)
        kind = stat.S_IFLNK if entry.kind is TarKind.SYMLINK else stat.S_IFIFO
        if (fd := self._made(at_fd, name, kind)) is None:
            return
        try:
            at = f"/proc/self/fd/{fd}"  # leads to a link itself
            if self._keeping.owner:
                os.chown(at, *self._owners(entry))
            if kind == stat.S_IFIFO:
                os.chmod(at, entry.mode & PERMISSIONS)
            os.utime(at, ns=(entry.mtime_ns, entry.mtime_ns))
        finally:
            os.close(fd)

    def _may_change(self, fd: int) -> bool:
        """Return whether it may get facts of an entry. A container with users of its own may have put a directory of
        the machine's under the name, which it can rename and not enter: that is neither opened nor given away. What is
        made here is its root's by then."""
        ids = self._keeping.ids
        return ids is None or ids.first <= os.fstat(fd).st_uid < ids.first + ids.count

    def _facts(self, fd: int, entry: TarEntry) -> None:
        """In this order: a change of owner removes set-user-id bits and capabilities."""
        if self._keeping.owner:
            os.fchown(fd, *self._owners(entry))
        sticky = entry.mode & stat.S_ISVTX if entry.kind is TarKind.DIRECTORY else 0
        os.fchmod(fd, entry.mode if self._keeping.owner else entry.mode & PERMISSIONS | sticky)
        for name, value in kept_xattrs(entry.xattrs).items() if self._keeping.xattrs else ():
            ids = self._keeping.ids
            try:
                os.setxattr(fd, name, value if ids is None else idxattrs.outside(name, value, ids))
            except OSError as error:
                if error.errno != errno.ENOTSUP:  # a tmpfs has none; cp(1) copies without them there, too
                    raise

    def _owners(self, entry: TarEntry) -> tuple[int, int]:
        ids = self._keeping.ids
        return (entry.uid, entry.gid) if ids is None else (ids.outside(entry.uid), ids.outside(entry.gid))

    def _made(self, at_fd: int, name: str, kind: int) -> int | None:
        """Return a place descriptor of what was made just now. It is the container's root's then, if that is another
        than the machine's. Another may have put another thing in its place: None for what cannot be the new one."""
        fd, ids = os.open(name, PLACE, dir_fd=at_fd), self._keeping.ids
        with undone_on_failure(lambda: os.close(fd)):
            is_new = self._is_new(fd, kind)
            if is_new and ids is not None:
                os.chown(f"/proc/self/fd/{fd}", ids.first, ids.first)
        if is_new:
            return fd
        os.close(fd)
        return None

    def _is_new(self, fd: int, kind: int) -> bool:
        """Without users of its own, a container is root, and may anyway do what is done to it; and there are file
        systems that give what root makes to another."""
        found = os.fstat(fd)
        if stat.S_IFMT(found.st_mode) != kind:
            return False
        if self._keeping.ids is None:
            return True
        return found.st_uid == os.geteuid() and not (kind == stat.S_IFDIR and os.listdir(f"/proc/self/fd/{fd}"))

    def _clear(self, at_fd: int, name: str, *, keep_busy: bool = False) -> bool:
        """Remove what has the name, unless that is a directory. Return whether it is still there, because something is
        mounted on it."""
        there = _look(at_fd, name)
        if there is None:
            return False
        if stat.S_ISDIR(there.st_mode):
            raise WrongState("a directory is there; remove it first")
        try:
            os.unlink(name, dir_fd=at_fd)
        except OSError as error:
            if error.errno != errno.EBUSY or not keep_busy:
                raise
            return True
        return False

    def _at(self, path: Parts, *, make: bool = True) -> int:
        """Return the descriptor of the directory that `path` is in, made if missing; valid until the next call."""
        directory = path[:-1]
        if not directory:
            return self._top_fd
        if self._parent is None or self._parent[0] != directory:
            found_fd = self._walk(directory, make=make)
            self._forget_parent()
            self._parent = directory, found_fd
        return self._parent[1]

    def _walk(self, directory: Parts, *, make: bool) -> int:
        at_fd = os.dup(self._top_fd)
        for part in directory:
            try:
                next_fd = self._step(at_fd, part, make=make)
            finally:
                os.close(at_fd)
            at_fd = next_fd
        return at_fd

    def _step(self, at_fd: int, part: str, *, make: bool) -> int:
        if make:
            with suppress(FileExistsError):
                os.mkdir(part, 0o755, dir_fd=at_fd)
                if (made_fd := self._made(at_fd, part, stat.S_IFDIR)) is not None:
                    os.close(made_fd)
        fd = os.open(part, PLACE, dir_fd=at_fd)
        try:
            if stat.S_ISLNK(os.fstat(fd).st_mode):
                raise WrongState(f"{part!r} is a symbolic link, which is not followed; copy to where it leads")
            if not stat.S_ISDIR(os.fstat(fd).st_mode):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), part)
        except (OSError, WrongState):
            os.close(fd)
            raise
        return fd if self._cross is None else self._cross(fd)

    def _forget_parent(self) -> None:
        if self._parent is not None:
            os.close(self._parent[1])
            self._parent = None


def _open_busy(at_fd: int, name: str) -> int:
    """Open a regular file that something is mounted on, to be written anew."""
    found_fd = os.open(name, PLACE, dir_fd=at_fd)
    try:
        regular.check(found_fd, name)
        return os.open(f"/proc/self/fd/{found_fd}", os.O_WRONLY | os.O_TRUNC | os.O_NONBLOCK | os.O_CLOEXEC)
    finally:
        os.close(found_fd)


def _look(at_fd: int, name: str) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=at_fd, follow_symlinks=False)
    except FileNotFoundError:
        return None


def _write(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
