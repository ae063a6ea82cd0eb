"""A container's own root: an overlay over the caller's directory, everything written going to a bounded tmpfs.

    DIRECTORY/scratch   tmpfs, 0700: upper and work
    DIRECTORY/merged    overlay of ROOTFS and scratch/upper: the container's /

Both are told apart from everything else by where they are mounted alone, so that a daemon that knows nothing but the
directory can repair or release them.
"""

import errno
import os
from contextlib import suppress

from shim import native
from supervisor.errors import BadRequest
from supervisor.facts import Spec

MS_NOSUID = 2
MS_NODEV = 4
MS_PRIVATE = 1 << 18
MNT_DETACH = 2
UMOUNT_NOFOLLOW = 8
SCRATCH_OPTIONS = "mode=0700,size=512m,nr_inodes=262144"  # written pages also count for the container's memory limit
MOST_LAYERS = 64  # of mounts found on one directory: more means that somebody mounts faster than we release
MOST_CONFIG_BYTES = 8 << 20


def prepare(spec: Spec, directory: str) -> str:
    """Mounts the overlay for `spec.rootfs` in `directory` and returns its path. Repeatable: what stands is kept.

    The path of a bundle's own root is never touched, so this is for `rootfs` alone. Mounts are private: no copy wanders
    into other mount namespaces and keeps them busy there. Raises BadRequest if the root file system is no directory,
    OSError if the kernel refuses.
    """
    lower = _lower(spec.rootfs)
    scratch, merged = _places(directory)
    mounted = mounts_under(directory)
    if scratch in mounted and merged in mounted:
        return merged
    if merged in mounted:  # its scratch is gone: what stands there is not whole
        release(directory)
        mounted = ()
    for path in (directory, scratch, merged):
        os.makedirs(path, mode=0o700, exist_ok=True)
    if scratch not in mounted:
        _mount("exitd-scratch", scratch, "tmpfs", (MS_NOSUID | MS_NODEV, SCRATCH_OPTIONS))
    _mount("exitd-root", merged, "overlay", (0, _layers(lower, scratch)))
    return merged


def release(directory: str) -> None:
    """Unmounts what `prepare` mounted and removes its directories, `directory` too if nothing else is in it.

    Repeatable, no error if nothing is there. Detaches, so that nobody who still holds a file keeps it mounted by name.
    Raises OSError if the kernel refuses or the mounts do not come to an end.
    """
    for _ in range(MOST_LAYERS):
        mounted = mounts_under(directory)
        if not mounted:
            break
        try:
            native.unmount(mounted[-1], MNT_DETACH | UMOUNT_NOFOLLOW)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.EINVAL):  # no longer a mount: the next look decides
                raise
    else:
        raise OSError(f"{directory}: still mounts under it after {MOST_LAYERS} unmounts")
    for path in (*_places(directory), directory):
        _remove_if_empty(path)


def mounts_under(directory: str) -> tuple[str, ...]:
    """Mount points strictly below `directory` in this mount namespace, in the order they were mounted."""
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        return parse_mounts_under(file.read(), os.path.realpath(directory))


def parse_mounts_under(mountinfo: str, directory: str) -> tuple[str, ...]:
    """The same from the text of proc_pid_mountinfo(5): field 5, with space, tab, newline and backslash in octal."""
    prefix = directory.rstrip("/") + "/"
    points = (_unescape(fields[4]) for fields in map(str.split, mountinfo.split("\n")) if len(fields) > 4)
    return tuple(point for point in points if point.startswith(prefix))


def escape_layer(path: str) -> str:
    """A path inside overlay's mount options, where colon, comma and backslash have a meaning."""
    for special in ("\\", ":", ","):
        path = path.replace(special, "\\" + special)
    return path


def read_bundle(bundle: str) -> tuple[bytes, str]:
    """The text of a bundle's config.json and its path, for spec.parse_bundle. Raises BadRequest if it is not there."""
    path = os.path.join(bundle, "config.json")
    try:
        with open(path, "rb") as file:
            text = file.read(MOST_CONFIG_BYTES + 1)
    except OSError as error:
        raise BadRequest(f"no bundle at {bundle}: {path}: {os.strerror(error.errno or 0)}", bundle=bundle) from error
    if len(text) > MOST_CONFIG_BYTES:
        raise BadRequest(f"{path} is larger than {MOST_CONFIG_BYTES} bytes", bundle=bundle)
    return text, path


def _lower(rootfs: str) -> str:
    if not rootfs.startswith("/"):
        raise BadRequest(f"root file system {rootfs!r} must be an absolute path", rootfs=rootfs)
    if not os.path.isdir(rootfs):
        raise BadRequest(f"root file system {rootfs}: no such directory", rootfs=rootfs)
    return os.path.realpath(rootfs)


def _places(directory: str) -> tuple[str, str]:
    """As mountinfo names them: without links."""
    real = os.path.realpath(directory)
    return os.path.join(real, "scratch"), os.path.join(real, "merged")


def _layers(lower: str, scratch: str) -> str:
    """The overlay's options. `upper` becomes the root directory the container sees, so it gets the mode of `lower`."""
    upper, work = os.path.join(scratch, "upper"), os.path.join(scratch, "work")
    os.makedirs(upper, exist_ok=True)
    os.makedirs(work, exist_ok=True)
    status = os.stat(lower)
    os.chown(upper, status.st_uid, status.st_gid)
    os.chmod(upper, status.st_mode & 0o7777)
    return ",".join(f"{name}={escape_layer(path)}" for name, path in _named(lower, upper, work))


def _named(lower: str, upper: str, work: str) -> tuple[tuple[str, str], ...]:
    return ("lowerdir", lower), ("upperdir", upper), ("workdir", work)


def _mount(source: str, target: str, kind: str, how: tuple[int, str]) -> None:
    native.mount(source, target, kind, *how)
    native.mount("", target, "", MS_PRIVATE, "")


def _unescape(field: str) -> str:
    first, *rest = field.split("\\")
    return first + "".join(chr(int(part[:3], 8)) + part[3:] for part in rest)


def _remove_if_empty(path: str) -> None:
    """rmdir, never a recursive removal: where a mount should be gone and is not, that would empty the host's root."""
    with suppress(FileNotFoundError, NotADirectoryError):
        try:
            os.rmdir(path)
        except OSError:
            if not os.path.isdir(path) or not os.listdir(path):
                raise
