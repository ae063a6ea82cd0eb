"""Sockets in the network namespace of another process. A socket belongs for ever to the namespace that it was made in,
so only the making of it happens there, in a thread that ends with it; connecting and the rest happen in the event loop.

setns(2), network_namespaces(7). A thread's namespaces are its own; one that has changed them is never used again.
"""

import asyncio
import ctypes
import errno
import os
import socket
import threading
from collections.abc import Sequence

from shim import native
from supervisor.model.errors import WrongState
from supervisor.model.values import Process
from supervisor.system import threads

NO_FAMILY = frozenset({errno.EAFNOSUPPORT, errno.EPROTONOSUPPORT, errno.ESOCKTNOSUPPORT})  # of this kernel
CLONE_NEWNET = 0x40000000


async def sockets_in(process: Process, families: Sequence[int]) -> dict[int, socket.socket]:
    """Return a stream socket of each address family that the kernel has, in the network namespace of this process; the
    caller closes them. Raises WrongState when the process has ended, OSError, CannotStart."""
    loop = asyncio.get_running_loop()
    outcome: asyncio.Future[dict[int, socket.socket]] = loop.create_future()

    def work() -> None:
        try:
            made = _made(process, families)
        except BaseException as error:  # to the one that waits, whatever it was
            _hand_over(loop, outcome, error)
        else:
            _hand_over(loop, outcome, made)

    threads.start(threading.Thread(target=work, name="netns", daemon=True))
    return await outcome


def _hand_over(
    loop: asyncio.AbstractEventLoop,
    outcome: "asyncio.Future[dict[int, socket.socket]]",
    what: dict[int, socket.socket] | BaseException,
) -> None:
    def settle() -> None:
        if isinstance(what, BaseException):
            if not outcome.done():
                outcome.set_exception(what)
        elif outcome.done():  # cancelled: no caller takes them
            close_all(what)
        else:
            outcome.set_result(what)

    try:
        loop.call_soon_threadsafe(settle)
    except RuntimeError:  # the loop has ended meanwhile
        if isinstance(what, dict):
            close_all(what)


def close_all(sockets: dict[int, socket.socket]) -> None:
    for each in sockets.values():
        each.close()


def _made(process: Process, families: Sequence[int]) -> dict[int, socket.socket]:
    try:
        namespace_fd = os.open(f"/proc/{process.pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError as error:
        raise WrongState(f"process {process.pid} has ended") from error
    try:
        # After the open: so what was opened is its own.
        if native.process_stat(process.pid)[2] != process.started_ticks:
            raise WrongState(f"process {process.pid} has ended")
        _enter(namespace_fd)
    except (FileNotFoundError, ProcessLookupError) as error:
        raise WrongState(f"process {process.pid} has ended") from error
    finally:
        os.close(namespace_fd)
    found: dict[int, socket.socket] = {}
    for family in families:
        try:
            found[family] = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        except OSError as error:
            if error.errno not in NO_FAMILY:
                close_all(found)
                raise
    return found


def _enter(namespace_fd: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(namespace_fd, CLONE_NEWNET) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
