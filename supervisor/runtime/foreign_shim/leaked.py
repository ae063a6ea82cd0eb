"""Shims whose address exitd does not know: `start` was killed, or its output not understood, or exitd died before it
could note what `start` printed. Such a shim has left its address in its bundle."""

import asyncio
import os
import signal

import structlog

from shim import native
from supervisor.model.errors import Busy, ExitdError, ShimFailed, TimedOut
from supervisor.model.values import Process
from supervisor.monitor import epoll
from supervisor.runtime.foreign_shim.binary import Address, read_start_output
from supervisor.runtime.foreign_shim.connection import ShimConnection, remove_dead_socket, socket_path
from supervisor.system import regular, room
from supervisor.system.aside import Aside

NAME = "address"
MOST_BYTES = 4096
DEATH_SECONDS = 2.0  # how long a SIGKILLed shim may take

log = structlog.get_logger(__name__)


def address_in(bundle: str) -> Address | None:
    """Return the address in the bundle; None if no shim got as far as writing it, or it can never be read. Raises
    OSError when it cannot be read now, for lack of descriptors or memory."""
    try:
        return read_start_output(regular.read(f"{bundle}/{NAME}", most_bytes=MOST_BYTES, follow=False))
    except ShimFailed:
        return None
    except OSError as error:
        if room.is_used_up(error):
            raise
        return None


async def end_shim(bundle: str, id: str, looks: Aside) -> bool:
    """Ask a leaked shim to shut down. A shim without tasks ends; one with other tasks, of a pod, stays. Return True if
    there was a shim. Call `delete` afterwards. `looks`: threads that look up its socket. Raises OSError when there is
    no room to look for it."""
    address = address_in(bundle)
    if address is None:
        return False
    try:
        link = await ShimConnection.open(address, looks)
    except ExitdError as error:
        log.debug("no shim is there to be ended", id=id, address=address.address, why=str(error))
        await remove_socket(address, looks)
        return False
    try:
        await link.shutdown(id)
    except ExitdError as error:
        log.warning("a shim cannot be ended", id=id, address=address.address, why=str(error))
    finally:
        link.close()
    return True


async def remove_socket(address: Address, looks: Aside) -> bool:
    """Remove the socket of a shim that was killed. Return False if there is none, or a shim listens on it. The shim has
    named its path: one on a file system that hangs is left there."""
    if not address.address.startswith("unix://"):
        return False
    path = socket_path(address.address)
    try:
        return await looks.at(path, lambda: remove_dead_socket(address))
    except (TimedOut, Busy) as error:
        log.warning("the socket of a shim is not removed", address=address.address, why=str(error))
        return False


def workers_in(bundle: str) -> list[Process]:
    """Return the processes that work in the bundle: its shim, even one that reports its pid to no client, and what it
    left behind."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.readlink(f"/proc/{name}/cwd") == bundle:
                found.append(Process(int(name), native.process_stat(int(name))[2]))
        except (FileNotFoundError, ProcessLookupError, PermissionError):  # it has ended
            continue
    return found


async def ended(process: Process, patience: float) -> bool:
    """Give the process `patience` seconds to exit, then kill it. Return False if it does not die."""
    fd = epoll.open_process(process.pid, process.started_ticks)
    if fd is None:
        return True
    try:
        if await _is_over(fd, patience):
            return True
        log.warning("killing what a shim leaves, or the shim", pid=process.pid)
        signal.pidfd_send_signal(fd, signal.SIGKILL)
        return await _is_over(fd, DEATH_SECONDS)
    except ProcessLookupError:
        return True
    finally:
        os.close(fd)


async def _is_over(pidfd: int, seconds: float) -> bool:
    if epoll.read_ready(pidfd):
        return True
    loop, over = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(pidfd, over.set)
    try:
        async with asyncio.timeout(seconds):
            await over.wait()
    except TimeoutError:
        return False
    finally:
        loop.remove_reader(pidfd)
    return True
