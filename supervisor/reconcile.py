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
from supervisor.store import Keep

EVERY_SECONDS = 30.0
KEEP = Keep()

log = structlog.get_logger(__name__)


async def forever(node: Node, manager: NativeContainers, settings: Settings, every_seconds: float) -> None:
    """One round after another; a round's trouble is reported and does not end the loop."""
    while True:
        await asyncio.sleep(every_seconds)
        try:
            await once(node, manager, settings)
        except (ExitdError, OSError) as error:
            log.error("reconcile round failed", why=str(error))


async def once(node: Node, manager: NativeContainers, settings: Settings) -> None:
    """Only what nobody is working on is touched: a container in the middle of a step is left alone."""
    if node.recovering:
        return
    manager.look_at_all()
    await _stray_directories(node, manager, settings.state)
    await _stray_bundles(node, settings.root)
    await manager.acknowledge_strangers(_needed(node))
    _dead_journals(node, settings.state)
    await node.store.compact(KEEP, node.clock.now_ns())


def _needed(node: Node) -> frozenset[RunKey]:
    """Runs whose end is not stored yet, or is being made."""
    phases = LIVE | {Phase.CREATING}
    return frozenset(RunKey(c.id, c.run) for c in node.containers.values() if c.phase in phases)


async def _stray_directories(node: Node, manager: NativeContainers, state: str) -> None:
    for container_id, run in rundir.runs(state):
        container = node.containers.get(container_id)
        if container is not None and (container.run == run or not container.clean):
            continue
        log.warning("run directory without a run, removing it", container=container_id, run=run)
        await manager.delete_stray(container_id, run)


async def _stray_bundles(node: Node, root: str) -> None:
    try:
        found = os.listdir(f"{root}/c")
    except FileNotFoundError:
        return
    for container_id in found:
        if container_id not in node.containers:
            log.warning("files without a container, removing them", container=container_id)
            await node.discard_files(container_id)


def _dead_journals(node: Node, state: str) -> None:
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
