import asyncio

import pytest

from supervisor.engine.containers import Changes, Test
from supervisor.model.values import Container, Phase
from tests.supervisor.happenings import container

RUNNING, EXITED = container(Phase.RUNNING), container(Phase.EXITED)


def is_exited(c: Container | None) -> bool:
    return c is None or c.phase is Phase.EXITED


def test_what_already_holds_is_not_waited_for() -> None:
    async def main() -> None:
        changes = Changes()
        assert await changes.until("c1", EXITED, is_exited) is EXITED
        assert await changes.until("c1", None, is_exited) is None
        assert len(changes) == 0

    asyncio.run(main())


def test_a_waiter_gets_the_container_as_it_was_when_the_test_first_held() -> None:
    async def main() -> None:
        changes = Changes()
        waiting = asyncio.create_task(changes.until("c1", RUNNING, is_exited))
        await asyncio.sleep(0)
        assert len(changes) == 1
        changes.notify("c1", RUNNING)
        changes.notify("c2", EXITED)
        assert not waiting.done()
        changes.notify("c1", EXITED)
        changes.notify("c1", RUNNING)
        assert await waiting is EXITED
        assert len(changes) == 0

    asyncio.run(main())


def test_a_removal_is_reported_as_nothing() -> None:
    async def main() -> None:
        changes = Changes()
        waiting = asyncio.create_task(changes.until("c1", RUNNING, lambda c: c is None))
        await asyncio.sleep(0)
        changes.notify("c1", None)
        assert await waiting is None

    asyncio.run(main())


def test_cancelled_waiters_leave_nothing_and_disturb_nobody() -> None:
    async def main() -> None:
        changes = Changes()
        waiting = [asyncio.create_task(changes.until("c1", RUNNING, is_exited)) for _ in range(3)]
        await asyncio.sleep(0)
        waiting[1].cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting[1]
        assert len(changes) == 2
        waiting[0].cancel()
        changes.notify("c1", EXITED)  # in the same turn as a cancellation
        assert (await asyncio.gather(*waiting, return_exceptions=True))[2] is EXITED
        assert len(changes) == 0

    asyncio.run(main())


def test_a_waiter_that_comes_while_others_are_woken_is_kept() -> None:
    async def main() -> None:
        changes = Changes()

        woken = asyncio.Semaphore(0)

        async def twice() -> None:
            await changes.until("c1", RUNNING, is_exited)
            woken.release()
            await changes.until("c1", EXITED, lambda c: c is None)

        waiting = [asyncio.create_task(twice()) for _ in range(2)]
        await asyncio.sleep(0)
        changes.notify("c1", EXITED)
        changes.notify("c1", EXITED)  # notified twice before anybody has run
        await woken.acquire()
        await woken.acquire()
        assert len(changes) == 2
        changes.notify("c1", None)
        await asyncio.gather(*waiting)
        assert len(changes) == 0

    asyncio.run(main())


def test_ten_thousand_waiters_on_other_containers_are_not_asked() -> None:
    async def main() -> None:
        changes = Changes()
        asked: list[str] = []

        def asking(name: str) -> Test:
            def test(c: Container | None) -> bool:
                asked.append(name)
                return is_exited(c)

            return test

        waiting = [asyncio.create_task(changes.until(f"c{n}", RUNNING, asking(f"c{n}"))) for n in range(10_000)]
        await asyncio.sleep(0)
        assert len(changes) == 10_000
        asked.clear()
        changes.notify("c77", EXITED)
        assert asked == ["c77"]
        assert await waiting[77] is EXITED
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        assert len(changes) == 0

    asyncio.run(main())
