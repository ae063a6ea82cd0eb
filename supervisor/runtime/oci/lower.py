"""Many lower directories in one mount option: mount(2) takes one page of options, too little for 127 paths."""

import errno
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from shim import native
from supervisor.model.errors import Unsupported
from supervisor.model.idranges import IdRange

MOST_OPTION_BYTES = 3000  # of a page of 4096 bytes, so that upperdir, workdir and flags fit


def escape_layer(path: str) -> str:
    """Escape a path for overlay's mount options, where colon, comma and backslash have a meaning."""
    for special in ("\\", ":", ","):
        path = path.replace(special, "\\" + special)
    return path


@contextmanager
def lowerdir(layers: Sequence[str], ids: IdRange | None = None) -> Iterator[str]:
    """Yield the value of overlay's option `lowerdir`, topmost layer first, valid for a mount inside the block.

    It has paths if they fit, since mountinfo shows them; otherwise descriptors, which the kernel resolves to the same
    directories. With `ids` they are of mounts whose files have those owners: overlay keeps its own copies of them.
    Raises Unsupported where the file system of a layer has no such mounts.
    """
    if ids is not None:
        with _mapped(layers, ids) as found:
            yield ":".join(f"/proc/self/fd/{fd}" for fd in found)
        return
    text = ":".join(map(escape_layer, layers))
    if len(os.fsencode(text)) <= MOST_OPTION_BYTES:
        yield text
        return
    with ExitStack() as held:
        numbers = []
        for layer in layers:
            fd = os.open(layer, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            held.callback(os.close, fd)
            numbers.append(fd)
        yield ":".join(f"/proc/self/fd/{fd}" for fd in numbers)


def no_other_owners() -> Unsupported:
    """Return the refusal of a kernel without idmapped mounts, or without them below an overlay."""
    return Unsupported(
        "userns auto: this kernel's overlayfs cannot show other owners; it needs Linux 5.19, or leave --userns out"
    )


@contextmanager
def _mapped(layers: Sequence[str], ids: IdRange) -> Iterator[list[int]]:
    with ExitStack() as held:
        user_fd = native.user_namespace(ids.first, ids.count)
        held.callback(os.close, user_fd)
        found = []
        for layer in layers:
            try:
                fd = native.mapped_tree(layer, user_fd)
            except OSError as error:
                if error.errno in (errno.ENOSYS, errno.EOPNOTSUPP):
                    raise no_other_owners() from error
                if error.errno != errno.EINVAL:
                    raise
                raise Unsupported(
                    f"userns auto: the file system of {layer} cannot show other owners (idmapped mounts); it needs "
                    "ext4, xfs or btrfs, or leave --userns out"
                ) from error
            held.callback(os.close, fd)
            found.append(fd)
        yield found
