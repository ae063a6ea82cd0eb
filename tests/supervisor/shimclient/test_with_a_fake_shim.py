"""The client against a shim that is odd in every way some real one is."""

import asyncio
from collections.abc import Awaitable, Callable

from tests.supervisor.shimclient.fakerig import Fakes, fakes

LIFE = ["/tasks/create", "/tasks/start", "/tasks/exit", "/tasks/delete"]
Test = Callable[[Fakes], Awaitable[None]]


def run(test: Test) -> None:
    async def all_of_it() -> None:
        async with fakes() as made:
            await test(made)

    asyncio.run(all_of_it())


def test_a_task_lives_from_start_to_delete_with_its_true_code() -> None:
    async def test(f: Fakes) -> None:
        task = await f.task("c1").begun()
        pid = await task.started()
        exit = await task.exit()
        assert exit.number == 7 and exit.at_ns > 0
        deleted = await task.ended()
        assert (deleted.pid, deleted.exit_status, deleted.exited_at_ns) == (pid, 7, exit.at_ns)
        await f.place.until(lambda: f.place.topics("c1") == LIFE)

    run(test)
