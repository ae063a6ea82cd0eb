"""The files of a foreign shim in the run directory of its container, beside what every run has.

b/ID/         the bundle that the shim works in: config.json, rootfs, the shim's own files and its log fifo
shim          where the shim listens and what it is, so that a later daemon finds it again
ns-net ...    during a create: the namespaces that the container joins
"""

import contextlib
import os
import stat
from collections.abc import Iterator, Mapping

from shim import fields, native, prepare
from shim.frozen import frozen
from shim.names import CREATED
from supervisor.model import errnos
from supervisor.model.errors import ShimFailed
from supervisor.model.values import Process
from supervisor.runtime.oci import rootfs

BUNDLES, CONFIG, ROOTFS, CONTACT = "b", "config.json", "rootfs", "shim"
MNT_DETACH, UMOUNT_NOFOLLOW = 2, 8


@frozen
class Contact:
    """How a shim is reached: what its `start` printed, and which program it is."""

    program: str
    address: str
    version: int  # of the Task service
    protocol: str = "ttrpc"


def bundle_of(path: str, container_id: str) -> str:
    """Return the bundle's path. Its last part is the id, which some shims rely on."""
    return f"{path}/{BUNDLES}/{container_id}"


def laid_out(path: str, container_id: str) -> bool:
    """Return whether there is a bundle, so that there may be a shim. Raises OSError when that cannot be seen now."""
    try:
        return stat.S_ISDIR(os.stat(bundle_of(path, container_id)).st_mode)
    except OSError as error:
        if error.errno in errnos.NO_FILE:
            return False
        raise


def lay_out(config: bytes, path: str, container_id: str) -> str:
    """Make the bundle. Return its path. Raises ShimFailed."""
    bundle = bundle_of(path, container_id)
    try:
        os.mkdir(os.path.dirname(bundle), mode=0o700)
        os.mkdir(bundle, mode=0o711)
        os.mkdir(f"{bundle}/{ROOTFS}", mode=0o711)
        prepare.write_new(f"{bundle}/{CONFIG}", config)
    except OSError as error:
        raise ShimFailed(f"{bundle}: {errnos.said(error)}") from error
    return bundle


def leave_contact(path: str, contact: Contact) -> None:
    """Write the file that says how the shim is reached. Raises ShimFailed."""
    data = fields.encode(
        "exitd-shimv2",
        [
            ("program", contact.program),
            ("address", contact.address),
            ("version", contact.version),
            ("protocol", contact.protocol),
        ],
    )
    _leave(f"{path}/{CONTACT}", data)


def read_contact(path: str) -> Contact | None:
    """Return None if `start` had not returned yet. Raises OSError when that cannot be read now: a shim may live."""
    try:
        with open(f"{path}/{CONTACT}", "rb") as file:
            found = fields.decode(file.read(65536), "exitd-shimv2")
        return Contact(found.get("program"), found.get("address"), found.number("version"), found.get("protocol"))
    except fields.BadMessage:
        return None
    except OSError as error:
        if error.errno in errnos.NO_FILE:
            return None
        raise


def leave_init(path: str, init: Process) -> None:
    """Note init as exitd-shim does: `rundir.created` reads it."""
    _leave(f"{path}/{CREATED}", fields.encode("exitd-created", [("pid", init.pid), ("started", init.started_ticks)]))


def _leave(path: str, data: bytes) -> None:
    """Write the file completely, or not at all. Raises ShimFailed."""
    try:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f"{path}.new")
        prepare.write_new(f"{path}.new", data)
        os.rename(f"{path}.new", path)
    except OSError as error:
        raise ShimFailed(f"{path}: {errnos.said(error)}") from error


@contextlib.contextmanager
def linked(links: Mapping[str, str], descriptors: list[int]) -> Iterator[None]:
    """While the block runs, let the paths that config.json names lead to these namespaces: by way of exitd's
    descriptors, which no other process can replace while exitd lives."""
    made: list[str] = []
    try:
        for path, fd in zip(links.values(), descriptors, strict=True):
            os.symlink(f"/proc/{os.getpid()}/fd/{fd}", path)
            made.append(path)
        yield
    except FileExistsError as error:
        raise ShimFailed(f"{error.filename}: is there already; the run was begun before") from error
    finally:
        for path in made:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)


def clear(path: str) -> None:
    """Unmount what a shim has left below the run directory, which is about to be removed recursively. Raises ShimFailed
    when a mount stays."""
    try:
        for point in reversed(rootfs.mounts_under(path)):
            native.unmount(point, MNT_DETACH | UMOUNT_NOFOLLOW)
    except OSError as error:
        raise ShimFailed(f"{path}: what its shim has mounted there cannot be released: {error.strerror}") from error
    if left := rootfs.mounts_under(path):
        raise ShimFailed(f"{left[0]} is mounted still; unmount it, and it goes on")
