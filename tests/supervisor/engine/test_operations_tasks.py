"""What callers of exitd's own API ask of tasks of containerd's."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from supervisor.model.errors import WrongState
from supervisor.model.taskfacts import Task
from tests.supervisor.engine.test_operations import WEB, obeys, running, serving
from tests.supervisor.happenings import USER


def test_a_task_of_containerd_s_is_removed_there_or_by_force(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as (w, o):
            obeys(w)
            id = await running(w, o, replace(WEB, task=Task("/bundle")))
            await o.kill(id, 9, False, USER)
            await o.wait(id, "exited", 0)
            with pytest.raises(WrongState, match="ctr task delete web"):
                await o.remove(id, False, USER)
            await o.remove(id, True, USER)
            assert w.node.containers == {}

    asyncio.run(main())
