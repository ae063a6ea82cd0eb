"""A task is taken from its shim, and the shim may go: Delete, Shutdown, and `delete` at the end whatever came of these.

A shim that does not let go is no reason to keep a container for ever.
"""

import asyncio
import contextlib

import structlog

from supervisor.errors import ExitdError, NoSuchContainer, ShimLost, Unsupported
from supervisor.shimclient.binary import Address
from supervisor.shimclient.hub import Hub, Run
from supervisor.shimclient.link import Link, remove_dead_socket

DELETE_SECONDS = 12.0  # shims drain the output for up to 10 s
SILENT_SECONDS = 2.0  # of one that has not answered for a while
DEATH_SECONDS = 2.0  # of one that was killed
GONE_SECONDS = 5.0  # for a shim that was told to shut down: there may be a machine to take down

log = structlog.get_logger(__name__)


async def part(hub: Hub, run: Run) -> None:
    """Nothing of the task is left in its shim, as far as that, and its `delete`, can be believed. One that has this
    task alone and does not go is killed."""
    link: Link | None = None
    is_gone = False
    try:
        link = await run.peer.link()
        is_gone = await _let_go(hub, run, link)
    except ShimLost:
        is_gone = True
    except ExitdError as error:
        log.warning("a shim does not let its task go", container=run.key.container, why=str(error))
    if not is_gone and hub.kill_lone_shim(run.key) and link is not None:
        await _closed(link, DEATH_SECONDS)
    contact = run.peer.contact
    await hub.delete(run.path, run.key.container, contact.program)
    with contextlib.suppress(Unsupported):
        remove_dead_socket(Address(contact.address, contact.version, contact.protocol))


async def _let_go(hub: Hub, run: Run, link: Link) -> bool:
    """Whether the shim has gone, or has others' tasks to stay for."""
    seconds = SILENT_SECONDS if run.peer.silent else DELETE_SECONDS
    with contextlib.suppress(NoSuchContainer):
        await link.delete(run.key.container, seconds=seconds)
    await link.shutdown(run.key.container)
    return not hub.is_lone(run.key) or await _closed(link, GONE_SECONDS)


async def _closed(link: Link, seconds: float) -> bool:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await link.closed.wait()
    return link.closed.is_set()
