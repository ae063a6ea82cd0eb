"""What a container's layer adds to, changes of and deletes from the layers below it, as overlayfs keeps it there.

A character device 0/0 hides what has its name below; a directory with the attribute trusted.overlay.opaque hides all
that is in it below. Source: Documentation/filesystems/overlayfs.rst of Linux, "whiteouts and opaque directories".
"""

import os
import stat
from collections.abc import Collection, Generator, Iterator, Sequence
from contextlib import suppress

from shim.frozen import frozen
from supervisor.images.pack import DIRECTORY, FoundEntry, pack
from supervisor.images.tar import TarEntry, TarKind
from supervisor.images.unpack import MOST_DEPTH, OPAQUE_MARK, OPAQUE_XATTR, WHITEOUT
from supervisor.model.errors import WrongState
from supervisor.model.files import LayerChange
from supervisor.model.idranges import IdRange

ELSEWHERE = ("trusted.overlay.redirect", "trusted.overlay.metacopy")  # a part of the file is in a layer below
ADDED, CHANGED, DELETED = "added", "changed", "deleted"


@frozen
class _Level:
    """A directory of the upper layer that is open, the names in it still to come, and where it is below, topmost
    first."""

    fd: int
    path: str
    rest: list[str]
    below: tuple[str, ...]


def changes(
    upper_fd: int, lower: Sequence[str], places: Collection[str] = (), ids: IdRange | None = None
) -> Iterator[LayerChange]:
    """Yield all changes, a directory before what is in it. `lower`: directories that are not written to, topmost first.
    `places`: absolute paths that were made to mount on, and are left out while they are empty. `ids`: those of the
    owners in the layer; below they are the container's. Raises WrongState, OSError."""
    levels = [_Level(os.open(".", DIRECTORY, dir_fd=upper_fd), "", _names(upper_fd), tuple(lower))]
    try:
        while levels:
            level = levels[-1]
            if level.rest:
                yield from _one(levels, level, level.rest.pop(), places, ids)
            else:
                os.close(levels.pop().fd)
    finally:
        for level in levels:
            os.close(level.fd)


def layer_tar(
    upper_fd: int, lower: Sequence[str], places: Collection[str] = (), ids: IdRange | None = None
) -> Generator[bytes, None, None]:
    """Yield the layer as the tar that images have: OCI image-spec, layer.md. The rest as `changes`. Raises as `pack`
    and `changes` do."""

    def shape(found: FoundEntry) -> tuple[TarEntry, ...] | None:
        status, path = found.status, found.name.removeprefix(".")
        if _is_whiteout(status):
            above, _, name = found.name.rpartition("/")
            return (TarEntry(f"{above}/{WHITEOUT}{name}", TarKind.FILE, mode=0o600),)
        _refuse_elsewhere(found.fd, status, path)
        if path in places and _is_empty(found.fd, status) and not _is_below(lower, path):
            return ()
        if found.name.rpartition("/")[2].startswith(WHITEOUT):
            raise WrongState(f"{path}: no image can have a file of such a name, which hides others")
        return None

    def marks(found: FoundEntry) -> tuple[TarEntry, ...]:
        return (TarEntry(f"{found.name}/{OPAQUE_MARK}", TarKind.FILE, mode=0o600),) if _is_opaque(found.fd) else ()

    return pack(upper_fd, ".", shape=shape, inside=marks, ids=ids)


def _one(
    levels: list[_Level], level: _Level, name: str, places: Collection[str], ids: IdRange | None
) -> Iterator[LayerChange]:
    path = f"{level.path}/{name}"
    try:
        status = os.stat(name, dir_fd=level.fd, follow_symlinks=False)
    except FileNotFoundError:
        return
    there, below = _look_below(level.below, name)
    if _is_whiteout(status):
        if there:
            yield LayerChange(DELETED, path)
        return
    fd = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=level.fd)
    try:
        _refuse_elsewhere(fd, status, path)
        if not there and path in places and _is_empty(fd, status):
            return
        if there and below and _holds_places_alone(fd, status, path, below, places, ids):
            return
        yield LayerChange(CHANGED if there else ADDED, path)
        if not stat.S_ISDIR(status.st_mode):
            return
        if len(levels) >= MOST_DEPTH:
            raise WrongState(f"{path[:80]}...: more than {MOST_DEPTH} directories in each other")
        names = _names(fd)
        if _is_opaque(fd):
            yield from (LayerChange(DELETED, f"{path}/{each}") for each in _hidden(below, names))
            below = ()
        levels.append(_Level(os.open(".", DIRECTORY, dir_fd=fd), path, names, below))
    finally:
        os.close(fd)


