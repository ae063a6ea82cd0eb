"""The slow loop: store, run directories, processes and cgroups compared, and what differs repaired or reported."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path

import structlog

from shim import journal
from shim.frozen import field, frozen
from shim.mark import EXITDS_OWN_ID, RUN
from shim.record import Record
from supervisor.config.settings import Retention
from supervisor.engine import recovery
from supervisor.engine.ledger import retained_since
from supervisor.engine.node import Node
from supervisor.engine.operations import Settings
from supervisor.engine.runs import Runs
from supervisor.engine.unknownruns import UnknownRuns
from supervisor.model.errors import ExitdError
from supervisor.model.values import LIVE, Phase, RunKey
from supervisor.monitor import epoll, survey
from supervisor.monitor.orphans import Orphans
from supervisor.runtime.managers import ContainerRuntimes
from supervisor.store.database import DAY_NS, Keep

log = structlog.get_logger(__name__)


@frozen
class ReconcileParts:
    """What is compared."""

    runs: Runs
    manager: ContainerRuntimes
    settings: Settings
    unknown_runs: UnknownRuns
    execs: Callable[[], Iterable[RunKey]] = tuple  # those whose end is not stored
    networks: Callable[[], None] = lambda: None  # takes down those that nothing uses
    orphans: Orphans = field(default_factory=Orphans)

    @property
    def node(self) -> Node:
        return self.runs.node


async def forever(parts: ReconcileParts) -> None:
    """Do one round after another."""
    while True:
        await asyncio.sleep(parts.settings.now().limits.reconcile_seconds)
        await once(parts)


async def once(parts: ReconcileParts) -> None:
    """Only what no operation is working on is touched: a container in the middle of a step is left alone. The trouble
    of one step, whatever it is, is reported and costs neither the others nor the next round."""
    for step in (
        _look,
        _unwatched,
        _memory,
        _strange_directories,
        _strange_cgroups,
        _networks,
        _leaked_bundles,
        _leaked_roots,
        _acknowledged,
        _dead_journals,
        _compact,
        _orphans,
    ):
        try:
            await step(parts)
        except Exception:
            log.exception("reconcile step failed", step=step.__name__.strip("_"))


async def _look(parts: ReconcileParts) -> None:
    parts.manager.look_at_all()


async def _unwatched(parts: ReconcileParts) -> None:
    await recovery.look_at_unwatched(parts.runs)


async def _memory(parts: ReconcileParts) -> None:
    await parts.manager.look_at_memory()


async def _acknowledged(parts: ReconcileParts) -> None:
    await parts.manager.acknowledge_strangers(lambda: _needed(parts))


async def _orphans(parts: ReconcileParts) -> None:
    if os.getpid() == 1:
        parts.orphans.reap({c.init.pid for c in parts.node.containers.values() if c.init is not None})


async def _dead_journals(parts: ReconcileParts) -> None:
    _remove_dead_journals(parts)


async def _compact(parts: ReconcileParts) -> None:
    retention, store = parts.settings.now().retention, parts.node.store
    await store.forget_retained(retained_since(retention, parts.node.moment().boot))
    await store.compact(keep_of(retention), parts.node.clock.now_ns())


def keep_of(retention: Retention) -> Keep:
    """Return what the store is to keep, in its own units."""
    return Keep(
        retention.events,
        round(retention.events_days * DAY_NS),
        retention.exits,
        round(retention.exits_days * DAY_NS),
        retention.series,
        round(retention.series_days * DAY_NS),
    )


def _needed(parts: ReconcileParts) -> frozenset[RunKey]:
    """Runs whose end is not stored yet, or is being made, or whose output may not be complete; and those of strangers,
    which may be adopted yet."""
    phases = LIVE | {Phase.CREATING}
    known = {RunKey(c.id, c.run) for c in parts.node.containers.values() if c.phase in phases or not c.clean}
    strange = {RunKey(id, RUN) for id in survey.ids(parts.settings.state) if id not in parts.node.containers}
    return frozenset(known | strange | set(parts.execs()))


async def _strange_directories(parts: ReconcileParts) -> None:
    for found in await parts.unknown_runs.look_at_all():
        container, run = found.id, int(found.run)
        log.warning("run directory left over, removing it", container=container, run=run)
        try:
            await parts.manager.delete_leaked_run(container, run, stranger=container not in parts.node.containers)
        except (ExitdError, OSError) as error:
            log.warning("run directory not removed", container=container, run=run, why=str(error))


async def _strange_cgroups(parts: ReconcileParts) -> None:
    await parts.manager.sweep_cgroups(parts.node.containers.keys())


async def _networks(parts: ReconcileParts) -> None:
    parts.networks()


async def _leaked_bundles(parts: ReconcileParts) -> None:
    """Files of what was started by hand, and not adopted yet, are left alone. So are those of what still runs: its
    config.json says which ids of the machine it has, and these must not become another's."""
    await _remove_leaked(parts, f"{parts.settings.root}/c", parts.manager.discard)


async def _leaked_roots(parts: ReconcileParts) -> None:
    await _remove_leaked(parts, f"{parts.settings.state}/roots", parts.manager.discard_root)


async def _remove_leaked(parts: ReconcileParts, directory: str, remove: Callable[[str], Awaitable[None]]) -> None:
    try:
        found = os.listdir(directory)
    except FileNotFoundError:
        return
    for container_id in found:
        if container_id in parts.node.containers or not EXITDS_OWN_ID.fullmatch(container_id):
            continue
        try:
            if await parts.manager.runs_on(container_id):
                log.warning("files of what runs without a container, leaving them", container=container_id)
                continue
            log.warning("files without a container, removing them", container=container_id, directory=directory)
            await remove(container_id)
        except (ExitdError, OSError) as error:
            log.warning("files not removed", container=container_id, why=str(error))


def _remove_dead_journals(parts: ReconcileParts) -> None:
    """A dead keeper's journal is kept as long as it holds an exit that is not stored, or cannot be read."""
    for path in Path(parts.settings.state).glob("keeper-*.journal"):
        try:
            if _never_begun(path) or (
                not _keeper_lives(path) and _needed(parts).isdisjoint(map(_key_of, _read(path).entries))
            ):
                path.unlink(missing_ok=True)
        except (OSError, journal.BadJournal):
            continue


def _never_begun(path: Path) -> bool:
    """Its keeper ended before it had written the header: the state directory was full, or it was killed. The file's
    name ends with the keeper's pid; a stranger who has that by now only keeps the file."""
    pid = path.stem.rpartition("-")[2]
    gone = pid.isdigit() and not Path(f"/proc/{pid}").exists()
    return gone and not path.read_bytes().strip(b"\0")


def _keeper_lives(path: Path) -> bool:
    """Asked before the entries are read: one that has died since may have written one more."""
    found = _read(path)
    alive = epoll.open_process(found.pid, found.started)
    if alive is not None:
        os.close(alive)
    return alive is not None


def _read(path: Path) -> journal.Journal:
    return journal.read(path.read_bytes())


def _key_of(entry: Record) -> RunKey:
    return RunKey(entry.id, entry.run, entry.exec_id)
