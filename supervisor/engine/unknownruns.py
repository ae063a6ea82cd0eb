"""Run directories that another program made: noticed through inotify or in a round, judged, and adopted or left alone.

Also the opposite: the run directory of a living container that another program removed.
"""

import asyncio
import os
from collections.abc import Iterable
from functools import partial

import structlog

from shim.mark import EXITDS_OWN_ID, RUN
from supervisor.engine import recovery
from supervisor.engine.runs import Runs
from supervisor.model import adoption
from supervisor.model.adoption import Adopt, KnownRuns, Leave, Refuse, Remove, UnknownRun, Verdict
from supervisor.model.errors import ExitdError
from supervisor.model.values import LIVE, Container, RunKey
from supervisor.monitor import rundir, survey
from supervisor.store import counts
from supervisor.system.inotify import (
    IN_CLOSE_WRITE,
    IN_CREATE,
    IN_DELETE,
    IN_IGNORED,
    IN_MOVED_FROM,
    IN_MOVED_TO,
    Inotify,
    InotifyWatch,
    Item,
    Overflow,
    is_end,
)

AGAIN_SECONDS = 1.0  # after a refused commit
TOP_MASK = IN_CREATE | IN_MOVED_TO | IN_DELETE | IN_MOVED_FROM
INNER_MASK = IN_CREATE | IN_MOVED_TO | IN_CLOSE_WRITE

log = structlog.get_logger(__name__)


