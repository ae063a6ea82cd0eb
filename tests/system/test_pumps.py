"""The streams of what runs under another's shim: to the byte, whoever dies meanwhile, and nothing stays behind."""

import asyncio
import os
import random
import signal
from collections.abc import Iterator
from dataclasses import replace

import pytest

from supervisor import rundir, shims
from supervisor.control import Control
from supervisor.errors import ShimFailed
from supervisor.execs import Exec, ExecPhase, ExecSpec
from supervisor.facts import RunKey, Winsize
from supervisor.logspecs import LogDriver, LogSpec
from supervisor.shimclient import pumps
from supervisor.shimclient.pumps import Pumps
from supervisor.streams import Dropped, Orders, Output, Session, Wanted
from tests.shim.test_journald import Journal
from tests.system import pumprig, shimrig
from tests.system.otherside import LINE_BYTES
from tests.system.pumprig import KEY, SPEC, Other, Stage, play
from tests.system.shimrig import Keeper, Rig
from tests.system.streamrig import json_texts, rotated, texts

SEED = 20_265
PARTS, PART_LINES = 6, 6000
A_DAY = b"drain_ms=86400000"


@pytest.fixture
def held(rig: Rig) -> Iterator[Keeper]:
    """A keeper that has at the end what it had in the beginning."""
    made = rig.keeper()
    before = len(shimrig.open_files(made.process.pid))
    yield made
    assert made.ask("exitd-list", ("at", 0)).kind == "exitd-ok"  # behind the farewell of all its clients
    assert len(shimrig.open_files(made.process.pid)) == before
    made.close()


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """No rest between two replacements."""
    monkeypatch.setattr(shims, "ADOPT_REST_SECONDS", 0.0)


def lines(first: int, last: int) -> bytes:
    return b"".join(b"%0*d\n" % (LINE_BYTES - 1, number) for number in range(first, last + 1))


def drained(stage: Stage, word: bytes) -> bytes:
    """The plan with another drain limit."""
    plan = stage.plan()
    assert plan.count(b"drain_ms=8000") == 1
    return plan.replace(b"drain_ms=8000", word)


async def collected(session: Session) -> bytes:
    got = b""
    async for item in session.items():
        assert not isinstance(item, Dropped)
        got += item.data
    return got


def test_both_streams_are_in_the_log_when_the_end_is_told(rig: Rig, held: Keeper) -> None:
    async def act(stage: Stage, made: Pumps) -> None:
        async with pumprig.other(stage) as other:
            await other.do("open")
            await other.says(b"one\n")
            await other.says(b"two\n", "err")
            await other.says(b"three")
        await stage.ended(made)
        assert (stage.log(), stage.log("stderr")) == (b"one\nthree", b"two\n")
        assert made.shim_of(KEY) is None and stage.left_by_itself

    play(rig, act)


def test_a_long_output_survives_the_deaths_of_many_pumps_to_the_byte(rig: Rig, held: Keeper, at_once: None) -> None:
    chosen = random.Random(SEED)

    async def act(stage: Stage, made: Pumps) -> None:
        async with pumprig.other(stage) as other:
            await other.do("open")
            for part in range(PARTS):
                other.ask("count", "out", part * PART_LINES + 1, (part + 1) * PART_LINES)
                await asyncio.sleep(chosen.uniform(0, 0.05))
                await stage.kill_pump(made)
                await other.done()
        await stage.ended(made)
        assert stage.log() == lines(1, PARTS * PART_LINES)

    play(rig, act)


def test_a_long_input_survives_them_too_and_ends_when_both_sides_have_closed_it(
    rig: Rig, held: Keeper, at_once: None
) -> None:
    chosen = random.Random(SEED)

    async def act(stage: Stage, made: Pumps) -> None:
        async with pumprig.other(stage) as other, stage.session(orders=closing(other)) as session:
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

    play(rig, act)


def closing(other: Other) -> Orders:
    """As a manager gives them: the pump's end first, then CloseIO, once."""
    released: list[bool] = []

    async def close_stdin(line: Control) -> None:
        await line.close_stdin()
        if not released:
            released.append(True)
            other.ask("release")

    return Orders(close_stdin=close_stdin)


