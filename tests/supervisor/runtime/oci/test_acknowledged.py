"""Runs that the keeper keeps although exitd needs them no more."""

import os

from shim import native, slots
from supervisor.model.values import Process, RunKey
from supervisor.monitor.rundir import RunDirectory
from supervisor.runtime.oci import watching as module
from tests.supervisor.fakes import in_loop, until
from tests.supervisor.runtime.oci.kept import watching

KEYS = tuple(RunKey(f"c{number}", 1) for number in range(3))
EXEC = RunKey("c1", 1, "e1")
SLOTS = (slots.OUT_FD, slots.ERR_FD, slots.STAGE_READ_FD, slots.STAGE_WRITE_FD)


@in_loop
async def test_a_run_that_is_not_needed_is_acknowledged_and_no_other() -> None:
    with watching() as (made, keeper):
        for key in (*KEYS, EXEC):
            keeper.keeps(key, Process(5, 6))
        assert await made.acknowledge_strangers(lambda: frozenset(KEYS[:2])) == 2
        assert [(m.get("id"), m.get("exec")) for m in await keeper.runs()] == [("c0", ""), ("c1", "")]


@in_loop
async def test_a_keeper_with_as_many_as_are_needed_is_asked_for_all_only_now_and_then() -> None:
    with watching() as (made, keeper):
        for key in KEYS:
            keeper.keeps(key, Process(5, 6))
        needed = frozenset(KEYS)
        for _ in range(module.COUNTED_ROUNDS + 2):
            assert await made.acknowledge_strangers(lambda: needed) == 0
        assert keeper.lists == 2
        other = frozenset({*KEYS[:2], EXEC})  # as many, and not the same ones
        found = [await made.acknowledge_strangers(lambda: other) for _ in range(module.COUNTED_ROUNDS + 1)]
        assert found == [*[0] * module.COUNTED_ROUNDS, 1]
        assert await made.acknowledge_strangers(lambda: frozenset(KEYS[:1])) == 1  # more than are needed: at once


@in_loop
async def test_a_keeper_that_has_given_copies_of_each_run_is_not_asked_for_all() -> None:
    with watching() as (made, keeper):
        for key in KEYS:
            keeper.keeps(key, Process(5, 6))
            made.add(key, RunDirectory("/nowhere")).hold_copies({slot: os.dup(0) for slot in SLOTS})
        for _ in range(2 * module.COUNTED_ROUNDS + 3):
            assert await made.acknowledge_strangers(lambda: frozenset(KEYS)) == 0
        assert keeper.lists == 0
        keeper.keeps(EXEC, Process(5, 6))
        assert await made.acknowledge_strangers(lambda: frozenset(KEYS)) == 1
        assert keeper.lists == 1


@in_loop
async def test_a_keeper_after_another_is_asked_for_all_until_it_knows_each_run() -> None:
    """One could not register with it, and one that had ended did so after its acknowledgement: as many as are needed,
    and copies of each, which the old one gave."""
    with watching() as (made, keeper):
        it = Process(os.getpid(), native.process_origin(os.getpid())[1])
        watch = made.add(KEYS[0], RunDirectory("/nowhere"), it)
        watch.watch_shim(it, os.pidfd_open(it.pid))
        watch.hold_copies({slot: os.dup(0) for slot in SLOTS})
        keeper.keeps(KEYS[1], Process(5, 6))
        made.keeper_lost()
        await until(lambda: keeper.lists, "the look for the next keeper")
        needed = frozenset(KEYS[:1])
        assert await made.acknowledge_strangers(lambda: needed) == 1
        assert await made.acknowledge_strangers(lambda: needed) == 0
        keeper.keeps(KEYS[0], Process(5, 6))
        assert keeper.lists == 3
        assert [await made.acknowledge_strangers(lambda: needed) for _ in range(3)] == [0, 0, 0]
        assert keeper.lists == 4
