"""Unpacks a layer's tar into a directory, a lower directory for overlayfs; nothing is ever written outside.

What a layer may contain, and what is made of it:

| entry | becomes |
|---|---|
| absolute name, `..`, through a symbolic link or a file | the layer is refused |
| file, directory, fifo | made, with mode, owner, times, and the xattrs security.capability, posix_acl and user.* |
| symbolic link | made as it is; nothing here follows it, and a container sees it inside its own root |
| hard link | made, if its target is in this layer and is no directory; else the layer is refused |
| device node | left out: a container gets its devices from the runtime, never from an image |
| other xattrs (trusted.*, also overlayfs's own) | left out |
| `.wh.NAME` | character device 0/0, which hides NAME of the layers below |
| `.wh..wh..opq` | trusted.overlay.opaque on the directory, which hides all of the layers below |
| other `.wh..wh.*` | left out: aufs's own |

A directory that no entry names (a/b without a/) gets mode 0755 and root as its owner. Sources: OCI image-spec 1.1
layer.md; Documentation/filesystems/overlayfs.rst of Linux, "whiteouts and opaque directories".
"""

import errno
import os
import shutil
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from supervisor.images.streams import CHUNK_BYTES, Budget
from supervisor.images.tar import BadTar, TarEntry, TarKind, TarReader
from supervisor.model.errors import BadImage, ImageStoreFailed

MOST_DEPTH = 256
MOST_PART_BYTES = 255
WHITEOUT = ".wh."
AUFS = ".wh..wh."
OPAQUE_MARK = ".wh..wh..opq"
OPAQUE_XATTR = "trusted.overlay.opaque"
DIRECTORY = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
DISK = {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.ENOTSUP}
FULL = {errno.ENOSPC, errno.EDQUOT}

Path = tuple[str, ...]


def unpack(tar: TarReader, root: str, where: str, budget: Budget) -> tuple[str, ...]:
    """Fill the existing, empty directory `root`. Return the names of the entries that were left out. The tar's source
    counts its bytes. Raises BadImage, naming the entry, ImageTooLarge, ImageStoreFailed."""
    with _named(where, "the layer"):
        layer = _Layer(os.open(root, DIRECTORY), budget)
    name = "the layer"
    try:
        os.chmod(root, 0o755)
        while True:
            with _named(where, f"after {name!r}"):
                entry = tar.next()
            if entry is None:
                break
            name = entry.name
            budget.spend_entry()
            with _named(where, repr(name)):
                layer.put(entry, tar.read)
        with _named(where, "the directories' times"):
            layer.set_times()
    finally:
        layer.close()
    return tuple(layer.left_out)


def safe_path(name: str) -> Path:
    """Return the parts of an entry's name; none for the root itself. Raises BadTar when it leads out or cannot be a
    path."""
    if name.startswith("/"):
        raise BadTar("an absolute name")
    if "\0" in name or not name:
        raise BadTar("not a name")
    parts = tuple(part for part in name.split("/") if part not in ("", "."))
    if ".." in parts:
        raise BadTar("a name with .. in it")
    if len(parts) > MOST_DEPTH or any(len(os.fsencode(part)) > MOST_PART_BYTES for part in parts):
        raise BadTar(f"a name with more than {MOST_DEPTH} parts, or with one longer than {MOST_PART_BYTES} bytes")
    return parts


@contextmanager
def _named(where: str, what: str) -> Iterator[None]:
    """Add the place to every error."""
    try:
        yield
    except (BadTar, UnicodeError) as error:
        raise BadImage(f"{where}: {what}: {error}", document=where, entry=what) from error
    except OSError as error:
        if error.errno in DISK:
            raise disk_error(error, where) from error
        raise BadImage(f"{where}: {what}: {os.strerror(error.errno or 0)}", document=where, entry=what) from error


def disk_error(error: OSError, where: str) -> ImageStoreFailed:
    words = "the disk is full" if error.errno in FULL else os.strerror(error.errno or errno.EIO)
    return ImageStoreFailed(f"{where}: {words}; nothing of it was kept")


