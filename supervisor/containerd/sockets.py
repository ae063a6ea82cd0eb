"""The sockets of relays that were killed before they had removed them, and which process listens at one.

Each `start` of a relay on the machine locks the directory while its relay begins (shim/relay/place.c). Everything here
blocks.
"""

import contextlib
import fcntl
import os
import socket
import struct
import time
from collections.abc import Iterator

from shim import native
from supervisor.model.values import Process
from supervisor.system import regular

SOCKETS = "/run/containerd/s"
SCHEME = "unix://"
MOST_BYTES = 256
LOCK_SECONDS, LOOK_SECONDS = 10.0, 0.05
_UCRED = struct.Struct("iII")  # pid, uid, gid: unix(7)


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
    is_one = directory == SOCKETS and name not in ("", ".", "..") and "\0" not in name
    return f"{SOCKETS}/{name}" if is_one else ""


def remove_stale(path: str) -> Process | None:
    """Remove the socket, unless a relay listens there: then return the relay. None: the socket has gone. Raises OSError
    when neither is sure.

    The lock is not taken for one that has gone: nearly every relay removes its own, and those that begin wait for each
    other there."""
    try:
        os.lstat(path)
    except FileNotFoundError:
        return None
    with _lock():
        found = _listener(path)
        if found is None:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
    return found


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


def _listener(path: str) -> Process | None:
    """Return the relay that listens; None without one. Raises OSError when that is not known: a full queue is that of a
    living relay (BlockingIOError), and lack of descriptors proves nothing."""
    pid = _peer(path)
    while pid is not None:
        found = Process(pid, native.process_stat(pid)[2])
        pid, before = _peer(path), pid
        if pid == before:  # still the same one, so that its start time is not another process's
            return found
    return None


def _peer(path: str) -> int | None:
    """Return the pid of the process that listens; None without one. Raises OSError."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as one:
        try:
            one.connect(path)
        except (ConnectionRefusedError, FileNotFoundError):
            return None
        pid, _, _ = _UCRED.unpack(one.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))
        return int(pid)