class UnknownRuns:
    """Belongs to the node's event loop. `begin` makes it quick; without it `look_at_all` finds the same, later."""

    def __init__(self, runs: Runs, state: str) -> None:
        self._runs = runs
        self._node = runs.node
        self._state = state
        self._inotify: Inotify | None = None
        self._top: InotifyWatch | None = None
        self._inner: dict[str, dict[str, InotifyWatch]] = {}  # by id: directories in which something is still to come
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._busy: set[str] = set()
        self._dirty: set[str] = set()  # changed while it was being looked at
        self._refused: dict[tuple[str, str], str] = {}
        self._lost: set[RunKey] = set()

    def begin(self, inotify: Inotify) -> None:
        self._inotify = inotify
        self._node.spawn(self._first_look())

    async def _first_look(self) -> None:
        """What is left over of our own is for the rounds to remove."""
        try:
            await self.look_at_all()
        except (ExitdError, OSError) as error:
            log.warning("run directories not looked at", state=self._state, why=str(error))

    # -- what there is

    async def look_at_all(self) -> list[UnknownRun]:
        """Everything once; returns what is left over of our own and wants to be removed."""
        self._watch_top()
        there = await asyncio.to_thread(survey.ids, self._state)
        self._refused = {key: why for key, why in self._refused.items() if key[0] in there}
        for id in self._inner.keys() - set(there):
            self._forget(id)
        # Those of a run that has not been cleaned up are its own.
        of_clean = [id for id in there if (known := self._node.containers.get(id)) is not None and known.clean]
        own = await asyncio.to_thread(rundir.runs, self._state, of_clean) if of_clean else []
        settled = {c.id: c.run for c in self._node.containers.values() if c.clean}
        strange = {id for id in there if id not in self._node.containers}
        strange |= {id for id, run in own if settled.get(id, run) != run}
        leftovers: list[UnknownRun] = []
        for id in sorted(strange - self._busy):
            leftovers += await self._visit(id)
        await self._report_lost(self._node.containers.values())
        return leftovers

    def _soon(self, id: str) -> None:
        """Another program's files have changed; what is exitd's own is looked at in rounds."""
        if id in self._busy:
            self._dirty.add(id)
        elif id not in self._node.containers and not EXITDS_OWN_ID.fullmatch(id) and not self._node.closing:
            self._node.spawn(self._visit_once(id))

    async def _visit_once(self, id: str) -> None:
        await self._visit(id)

    async def _visit(self, id: str) -> list[UnknownRun]:
        """Until nothing has changed meanwhile."""
        if id in self._busy:
            return []
        self._busy.add(id)
        try:
            while True:
                self._dirty.discard(id)
                leftovers = await self._look_at(id)
                if id not in self._dirty:
                    return leftovers
        finally:
            self._busy.discard(id)
            self._dirty.discard(id)

    async def _look_at(self, id: str) -> list[UnknownRun]:
        try:
            judged = await self._judged(id)
            while self._watch_inner(id, [found for found, verdict in judged if _is_awaited(verdict)]):
                judged = await self._judged(id)  # what came between the look and the watch; also another directory
            if not judged:
                self._forget(id)
            return [found for found, verdict in judged if await self._act(found, verdict)]
        except ExitdError as error:
            log.warning("run directory not adopted yet, trying again", container=ascii(id), why=str(error))
            self._look_again(id, AGAIN_SECONDS)
        except OSError as error:
            self._refuse(id, "", f"it cannot be looked at: {error.strerror}")
        return []

    async def _judged(self, id: str) -> list[tuple[UnknownRun, Verdict]]:
        found = await asyncio.to_thread(survey.look, self._state, id)
        container = self._node.containers.get(id)
        ended = await self._node.store.last_exit(id, RUN) if any(each.mark for each in found) else None
        known = KnownRuns(container, ended is not None, ended.init if ended is not None else None)
        return [(each, adoption.judge(each, known, os.geteuid())) for each in found]

    async def _act(self, found: UnknownRun, verdict: Verdict) -> bool:
        """True: it is to be removed."""
        if not _is_awaited(verdict):
            self._forget(found.id)
        match verdict:
            case Adopt():
                await self._adopt(found, verdict)
            case Refuse(why):
                self._refuse(found.id, found.run, why)
            case Leave(seconds) if seconds:
                self._look_again(found.id, seconds)
        return isinstance(verdict, Remove)

    def _refuse(self, id: str, run: str, why: str) -> None:
        """Leave it alone. Logged once, as long as the reason stays the same."""
        if self._refused.get((id, run)) != why:
            self._refused[id, run] = why
            log.warning("run directory not adopted", container=ascii(id), run=run, why=why)

    # -- one of them becomes a container

    async def _adopt(self, found: UnknownRun, adopt: Adopt) -> None:
        name = adopt.mark.name
        if self._node.containers.named("default", name) is not None:
            name = found.id
            log.warning("name is taken, adopting under the id", container=found.id, name=adopt.mark.name)
        container = adoption.container_of(found, adopt, name, "")
        if found.started is None:
            container = adoption.container_of(found, adopt, name, await self._word(container))
        # A record is the truth about its end, whenever that was; without one nothing of another boot is known.
        rebooted = container.boot_id != self._node.clock.boot_id() and not found.recorded
        events = adoption.events_of(container, self._node.moment())
        await recovery.take_in(self._runs, container, events, rebooted=rebooted)
        self._node.count(counts.CONTAINERS_ADOPTED, found.id)
        log.info("adopted", container=found.id, name=name, phase=container.phase.value, bundle=adopt.mark.bundle)

    async def _word(self, container: Container) -> str:
        """The runtime's; empty where it has none any more."""
        try:
            return await self._node.manager.of(container).state_process(container)
        except (ExitdError, OSError):
            return ""

    # -- one of ours has lost its directory

    async def _report_lost(self, containers: Iterable[Container]) -> None:
        self._lost &= {RunKey(c.id, c.run) for c in self._node.containers.values()}
        for container in await asyncio.to_thread(self._without_directory, list(containers)):
            key, now = RunKey(container.id, container.run), self._node.containers.get(container.id)
            if key in self._lost or now is None or now.run != container.run or now.phase not in LIVE:
                continue
            self._lost.add(key)
            log.warning("run directory removed by another program; watched on", container=key.container, run=key.run)
            try:
                await self._node.note(adoption.lost(now, self._node.moment()))
            except ExitdError as error:
                self._lost.discard(key)  # reported again in the next round
                log.warning("event not stored", container=key.container, why=str(error))

    def _without_directory(self, containers: list[Container]) -> list[Container]:
        return [
            c for c in containers if c.phase in LIVE and not os.path.isdir(rundir.path_of(self._state, c.id, c.run))
        ]

    # -- inotify

    def _watch_top(self) -> None:
        """The directory of all containers, made if need be; again after it has been removed."""
        if self._inotify is None or self._top is not None:
            return
        path = f"{self._state}/c"
        try:
            os.makedirs(path, mode=0o700, exist_ok=True)
            self._top = self._inotify.watch(path, TOP_MASK, self._changed)
        except OSError as error:
            log.warning("not watched, looked at in rounds only", path=path, why=error.strerror)

    def _watch_inner(self, id: str, waiting: list[UnknownRun]) -> bool:
        """The directories of one that is being made. True when there is a new watch."""
        if not waiting:
            return False
        watches = self._inner.setdefault(id, {})
        paths = {f"{self._state}/c/{id}", *(f"{self._state}/c/{id}/{found.run}".rstrip("/") for found in waiting)}
        missing = paths - watches.keys() if self._inotify is not None else set()
        for path in missing:
            try:
                assert self._inotify is not None
                watches[path] = self._inotify.watch(path, INNER_MASK, partial(self._changed_inside, id, path))
            except OSError as error:
                log.debug("not watched, looked at again by time", path=ascii(path), why=error.strerror)
        return bool(missing & watches.keys())

    def _changed_inside(self, id: str, path: str, item: Item) -> None:
        """A directory that has gone may be made again, and is to be watched anew then."""
        if is_end(item):
            self._inner.get(id, {}).pop(path, None)
        self._soon(id)

    def _changed(self, item: Item) -> None:
        if isinstance(item, Overflow):
            self._node.spawn(self._first_look())
        elif item.mask & IN_IGNORED:
            self._top = None
            self._node.spawn(self._first_look())
        elif item.mask & (IN_DELETE | IN_MOVED_FROM):
            container = self._node.containers.get(item.name)
            if container is not None and container.phase in LIVE:
                self._node.spawn(self._report_lost([container]))
        else:
            self._soon(item.name)

    def _look_again(self, id: str, seconds: float) -> None:
        self._cancel(id)
        self._timers[id] = asyncio.get_running_loop().call_later(seconds, self._soon, id)

    def _cancel(self, id: str) -> None:
        timer = self._timers.pop(id, None)
        if timer is not None:
            timer.cancel()

    def _forget(self, id: str) -> None:
        """Nothing more is to come in it."""
        self._cancel(id)
        for watch in self._inner.pop(id, {}).values():
            watch.close()


def _is_awaited(verdict: Verdict) -> bool:
    """Whether something is still to come in the directory."""
    return isinstance(verdict, Leave) and verdict.again_seconds is not None