class _Layer:
    """The directory being filled, reached from its descriptor part by part and never through a link.

    Only root writes to the store, and only here, so a name checked once remains as it is.
    """

    def __init__(self, root_fd: int, budget: Budget) -> None:
        self.left_out: list[str] = []
        self._root_fd = root_fd
        self._budget = budget
        self._times: dict[str, int] = {}  # by name: a path of 256 parts takes 15 kB as a tuple
        self._missing: set[str] = set()  # entries left out: hard links to them are left out, too
        self._parent: tuple[Path, int] | None = None  # the directory of the last entry, usually that of the next one

    def close(self) -> None:
        self._forget_parent()
        os.close(self._root_fd)

    def put(self, entry: TarEntry, read: Callable[[int], bytes]) -> None:
        path = safe_path(entry.name)
        hidden = next((part for part in path if part.startswith(WHITEOUT)), None)
        if hidden is not None:
            self._whiteout(path, hidden)
        elif not path:
            if entry.kind is not TarKind.DIRECTORY:
                raise BadTar(f"the root as a {entry.kind.value}")
            self._directory_facts(path, self._root_fd, ".", entry)
        else:
            if self._missing:
                self._missing.discard("/".join(path))
            self._make(path, entry, read)

    def set_times(self) -> None:
        """Set the times of directories, after everything in them was made; directories replaced later have none."""
        for text, when in self._times.items():
            path = tuple(text.split("/")) if text else ()
            name = path[-1] if path else "."
            try:
                there = self._look(self._at(path, make=False), name)
            except (BadTar, FileNotFoundError, NotADirectoryError):
                continue
            if there is not None and stat.S_ISDIR(there.st_mode):
                os.utime(name, ns=(when, when), dir_fd=self._at(path, make=False))

    def _make(self, path: Path, entry: TarEntry, read: Callable[[int], bytes]) -> None:
        name, at_fd = path[-1], self._at(path)
        match entry.kind:
            case TarKind.DEVICE:
                self._leave_out(path)
            case TarKind.DIRECTORY:
                before = self._look(at_fd, name)
                if before is None or not stat.S_ISDIR(before.st_mode):
                    self._clear(path, before)
                    _make_directory(self._at(path), name, opaque=before is not None)
                self._directory_facts(path, self._at(path), name, entry)
            case TarKind.HARDLINK:
                self._hard_link(path, entry.target)
            case _:
                self._clear(path, self._look(at_fd, name))
                _make_other(self._at(path), name, entry, read)

    def _hard_link(self, path: Path, target: str) -> None:
        try:
            source = safe_path(target)
        except BadTar as error:
            raise BadTar(f"a hard link to {target!r}: {error}") from error
        if "/".join(source) in self._missing:
            self._leave_out(path)
            return
        there = self._look(self._at(source, make=False), source[-1]) if source else None
        if there is None or stat.S_ISDIR(there.st_mode) or _is_whiteout(there):
            raise BadTar(f"a hard link to {target!r}, which is no file of this layer")
        if source == path:
            return
        self._clear(path, self._look(self._at(path), path[-1]))
        source_fd = os.dup(self._at(source, make=False))
        try:
            os.link(source[-1], path[-1], src_dir_fd=source_fd, dst_dir_fd=self._at(path), follow_symlinks=False)
        finally:
            os.close(source_fd)

    def _whiteout(self, path: Path, hidden: str) -> None:
        is_last = path.index(hidden) == len(path) - 1
        if hidden.startswith(AUFS):
            if is_last and hidden == OPAQUE_MARK:
                _set_opaque(self._at(path), ".")
            return
        name = hidden.removeprefix(WHITEOUT)
        if not is_last or name in ("", ".", ".."):
            raise BadTar("not a whiteout of anything in its directory")
        there = self._look(self._at(path), name)
        if there is None:
            os.mknod(name, stat.S_IFCHR, os.makedev(0, 0), dir_fd=self._at(path))
        elif stat.S_ISDIR(there.st_mode):  # a whiteout hides the layers below, never its own layer
            _set_opaque(self._at(path), name)

    def _directory_facts(self, path: Path, at_fd: int, name: str, entry: TarEntry) -> None:
        fd = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=at_fd)
        try:
            _set_facts(fd, entry)
        finally:
            os.close(fd)
        text = "/".join(path)
        if text not in self._times:
            self._budget.keep_name(text)
        self._times[text] = entry.mtime_ns

    def _leave_out(self, path: Path) -> None:
        text = "/".join(path)
        self._budget.keep_name(text)
        self._missing.add(text)
        self.left_out.append(text)

    def _clear(self, path: Path, there: os.stat_result | None) -> None:
        """Remove an earlier entry of this name."""
        if there is None:
            return
        if not stat.S_ISDIR(there.st_mode):
            os.unlink(path[-1], dir_fd=self._at(path))
            return
        at_fd = os.dup(self._at(path))
        self._forget_parent()
        try:
            shutil.rmtree(path[-1], dir_fd=at_fd)
        finally:
            os.close(at_fd)

    def _look(self, at_fd: int, name: str) -> os.stat_result | None:
        try:
            return os.stat(name, dir_fd=at_fd, follow_symlinks=False)
        except FileNotFoundError:
            return None

    def _at(self, path: Path, *, make: bool = True) -> int:
        """Return the descriptor of the directory that `path` is in, made if missing; valid until the next call."""
        directory = path[:-1]
        if not directory:
            return self._root_fd
        if self._parent is None or self._parent[0] != directory:
            found_fd = self._walk(directory, make=make)
            self._forget_parent()
            self._parent = directory, found_fd
        return self._parent[1]

    def _walk(self, directory: Path, *, make: bool) -> int:
        at_fd = os.dup(self._root_fd)
        for depth, part in enumerate(directory):
            try:
                next_fd = self._step(at_fd, part, directory[: depth + 1], make=make)
            finally:
                os.close(at_fd)
            at_fd = next_fd
        return at_fd

    def _step(self, at_fd: int, part: str, path: Path, *, make: bool) -> int:
        there = self._look(at_fd, part)
        if there is not None and stat.S_ISLNK(there.st_mode):
            raise BadTar(f"goes through the symbolic link {'/'.join(path)!r}")
        hidden = there is not None and _is_whiteout(there)
        if make and (there is None or hidden):
            if hidden:
                os.unlink(part, dir_fd=at_fd)
            _make_directory(at_fd, part, opaque=hidden)
        return os.open(part, DIRECTORY, dir_fd=at_fd)

    def _forget_parent(self) -> None:
        if self._parent is not None:
            os.close(self._parent[1])
            self._parent = None


