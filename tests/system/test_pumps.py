"""The streams of what runs under another's shim: to the byte, whoever dies meanwhile, and nothing stays behind."""

import asyncio
import os
import random
import signal
from collections.abc import Iterator
from dataclasses import replace

import pytest

from supervisor.monitor import shims
from supervisor.monitor.control import Control
from supervisor.runtime.foreign_shim import pumps
from supervisor.runtime.foreign_shim.pumps import Pumps
from supervisor.streams.attach import Orders, WantedStreams
from tests.system import foreign_streams
from tests.system.foreign_streams import KEY, PART_LINES, Other, Stage, collected, lines, play
from tests.system.keepers import Keeper, Node
from tests.system.processes import end_process, open_files

SEED = 20_265
PARTS = 6
A_DAY = b"drain_ms=86400000"


@pytest.fixture
def held(node: Node) -> Iterator[Keeper]:
    with foreign_streams.held(node) as made:
        yield made


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """No rest between two replacements."""
    monkeypatch.setattr(shims, "ADOPT_REST_SECONDS", 0.0)


def drained(stage: Stage, word: bytes) -> bytes:
    """The plan with another drain limit."""
    plan = stage.plan()
    assert plan.count(b"drain_ms=8000") == 1
    return plan.replace(b"drain_ms=8000", word)


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a plan that has A_DAY: nothing is cut off, however slow the machine."""
    monkeypatch.setattr(pumps, "LEAVES_SECONDS", 86_400.0)


def test_a_pump_of_one_stream_registers_nothing_for_the_other(node: Node, held: Keeper) -> None:
    """What lies in an empty slot, /dev/null, is never at its end: a keeper would stay for it."""

    def nulls() -> int:
        return list(open_files(held.process.pid).values()).count("/dev/null")

    before = nulls()

    async def act(stage: Stage, made: Pumps) -> None:
        async with foreign_streams.other(stage, ("in",)) as other:
            await other.do("open")
            await foreign_streams.until(
                lambda: held.ask("exitd-list", ("at", 0)).number("init_started") == 1, "not registered"
            )
            assert nulls() == before
        await stage.ended(made)

    play(node, act, spec=replace(foreign_streams.SPEC, tty=True))


def test_both_streams_are_in_the_log_when_the_end_is_reported(node: Node, held: Keeper) -> None:
    async def act(stage: Stage, made: Pumps) -> None:
        async with foreign_streams.other(stage) as other:
            await other.do("open")
            await other.says(b"one\n")
            await other.says(b"two\n", "err")
            await other.says(b"three")
        await stage.ended(made)
        assert (stage.log(), stage.log("stderr")) == (b"one\nthree", b"two\n")
        assert made.shim_of(KEY) is None and stage.left_by_itself

    play(node, act)


def test_a_long_output_survives_the_deaths_of_many_pumps_to_the_byte(node: Node, held: Keeper, at_once: None) -> None:
    chosen = random.Random(SEED)

    async def act(stage: Stage, made: Pumps) -> None:
        async with foreign_streams.other(stage) as other:
            await other.do("open")
            for part in range(PARTS):
                other.ask("count", "out", part * PART_LINES + 1, (part + 1) * PART_LINES)
                await asyncio.sleep(chosen.uniform(0, 0.05))
                await stage.kill_pump(made)
                await other.done()
        await stage.ended(made)
        assert stage.log() == lines(1, PARTS * PART_LINES)

    play(node, act)


def test_a_long_input_survives_them_too_and_ends_when_both_sides_have_closed_it(
    node: Node, held: Keeper, at_once: None
) -> None:
    chosen = random.Random(SEED)

    async def act(stage: Stage, made: Pumps) -> None:
        async with foreign_streams.other(stage) as other, stage.session(orders=closing(other)) as session:
            await other.do("open")
            await other.do("echo")
            reading = asyncio.create_task(collected(session))
            for part in range(PARTS):
                writing = asyncio.create_task(session.write(lines(part * PART_LINES + 1, (part + 1) * PART_LINES)))
                await asyncio.sleep(chosen.uniform(0, 0.05))
                await stage.kill_pump(made)
                await writing
            await session.close_stdin()
            await other.ended()
            await stage.ended(made)
            await reading
        assert stage.log() == lines(1, PARTS * PART_LINES)

    play(node, act)


def closing(other: Other) -> Orders:
    """As a manager gives them: the pump's end first, then CloseIO, once."""
    released: list[bool] = []

    async def close_stdin(line: Control) -> None:
        await line.close_stdin()
        if not released:
            released.append(True)
            other.ask("release")

    return Orders(close_stdin=close_stdin)


