"""Whether the root directory's file system can hold writable layers: found out by one, and not by its name.

An overlay refuses an upper layer on some file systems when it is mounted (another overlay, NFS, vfat), and on some only
when something is removed that the image has: the marks of that are a device node and an extended attribute.
"""

import errno
import os

from supervisor.model.errnos import USED_UP
from supervisor.monitor import probe
from supervisor.monitor.probe import Capability
from supervisor.runtime.oci import rootfs
from supervisor.runtime.oci.lower import escape_layer
from supervisor.system import removal

PLACE = "trial"
CURE = "put exitd's root on ext4, xfs, btrfs or a tmpfs (exitd --root), or use --storage tmpfs[:SIZE]"
FULL = frozenset({errno.ENOSPC, errno.EDQUOT, *USED_UP})  # say nothing about the kind of the file system


def try_layer(root: str) -> Capability:
    """Make an overlay below `root`, which exists, and remove from it what its lower layer has. Nothing of it is left;
    what a killed trial has left goes first."""
    directory = f"{root}/{PLACE}"
    try:
        kind = probe.file_system(root)
        _clear(directory)
        try:
            _try(directory)
        finally:
            _clear(directory)
    except OSError as error:
        if error.errno not in FULL:
            return Capability(False, f"{root} cannot hold writable layers: {error.strerror or error}", CURE)
        return Capability(True, f"not tried in {root}: {error.strerror}")
    return Capability(True, f"{root} on {kind} holds them")


def _try(directory: str) -> None:
    lower, upper, work, merged = (f"{directory}/{name}" for name in ("lower", "upper", "work", "merged"))
    for path in (directory, lower, f"{lower}/kept", upper, work, merged):
        os.mkdir(path, mode=0o700)
    with open(f"{lower}/kept/file", "wb"):
        pass
    options = f"lowerdir={escape_layer(lower)},upperdir={escape_layer(upper)},workdir={escape_layer(work)}"
    if not rootfs.mount_volatile(merged, options, work):
        rootfs.mount_overlay(merged, options)
    os.unlink(f"{merged}/kept/file")
    os.rmdir(f"{merged}/kept")
    os.mkdir(f"{merged}/kept")
    if os.listdir(f"{merged}/kept"):
        raise OSError(errno.EOPNOTSUPP, "what was removed in an overlay is still there")


def _clear(directory: str) -> None:
    if os.path.lexists(directory):
        rootfs.unmount_all(directory)
        removal.remove_tree(directory)