def _holds_places_alone(
    fd: int,
    status: os.stat_result,
    path: str,
    below: Sequence[str],
    places: Collection[str],
    ids: IdRange | None,
) -> bool:
    """Return whether a directory of the image's was changed by nothing but the places that were made in it."""
    if not stat.S_ISDIR(status.st_mode) or not any(place.startswith(f"{path}/") for place in places):
        return False
    before = os.lstat(below[0])
    owners = (status.st_uid, status.st_gid)
    if ids is not None:
        owners = ids.inside(status.st_uid), ids.inside(status.st_gid)
    if (status.st_mode, *owners) != (before.st_mode, before.st_uid, before.st_gid):
        return False
    return all(f"{path}/{name}" in places and _is_empty_in(fd, name) for name in _names(fd))


def _is_empty_in(at_fd: int, name: str) -> bool:
    fd = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=at_fd)
    try:
        return _is_empty(fd, os.fstat(fd))
    finally:
        os.close(fd)


def _look_below(below: Sequence[str], name: str) -> tuple[bool, tuple[str, ...]]:
    """Return whether the layers show something of this name, and where it is a directory in them."""
    directories: list[str] = []
    for layer in below:
        place = f"{layer}/{name}"
        try:
            status = os.lstat(place)
        except (FileNotFoundError, NotADirectoryError):
            continue
        if _is_whiteout(status):
            break
        if not stat.S_ISDIR(status.st_mode):
            return True, tuple(directories)
        directories.append(place)
        if _is_opaque(place):
            break
    return bool(directories), tuple(directories)


def _is_below(lower: Sequence[str], path: str) -> bool:
    found, below = True, tuple(lower)
    for part in path.split("/")[1:]:
        found, below = _look_below(below, part)
    return found


def _hidden(below: Sequence[str], names: Collection[str]) -> list[str]:
    """Return the names that an opaque directory hides, and has not anew."""
    found = {name for layer in below for name in os.listdir(layer)}
    return sorted(name for name in found - {*names} if _look_below(below, name)[0])


def _refuse_elsewhere(fd: int, status: os.stat_result, path: str) -> None:
    if not (stat.S_ISDIR(status.st_mode) or stat.S_ISREG(status.st_mode)):
        return
    found = {*os.listxattr(f"/proc/self/fd/{fd}")}
    if not found.isdisjoint(ELSEWHERE):
        raise WrongState(
            f"{path}: overlayfs keeps a part of it in another layer (redirect_dir or metacopy is on); "
            "exitctl export gives the whole root"
        )


def _is_empty(fd: int, status: os.stat_result) -> bool:
    if stat.S_ISDIR(status.st_mode):
        return not _names(fd)
    return stat.S_ISREG(status.st_mode) and not status.st_size


def _is_opaque(place: int | str) -> bool:
    with suppress(OSError):  # no such attribute, or none at all
        return os.getxattr(f"/proc/self/fd/{place}" if isinstance(place, int) else place, OPAQUE_XATTR) == b"y"
    return False


def _is_whiteout(status: os.stat_result) -> bool:
    return stat.S_ISCHR(status.st_mode) and status.st_rdev == 0


def _names(fd: int) -> list[str]:
    """From last to first."""
    inside_fd = os.open(".", DIRECTORY, dir_fd=fd)
    try:
        return sorted(os.listdir(inside_fd), reverse=True)
    finally:
        os.close(inside_fd)