def test_input_before_the_fifos_are_opened_waits_and_a_detached_client_ends_nothing(node: Node, held: Keeper) -> None:
    async def act(stage: Stage, made: Pumps) -> None:
        async with stage.session() as session:
            await session.write(b"first ")
            await session.settle()
        await stage.kill_pump(made)
        async with foreign_streams.other(stage) as other:
            await other.do("open")
            await other.do("echo")
            async with stage.session(orders=closing(other)) as session:
                await session.write(b"second")
                await session.close_stdin()
                await other.ended()
        await stage.ended(made)
        assert stage.log() == b"first second"

    play(node, act)


def test_an_attached_client_gets_all_output_and_then_its_end(node: Node, held: Keeper) -> None:
    async def act(stage: Stage, made: Pumps) -> None:
        async with foreign_streams.other(stage) as other, stage.session(WantedStreams(stdin=False)) as session:
            await other.do("open")
            other.ask("count", "out", 1, PART_LINES)
            reading = asyncio.create_task(collected(session))
            await other.done()
            await other.killed()
            await stage.ended(made)
            assert await reading == stage.log() == lines(1, PART_LINES)

    play(node, act)


# -- the end


def test_what_comes_after_the_end_was_told_is_waited_for(node: Node, held: Keeper, patient: None) -> None:
    async def act(stage: Stage, made: Pumps) -> None:
        async with foreign_streams.other(stage) as other:
            await other.do("open")
            made.end(KEY)
            await other.do("count", "out", 1, PART_LINES)
            await other.do("close", "out", "err")
            await stage.ended(made)
        assert stage.log() == lines(1, PART_LINES)
        assert stage.left_by_itself

    play(node, act, plan=drained(Stage(node), A_DAY))


def test_outputs_end_is_not_the_containers(node: Node, held: Keeper) -> None:
    async def act(stage: Stage, made: Pumps) -> None:
        async with foreign_streams.other(stage) as other:
            await other.do("open")
            await other.says(b"last words")
            await other.do("close", "out", "err")
            await stage.kill_pump(made)
            async with stage.session(WantedStreams(stderr=False)) as session:
                await session.write(b"still read")
                await session.settle()
            assert made.shim_of(KEY) is not None
            await stage.ended(made)
        assert stage.log() == b"last words"

    play(node, act)


def test_a_writer_that_stays_costs_the_drain_limit_and_no_byte(node: Node, held: Keeper) -> None:
    async def act(stage: Stage, made: Pumps) -> None:
        async with foreign_streams.other(stage) as other:
            await other.do("open")
            await other.do("count", "out", 1, 100)
            await stage.ended(made)
            assert stage.left_by_itself
        assert stage.log() == lines(1, 100)

    play(node, act, plan=drained(Stage(node), b"drain_ms=200"))


def test_fifos_that_nobody_has_opened_are_at_their_end_at_once(node: Node, held: Keeper) -> None:
    async def act(stage: Stage, made: Pumps) -> None:
        await stage.ended(made)
        assert stage.left_by_itself

    play(node, act, plan=drained(Stage(node), A_DAY))


def test_a_pump_that_is_killed_while_it_drains_is_replaced_and_told_again(
    node: Node, held: Keeper, patient: None
) -> None:
    async def act(stage: Stage, made: Pumps) -> None:
        async with foreign_streams.other(stage) as other:
            await other.do("open")
            made.end(KEY)
            await stage.kill_pump(made)
            await other.do("count", "out", 1, 1000)
            await other.do("close", "out", "err")
            await stage.ended(made)
        assert stage.log() == lines(1, 1000)

    play(node, act, plan=drained(Stage(node), A_DAY))


def test_a_pump_that_does_not_hear_is_killed(node: Node, held: Keeper, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pumps, "LEAVES_SECONDS", 0.3)

    async def act(stage: Stage, made: Pumps) -> None:
        pump = made.shim_of(KEY)
        assert pump is not None
        os.kill(pump.pid, signal.SIGSTOP)
        await stage.ended(made)
        assert made.shim_of(KEY) is None

    play(node, act)


# -- the daemon


async def ends_with(log: bytes, stage: Stage, other: foreign_streams.Other, later: Pumps) -> None:
    """The program writes `after` and is killed: all of its output is in the log, and the later daemon's pump leaves."""
    await other.says(b"after")
    await other.killed()
    await stage.ended(later)
    assert stage.log() == log
    await later.leave(KEY)


