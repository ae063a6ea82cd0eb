"""The slow loop: store, run directories, processes and cgroups compared, and what differs repaired or reported."""

import asyncio
import os
from pathlib import Path

import structlog

from shim import journal
from supervisor import monitor, rundir
from supervisor.errors import ExitdError
from supervisor.facts import LIVE, Phase, RunKey
from supervisor.node import Node
from supervisor.oci.native import NativeContainers
from supervisor.operations import Settings
from supervisor.orphans import Orphans
from supervisor.store import Keep

KEEP = Keep()

log = structlog.get_logger(__name__)


async def forever(node: Node, manager: NativeContainers, settings: Settings, every_seconds: float) -> None:
    """One round after another."""
    orphans = Orphans()
    while True:
        await asyncio.sleep(every_seconds)
        await once(node, manager, settings)
        if os.getpid() == 1:
            orphans.reap({c.init.pid for c in node.containers.values() if c.init is not None})


async def once(node: Node, manager: NativeContainers, settings: Settings) -> None:
    """Only what nobody is working on is touched: a container in the middle of a step is left alone. The trouble of one
    step, whatever it is, is reported and costs neither the others nor the next round."""
    for step in (_look, _stray_directories, _stray_bundles, _acknowledged, _dead_journals, _compact):
        try:
            await step(node, manager, settings)
        except Exception:
            log.exception("reconcile step failed", step=step.__name__.strip("_"))


async def _look(node: Node, manager: NativeContainers, settings: Settings) -> None:
    manager.look_at_all()


async def _acknowledged(node: Node, manager: NativeContainers, settings: Settings) -> None:
    await manager.acknowledge_strangers(_needed(node))


async def _dead_journals(node: Node, manager: NativeContainers, settings: Settings) -> None:
    _remove_dead_journals(node, settings.state)


async def _compact(node: Node, manager: NativeContainers, settings: Settings) -> None:
    await node.store.compact(KEEP, node.clock.now_ns())


def _needed(node: Node) -> frozenset[RunKey]:
    """Runs whose end is not stored yet, or is being made."""
    phases = LIVE | {Phase.CREATING}
    return frozenset(RunKey(c.id, c.run) for c in node.containers.values() if c.phase in phases)


async def _stray_directories(node: Node, manager: NativeContainers, settings: Settings) -> None:
    for container_id, run in rundir.runs(settings.state):
        container = node.containers.get(container_id)
        if container is not None and (container.run == run or not container.clean):
            continue
        log.warning("run directory without a run, removing it", container=container_id, run=run)
        try:
            await manager.delete_stray(container_id, run, stranger=container is None)
        except (ExitdError, OSError) as error:
            log.warning("run directory not removed", container=container_id, run=run, why=str(error))


async def _stray_bundles(node: Node, manager: NativeContainers, settings: Settings) -> None:
    try:
        found = os.listdir(f"{settings.root}/c")
    except FileNotFoundError:
        return
    for container_id in found:
        if container_id not in node.containers:
            log.warning("files without a container, removing them", container=container_id)
            try:
                await manager.discard(container_id)
            except (ExitdError, OSError) as error:
                log.warning("files not removed", container=container_id, why=str(error))


def _remove_dead_journals(node: Node, state: str) -> None:
    """A dead keeper's journal is kept as long as it holds an exit that is not stored."""
    needed = _needed(node)
    for path in Path(state).glob("keeper-*.journal"):
        try:
            found = journal.read(path.read_bytes())
        except (OSError, journal.BadJournal):
            continue
        alive = monitor.open_process(found.pid, found.started)
        if alive is not None:
            os.close(alive)
        elif not any(RunKey(entry.id, entry.run, entry.exec_id) in needed for entry in found.entries):
            path.unlink(missing_ok=True)
