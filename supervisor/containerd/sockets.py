"""The sockets of relays that were killed, and whose `delete` program was killed, too, before it had removed them.

Each `start` of a relay on the machine locks the directory while its relay begins (shim/relay/place.c). Everything here
blocks.
"""

import contextlib
import fcntl
import os
import socket
import time
from collections.abc import Iterator

import structlog

from supervisor.system import regular

SOCKETS = "/run/containerd/s"
SCHEME = "unix://"
MOST_BYTES = 256
LOCK_SECONDS, LOOK_SECONDS = 10.0, 0.05

log = structlog.get_logger(__name__)


def of_bundle(bundle: str) -> str:
    """Return the path of the socket that the bundle's relay has had; empty if the bundle names none."""
    try:
        text = regular.read(f"{bundle}/address", most_bytes=MOST_BYTES, follow=False).decode(errors="replace")
    except (OSError, regular.NotRegular):
        return ""
    return of_text(text)


def of_text(text: str) -> str:
    """Return the path of the socket that the text names, with or without its scheme; empty if it is of another kind."""
    directory, _, name = text.strip().removeprefix(SCHEME).rpartition("/")
    return f"{SOCKETS}/{name}" if directory == SOCKETS and name not in ("", ".", "..") else ""


def remove_stale(path: str) -> None:
    """Remove the socket, unless a relay listens there. A failure is logged. The lock is not taken for one that has
    gone: nearly every relay removes its own, and those that begin wait for each other there."""
    if not os.path.lexists(path):
        return
    try:
        with _lock():
            if not _is_served(path):
                os.unlink(path)
    except FileNotFoundError:
        return
    except OSError as error:
        log.warning("the socket of a dead relay is not removed", path=path, why=error.strerror)


@contextlib.contextmanager
def _lock() -> Iterator[None]:
    """Lock the directory. Raises OSError when others had the lock for LOCK_SECONDS."""
    fd, deadline = os.open(SOCKETS, os.O_RDONLY | os.O_DIRECTORY), time.monotonic() + LOCK_SECONDS
    try:
        while not _is_locked(fd, deadline):
            time.sleep(LOOK_SECONDS)
        yield
    finally:
        os.close(fd)


def _is_locked(fd: int, deadline: float) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        if time.monotonic() > deadline:
            raise
        return False
    return True


def _is_served(path: str) -> bool:
    """Return whether a process listens. A full queue means yes; so does lack of descriptors or memory, which proves
    nothing. Raises FileNotFoundError when there is no socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as one:
        try:
            one.connect(path)
        except ConnectionRefusedError:
            return False
        except FileNotFoundError:
            raise
        except OSError:
            return True
    return True
