"""Volumes: directories that outlive the containers that mount them, until they are removed.

ROOT/v/NAME/            0700; its time of modification is that of its last mark
ROOT/v/NAME/data/       what containers see
ROOT/v/NAME/new         until its first container has it: it gets what the image has where it is mounted
ROOT/v/NAME/filling     while it gets that; one that was cut off is done anew, before any container sees the volume
ROOT/v/NAME/anonymous   it was made for one container, without a name of the caller's
ROOT/v/NAME/made        its time of modification is when it was made; not there of those that an earlier exitd made
ROOT/v/NAME/lock        flock of who makes or fills it
ROOT/v/.gone-HEX/       one that is being removed, and whose removal may have been cut off

The marks lie beside the content, so that no container can write one.
"""

import errno
import fcntl
import os
import secrets
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from supervisor.model import idranges
from supervisor.model.volumes import Volume
from supervisor.runtime.oci.inroot import open_in_root
from supervisor.system.flushed import flush_directory
from supervisor.system.removal import remove_tree

GONE = ".gone-"
DATA = "data"
NEW, FILLING, ANONYMOUS, MADE, LOCK = "new", "filling", "anonymous", "made", "lock"
PRIVATE = 0o700
MODE = 0o755  # of one that hides nothing
LOCK_SECONDS = 90.0  # for another's fill of the same volume
LOCK_LOOK_SECONDS = 0.05

Fill = Callable[[int, int], None]  # copies a directory, by descriptors, into an empty one; on the disk when it returns


def top_of(root: str) -> str:
    return f"{root}/v"


def path_of(root: str, name: str) -> str:
    """Return what a container mounts."""
    return f"{top_of(root)}/{name}/{DATA}"


def make(root: str, name: str, *, anonymous: bool = False) -> None:
    """Make the volume unless it is there. Repeatable: one whose making was cut off is completed. Raises OSError."""
    for path in (top_of(root), f"{top_of(root)}/{name}"):
        with suppress(FileExistsError):
            os.mkdir(path, PRIVATE)
    with _locked(root, name):
        if os.path.lexists(path_of(root, name)):
            return
        for mark in (MADE, *((ANONYMOUS,) if anonymous else ()), NEW):
            _mark(root, name, mark)
        os.mkdir(path_of(root, name), MODE)  # exitd's umask takes nothing of it


def use_first(root: str, name: str, image_root: str, destination: str, fill: Fill | None, owner: int = -1) -> None:
    """Give a new volume that is empty what the image has where it is mounted: content, owner and mode. Repeatable: what
    was cut off is done anew. Nothing, if the volume does not wait for that.

    `fill` None: for a container that brings nothing; the volume goes on waiting, and gets owner and mode, unless
    `image_root` is empty. `owner`: the container's root, to whom it belongs where the image has nothing there; -1:
    root. Raises OSError, and what `fill` raises."""
    with _locked(root, name):
        if fill is None:
            _wait_on(root, name)
            if is_unused(root, name):
                os.chown(path_of(root, name), owner, owner)
                if image_root:
                    _adopt(root, name, image_root, destination)
            return
        if _has(root, name, FILLING):
            _empty(path_of(root, name))
        elif not _has(root, name, NEW):
            if is_unused(root, name):  # an earlier exitd made it
                os.chown(path_of(root, name), owner, owner)
                _adopt(root, name, image_root, destination)
            return
        elif os.listdir(path_of(root, name)) or _is_anothers(root, name, owner):  # filled by hand, or in use
            os.unlink(_path(root, name, NEW))
            flush_directory(f"{top_of(root)}/{name}")
            return
        else:
            os.rename(_path(root, name, NEW), _path(root, name, FILLING))
            flush_directory(f"{top_of(root)}/{name}")
        os.chown(path_of(root, name), owner, owner)
        _fill(root, name, image_root, destination, fill)
        for mark in (NEW, FILLING):
            with suppress(FileNotFoundError):
                os.unlink(_path(root, name, mark))
        # A mark that came back after a power cut would cost what containers have written since.
        flush_directory(f"{top_of(root)}/{name}")


def is_unused(root: str, name: str) -> bool:
    """Return whether it is as `make` has made it. Raises OSError."""
    found = os.stat(path_of(root, name))
    is_plain = (found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)) == (0, 0, MODE)
    return is_plain and not os.listdir(path_of(root, name))


