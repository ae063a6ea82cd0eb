"""What the parts of the daemon know at this moment, put together for a page of metrics."""

import asyncio
import contextlib
import platform
import time
from collections import Counter
from collections.abc import Callable

import structlog

from shim.frozen import frozen
from supervisor import __version__
from supervisor.config.settings import Metrics
from supervisor.engine.exits import Exits
from supervisor.engine.node import Node
from supervisor.external.observer import Observer
from supervisor.external.watchservice import WatchService
from supervisor.metrics import families
from supervisor.metrics.families import ByName, Shown, Snapshot
from supervisor.metrics.looplag import LoopLag
from supervisor.model import names
from supervisor.model.errors import StoreFailed
from supervisor.monitor.keeper import Keeper
from supervisor.store.counts import Count

SLICE = 20  # containers looked at in one turn of the loop
COUNTS_SLICE = 500  # counters
COUNTS_SECONDS = 2.0  # that the database may take to be read

log = structlog.get_logger(__name__)


@frozen
class Parts:
    """Who is asked. `settings`: in force at this moment; `why_not_ready`: empty where exitd serves as it should."""

    node: Node
    exits: Exits
    keeper: Keeper
    observer: Observer
    watches: WatchService
    settings: Callable[[], Metrics]
    why_not_ready: Callable[[], str]


class Sources:
    """Belongs to one event loop."""

    def __init__(self, parts: Parts) -> None:
        self.loop_lag = LoopLag()
        self._parts = parts
        self._started_seconds = time.time()
        self._counts: ByName | None = None  # as the database had them when it was read last
        self._reading: asyncio.Task[bool] | None = None

    async def look(self) -> Snapshot:
        """Return what is known now. A disk that does not answer costs the counters their freshness, and no page."""
        parts, node = self._parts, self._parts.node
        with_containers = parts.settings().containers
        is_fresh = await self._read(named=with_containers)
        phases, shown = await self._containers(with_containers=with_containers)
        return Snapshot(
            version=__version__,
            python=platform.python_version(),
            started_seconds=self._started_seconds,
            is_ready=not parts.why_not_ready(),
            counts=self._counts,
            is_fresh=is_fresh,
            phases=phases,
            watches=parts.watches.totals(),
            pending_commits=len(node.pending),
            events=node.events.last_seq,
            keeper_up=parts.keeper.process is not None,
            latencies={
                "seen": parts.exits.seen.now(),
                "stored": parts.exits.stored.now(),
                "cleaned": node.cleanups.now(),
            },
            flushes=node.store.flushes(),
            loop_lag=self.loop_lag.seen.now(),
            containers=shown if with_containers else None,
        )

    async def _read(self, *, named: bool) -> bool:
        """Return whether the database has been read now. One that hangs is asked once, however many pages there are."""
        hangs = self._reading is not None and not self._reading.done()
        reading = self._reading if self._reading is not None and hangs else None
        reading = self._reading = reading or asyncio.create_task(self._read_counts(named=named))
        done, _ = await asyncio.wait((reading,), timeout=COUNTS_SECONDS)
        return bool(done) and not hangs and reading.result()

    async def _read_counts(self, *, named: bool) -> bool:
        try:
            found = await self._parts.node.store.counts(named=named)
        except StoreFailed as error:
            log.warning("counters cannot be read", why=str(error))
            return False
        by_name: dict[str, list[Count]] = {}
        for first in range(0, len(found), COUNTS_SLICE):
            families.add_by_name(by_name, found[first : first + COUNTS_SLICE])
            await asyncio.sleep(0)
        self._counts = by_name
        return True

    async def _containers(self, *, with_containers: bool) -> tuple[dict[str, int], tuple[Shown, ...]]:
        containers, phases, shown = self._parts.node.containers, Counter[str](), list[Shown]()
        for number, c in enumerate(tuple(containers.values())):
            phases["recovering" if c.id in containers.recovering else c.phase.value] += 1
            if with_containers:
                known = names.of_container(c, containers.get(c.spec.sandbox or c.id))
                shown.append(families.shown(c.id, known, c.spec.name, c))
            if number % SLICE == SLICE - 1:
                await asyncio.sleep(0)
        for number, one in enumerate(self._parts.observer.living() if with_containers else ()):
            shown.append(families.shown(one.container, names.of_observed(one), one.name, None))
            if number % SLICE == SLICE - 1:
                await asyncio.sleep(0)
        return dict(phases), tuple(shown)

    async def close(self) -> None:
        self.loop_lag.close()
        if self._reading is not None:
            self._reading.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._reading
