"""After a daemon start: every container that the store knows is looked up again, all at once, each within a limit."""

import asyncio
import contextlib

import structlog

from shim.undo import undone_on_failure
from supervisor import evidence, lifecycle
from supervisor.errors import ExitdError, StoreFailed
from supervisor.facts import LIVE, Container, Event, Phase, Report, RunKey, Source, Unknown
from supervisor.node import Node
from supervisor.sandbox import Found

FIND_SECONDS = 60.0  # for one look-up
AGAIN_SECONDS = (1.0, 5.0, 30.0)  # until the next one, when one has failed

log = structlog.get_logger(__name__)


async def recover(node: Node) -> None:
    """Fills the node from its store and begins the look-ups.

    Returns when the containers are listed; `node.recovering` says which are still being looked up.
    """
    boot_id = node.clock.boot_id()
    for container in await node.store.load():
        node.containers[container.id] = container
        settled = container.phase is Phase.EXITED and container.clean and container.boot_id == boot_id
        if not settled:
            node.recovering[container.id] = asyncio.Event()
    for container_id in list(node.recovering):
        container = node.containers[container_id]
        node.spawn(_find(node, container, rebooted=container.boot_id != boot_id))


async def take_in(node: Node, container: Container, events: tuple[Event, ...], *, rebooted: bool) -> None:
    """One that no daemon has known: stored, then looked up like the others. StoreFailed, NameTaken."""
    node.recovering[container.id] = asyncio.Event()
    with undone_on_failure(lambda: node.recovering.pop(container.id).set()):
        await node.adopt(container, events)
    node.spawn(_find(node, container, rebooted=rebooted))


async def _find(node: Node, container: Container, *, rebooted: bool) -> None:
    """Until it is found: a container that could not be looked up is shown as `recovering`, never as something else."""
    attempts = 0
    while True:
        try:
            await node.before_find(container.id)
            await (_after_reboot(node, container) if rebooted else _again(node, container))
            break
        except TimeoutError:
            log.error("container not found in time", container=container.id, limit_seconds=FIND_SECONDS)
        except (ExitdError, OSError) as error:
            log.error("container not recovered", container=container.id, why=str(error))
        await asyncio.sleep(AGAIN_SECONDS[min(attempts, len(AGAIN_SECONDS) - 1)])
        attempts += 1
        container = node.containers.get(container.id, container)
        node.manager.forget(container)
    node.recovering.pop(container.id).set()
    if (now := node.containers.get(container.id)) is not None:  # its pod was not looked at meanwhile
        node.on_change(now)


async def _after_reboot(node: Node, container: Container) -> None:
    """Whatever ran has ended with the host, and nobody saw how."""
    if container.phase in LIVE:
        report = evidence.rebooted(container.init, node.clock.now_ns())
        await node.end(RunKey(container.id, container.run), report, rebooted=True)
    elif container.phase is Phase.CREATING:
        await node.apply(container.id, lifecycle.MakeFailed("the host was rebooted during create"), patient=True)
    elif container.phase in (Phase.EXITED, Phase.RESTARTING):
        await node.apply(container.id, lifecycle.Rebooted(), patient=True)
    else:
        node.resume_effects(container)


async def _again(node: Node, container: Container) -> None:
    if container.phase is Phase.CREATING:
        await node.apply(container.id, lifecycle.MakeFailed("the daemon ended during create"), patient=True)
    elif container.phase in LIVE:
        await _connect(node, container)
    else:
        node.resume_effects(container)


async def _connect(node: Node, container: Container) -> None:
    if container.phase is Phase.STARTING:
        node.hold(container.id)
    try:
        async with asyncio.timeout(FIND_SECONDS):
            found, _ = await node.manager.connect_container(container)
        if container.phase is Phase.STARTING and found in (Found.LIVE, Found.ENDED):
            await _settle_start(node, container, found)
    finally:
        node.release(container.id)
    if found in (Found.NOTHING, Found.LOST):
        cause = evidence.STATE_LOST if found is Found.LOST else evidence.MONITORS_KILLED
        at_is_found = found is Found.NOTHING  # what was lost ended just now, by exitd
        report = Report(Unknown(cause), Source.NONE, container.init, node.clock.now_ns(), at_is_found=at_is_found)
        await node.end(RunKey(container.id, container.run), report)
    elif container.phase in (Phase.RUNNING, Phase.PAUSED) and found is Found.LIVE:
        await _settle_pause(node, container)
    elif container.phase is Phase.CREATED and container.run > 1 and found is Found.LIVE:
        with contextlib.suppress(ExitdError):  # made to be started by a daemon that died before it did
            await node.launch(container.id, surely=True)


async def _settle_pause(node: Node, container: Container) -> None:
    """A daemon that was killed in a pause or a resume may have done it, and not stored it."""
    try:
        await node.settle_pause(container)
    except StoreFailed:
        raise  # looked up again
    except (ExitdError, OSError) as error:
        log.warning("whether it is paused cannot be told", container=container.id, why=str(error))


async def _settle_start(node: Node, container: Container, found: Found) -> None:
    """The start died with the daemon; whether it had done its work, the runtime's state says, or how init has ended
    meanwhile."""
    if found is Found.ENDED and node.held(container.id) and not node.ended_begun(container):
        failed = lifecycle.StartFailed("the daemon ended during its start, and it never began")
        await node.apply(container.id, failed, patient=True)
        return
    begun = found is Found.ENDED or node.manager.has_begun(container)
    if begun or await node.manager.state_process(container) == "running":
        await node.apply(container.id, lifecycle.Started(node.clock.boottime_ns()), patient=True)
    elif node.manager.may_start_again(container):
        with contextlib.suppress(ExitdError):  # stored as a failed start, whose init is killed
            await node.start_made(container)
    else:
        await node.give_up_start(container, "exitd ended during the start, and this shim is not asked for it twice")
