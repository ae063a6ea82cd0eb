"""Takes a task from its shim, and lets the shim go: Delete, Shutdown, and `delete` at the end, whatever came of these.

A container is not kept forever because its shim does not let it go. A shim with an unknown address is searched for.
"""

import asyncio
import contextlib

import structlog

from supervisor.model.errors import ExitdError, NoSuchContainer, ShimFailed, Unsupported
from supervisor.model.values import Container, Process
from supervisor.runtime.foreign_shim import leaked, place
from supervisor.runtime.foreign_shim.registry import Run, ShimRegistry

DELETE_SECONDS = 12.0  # shims drain the output for up to 10 s
SILENT_SECONDS = 2.0  # of one that has not answered for some time
GONE_SECONDS = 5.0  # for a shim that was asked to shut down: it may have to stop a virtual machine

log = structlog.get_logger(__name__)


async def detach(registry: ShimRegistry, run: Run, container: Container, init: Process | None) -> None:
    """Remove everything of the task, as far as its shim and its `delete` can be believed, and all its processes. A shim
    that has only this task and does not exit is killed. Raises ShimFailed."""
    in_pod = container.spec.pod is not None or bool(container.spec.sandbox)
    is_deleted = False
    try:
        await _let_go(run)
        is_deleted = True
        if not in_pod or registry.is_lone(run):
            await _see_out(registry, run)
    except ExitdError as error:
        if not run.peer.lost.is_set():
            log.warning("a shim does not let its task go", container=container.id, why=str(error))
        # It may have another address than the one that it printed and exitd cannot reach.
        looks = registry.place.programs
        was_asked = isinstance(error, Unsupported) and await leaked.end_shim(run.bundle, container.id, looks)
        if registry.is_lone(run):
            await registry.end_shim(run, GONE_SECONDS if was_asked else 0)
    deletion = await registry.delete(run.path, container.id, run.peer.contact.program)
    if init is not None and run.peer.is_plain:
        await leaked.ended(init, GONE_SECONDS)
    elif init is not None and deletion.failed and not is_deleted:
        await _end_survivor(registry, run, init)
    if not container.spec.sandbox:
        await leaked.remove_socket(run.peer.address, registry.place.programs)


async def _end_survivor(registry: ShimRegistry, run: Run, init: Process) -> None:
    """End a process that the shim named as its own, usually a virtual machine, if the container could not be deleted,
    so that no next run begins beside it. Under a living shim other containers use it, too, and it is left alone. Raises
    ShimFailed."""
    if not run.peer.lost.is_set() and not registry.is_lone(run):
        log.warning("neither the shim nor its delete has deleted the container", container=run.key.container)
    elif not await leaked.ended(init, 0):
        raise ShimFailed(f"process {init.pid} is left of {run.key.container[:12]}, and does not die of SIGKILL")


async def _let_go(run: Run) -> None:
    try:
        link = await run.peer.link()
        with contextlib.suppress(NoSuchContainer):
            await link.delete(run.key.container, seconds=SILENT_SECONDS if run.peer.silent else DELETE_SECONDS)
        await link.shutdown(run.key.container)
    finally:
        run.parted = True


async def _see_out(registry: ShimRegistry, run: Run) -> None:
    """Wait until the shim is gone. A closed connection does not prove that: the shim may still be finishing."""
    try:
        async with asyncio.timeout(GONE_SECONDS):
            await run.peer.wait_closed()
        await registry.end_shim(run, GONE_SECONDS)
    except TimeoutError:
        if registry.is_lone(run):  # no container that exitd does not know shares it
            await registry.end_shim(run, 0)


async def detach_nameless(registry: ShimRegistry, path: str, container_id: str) -> None:
    """Clean up after a create that failed before the shim's address was known; it may be in the bundle."""
    work = place.bundle_of(path, container_id)
    address = leaked.address_in(work)
    await leaked.end_shim(work, container_id, registry.place.programs)
    if address is None or registry.is_alone(path, address.address):
        for each in await asyncio.to_thread(leaked.workers_in, work):
            await leaked.ended(each, GONE_SECONDS)
        address = address or leaked.address_in(work)  # it may have come while the shim was about to be killed
        if address is not None:
            await leaked.remove_socket(address, registry.place.programs)
