"""Every kind of output of what runs under another's shim, execs, and beginnings that fail."""

import asyncio
import os
from collections.abc import Iterator
from dataclasses import replace

import pytest

from supervisor.model.errors import ShimFailed
from supervisor.model.execs import Exec, ExecPhase, ExecSpec
from supervisor.model.values import LogDriver, LogSpec, RunKey, Winsize
from supervisor.monitor import rundir, shims
from supervisor.monitor.control import Control
from supervisor.runtime.foreign_shim import pumps
from supervisor.runtime.foreign_shim.pumps import Pumps
from supervisor.streams.attach import Orders, Output, WantedStreams
from tests.shim.test_journald import Journal
from tests.system import foreign_streams
from tests.system.foreign_streams import KEY, PART_LINES, SPEC, Stage, collected, lines, play
from tests.system.keepers import Keeper, Node
from tests.system.streams import json_texts, rotated, texts
from tests.system.waits import LIMIT_SECONDS


@pytest.fixture
def held(node: Node) -> Iterator[Keeper]:
    with foreign_streams.held(node) as made:
        yield made


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """No rest between two replacements."""
    monkeypatch.setattr(shims, "ADOPT_REST_SECONDS", 0.0)


@pytest.mark.parametrize("driver", [LogDriver.CRI, LogDriver.JSON_FILE])
def test_a_log_is_rotated_and_no_line_is_lost(node: Node, held: Keeper, at_once: None, driver: LogDriver) -> None:
    spec = foreign_streams.logged(LogSpec(driver, max_bytes=65_536, max_files=100))

    async def act(stage: Stage, made: Pumps) -> None:
        async with foreign_streams.other(stage) as other:
            await other.do("open")
            other.ask("count", "out", 1, PART_LINES)
            await stage.kill_pump(made)
            await other.done()
        await stage.ended(made)
        log = rotated(stage.log_path)
        got = texts(log) if driver is LogDriver.CRI else json_texts(log).encode()
        assert got == lines(1, PART_LINES)
        assert len(log) > 10 * 65_536 and stage.log_path.stat().st_size < 2 * 65_536

    play(node, act, spec)


@pytest.fixture
def journal(node: Node) -> Iterator[Journal]:
    made = Journal(node.directory)
    made.open()
    yield made
    made.close()


def test_the_journal_gets_it_also_after_a_replacement(node: Node, held: Keeper, journal: Journal) -> None:
    spec = foreign_streams.logged(LogSpec(LogDriver.JOURNALD))

    async def act(stage: Stage, made: Pumps) -> None:
        async with foreign_streams.other(stage) as other:
            await other.do("open")
            await other.says(b"one\n")
            assert journal.next()["MESSAGE"] == b"one"
            await stage.kill_pump(made)
            await other.says(b"two\n", "err")
            second = journal.next()
            assert (second["MESSAGE"], second["PRIORITY"], second["CONTAINER_NAME"]) == (b"two", b"3", b"web")
        await stage.ended(made)

    program = b"exitd-journald\0"
    plan = Stage(node, spec=spec).plan()
    assert plan.count(program) == 1
    play(node, act, spec, plan.replace(program, program + b"logger=" + os.fsencode(journal.path) + b"\0"))


def test_a_terminal_is_one_fifo_each_way_and_its_size_the_managers(node: Node, held: Keeper) -> None:
    sizes = []

    async def resize(line: Control, size: Winsize) -> None:
        sizes.append(size)

    async def act(stage: Stage, made: Pumps) -> None:
        assert sorted(name for name in os.listdir(stage.path) if name.startswith("std")) == ["stdin", "stdout"]
        async with foreign_streams.other(stage, ["in"]) as other:
            await other.do("open")
            await other.do("echo")
            async with stage.session(WantedStreams(size=Winsize(4, 5)), Orders(resize=resize)) as session:
                await session.write(b"typed")
                await session.resize(Winsize(6, 7))
                assert await anext(session.items()) == Output("stdout", b"typed")
        await stage.ended(made)
        assert stage.log() == b"typed"
        assert sizes == [Winsize(4, 5), Winsize(6, 7)]

    play(node, act, replace(SPEC, tty=True))


# -- execs


def an_exec(attach: bool) -> Exec:
    spec = ExecSpec(("cat",), attach=attach)
    return Exec(RunKey("box", 1, "e1"), spec, ExecPhase.RUNNING, "web", "", "")


async def begin_exec(stage: Stage, made: Pumps, e: Exec) -> Stage:
    own = Stage(stage.node, e.key)
    directory = rundir.make_in(own.path, pumps.plan_of_exec(e, own.place))
    fifos = await made.begin(e.key, directory, e.spec)
    assert (fifos.stdin, fifos.stdout, fifos.stderr) == ("", f"{own.path}/stdout", f"{own.path}/stderr")
    return own


def test_the_output_of_an_exec_waits_for_whoever_attaches(node: Node, held: Keeper) -> None:
    async def act(stage: Stage, made: Pumps) -> None:
        own = await begin_exec(stage, made, an_exec(attach=True))
        async with foreign_streams.other(own, ["err"]) as other:
            await other.do("open")
            await other.says(b"all of it")
        made.end(own.key)
        own.over.set()
        async with own.session(WantedStreams(stdin=False)) as session:
            assert await collected(session) == b"all of it"
        await own.ended(made)
        await made.remove(own.key)
        await made.leave(KEY)

    play(node, act)


def test_an_exec_that_is_deleted_holds_its_output_for_nobody(
    node: Node, held: Keeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pumps, "HOLD_MS", 86_400_000)
    monkeypatch.setattr(pumps, "EXEC_LEAVES_SECONDS", 0.1)

    async def act(stage: Stage, made: Pumps) -> None:
        own = await begin_exec(stage, made, an_exec(attach=True))
        made.end(own.key)
        async with asyncio.timeout(LIMIT_SECONDS):
            await made.remove(own.key)
        assert made.gone(own.key) is None

    play(node, act)


def test_with_a_run_go_the_pumps_of_its_execs(node: Node, held: Keeper) -> None:
    async def act(stage: Stage, made: Pumps) -> None:
        await begin_exec(stage, made, an_exec(attach=False))

    play(node, act)


# -- beginnings that fail


def test_a_begin_that_fails_leaves_no_pump(node: Node, held: Keeper) -> None:
    async def begin() -> None:
        stage = Stage(node)
        async with foreign_streams.daemon(node) as made:
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
