"""The network namespace of an attachment: made before its ADD, bound at a path, and unbound after its DEL. Blocks.

STATE/netns/ID-RUN        the namespace, as runtime and plugins are given it
STATE/netns/ID-RUN.user   the user namespace that it belongs to, of a container that has users of its own
STATE/netns/ID-RUN.lock   held by every plugin that works on the attachment

Decision 47 has why it is bound and not held by a descriptor. network_namespaces(7), flock(2).
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from shim import native
from shim.undo import undone_on_failure
from supervisor.model.idranges import IdRange
from supervisor.runtime.oci import namespaces

NSFS = 0x6E736673  # statfs(2)
MS_BIND = 4096
MNT_DETACH, UMOUNT_NOFOLLOW = 2, 8  # umount2(2)


def make(path: str, ids: IdRange | None = None) -> None:
    """Make it, in the place of what an earlier one has left. With `ids` it belongs to a user namespace that has these:
    a container of such users could mount no sysfs in another. Raises OSError."""
    unmake(path)
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    with undone_on_failure(lambda: unmake(path)):
        if ids is None:
            _make_place(path)
            native.bind_network(path)
        else:
            _bind_both(path, ids)


def _bind_both(path: str, ids: IdRange) -> None:
    """The network comes last: where it is, both are."""
    user_fd, network_fd = native.user_and_network(ids.first, ids.count)
    try:
        for fd, place in ((user_fd, namespaces.users_of(path)), (network_fd, path)):
            _make_place(place)
            native.mount(f"/proc/self/fd/{fd}", place, "", MS_BIND, "")
    finally:
        os.close(user_fd)
        os.close(network_fd)


def _make_place(path: str) -> None:
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))


def unmake(path: str) -> None:
    """Unbind it and remove its files. Repeatable. Raises OSError."""
    for place in (path, namespaces.users_of(path)):
        while is_there(place):
            native.unmount(place, MNT_DETACH | UMOUNT_NOFOLLOW)
    for each in (path, namespaces.users_of(path), f"{path}.lock"):
        with suppress(FileNotFoundError):
            os.unlink(each)


def is_there(path: str) -> bool:
    """Return whether a namespace is bound at the path: after a boot, or a loss of the state directory, there is
    none. Raises OSError where that cannot be found out: without its namespace a DEL leaves rules."""
    try:
        fd = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return False
    try:
        return native.file_system(fd) == NSFS
    finally:
        os.close(fd)


@contextmanager
def worked_on(path: str) -> Iterator[tuple[int, ...]]:
    """For the length of the block: a descriptor that stands for work on the attachment. What inherits it, plugins and
    what they start, shares it. None where there is no room for its file: that holds no DEL back."""
    try:
        fd = _lock_file(path)
    except OSError:
        yield ()
        return
    try:
        with suppress(OSError):
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        yield (fd,)
    finally:
        os.close(fd)


def is_idle(path: str) -> bool:
    """Return whether no plugin, nor what one had started, has the descriptor of `worked_on`. Never blocks: the file is
    in the state directory, in memory. Raises OSError."""
    fd = _lock_file(path)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except BlockingIOError:
        return False
    finally:
        os.close(fd)


def _lock_file(path: str) -> int:
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    return os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, 0o600)
