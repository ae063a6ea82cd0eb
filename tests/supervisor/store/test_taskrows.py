"""What is stored of tasks: in the same commit as the row that it belongs to, and forgotten when nobody asks again."""

import asyncio
from dataclasses import replace
from pathlib import Path

from supervisor.model import lifecycle
from supervisor.model.lifecycle import RemoveAsked, StartAsked
from supervisor.model.taskfacts import RootMount, Stdio, Task, TaskExec, Tombstone
from supervisor.model.values import By, Container, Exited, Phase, Process, Spec
from supervisor.store import codec
from supervisor.store.codec import KEPT_NS, key_parts
from supervisor.store.database import Transaction
from tests.supervisor.happenings import moment
from tests.supervisor.stored import container, ended, opened

TASK = Task("/b", (RootMount("overlay", "overlay", "", ("lowerdir=/l",)),), Stdio("/i", "/o"), "00ff", "/a", "00ff/1/3")
STONE = Tombstone("ns", "box", "", "00ff/1/9", 40, 43, 5, "boot", 100)
EXEC = TaskExec("c1", "e", "{}", Stdio(terminal=True), "00ff/1/5")


def test_a_task_is_stored_with_its_container() -> None:
    c = Container("c1", Spec("box", namespace="ns", bundle="/b", task=TASK), Phase.CREATING, 1, 1)
    assert codec.container_from(codec.encode(c)) == c
    assert codec.container_from(codec.encode(container("c2"))).spec.task is None


def test_the_key_of_a_start_is_stored_with_the_start() -> None:
    c = Container("c1", Spec("box", task=TASK), Phase.CREATED, 1, 1)
    step = lifecycle.step(c, StartAsked(By(), "00ff/1/7"), moment())
    assert step.container is not None
    assert (step.container.phase, step.container.start_key) == (Phase.STARTING, "00ff/1/7")


def test_the_answer_to_a_removal_is_stored_when_the_row_goes() -> None:
    c = replace(Container("c1", Spec("box", namespace="ns", task=TASK), Phase.EXITED, 1, 1), exit=ended("c1", at_ns=5))
    assert c.exit is not None
    c = replace(c, exit=replace(c.exit, init=Process(40, 4), status=Exited(43)))
    removing = lifecycle.step(c, RemoveAsked(By(), "00ff/1/9"), moment()).container
    assert removing is not None and removing.delete_key == "00ff/1/9"
    (stone,) = lifecycle.step(removing, lifecycle.Removed(), moment()).tombstones
    assert replace(stone, boot_id="boot", made_boot_ns=100) == STONE
    nobody = lifecycle.step(c, RemoveAsked(By()), moment()).container
    assert nobody is not None and lifecycle.step(nobody, lifecycle.Removed(), moment()).tombstones == ()


def test_execs_of_tasks_are_kept_until_they_or_their_container_are_removed(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(tmp_path / "exitd.db") as store:
            other, third = replace(EXEC, name="f"), replace(EXEC, container="c2")
            await store.commit(Transaction((container("c1"),), task_execs=(EXEC, other, third)))
            started = replace(EXEC, run_as="x", start_key="00ff/1/7")
            await store.commit(Transaction(task_execs=(started,)))
        async with opened(tmp_path / "exitd.db") as store:
            assert set(await store.load_task_execs()) == {started, other, third}
            await store.commit(Transaction(ended_task_execs=(other,)))
            assert set(await store.load_task_execs()) == {started, third}
            await store.commit(Transaction(removed=("c1",)))
            assert await store.load_task_execs() == (third,)

    asyncio.run(main())


def test_an_answer_is_found_by_its_key_until_it_is_forgotten(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(tmp_path / "exitd.db") as store:
            words = "relay = ? AND connection = ? AND stream = ?"
            exec_stone = replace(STONE, key="00ff/2/11", exec="e")
            await store.commit(Transaction(tombstones=(STONE, exec_stone)))
            assert await store.tombstones(words, *key_parts(STONE.key)) == [STONE]
            assert await store.tombstones(words, *key_parts("00ff/1/11")) == []
            await store.forget_tombstones("relay = ? AND connection = ?", "00ff", 1)
            assert await store.tombstones("1") == [exec_stone]

    asyncio.run(main())


def test_an_answer_that_nobody_fetches_is_forgotten_after_an_hour_or_a_reboot(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(tmp_path / "exitd.db") as store:
            young = replace(STONE, key="00ff/1/11", made_boot_ns=STONE.made_boot_ns + KEPT_NS)
            late = replace(STONE, key="00ff/1/13", made_boot_ns=young.made_boot_ns + 1)
            await store.commit(Transaction(tombstones=(STONE, young)))
            assert await store.tombstones("1") == [young, STONE]
            await store.commit(Transaction(tombstones=(late,)))
            assert await store.tombstones("1") == [late, young]
            other = replace(STONE, key="00ff/1/15", boot_id="next")
            await store.commit(Transaction(tombstones=(other,)))
            assert await store.tombstones("1") == [other]

    asyncio.run(main())


def test_a_key_has_three_parts() -> None:
    assert key_parts("00ff/1/9") == ("00ff", 1, 9)
    assert key_parts("cleanup") == ("cleanup", 0, 0)