def _is_anothers(root: str, name: str, owner: int) -> bool:
    """Return whether it belongs to a container with other users than those of which `owner` is root, one that brought
    nothing. Raises OSError."""
    own, uid = max(owner, 0), os.stat(path_of(root, name)).st_uid
    return uid != 0 and uid not in range(own, own + idranges.COUNT)


def listing(root: str) -> tuple[Volume, ...]:
    """Return all, by name. Raises OSError."""
    found = []
    for name in _names(root):
        if not name.startswith("."):
            with suppress(FileNotFoundError, NotADirectoryError):  # removed meanwhile, or an odd file
                found.append(Volume(name, path_of(root, name), _made_ns(root, name), _has(root, name, ANONYMOUS)))
    return tuple(found)


def take_away(root: str, name: str) -> str:
    """Hide the volume: it has its name no more. Return where it is, for `delete`; empty if there is none.
    Raises OSError."""
    gone = f"{top_of(root)}/{GONE}{secrets.token_hex(8)}"
    try:
        os.rename(f"{top_of(root)}/{name}", gone)
    except FileNotFoundError:
        return ""
    return gone


def delete(gone: str) -> None:
    """Remove a hidden volume with all that is in it. May take long. Raises OSError when something of it cannot be
    removed; `sweep` tries again."""
    remove_tree(gone)


def hidden(root: str) -> list[str]:
    """Return the paths of those whose removal was cut off. Raises OSError."""
    return [f"{top_of(root)}/{name}" for name in _names(root) if name.startswith(GONE)]


def _wait_on(root: str, name: str) -> None:
    """Take back a fill that was cut off: no container sees half of it."""
    if _has(root, name, FILLING):
        _empty(path_of(root, name))
        os.rename(_path(root, name, FILLING), _path(root, name, NEW))
        flush_directory(f"{top_of(root)}/{name}")


def _fill(root: str, name: str, image_root: str, destination: str, fill: Fill) -> None:
    """What it hides may be no directory, or nothing: then it stays root's."""
    source_fd = _directory_in(image_root, destination)
    if source_fd < 0:
        return
    into_fd = -1
    try:
        into_fd = os.open(path_of(root, name), os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        fill(source_fd, into_fd)
    finally:
        os.close(source_fd)
        if into_fd >= 0:
            os.close(into_fd)


def _adopt(root: str, name: str, image_root: str, destination: str) -> None:
    """Give an unused volume the owner and mode of the directory that it hides."""
    fd = _directory_in(image_root, destination)
    if fd < 0:
        return
    found = os.fstat(fd)
    os.close(fd)
    os.chown(path_of(root, name), found.st_uid, found.st_gid)
    os.chmod(path_of(root, name), stat.S_IMODE(found.st_mode))


def _directory_in(image_root: str, destination: str) -> int:
    """Return a descriptor of the directory; -1 if that is none."""
    try:
        fd = open_in_root(image_root, destination)
    except OSError:
        return -1
    if not stat.S_ISDIR(os.fstat(fd).st_mode):
        os.close(fd)
        return -1
    return fd


def _empty(path: str) -> None:
    remove_tree(path)
    os.mkdir(path, MODE)


@contextmanager
def _locked(root: str, name: str) -> Iterator[None]:
    """Raises OSError (EAGAIN) when another holds it for long."""
    fd = os.open(_path(root, name, LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        end = time.monotonic() + LOCK_SECONDS
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                if time.monotonic() >= end:
                    raise OSError(errno.EAGAIN, f"volume {name} is being filled, and that takes long") from error
                time.sleep(LOCK_LOOK_SECONDS)
        yield
    finally:
        os.close(fd)


def _made_ns(root: str, name: str) -> int:
    try:
        return os.stat(_path(root, name, MADE)).st_mtime_ns
    except FileNotFoundError:
        return os.stat(f"{top_of(root)}/{name}").st_mtime_ns


def _path(root: str, name: str, mark: str) -> str:
    return f"{top_of(root)}/{name}/{mark}"


def _has(root: str, name: str, mark: str) -> bool:
    return os.path.lexists(_path(root, name, mark))


def _mark(root: str, name: str, mark: str) -> None:
    os.close(os.open(_path(root, name, mark), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))


def _names(root: str) -> list[str]:
    try:
        with os.scandir(top_of(root)) as found:
            return sorted(each.name for each in found if each.is_dir(follow_symlinks=False))
    except FileNotFoundError:
        return []