def test_input_before_the_fifos_are_opened_waits_and_a_detached_client_ends_nothing(rig: Rig, held: Keeper) -> None:
    async def act(stage: Stage, made: Pumps) -> None:
        async with stage.session() as session:
            await session.write(b"first ")
            await session.settle()
        await stage.kill_pump(made)
        async with pumprig.other(stage) as other:
            await other.do("open")
            await other.do("echo")
            async with stage.session(orders=closing(other)) as session:
                await session.write(b"second")
                await session.close_stdin()
                await other.ended()
        await stage.ended(made)
        assert stage.log() == b"first second"

    play(rig, act)


def test_an_attached_client_gets_all_output_and_then_its_end(rig: Rig, held: Keeper) -> None:
    async def act(stage: Stage, made: Pumps) -> None:
        async with pumprig.other(stage) as other, stage.session(Wanted(stdin=False)) as session:
            await other.do("open")
            other.ask("count", "out", 1, PART_LINES)
            reading = asyncio.create_task(collected(session))
            await other.done()
            await other.killed()
            await stage.ended(made)
            assert await reading == stage.log() == lines(1, PART_LINES)

    play(rig, act)


# -- the end


def test_what_comes_after_the_end_was_told_is_waited_for(rig: Rig, held: Keeper) -> None:
    async def act(stage: Stage, made: Pumps) -> None:
        async with pumprig.other(stage) as other:
            await other.do("open")
            await made.end(KEY)
            await other.do("count", "out", 1, PART_LINES)
            await other.do("close", "out", "err")
            await stage.ended(made)
        assert stage.log() == lines(1, PART_LINES)
        assert stage.left_by_itself

    play(rig, act)


def test_outputs_end_is_not_the_containers(rig: Rig, held: Keeper) -> None:
    async def act(stage: Stage, made: Pumps) -> None:
        async with pumprig.other(stage) as other:
            await other.do("open")
            await other.says(b"last words")
            await other.do("close", "out", "err")
            await stage.kill_pump(made)
            async with stage.session(Wanted(stderr=False)) as session:
                await session.write(b"still read")
                await session.settle()
            assert made.shim_of(KEY) is not None
            await stage.ended(made)
        assert stage.log() == b"last words"

    play(rig, act)


def test_a_writer_that_stays_costs_the_drain_limit_and_no_byte(rig: Rig, held: Keeper) -> None:
    async def act(stage: Stage, made: Pumps) -> None:
        async with pumprig.other(stage) as other:
            await other.do("open")
            await other.do("count", "out", 1, 100)
            await stage.ended(made)
            assert stage.left_by_itself
        assert stage.log() == lines(1, 100)

    play(rig, act, plan=drained(Stage(rig), b"drain_ms=200"))


def test_fifos_that_nobody_has_opened_are_at_their_end_at_once(rig: Rig, held: Keeper) -> None:
    async def act(stage: Stage, made: Pumps) -> None:
        await stage.ended(made)
        assert stage.left_by_itself

    play(rig, act, plan=drained(Stage(rig), A_DAY))


def test_a_pump_that_is_killed_while_it_drains_is_replaced_and_told_again(rig: Rig, held: Keeper) -> None:
    async def act(stage: Stage, made: Pumps) -> None:
        async with pumprig.other(stage) as other:
            await other.do("open")
            await made.end(KEY)
            await stage.kill_pump(made)
            await other.do("count", "out", 1, 1000)
            await other.do("close", "out", "err")
            await stage.ended(made)
        assert stage.log() == lines(1, 1000)

    play(rig, act)


def test_a_pump_that_does_not_hear_is_killed(rig: Rig, held: Keeper, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pumps, "LEAVES_SECONDS", 0.3)

    async def act(stage: Stage, made: Pumps) -> None:
        pump = made.shim_of(KEY)
        assert pump is not None
        os.kill(pump.pid, signal.SIGSTOP)
        await stage.ended(made)
        assert made.shim_of(KEY) is None

    play(rig, act)


