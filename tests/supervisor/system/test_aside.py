"""Work that may never come back costs whoever asked for it, and nobody else."""

import asyncio
import contextlib
import gc
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator
from functools import partial
from typing import NoReturn

import pytest

from supervisor.model.errors import Busy, TimedOut
from supervisor.system.aside import Aside
from tests.supervisor.fakes import until


def test_the_result_and_the_error_come_back() -> None:
    async def main() -> None:
        aside = Aside()
        assert await aside.run("a sum", lambda: 1 + 1) == 2
        with pytest.raises(ZeroDivisionError):
            await aside.run("a quotient", lambda: 1 // 0)

    asyncio.run(main())


def test_work_that_hangs_is_given_up_by_its_name_and_holds_no_shared_thread() -> None:
    let_go = threading.Event()

    async def main() -> None:
        aside = Aside(most_at_once=1, limit_seconds=0.05)
        for _ in range(2):  # the second one waits for the place of the first
            with pytest.raises(TimedOut, match=r"a look took more than 0\.05 s and was given up"):
                await aside.run("a look", let_go.wait)
        assert await asyncio.to_thread(lambda: 7) == 7
        let_go.set()

    asyncio.run(main())


def test_a_look_at_a_named_path_is_given_up_by_its_own_limit_and_a_bare_name_needs_no_thread() -> None:
    let_go = threading.Event()

    async def main() -> None:
        aside = Aside(most_at_once=1)
        with pytest.raises(TimedOut, match=r"looking at /caller/runtime took more than 0\.05 s and was given up"):
            await aside.at("/caller/runtime", let_go.wait, 0.05)
        with pytest.raises(TimedOut):  # it waits for the other one in its directory
            await aside.at("/caller/other", lambda: "found", 0.05)
        assert await aside.at("runc", threading.current_thread) is threading.main_thread()
        let_go.set()
        assert await aside.at("/caller/other", lambda: "found") == "found"

    asyncio.run(main())


def test_a_place_is_free_again_when_work_that_was_given_up_has_ended() -> None:
    let_go, ended = threading.Event(), threading.Event()

    def work() -> None:
        let_go.wait()
        ended.set()

    async def main() -> None:
        aside = Aside(most_at_once=1, limit_seconds=30)
        given_up = asyncio.create_task(aside.run("a look", work))
        await asyncio.sleep(0)
        given_up.cancel()
        await asyncio.wait([given_up])
        let_go.set()
        assert await aside.run("the next", ended.is_set)

    asyncio.run(main())


def test_what_work_that_was_given_up_has_taken_is_let_go_once_no_thread_is_at_it() -> None:
    let_go, reported = threading.Event(), list[str]()

    async def main() -> None:
        aside = Aside(most_at_once=1, limit_seconds=0.05)
        over = asyncio.Event()
        for name, late in (("first", over.set), ("second", lambda: reported.append("second"))):
            with pytest.raises(TimedOut):
                await aside.run(name, let_go.wait, late=late)
        assert reported == ["second"] and not over.is_set()  # the second one never began
        let_go.set()
        await over.wait()
        assert await aside.run("a sum", lambda: 1 + 1, late=lambda: reported.append("third"), seconds=30) == 2
        assert reported == ["second"]

    asyncio.run(main())


def test_what_is_tried_again_behind_one_that_hangs_takes_no_second_place_and_begins_when_that_has_ended() -> None:
    let_go, order = threading.Event(), list[str]()

    def hung() -> None:
        let_go.wait()
        order.append("hung")

    async def main() -> None:
        aside = Aside(most_at_once=2, limit_seconds=30)
        for _ in range(3):
            given_up = asyncio.create_task(aside.run("an unmount", hung, "box"))
            await asyncio.sleep(0)
            given_up.cancel()
            await asyncio.wait([given_up])
        assert await aside.run("another's", lambda: 7, "other") == 7
        let_go.set()
        await aside.run("an unmount", lambda: order.append("again"), "box")
        assert order == ["hung", "again"]

    asyncio.run(main())


def test_what_must_be_done_is_done_where_no_thread_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        aside, failures = Aside(reserve=True), [ZeroDivisionError(), ValueError()]
        with monkeypatch.context() as patched:
            patched.setattr(threading.Thread, "start", refused)
            assert await asyncio.gather(*(aside.run("an unmount", partial(int, n)) for n in range(20))) == [*range(20)]
            for failure in failures:
                with pytest.raises(type(failure)):
                    await aside.run("an unmount", partial(_raise, failure))

    asyncio.run(main())


def refused(thread: threading.Thread) -> NoReturn:
    raise RuntimeError("can't start new thread")


def _raise(error: Exception) -> NoReturn:
    raise error


def test_where_no_thread_can_be_started_the_turn_and_the_place_are_free_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        aside = Aside(most_at_once=1, limit_seconds=30)
        with monkeypatch.context() as patched:
            patched.setattr(threading.Thread, "start", refused)
            with pytest.raises(Busy, match="no thread"):
                await aside.run("a look", lambda: 7, "box")
        assert await aside.run("a look", lambda: 7, "box") == 7

    asyncio.run(main())


def test_a_thread_that_has_done_its_work_does_the_next() -> None:
    async def main() -> None:
        aside = Aside(idle_seconds=1000)
        assert len({await aside.run("who is at it", threading.current_thread) for _ in range(20)}) == 1

    asyncio.run(main())


def test_a_thread_for_which_no_work_comes_ends() -> None:
    async def main() -> None:
        aside = Aside(idle_seconds=0.01)
        thread = await aside.run("who is at it", threading.current_thread)
        await asyncio.to_thread(thread.join, 30)
        assert not thread.is_alive()
        assert await aside.run("who is at it", threading.current_thread) is not thread

    asyncio.run(main())


def test_works_at_once_have_a_thread_each_and_one_that_hangs_is_given_nothing_else() -> None:
    let_go = threading.Event()

    async def main() -> None:
        aside = Aside(most_at_once=4)
        hung = asyncio.create_task(aside.run("a look", let_go.wait))
        await asyncio.sleep(0)
        assert [await aside.run("a number", partial(int, n)) for n in range(20)] == [*range(20)]
        let_go.set()
        assert await hung

    asyncio.run(main())


def test_work_that_comes_when_the_idle_thread_is_about_to_end_is_done() -> None:
    async def main() -> None:
        aside = Aside(most_at_once=64, idle_seconds=0.0)  # every thread is always about to end
        for _ in range(100):
            assert sum(await asyncio.gather(*(aside.run("a sum", partial(int, n)) for n in range(20)))) == 190

    asyncio.run(main())


def test_a_thread_that_hangs_does_not_keep_the_process_from_ending() -> None:
    script = (
        "import asyncio, threading\n"
        "from supervisor.system.aside import Aside\nfrom supervisor.model.errors import TimedOut\n"
        "async def main():\n"
        "    try:\n        await Aside(limit_seconds=0.05).run('it', threading.Event().wait)\n"
        "    except TimedOut:\n        print('given up')\n"
        "asyncio.run(main())\n"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert (ran.returncode, ran.stdout) == (0, "given up\n"), ran.stderr


class Large:
    """What work has, and needs no longer once it has failed or is done."""


@pytest.fixture
def no_collections() -> Iterator[None]:
    """Only what no reference leads to is let go of, and no cycle."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_collections")
@pytest.mark.parametrize("fails", [True, False], ids=["fails", "ends well"])
def test_what_work_had_is_let_go_of_with_its_error_or_its_result(fails: bool) -> None:
    had = list[weakref.ref[Large]]()

    def work() -> Large:
        large = Large()
        had.append(weakref.ref(large))
        if fails:
            raise ValueError
        return large

    async def main() -> None:
        aside = Aside()
        with contextlib.suppress(ValueError):
            await aside.run("work", work)
        await until(lambda: had[0]() is None, "the end of what the work had")

    asyncio.run(main())
