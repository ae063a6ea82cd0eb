"""Who may connect, and how long: the API's sockets belong to root and, where it exists, to the group exitd (root in
effect)."""

import grp
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress

GROUP = "exitd"


@contextmanager
def nobody_else() -> Iterator[None]:
    """Give what is made inside the block mode 0600 from its first moment. The umask is the process's: only around a
    bind."""
    before = os.umask(0o177)
    try:
        yield
    finally:
        os.umask(before)


def admit_group(path: str, group: str = GROUP) -> bool:
    """Give a bound socket to root:`group`, mode 0660. Return False where no such group exists: it stays the owner's
    alone."""
    try:
        gid = grp.getgrnam(group).gr_gid
    except KeyError:
        os.chmod(path, 0o600)
        return False
    os.chown(path, -1, gid)
    os.chmod(path, 0o660)
    return True


def name_before(path: str) -> str:
    """Return the name that gRPC's socket is bound to, before it is renamed to `path`. For getsockname(2) it keeps that
    name."""
    return f"{path}~"


def is_listened_at(path: str) -> bool:
    """Return whether a connection can be made there. Does not wait, and leaves one that has ended in the queue."""
    with socket.socket(socket.AF_UNIX) as line:
        line.setblocking(False)
        try:
            line.connect(path)
        except (FileNotFoundError, ConnectionRefusedError):
            return False
        except BlockingIOError:  # the queue is full
            return True
    return True


def hang_up(path: str) -> int:
    """Shut down every connection that this process has accepted at the path, whichever library holds it. Return how
    many there were. Raises OSError: there is no room to look.

    Their descriptors stay the library's: a copy, closed here, would be another's file if the number was used again
    meanwhile, and with it would go the locks that the process has on that (fcntl_locking(2)).
    """
    return sum(_hung_up(int(name), path) for name in os.listdir("/proc/self/fd"))


def _hung_up(fd: int, path: str) -> bool:
    with suppress(OSError):  # no socket, or gone
        line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, 0, fileno=fd)
        try:
            if line.getsockname() == path and not line.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                line.shutdown(socket.SHUT_RDWR)
                return True
        finally:
            line.detach()
    return False