# -- the daemon


def test_output_goes_on_while_the_daemon_is_away_and_its_successor_finds_the_pump(rig: Rig, held: Keeper) -> None:
    async def act(stage: Stage, made: Pumps) -> None:
        async with pumprig.other(stage) as other:
            await other.do("open")
            await other.says(b"before ")
            pump = made.shim_of(KEY)
            made.close()
            await other.do("count", "out", 1, PART_LINES)
            async with pumprig.daemon(rig) as later:
                stage.find(later)
                assert later.shim_of(KEY) == pump is not None
                await other.says(b"after")
                await other.killed()
                await stage.ended(later)
                assert stage.log() == b"before " + lines(1, PART_LINES) + b"after"
                await later.leave(KEY)

    play(rig, act)


def test_a_pump_that_was_killed_while_the_daemon_was_away_is_replaced_by_its_successor(rig: Rig, held: Keeper) -> None:
    async def act(stage: Stage, made: Pumps) -> None:
        async with pumprig.other(stage) as other:
            await other.do("open")
            await other.says(b"before ")
            pump = made.shim_of(KEY)
            assert pump is not None
            made.close()
            shimrig.end_process(pump.pid)
            await other.says(b"between ")
            async with pumprig.daemon(rig) as later:
                stage.find(later)
                await pumprig.until(lambda: later.shim_of(KEY) is not None, "a replacement")
                await other.says(b"after")
                await other.killed()
                await stage.ended(later)
                assert stage.log() == b"before between after"
                await later.leave(KEY)

    play(rig, act)


def test_a_pump_that_has_left_is_not_begun_again(rig: Rig, held: Keeper) -> None:
    async def act(stage: Stage, made: Pumps) -> None:
        await stage.ended(made)
        async with pumprig.daemon(rig) as later:
            stage.find(later)
            gone = later.gone(KEY)
            assert gone is not None
            await pumprig.limited(gone)  # a zombie still, perhaps
            assert later.shim_of(KEY) is None and stage.left_by_itself
            await later.leave(KEY)
            assert later.gone(KEY) is None

    play(rig, act)


def test_without_a_keeper_a_pump_works_and_has_no_successor(rig: Rig) -> None:
    rig.state.mkdir()

    async def act(stage: Stage, made: Pumps) -> None:
        async with pumprig.other(stage) as other:
            await other.do("open")
            await other.says(b"seen")
            await pumprig.until(lambda: stage.log_path.exists() and stage.log() == b"seen", "the log")
            pump, gone = made.shim_of(KEY), made.gone(KEY)
            assert pump is not None and gone is not None
            shimrig.end_process(pump.pid)
            await pumprig.limited(gone)
            assert made.shim_of(KEY) is None
            await made.leave(KEY)

    play(rig, act)


# -- kinds of output


@pytest.mark.parametrize("driver", [LogDriver.CRI, LogDriver.JSON_FILE])
def test_a_log_is_rotated_and_no_line_is_lost(rig: Rig, held: Keeper, at_once: None, driver: LogDriver) -> None:
    spec = pumprig.logged(LogSpec(driver, max_bytes=65_536, max_files=100))

    async def act(stage: Stage, made: Pumps) -> None:
        async with pumprig.other(stage) as other:
            await other.do("open")
            other.ask("count", "out", 1, PART_LINES)
            await stage.kill_pump(made)
            await other.done()
        await stage.ended(made)
        log = rotated(stage.log_path)
        got = texts(log) if driver is LogDriver.CRI else json_texts(log).encode()
        assert got == lines(1, PART_LINES)
        assert len(log) > 10 * 65_536 and stage.log_path.stat().st_size < 2 * 65_536

    play(rig, act, spec)


@pytest.fixture
def journal(rig: Rig) -> Iterator[Journal]:
    made = Journal(rig.directory)
    made.open()
    yield made
    made.close()


