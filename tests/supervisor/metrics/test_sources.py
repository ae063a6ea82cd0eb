"""What is asked for a page, and what becomes of a page while the database does not answer."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from supervisor.config.settings import Metrics
from supervisor.engine.containers import Containers
from supervisor.metrics import sources
from supervisor.metrics.sources import Parts, Sources
from supervisor.model.errors import StoreFailed
from supervisor.model.values import Container, Names, Phase, Pod, Process, Spec
from supervisor.model.watched import Observed
from supervisor.store.counts import Count
from supervisor.system.histogram import Histogram


class Counts:
    """The database's: what it says, and whether it says anything."""

    def __init__(self) -> None:
        self.value = 1
        self.asked: list[bool] = []
        self.answers = asyncio.Event()
        self.error: Exception | None = None

    async def counts(self, *, named: bool) -> list[Count]:
        self.asked.append(named)
        await self.answers.wait()
        if self.error is not None:
            raise self.error
        return [Count("shim-deaths", (), self.value)]

    def flushes(self) -> dict[str, Any]:
        return {}


def sources_over(store: Counts, *containers: Container, watched: tuple[Observed, ...] = (), **words: Any) -> Sources:
    found = Containers()
    for each in containers:
        found[each.id] = each
    latencies = SimpleNamespace(seen=Histogram(), stored=Histogram())
    node: Any = SimpleNamespace(
        store=store, containers=found, pending=set(), events=SimpleNamespace(last_seq=7), cleanups=Histogram()
    )
    observer: Any = SimpleNamespace(living=lambda: watched)
    watches: Any = SimpleNamespace(totals=lambda: ())
    keeper: Any = SimpleNamespace(process=None)
    exits: Any = latencies
    return Sources(Parts(node, exits, keeper, observer, watches, lambda: Metrics(**words), lambda: ""))


def test_a_database_that_does_not_answer_costs_the_counters_their_freshness_and_no_page(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sources, "COUNTS_SECONDS", 0.02)

    async def main() -> None:
        store = Counts()
        asked = sources_over(store)
        first = await asked.look()
        assert (first.counts, first.is_fresh, first.events) == (None, False, 7)
        store.answers.set()
        known = await asked.look()  # it was asked before this page, so it is not of this moment
        assert known.counts == {"shim-deaths": [Count("shim-deaths", (), 1)]} and not known.is_fresh
        assert (await asked.look()).is_fresh and len(store.asked) == 2
        store.answers.clear()
        store.value = 2
        for _ in range(3):
            hanging = await asked.look()
            assert hanging.counts == known.counts and not hanging.is_fresh
        assert len(store.asked) == 3
        await asked.close()

    asyncio.run(main())


def test_a_database_that_refuses_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        store = Counts()
        store.answers.set()
        asked = sources_over(store)
        store.error = StoreFailed("full")
        assert not (await asked.look()).is_fresh
        store.error = None
        assert (await asked.look()).is_fresh
        await asked.close()

    asyncio.run(main())


def test_containers_are_looked_at_one_by_one_only_where_that_is_wanted() -> None:
    pause = Container("p", Spec("p", pod=Pod("web-0", "shop")), Phase.RUNNING, 1, 1)
    member = Container("m", Spec("app", sandbox="p"), Phase.EXITED, 1, 1)
    one = Observed(Process(1, 2), "boot", "x@/s/n", 1, "x", "oci", "/s", names=Names("a", "b", "c"))

    async def main() -> None:
        store = Counts()
        store.answers.set()
        found = await sources_over(store, pause, member, watched=(one,), containers=True).look()
        assert found.phases == {"running": 1, "exited": 1} and found.containers is not None
        assert [each.place for each in found.containers] == [
            '{namespace="shop",pod="web-0",container=""}',
            '{namespace="shop",pod="web-0",container="app"}',
            '{namespace="a",pod="b",container="c"}',
        ]
        without = await sources_over(store, pause, member, watched=(one,)).look()
        assert without.containers is None and without.phases == found.phases
        assert store.asked == [True, False]

    asyncio.run(main())
