"""After a daemon start: every container that the store knows is looked up again, each within a limit, while the API
serves: a call about a container waits for its look-up."""

import asyncio
import contextlib
import itertools
from collections.abc import Collection, Sequence

import structlog

from shim.frozen import replace
from shim.undo import undone_on_failure
from supervisor.engine import remains
from supervisor.engine.execlife import Execs
from supervisor.engine.node import Node
from supervisor.engine.participants import Participant
from supervisor.engine.runs import Runs
from supervisor.model import evidence, lifecycle
from supervisor.model.errors import ExitdError, StoreFailed
from supervisor.model.values import LIVE, ROW_DAMAGED, Container, Event, Phase, Report, RunKey, Source, Unknown
from supervisor.monitor.earlyholds import EarlyHolds
from supervisor.runtime.sandbox import Found
from supervisor.store import salvage
from supervisor.store.codec import Damaged
from supervisor.system.background import pauses

FIND_SECONDS = 60.0  # for one look-up
A_TURN = 4  # look-ups that begin in one turn of the loop: a call waits for so many, not for all
AGAIN_SECONDS = (1.0, 5.0, 30.0)  # until the next one, when one has failed

log = structlog.get_logger(__name__)


async def recover(runs: Runs, state: str) -> None:
    """Load the containers and begin to look them up: `load`, then `look_up`."""
    look_up(runs, await load(runs.node, state))


async def load(node: Node, state: str) -> tuple[Damaged, ...]:
    """Fill the node from its store: the containers, and what could be made of rows that cannot be read, which are
    returned. `node.containers.recovering` says which ones are to be looked up."""
    boot_id = node.clock.boot_id()
    whole, damaged = await node.store.load_containers()
    for container in whole:
        node.containers[container.id] = container
        settled = container.phase is Phase.EXITED and container.clean and container.boot_id == boot_id
        if not settled:
            node.containers.recovering[container.id] = asyncio.Event()
    pods = salvage.pods(whole, damaged)
    for row in filter(salvage.is_possible, damaged):
        remains = replace(await _remains(node, state, row), is_pod=row.id in pods)
        container = salvage.container(row, remains, boot_id)
        log.error("a container's row cannot be read", container=row.id, name=row.name, why=container.damaged)
        node.containers[row.id] = container
        node.containers.recovering[row.id] = asyncio.Event()
    for row in itertools.filterfalse(salvage.is_possible, damaged):
        log.error("a row that is no container's, passed over", id=ascii(row.id)[:200], why=row.why)
    return damaged


class HeldBefore(Participant):
    """What an earlier daemon has left and is to be looked up: held at once, so that the kernel reports its end also if
    that comes before the look-up."""

    def __init__(self, node: Node, execs: Execs, early: EarlyHolds) -> None:
        self._node = node
        self._execs = execs
        self._early = early

    def begin(self) -> None:
        """Once `load` and the execs' have returned: before anything that takes its time."""
        containers, boot_id = self._node.containers, self._node.clock.boot_id()
        for container in map(containers.__getitem__, containers.recovering):
            if container.init is not None and container.phase in LIVE and container.boot_id == boot_id:
                self._early.hold(container.id, container.init)
        for container_id, process in self._execs.unfound():
            if container_id in containers.recovering:
                self._early.hold(container_id, process)

    async def after_find(self, container_id: str) -> None:
        self._early.release(container_id)


async def _remains(node: Node, state: str, row: Damaged) -> salvage.Remains:
    found = await asyncio.to_thread(remains.look, state, row.id)
    last = await node.store.newest_exit(row.id)
    return replace(found, last=last, logged_run=await node.store.newest_logged_run(row.id))


def look_up(runs: Runs, damaged: Collection[Damaged] = ()) -> None:
    """Begin the look-ups of what `load` has listed, a few in each turn of the loop. None waits for another's end.
    `damaged`: what `load` has returned."""
    listed = [runs.node.containers[id] for id in runs.node.containers.recovering]
    runs.node.spawn(_begin(runs, listed, frozenset(row.id for row in damaged)))


async def _begin(runs: Runs, listed: Sequence[Container], unread: Collection[str]) -> None:
    boot_id = runs.node.clock.boot_id()
    for number, container in enumerate(listed):
        rebooted = container.boot_id != boot_id
        runs.node.spawn(_find(runs, container, rebooted=rebooted, is_stored=container.id not in unread))
        if number % A_TURN == A_TURN - 1:
            await asyncio.sleep(0)


async def take_in(runs: Runs, container: Container, events: tuple[Event, ...], *, rebooted: bool) -> None:
    """Store a container that no daemon has known, then look it up like the others. Raises StoreFailed, NameTaken."""
    node = runs.node
    node.containers.recovering[container.id] = asyncio.Event()
    with undone_on_failure(lambda: node.containers.recovering.pop(container.id).set()):
        await node.adopt(container, events)
    node.spawn(_find(runs, container, rebooted=rebooted))


async def _find(runs: Runs, container: Container, *, rebooted: bool, is_stored: bool = True) -> None:
    """Until it is found: a container that could not be looked up is shown as `recovering`, never as something else.
    Not `is_stored`: its row cannot be read, and is replaced."""
    node, rest = runs.node, pauses(AGAIN_SECONDS)
    while True:
        try:
            if not is_stored:
                await node.replace_damaged(container)
                is_stored = True
            await node.others.before_find(container.id)
            await (_after_reboot(runs, container) if rebooted else _again(runs, container))
            break
        except TimeoutError:
            log.error("container not found in time", container=container.id, limit_seconds=FIND_SECONDS)
        except (ExitdError, OSError) as error:
            log.error("container not recovered", container=container.id, why=str(error))
        await asyncio.sleep(next(rest))
        container = node.containers.get(container.id, container)
        node.manager.of(container).forget(container)
    await node.others.after_find(container.id)
    node.containers.recovering.pop(container.id).set()
    if (now := node.containers.get(container.id)) is not None:  # its pod was not looked at meanwhile
        node.others.changed(now)