def _make_directory(at_fd: int, name: str, *, opaque: bool) -> None:
    os.mkdir(name, dir_fd=at_fd)
    os.chmod(name, 0o755, dir_fd=at_fd)
    if opaque:
        _set_opaque(at_fd, name)


def _make_other(at_fd: int, name: str, entry: TarEntry, read: Callable[[int], bytes]) -> None:
    """Make a file, a symbolic link or a fifo at a free name."""
    if entry.kind is TarKind.FILE:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open(name, flags, 0o600, dir_fd=at_fd), "wb", buffering=0) as file:
            while data := read(CHUNK_BYTES):
                _write(file.fileno(), data)
            _set_facts(file.fileno(), entry)
            os.utime(file.fileno(), ns=(entry.mtime_ns, entry.mtime_ns))
        return
    make_special(entry, name, at_fd)
    os.chown(name, entry.uid, entry.gid, dir_fd=at_fd, follow_symlinks=False)
    if entry.kind is TarKind.FIFO:
        os.chmod(name, entry.mode, dir_fd=at_fd)
    os.utime(name, ns=(entry.mtime_ns, entry.mtime_ns), dir_fd=at_fd, follow_symlinks=False)


def _set_facts(fd: int, entry: TarEntry) -> None:
    """In this order: a change of owner removes set-user-id bits and capabilities."""
    os.fchown(fd, entry.uid, entry.gid)
    os.fchmod(fd, entry.mode)
    for name, value in kept_xattrs(entry.xattrs).items():
        os.setxattr(fd, name, value)


def make_special(entry: TarEntry, name: str, at_fd: int) -> None:
    """Make a symbolic link or a fifo of this name. Raises BadTar, OSError."""
    if entry.kind is TarKind.SYMLINK:
        if not entry.target:
            raise BadTar("a symbolic link to nothing")
        os.symlink(entry.target, name, dir_fd=at_fd)
    else:
        os.mkfifo(name, 0o600, dir_fd=at_fd)


def kept_xattrs(xattrs: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return the attributes that a layer's file keeps: capabilities, access lists, and users' own without overlay's."""
    return {
        name: value
        for name, value in xattrs.items()
        if name in ("security.capability", "system.posix_acl_access", "system.posix_acl_default")
        or (name.startswith("user.") and not name.startswith("user.overlay."))
    }


def _set_opaque(at_fd: int, name: str) -> None:
    fd = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=at_fd)
    try:
        os.setxattr(fd, OPAQUE_XATTR, b"y")
    finally:
        os.close(fd)


def _write(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def _is_whiteout(there: os.stat_result) -> bool:
    return stat.S_ISCHR(there.st_mode) and there.st_rdev == 0
