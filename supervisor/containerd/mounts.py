"""The root file system of a task: the mounts that containerd names, made below its bundle with mount(2), and removed
again.

All functions block: call them in a thread.
"""

import errno
import os
import stat
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress

from protos.containerd import types_pb2
from shim import native
from shim.patterns import LatePattern
from supervisor.model.errors import BadRequest, ShimFailed
from supervisor.model.taskfacts import RootMount
from supervisor.runtime.oci.inroot import open_in_root
from supervisor.runtime.oci.lower import lowerdir
from supervisor.runtime.oci.rootfs import MNT_DETACH, MOST_LOOKS, UMOUNT_NOFOLLOW, mounts_under

MS_RDONLY, MS_REMOUNT, MS_BIND = 1, 1 << 5, 1 << 12
# The words of fstab: the flags that each sets, and those that it clears.
WORDS = {
    **dict.fromkeys(("defaults", "nomand", "nostrictatime"), (0, 0)),
    "ro": (MS_RDONLY, 0),
    "rw": (0, MS_RDONLY),
    "nosuid": (2, 0),
    "suid": (0, 2),
    "nodev": (4, 0),
    "dev": (0, 4),
    "noexec": (8, 0),
    "exec": (0, 8),
    "sync": (16, 0),
    "async": (0, 16),
    "remount": (MS_REMOUNT, 0),
    "mand": (64, 0),
    "dirsync": (128, 0),
    "noatime": (1 << 10, 0),
    "atime": (0, 1 << 10),
    "nodiratime": (1 << 11, 0),
    "diratime": (0, 1 << 11),
    "bind": (MS_BIND, 0),
    "rbind": (MS_BIND | 1 << 14, 0),
    "relatime": (1 << 21, 0),
    "norelatime": (0, 1 << 21),
    "strictatime": (1 << 24, 0),
}
# What a bind mount inherits from its source, unless it is mounted a second time.
BIND_TAKES = MS_BIND | 1 << 14
MOST_DATA_BYTES = 4095  # a page with the terminating zero; the kernel silently cuts off more
MOST_LOWER, MOST_LOWER_BYTES = 500, 256 << 10  # overlay's own limit; paths become descriptors if a page is too short
MOST_MOUNTS = 256  # a snapshotter may send each layer as one, and an image has 127 at most
BUSY_LOOKS, BUSY_SECONDS = 50, 0.05
LOWER = "lowerdir="
_COLON = LatePattern(r"(?<!\\):")
_ESCAPE = LatePattern(r"\\(.)")


def read(messages: Iterable[types_pb2.Mount]) -> tuple[RootMount, ...]:
    """As a Create names them."""
    return tuple(RootMount(each.type, each.source, each.target, tuple(each.options)) for each in messages)


def check(mounts: Sequence[types_pb2.Mount]) -> None:
    """Check that the mounts can be passed to mount(2), and shown. Raises BadRequest, which names the mount by its
    position, and the field."""
    if len(mounts) > MOST_MOUNTS:
        raise BadRequest(f"a root file system of {len(mounts)} mounts; at most {MOST_MOUNTS} are made")
    for place, mount in enumerate(mounts):
        fields = {"type": mount.type, "source": mount.source, "target": mount.target}
        for field, text in (*fields.items(), *(("options", word) for word in mount.options)):
            is_lower = field == "options" and mount.type == "overlay" and text.startswith(LOWER)
            most = MOST_LOWER_BYTES if is_lower else MOST_DATA_BYTES
            if "\0" in text or len(os.fsencode(text)) > most or (is_lower and len(_COLON.split(text)) > MOST_LOWER):
                what = f"at most {MOST_LOWER} directories, {most} bytes" if is_lower else f"at most {most} bytes"
                raise BadRequest(f"rootfs[{place}].{field}: {text[:100]!r}; {what}, none of them zero")


def mount_all(mounts: Sequence[RootMount], rootfs: str) -> None:
    """Mounts them on the directory `rootfs`, in this order. What stands there is taken down first: it is of a try that
    did not come to its end. After an error there is nothing. BadRequest for what cannot be right, ShimFailed when the
    kernel refuses."""
    unmount_all(rootfs)
    for mount in mounts:
        try:
            _mount(mount, rootfs)
        except OSError as error:
            unmount_all(rootfs)
            where = f"{rootfs}/{mount.target}" if mount.target else rootfs
            text = f"mount of {mount.source} ({mount.type}) at {where}: {os.strerror(error.errno or 0)}"
            raise ShimFailed(text) from error
        except BadRequest:
            unmount_all(rootfs)
            raise


def unmount_all(rootfs: str) -> tuple[str, ...]:
    """Unmount everything on `rootfs` or below it. Repeatable. A mount that stays busy for 2.5 s is detached, and
    remains for the processes that use it; such mounts are returned, for the log. Raises ShimFailed when the kernel
    refuses."""
    try:
        # A link in its place is not a root file system, and not exitd's.
        if os.path.islink(rootfs) or not os.path.isdir(rootfs):
            return ()
        real = os.path.realpath(rootfs)  # as mountinfo shows it
        points = [*reversed(mounts_under(real)), real]
        return tuple(point for point in points if _unmount(point))
    except OSError as error:
        raise ShimFailed(f"{rootfs}: {error.strerror or error}; unmount it and try again") from error


