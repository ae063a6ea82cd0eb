import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from supervisor.engine import containers
from supervisor.engine.containers import is_ended
from supervisor.model import lifecycle
from supervisor.model.errors import AmbiguousId, NameTaken, NoSuchContainer, Recovering, StoreFailed, TimedOut
from supervisor.model.taskfacts import Task
from supervisor.model.values import Spec
from tests.supervisor.fakes import hasty, until, world

__all__ = ["hasty"]
pytestmark = pytest.mark.usefixtures("hasty")

WEB = Spec(name="web")


def test_names_are_taken_once(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path) as w:
            first = await w.node.add(WEB)
            with pytest.raises(NameTaken):
                await w.node.add(WEB)
            elsewhere = await w.node.add(replace(WEB, namespace="k8s"))
            assert w.node.containers.resolve("web") is w.node.containers[first.id]
            assert w.node.containers.resolve(elsewhere.id) is w.node.containers[elsewhere.id]
            assert w.node.containers.named("default", "") is None

    asyncio.run(main())


def test_a_task_of_containerds_has_a_name_of_its_own_and_a_word_that_names_both_is_refused(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path) as w:
            own, task = await w.node.add(WEB), await w.node.add(replace(WEB, task=Task("/bundle")))
            with pytest.raises(NameTaken):
                await w.node.add(replace(WEB, task=Task("/other")))
            with pytest.raises(AmbiguousId, match=f"{own.id[:12]}.* task .*{task.id[:12]}"):
                w.node.containers.resolve("web")
            assert [w.node.containers.resolve(each.id[:12]).id for each in (own, task)] == [own.id, task.id]
            elsewhere = await w.node.add(replace(WEB, name="box", task=Task("/bundle")))
            assert w.node.containers.resolve("box").id == elsewhere.id
            assert w.node.containers.named("default", "box") is None
            assert {each.id for each in await w.store.load()} == {own.id, task.id, elsewhere.id}

    asyncio.run(main())


def test_two_adds_of_one_name_at_once_give_one_container(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path) as w:
            found = await asyncio.gather(*(w.node.add(WEB) for _ in range(5)), return_exceptions=True)
            assert sum(isinstance(each, NameTaken) for each in found) == 4
            assert len(await w.store.load()) == len(w.node.containers) == 1

    asyncio.run(main())


@pytest.mark.parametrize("late", [False, True])
def test_an_add_that_the_store_refuses_leaves_the_name_free(tmp_path: Path, late: bool) -> None:
    async def main() -> None:
        async with world(tmp_path) as w:
            w.store.refusals, w.store.late = (0, 1) if late else (1, 0)
            with pytest.raises(StoreFailed):
                await w.node.add(WEB)
            assert w.node.containers == {}
            await until(lambda: not w.node.background)
            again = await w.node.add(WEB)
            assert [each.id for each in await w.store.load()] == [again.id]

    asyncio.run(main())


def test_a_container_is_found_by_id_name_and_unique_prefix(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path) as w:
            container = await w.node.add(WEB)
            for id in ("abc1", "abc2"):
                w.node.containers[id] = replace(container, id=id, spec=Spec(name=id[::-1]))
            assert w.node.containers.resolve(container.id[:20]).id == container.id
            assert w.node.containers.resolve("abc1").id == "abc1"
            with pytest.raises(AmbiguousId):
                w.node.containers.resolve("abc")
            for nobody in ("", "x" * 64):
                with pytest.raises(NoSuchContainer):
                    w.node.containers.resolve(nobody)
            with pytest.raises(NoSuchContainer):
                await w.node.apply("nobody", lifecycle.Cleaned())
            assert "nobody" not in w.node._turns

    asyncio.run(main())


def test_a_container_that_is_looked_up_is_waited_for_within_a_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with world(tmp_path) as w:
            container = await w.node.add(WEB)
            w.node.containers.recovering[container.id] = asyncio.Event()
            waiting = asyncio.create_task(w.node.containers.find("web"))
            await asyncio.sleep(0)
            assert not waiting.done()
            w.node.containers.recovering[container.id].set()
            assert (await waiting).id == container.id
            w.node.containers.recovering[container.id] = asyncio.Event()
            monkeypatch.setattr(containers, "RECOVERY_SECONDS", 0.01)
            with pytest.raises(Recovering):
                await w.node.containers.find("web")

    asyncio.run(main())


def test_waiting_has_a_limit_that_names_what_did_not_come(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path) as w:
            id = await w.running(WEB)
            with pytest.raises(TimedOut, match="its end took longer"):
                await w.node.containers.until(id, is_ended, 0.01, "its end")
            assert len(w.node.containers.changes) == 0

    asyncio.run(main())
