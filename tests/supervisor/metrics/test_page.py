"""The page is made once for all who ask at the same time, never from before a request, and never in one piece."""

import asyncio
from dataclasses import replace

import pytest

from supervisor.metrics import page
from supervisor.metrics.families import Snapshot, shown
from supervisor.metrics.page import Page
from supervisor.model.values import Container, Names, Phase, Spec
from tests.supervisor.metrics.test_families import EMPTY


class Looks:
    """Each look sees the number of events that there is then, and waits for `go`."""

    def __init__(self) -> None:
        self.events = 0
        self.looks = 0
        self.go = asyncio.Event()
        self.error: Exception | None = None
        self.now = EMPTY

    async def __call__(self) -> Snapshot:
        self.looks += 1
        seen = self.events
        await self.go.wait()
        if self.error is not None:
            raise self.error
        return replace(self.now, events=seen)


async def turns(number: int = 5) -> None:
    for _ in range(number):
        await asyncio.sleep(0)


def test_who_asks_while_a_page_is_made_shares_the_next_one() -> None:
    async def main() -> None:
        looks = Looks()
        made = Page(looks)
        first = asyncio.create_task(made.text())
        await turns()
        looks.events = 7
        others = [asyncio.create_task(made.text()) for _ in range(5)]
        await turns()
        looks.go.set()
        assert "exitd_events 0\n" in await first
        assert all("exitd_events 7\n" in text for text in await asyncio.gather(*others))
        assert looks.looks == 2

    asyncio.run(main())


def test_a_page_that_fails_is_nobody_elses() -> None:
    async def main() -> None:
        looks = Looks()
        made = Page(looks)
        looks.error = ValueError("broken")
        first = asyncio.create_task(made.text())
        await turns()
        second = asyncio.create_task(made.text())
        await turns()
        looks.go.set()
        with pytest.raises(ValueError, match="broken"):
            await first
        with pytest.raises(ValueError, match="broken"):
            await second
        looks.error = None
        assert "exitd_events 0\n" in await made.text()

    asyncio.run(main())


def test_of_many_containers_a_few_samples_are_made_at_a_time() -> None:
    def one(number: int) -> Container:
        return Container(f"c{number}", Spec("web"), Phase.RUNNING, 1, 1)

    async def main() -> None:
        looks = Looks()
        looks.go.set()
        names = Names("default", "", "web")
        looks.now = replace(EMPTY, containers=tuple(shown(f"c{at}", names, "web", one(at)) for at in range(400)))
        task, taken = asyncio.create_task(Page(looks).text()), 0
        while not task.done():
            await asyncio.sleep(0)
            taken += 1
        assert task.result().count("exitd_container_run") > 800 and taken >= 1200 // page.SLICE

    asyncio.run(main())