def clear(rootfs: str) -> None:
    """Remove the places for mounts that a runtime has made in `rootfs` itself, where containerd had unmounted it before
    that: containerd removes an empty directory only, and makes no task of that name while there is another. What has
    content stays, and so does everything while something is mounted there. Repeatable. Raises OSError."""
    real = os.path.realpath(rootfs)
    mounted = [point for point in mounts_under(os.path.dirname(real)) if f"{point}/".startswith(f"{real}/")]
    if os.path.islink(rootfs) or mounted:
        return
    for directory, below, files in os.walk(rootfs, topdown=False):
        for name in files:
            path = f"{directory}/{name}"
            with suppress(OSError):
                found = os.lstat(path)
                if stat.S_ISREG(found.st_mode) and not found.st_size:
                    os.unlink(path)
        for name in below:
            with suppress(OSError):  # it is not empty, or a link
                os.rmdir(f"{directory}/{name}")


def flags_of(mount: RootMount) -> tuple[int, tuple[str, ...]]:
    """mount(2)'s flags, and the words that are none of fstab's: its data. BadRequest."""
    if mount.type.startswith("fuse") or "loop" in mount.options:
        what = "a loop device" if "loop" in mount.options else f"a helper program for {mount.type}"
        raise BadRequest(f"mount of {mount.source}: needs {what}, which exitd does not set up")
    flags = WORDS["bind"][0] if mount.type == "bind" else WORDS["rbind"][0] if mount.type == "rbind" else 0
    for word in mount.options:
        sets, clears = WORDS.get(word, (0, 0))
        flags = flags & ~clears | sets
    return flags, tuple(word for word in mount.options if word and word not in WORDS)


@contextmanager
def fitting(mount: RootMount, words: tuple[str, ...]) -> Iterator[str]:
    """The words as data, good for a mount inside the block: overlay's lower directories become descriptors where their
    paths are too long. BadRequest when even then it is too much."""
    data = ",".join(words)
    lower = next((word for word in words if word.startswith(LOWER)), "") if mount.type == "overlay" else ""
    # Layers behind `::` are of another kind, for which nothing else is known to work.
    if len(os.fsencode(data)) <= MOST_DATA_BYTES or not lower or "::" in lower:
        yield _checked(mount, data)
        return
    with lowerdir([_ESCAPE.sub(r"\1", layer) for layer in _COLON.split(lower.removeprefix(LOWER))]) as short:
        yield _checked(mount, ",".join(LOWER + short if word is lower else word for word in words))


def _checked(mount: RootMount, data: str) -> str:
    size = len(os.fsencode(data))
    if size > MOST_DATA_BYTES:
        raise BadRequest(f"mount of {mount.source}: options of {size} bytes, at most {MOST_DATA_BYTES}")
    return data


def _mount(mount: RootMount, rootfs: str) -> None:
    flags, words = flags_of(mount)
    first = flags & BIND_TAKES if flags & MS_BIND else flags
    with _target(mount, rootfs) as place, fitting(mount, words) as data:
        native.mount(mount.source, place, mount.type, first, data)
    if flags != first:
        # Opened again, it is what was just mounted there.
        with _target(mount, rootfs) as place:
            native.mount("", place, "", MS_REMOUNT | MS_BIND | flags & ~BIND_TAKES, "")


@contextmanager
def _target(mount: RootMount, rootfs: str) -> Iterator[str]:
    """A path to the place in the root as it is mounted by now, good inside the block. BadRequest when a link leads out
    of it: what an image holds must not choose where the host is mounted on."""
    if os.path.islink(rootfs) or not os.path.isdir(rootfs):
        raise BadRequest(f"{rootfs} is no directory; containerd makes it in the bundle")
    top = os.path.realpath(rootfs)
    wanted = os.path.realpath(f"{top}/{mount.target}")
    if wanted != top and not wanted.startswith(f"{top}/"):
        raise BadRequest(f"mount target {mount.target} leads out of the root file system, to {wanted}")
    found_fd = open_in_root(rootfs, mount.target)
    try:
        yield f"/proc/self/fd/{found_fd}"
    finally:
        os.close(found_fd)


def _unmount(point: str) -> bool:
    """Unmount as often as something is mounted there: mounts may be stacked. Return whether one had to be detached."""
    busy, detached = 0, False
    for _ in range(MOST_LOOKS + BUSY_LOOKS):
        detach = busy >= BUSY_LOOKS
        try:
            native.unmount(point, UMOUNT_NOFOLLOW | (MNT_DETACH if detach else 0))
            detached |= detach
        except OSError as error:
            if error.errno in (errno.EINVAL, errno.ENOENT):
                return detached
            if error.errno != errno.EBUSY:
                raise
            busy += 1
            time.sleep(BUSY_SECONDS)  # the kernel does not report when the last user is gone
    raise OSError(errno.EBUSY, f"still a mount after {MOST_LOOKS + BUSY_LOOKS} looks", point)
