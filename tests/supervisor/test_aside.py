"""Work that may never come back costs whoever asked for it, and nobody else."""

import asyncio
import subprocess
import sys
import threading

import pytest

from supervisor.aside import Aside
from supervisor.errors import TimedOut


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


def test_a_thread_that_hangs_does_not_keep_the_process_from_ending() -> None:
    script = (
        "import asyncio, threading\nfrom supervisor.aside import Aside\nfrom supervisor.errors import TimedOut\n"
        "async def main():\n"
        "    try:\n        await Aside(limit_seconds=0.05).run('it', threading.Event().wait)\n"
        "    except TimedOut:\n        print('given up')\n"
        "asyncio.run(main())\n"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert (ran.returncode, ran.stdout) == (0, "given up\n"), ran.stderr