async def _after_reboot(runs: Runs, container: Container) -> None:
    """Whatever ran has ended with the host, and no process saw how."""
    node = runs.node
    if container.phase in LIVE:
        report = evidence.rebooted(container.init, node.clock.now_ns())
        await runs.exits.end(RunKey(container.id, container.run), report, rebooted=True)
    elif container.phase is Phase.CREATING:
        await node.apply(container.id, lifecycle.MakeFailed("the host was rebooted during create"), patient=True)
    elif container.phase in (Phase.EXITED, Phase.RESTARTING):
        await node.apply(container.id, lifecycle.Rebooted(), patient=True)
    else:
        node.resume_effects(container)


async def _again(runs: Runs, container: Container) -> None:
    node = runs.node
    if container.phase is Phase.CREATING:
        await node.apply(container.id, lifecycle.MakeFailed("the daemon ended during create"), patient=True)
    elif container.phase in LIVE:
        await _connect(runs, container)
    else:
        node.resume_effects(container)


async def _connect(runs: Runs, container: Container) -> None:
    node, is_starting = runs.node, container.phase is Phase.STARTING
    with runs.exits.held_back(container.id) if is_starting else contextlib.nullcontext():
        async with asyncio.timeout(FIND_SECONDS):
            found, _ = await node.manager.of(container).connect_container(container)
        if is_starting and found in (Found.LIVE, Found.ENDED):
            await _settle_start(runs, container, found)
    if found is Found.UNWATCHED:
        node.containers.unwatched.add(RunKey(container.id, container.run))
        log.error("it may run, and nothing names its process; `exitctl rm -f` ends it", container=container.id)
    elif found in (Found.NOTHING, Found.LOST):
        cause = evidence.STATE_LOST if found is Found.LOST else evidence.MONITORS_KILLED
        cause = ROW_DAMAGED if container.damaged else cause
        at_is_found = found is Found.NOTHING  # what was lost ended just now, by exitd
        report = Report(Unknown(cause), Source.NONE, container.init, node.clock.now_ns(), at_is_found=at_is_found)
        await runs.exits.end(RunKey(container.id, container.run), report)
    elif container.phase in (Phase.RUNNING, Phase.PAUSED) and found is Found.LIVE:
        await _settle_pause(node, container)
    elif container.phase is Phase.CREATED and container.run > 1 and found is Found.LIVE:
        with contextlib.suppress(ExitdError):  # made to be started by a daemon that died before it did
            await runs.launch(container.id, until_stored=True)


async def look_at_unwatched(runs: Runs) -> None:
    """Of a damaged container without an init nothing reports the end but this look. For the reconcile loop; one that
    cannot be looked at now is looked at the next time."""
    node = runs.node
    for key in tuple(node.containers.unwatched):
        if not _may_run(node, key):
            node.containers.unwatched.discard(key)
            continue
        container = node.containers[key.container]
        try:
            async with asyncio.timeout(FIND_SECONDS):
                found, _ = await node.manager.of(container).connect_container(container)
        except (ExitdError, OSError) as error:  # TimeoutError is one
            log.warning("whether it still runs cannot be seen", container=key.container, why=str(error))
            continue
        if found is Found.UNWATCHED:
            continue
        node.containers.unwatched.discard(key)
        if found is Found.NOTHING and _may_run(node, key):
            now_ns = node.clock.now_ns()
            report = Report(Unknown(ROW_DAMAGED), Source.NONE, container.init, now_ns, at_is_found=True)
            node.spawn(runs.exits.end(key, report))


def _may_run(node: Node, key: RunKey) -> bool:
    container = node.containers.get(key.container)
    return container is not None and container.run == key.run and container.phase in LIVE


async def _settle_pause(node: Node, container: Container) -> None:
    """A daemon that was killed in a pause or a resume may have done it, and not stored it."""
    try:
        await node.settle_pause(container)
    except StoreFailed:
        raise  # looked up again
    except (ExitdError, OSError) as error:
        log.warning("whether it is paused is not known", container=container.id, why=str(error))


async def _settle_start(runs: Runs, container: Container, found: Found) -> None:
    """The start died with the daemon; whether it had done its work, the runtime's state says, or how init has ended
    meanwhile."""
    node = runs.node
    is_known = runs.exits.known(container.id) is not None
    if found is Found.ENDED and is_known and not runs.ended_begun(container):
        failed = lifecycle.StartFailed("the daemon ended during its start, and it never began")
        await node.apply(container.id, failed, patient=True)
        return
    begun = found is Found.ENDED or await node.manager.of(container).has_begun(container)
    if begun or await node.manager.of(container).state_process(container) == "running":
        await node.apply(container.id, runs.started(container), patient=True)
    elif node.manager.of(container).may_start_again(container):
        with contextlib.suppress(ExitdError):  # stored as a failed start, whose init is killed
            await runs.start_made(container)
    else:
        await runs.give_up_start(container, "exitd ended during the start, and this shim is not asked for it twice")