def test_output_goes_on_while_the_daemon_is_away_and_its_successor_finds_the_pump(node: Node, held: Keeper) -> None:
    async def act(stage: Stage, made: Pumps) -> None:
        async with foreign_streams.other(stage) as other:
            await other.do("open")
            await other.says(b"before ")
            pump = made.shim_of(KEY)
            made.close()
            await other.do("count", "out", 1, PART_LINES)
            async with foreign_streams.daemon(node) as later:
                stage.find(later)
                assert later.shim_of(KEY) == pump is not None
                await ends_with(b"before " + lines(1, PART_LINES) + b"after", stage, other, later)

    play(node, act)


def test_a_pump_that_was_killed_while_the_daemon_was_away_is_replaced_by_its_successor(
    node: Node, held: Keeper
) -> None:
    async def act(stage: Stage, made: Pumps) -> None:
        async with foreign_streams.other(stage) as other:
            await other.do("open")
            await other.says(b"before ")
            pump = made.shim_of(KEY)
            assert pump is not None
            made.close()
            end_process(pump.pid)
            await other.says(b"between ")
            async with foreign_streams.daemon(node) as later:
                stage.find(later)
                await foreign_streams.until(lambda: later.shim_of(KEY) is not None, "a replacement")
                await ends_with(b"before between after", stage, other, later)

    play(node, act)


def test_a_pump_registers_with_the_next_keeper_while_no_daemon_is_there(node: Node) -> None:
    keepers = [node.keeper()]

    async def act(stage: Stage, made: Pumps) -> None:
        async with foreign_streams.other(stage) as other:
            await other.do("open")
            await other.says(b"before ")
            pump = made.shim_of(KEY)
            assert pump is not None
            made.close()
            for _ in range(2):
                keepers[-1].close()
                keepers.append(node.keeper())
                await foreign_streams.until(
                    lambda: keepers[-1].ask("exitd-list", ("at", 0)).kind == "exitd-run", "the pump"
                )
                await other.says(b"between ")
            end_process(pump.pid)
            await other.says(b"waiting ")
            async with foreign_streams.daemon(node) as later:
                stage.find(later)
                await foreign_streams.until(lambda: later.shim_of(KEY) is not None, "a replacement")
                await ends_with(b"before between between waiting after", stage, other, later)

    play(node, act)
    keepers[-1].close()


def test_a_pump_that_has_left_is_not_begun_again(node: Node, held: Keeper) -> None:
    async def act(stage: Stage, made: Pumps) -> None:
        await stage.ended(made)
        async with foreign_streams.daemon(node) as later:
            stage.find(later)
            gone = later.gone(KEY)
            assert gone is not None
            await foreign_streams.limited(gone)  # a zombie still, perhaps
            assert later.shim_of(KEY) is None and stage.left_by_itself
            await later.leave(KEY)
            assert later.gone(KEY) is None

    play(node, act)


def test_a_pump_whose_replacement_failed_while_exitd_alone_had_its_streams_is_replaced_in_a_round(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    keepers = [node.keeper()]

    async def act(stage: Stage, made: Pumps) -> None:
        async with foreign_streams.other(stage) as other:
            await other.do("open")
            await other.says(b"before ")
            pump, gone, program = made.shim_of(KEY), made.gone(KEY), made._shims._program
            assert pump is not None and gone is not None
            await foreign_streams.until(lambda: not made._pumps[KEY].misses_copies(), "copies")
            monkeypatch.setattr(made._shims, "_program", f"{program}-that-is-being-installed")
            os.kill(pump.pid, signal.SIGSTOP)  # it does not register with the next keeper
            keepers[-1].close()
            keepers.append(node.keeper())
            end_process(pump.pid)
            await foreign_streams.until(lambda: made.shim_of(KEY) is None, "its end")
            await foreign_streams.until(lambda: not made._pumps[KEY].replacements, "a replacement that failed")
            assert not gone.is_set()
            await other.says(b"waiting ")
            monkeypatch.setattr(made._shims, "_program", program)
            made.look_at_all()
            await foreign_streams.until(lambda: made.shim_of(KEY) is not None, "a replacement")
            await ends_with(b"before waiting after", stage, other, made)

    play(node, act)
    keepers[-1].close()


def test_without_a_keeper_a_pump_works_and_has_no_successor(node: Node) -> None:
    node.state.mkdir()

    async def act(stage: Stage, made: Pumps) -> None:
        async with foreign_streams.other(stage) as other:
            await other.do("open")
            await other.says(b"seen")
            await foreign_streams.until(lambda: stage.log_path.exists() and stage.log() == b"seen", "the log")
            pump, gone = made.shim_of(KEY), made.gone(KEY)
            assert pump is not None and gone is not None
            end_process(pump.pid)
            await foreign_streams.limited(gone)
            assert made.shim_of(KEY) is None
            await made.leave(KEY)

    play(node, act)