def test_the_journal_gets_it_also_after_a_replacement(rig: Rig, held: Keeper, journal: Journal) -> None:
    spec = pumprig.logged(LogSpec(LogDriver.JOURNALD))

    async def act(stage: Stage, made: Pumps) -> None:
        async with pumprig.other(stage) as other:
            await other.do("open")
            await other.says(b"one\n")
            assert journal.next()["MESSAGE"] == b"one"
            await stage.kill_pump(made)
            await other.says(b"two\n", "err")
            second = journal.next()
            assert (second["MESSAGE"], second["PRIORITY"], second["CONTAINER_NAME"]) == (b"two", b"3", b"web")
        await stage.ended(made)

    program = b"exitd-journald\0"
    plan = Stage(rig, spec=spec).plan()
    assert plan.count(program) == 1
    play(rig, act, spec, plan.replace(program, program + b"logger=" + os.fsencode(journal.path) + b"\0"))


def test_a_terminal_is_one_fifo_each_way_and_its_size_the_managers(rig: Rig, held: Keeper) -> None:
    sizes = []

    async def resize(line: Control, size: Winsize) -> None:
        sizes.append(size)

    async def act(stage: Stage, made: Pumps) -> None:
        assert sorted(name for name in os.listdir(stage.path) if name.startswith("std")) == ["stdin", "stdout"]
        async with pumprig.other(stage, ["in"]) as other:
            await other.do("open")
            await other.do("echo")
            async with stage.session(Wanted(size=Winsize(4, 5)), Orders(resize=resize)) as session:
                await session.write(b"typed")
                await session.resize(Winsize(6, 7))
                assert await anext(session.items()) == Output("stdout", b"typed")
        await stage.ended(made)
        assert stage.log() == b"typed"
        assert sizes == [Winsize(4, 5), Winsize(6, 7)]

    play(rig, act, replace(SPEC, tty=True))


# -- execs


def an_exec(attach: bool) -> Exec:
    spec = ExecSpec(("cat",), attach=attach)
    return Exec(RunKey("box", 1, "e1"), spec, ExecPhase.RUNNING, "web", "", "")


async def begin_exec(stage: Stage, made: Pumps, e: Exec) -> Stage:
    own = Stage(stage.rig, e.key)
    directory = rundir.make_in(own.path, pumps.plan_of_exec(e, own.place))
    fifos = await made.begin(e.key, directory, e.spec)
    assert (fifos.stdin, fifos.stdout, fifos.stderr) == ("", f"{own.path}/stdout", f"{own.path}/stderr")
    return own


def test_the_output_of_an_exec_waits_for_whoever_attaches(rig: Rig, held: Keeper) -> None:
    async def act(stage: Stage, made: Pumps) -> None:
        own = await begin_exec(stage, made, an_exec(attach=True))
        async with pumprig.other(own, ["err"]) as other:
            await other.do("open")
            await other.says(b"all of it")
        await made.end(own.key)
        own.over.set()
        async with own.session(Wanted(stdin=False)) as session:
            assert await collected(session) == b"all of it"
        await own.ended(made)
        await made.remove(own.key)
        await made.leave(KEY)

    play(rig, act)


def test_with_a_run_go_the_pumps_of_its_execs(rig: Rig, held: Keeper) -> None:
    async def act(stage: Stage, made: Pumps) -> None:
        await begin_exec(stage, made, an_exec(attach=False))

    play(rig, act)


# -- beginnings that fail


def test_a_begin_that_fails_leaves_no_pump(rig: Rig, held: Keeper) -> None:
    async def begin() -> None:
        stage = Stage(rig)
        async with pumprig.daemon(rig) as made:
            directory = rundir.make(stage.place.state, "box", 1, stage.plan())
            os.mkfifo(f"{stage.path}/stdout")
            with pytest.raises(ShimFailed, match="File exists"):
                await made.begin(KEY, directory, SPEC)
            for name in ("stdin", "stdout"):
                os.unlink(f"{stage.path}/{name}")
            with rundir.locked(stage.path) as free, pytest.raises(ShimFailed, match="lock: Resource temporarily"):
                assert free
                await made.begin(KEY, rundir.reopen(stage.place.state, "box", 1), SPEC)
            assert made.gone(KEY) is None
            await made.remove(KEY)

    asyncio.run(begin())
