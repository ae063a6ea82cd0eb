"""Paths in volumes that a container mounts alone. A container that writes to a volume may put a link anywhere in it, at
any moment: so the path is walked from descriptor to descriptor, and what was found is bound where only root may enter.

ROOT/c/ID/subpaths/N            what mount N has of its source
ROOT/c/ID/subpaths/shared-N     the same, of an empty directory of its pod's

It is bound anew for each run: what is at the path may have become another directory.
"""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from shim import native
from supervisor.model.errors import BadRequest
from supervisor.model.values import Mount
from supervisor.runtime.oci import rootfs
from supervisor.runtime.oci.inroot import open_in_root

SUBPATHS = "subpaths"
SHARED = f"{SUBPATHS}/shared-"
PRIVATE = 0o700
UNFINISHED = 0o1700  # of a directory that has not its owner and mode yet: exitd may be killed before
MS_BIND = 4096
OPEN_PATH = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
OPEN_NEW = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
OF_THE_PATH = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EEXIST})  # and not of the machine


def place_of(directory: str, index: int, mount: Mount) -> str:
    """Return what a container mounts; `directory`: its own one."""
    return f"{directory}/{SHARED if mount.empty_dir else f'{SUBPATHS}/'}{index}"


def bind_all(directory: str, wanted: dict[int, tuple[Mount, str]]) -> None:
    """Bind the path of each of these mounts, by their numbers, below its source. Repeatable: what an earlier run had is
    unmounted first. Raises BadRequest for a path that cannot be had, OSError."""
    if not wanted:
        return
    with suppress(FileExistsError):
        os.mkdir(f"{directory}/{SUBPATHS}", PRIVATE)
    rootfs.unmount_all(f"{directory}/{SUBPATHS}")
    for index, (mount, source) in wanted.items():
        found_fd = _opened(mount, source)
        try:
            place = place_of(directory, index, mount)
            _make_place(place, is_directory=stat.S_ISDIR(os.fstat(found_fd).st_mode))
            native.mount(f"/proc/self/fd/{found_fd}", place, "", MS_BIND, "")
            native.mount("", place, "", rootfs.MS_PRIVATE, "")
        finally:
            os.close(found_fd)


def release(directory: str) -> None:
    """Unmount them. Repeatable. Raises OSError when the kernel refuses."""
    if os.path.isdir(f"{directory}/{SUBPATHS}"):
        rootfs.unmount_all(f"{directory}/{SUBPATHS}")


def _opened(mount: Mount, source: str) -> int:
    """Return a descriptor of the directory, file or socket. A link in the volume leads to what is in the volume."""
    try:
        found_fd = open_or_make(source, mount.sub_path)
    except OSError as error:
        if error.errno not in OF_THE_PATH:
            raise
        raise BadRequest(_said(mount, error.strerror or str(error)), field="mounts") from error
    mode = os.fstat(found_fd).st_mode
    if not (stat.S_ISDIR(mode) or stat.S_ISREG(mode) or stat.S_ISSOCK(mode)):
        os.close(found_fd)
        raise BadRequest(_said(mount, "neither a directory nor a file nor a socket"), field="mounts")
    return found_fd


def _said(mount: Mount, what: str) -> str:
    source = mount.source or mount.volume or mount.empty_dir
    return f"mount at {mount.destination}: the path {mount.sub_path!r} of {source}: {what}"


def open_or_make(top: str, path: str) -> int:
    """Return an O_PATH descriptor of `path` below `top`. What is missing of it is made, with owner and mode of `top`.
    Raises OSError: EEXIST for a link to what is not there."""
    at_fd = os.open(top, OPEN_PATH)
    try:
        like = os.fstat(at_fd)
        with suppress(FileNotFoundError):
            return _finished(open_in_root(top, path), like)
        for until, name in _steps(path):
            try:
                inner_fd = _finished(open_in_root(top, until), like)
            except FileNotFoundError:
                inner_fd = _made_or_found(at_fd, name, like, top, until)
            os.close(at_fd)
            at_fd = inner_fd
        return os.dup(at_fd)
    finally:
        os.close(at_fd)


def _steps(path: str) -> Iterator[tuple[str, str]]:
    """Yield each beginning of the path, and its last name."""
    parts = path.split("/")
    for count, name in enumerate(parts, 1):
        yield "/".join(parts[:count]), name


def _made_or_found(at_fd: int, name: str, like: os.stat_result, top: str, until: str) -> int:
    """Another container of the volume may be made at the same moment, and have made it."""
    try:
        return _made(at_fd, name, like)
    except FileExistsError as error:
        try:
            return _finished(open_in_root(top, until), like)
        except FileNotFoundError:
            raise error from None  # a link to what is not there


def _made(at_fd: int, name: str, like: os.stat_result) -> int:
    """Make a directory, and return its descriptor. A container may have put another one in its place by now: only what
    is as this has made it gets owner and mode."""
    os.mkdir(name, UNFINISHED, dir_fd=at_fd)
    new_fd = os.open(name, OPEN_NEW, dir_fd=at_fd)
    return _finished(new_fd, like)


def _finished(found_fd: int, like: os.stat_result) -> int:
    """Give a directory that was made here, and not more than made, its owner and mode. Return the descriptor."""
    try:
        if _is_unfinished(os.fstat(found_fd), like):
            with _opened_again(found_fd) as fd:
                if not os.listdir(fd):
                    os.fchown(fd, like.st_uid, like.st_gid)
                    os.fchmod(fd, stat.S_IMODE(like.st_mode))
    except OSError:
        os.close(found_fd)
        raise
    return found_fd


def _is_unfinished(found: os.stat_result, like: os.stat_result) -> bool:
    is_marked = stat.S_ISDIR(found.st_mode) and stat.S_IMODE(found.st_mode) & ~0o6000 == UNFINISHED
    return is_marked and found.st_uid in (os.geteuid(), like.st_uid)  # its mode comes last


@contextmanager
def _opened_again(found_fd: int) -> Iterator[int]:
    """Open what an O_PATH descriptor stands for."""
    fd = os.open(f"/proc/self/fd/{found_fd}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)


def _make_place(place: str, *, is_directory: bool) -> None:
    """An earlier run may have had a file where this one has a directory. Nothing is mounted there now."""
    with suppress(FileNotFoundError):
        if os.path.isdir(place):
            os.rmdir(place)
        else:
            os.unlink(place)
    if is_directory:
        os.mkdir(place, PRIVATE)
    else:
        os.close(os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
