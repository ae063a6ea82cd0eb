"""What containers use at this moment: read in a thread, within a limit of time."""

import time
from collections.abc import Callable, Sequence

from supervisor.engine.containers import Containers
from supervisor.model.values import Container, Phase, Process
from supervisor.model.views import LiveUsage, UsageView
from supervisor.runtime.managers import ContainerRuntimes
from supervisor.system.aside import Aside
from supervisor.system.clock import Clock

READ_SECONDS = 10.0  # of one request: containers that were not reached by then are not measured
LIMIT_SECONDS = 25.0  # with the wait for earlier requests
MOST_AT_ONCE = 2
Measure = Callable[[str, Process | None], LiveUsage | None]  # of a cgroups path and a run's init; blocks for files
RUNS = (Phase.RUNNING, Phase.PAUSED)


class StatsService:
    """Implements `supervisor.api.servicers.StatsCalls`."""

    def __init__(self, containers: Containers, manager: ContainerRuntimes, clock: Clock, measure: Measure) -> None:
        self._measure = measure
        self._containers, self._manager, self._clock = containers, manager, clock
        self._reads = Aside(MOST_AT_ONCE, LIMIT_SECONDS)

    async def stats(self, ids: tuple[str, ...]) -> tuple[UsageView, ...]:
        """Return what these use, or all that run. Raises NoSuchContainer, AmbiguousId, TimedOut, Busy."""
        if ids:
            wanted = [await self._containers.find(id) for id in ids]
        else:
            wanted = sorted((c for c in self._containers.values() if c.phase in RUNS), key=lambda c: c.created_ns)
        places = [self._manager.cgroup_of(c) if c.phase in RUNS else "" for c in wanted]
        return await self._reads.run("the look at what containers use", lambda: self._read(wanted, places))

    def _read(self, wanted: Sequence[Container], places: Sequence[str]) -> tuple[UsageView, ...]:
        end = time.monotonic() + READ_SECONDS
        return tuple(
            UsageView(c.id, c.spec.name, self._one(c, place) if place and time.monotonic() < end else None, self._now())
            for c, place in zip(wanted, places, strict=True)
        )

    def _one(self, container: Container, place: str) -> LiveUsage | None:
        return self._measure(place, container.init)

    def _now(self) -> int:
        return self._clock.boottime_ns()
