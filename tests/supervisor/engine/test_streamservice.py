"""What callers ask of standard streams, by a container's phase and kind: on a real store, with a real socket."""

import os
from pathlib import Path

import pytest

from supervisor.engine.streamservice import StreamService
from supervisor.model.errors import NoSuchContainer, ShimFailed, WrongState
from supervisor.model.values import Container, Phase, RunKey, Spec, Winsize
from supervisor.monitor.control import Control
from supervisor.monitor.rundir import path_of
from supervisor.streams.attach import AttachSession, AttachTarget, Orders, Output, WantedStreams
from tests.supervisor.fakes import World, in_loop, world
from tests.supervisor.fakeshim import shim

PLAIN = Spec(name="plain", args=("true",), rootfs="/")
INTERACTIVE = Spec(name="interactive", args=("true",), rootfs="/", stdin=True)
ON_TTY = Spec(name="on-tty", args=("true",), rootfs="/", stdin=True, tty=True)


async def no_exec(container: Container, exec_id: str) -> AttachTarget:
    raise WrongState(f"{container.spec.name} has no exec {exec_id}")


def service_of(made: World, state: Path) -> StreamService:
    return StreamService(made.node, str(state), no_exec)


def directory(state: Path, container: str, run: int = 1) -> Path:
    path = Path(path_of(str(state), container, run))
    path.mkdir(parents=True)
    return path


@in_loop
async def test_a_created_container_is_attached_to_and_its_end_ends_it(tmp_path: Path) -> None:
    async with world(tmp_path) as made:
        container = await made.node.add(INTERACTIVE)
        await made.runs.make(container.id)
        with shim(directory(tmp_path, container.id)) as fake:
            async with await service_of(made, tmp_path).attach("interactive", "", WantedStreams()) as session:
                assert (session.tty, session.stdin) == (False, True)
                await made.runs.launch(container.id)
                fake.die()
                made.manager.ends(container.id)
                assert [item async for item in session.items()] == []


@in_loop
async def test_a_container_that_has_ended_has_no_streams(tmp_path: Path) -> None:
    async with world(tmp_path) as made:
        container = await made.running(INTERACTIVE)
        service = service_of(made, tmp_path)
        made.manager.ends(container)
        await made.node.containers.until(container, lambda c: c is not None and c.phase is Phase.EXITED, 5, "its end")
        with pytest.raises(WrongState, match="exited: it has no standard streams now"):
            await service.attach("interactive", "", WantedStreams())


@in_loop
async def test_orders_reach_the_shim_of_the_current_run(tmp_path: Path) -> None:
    async with world(tmp_path) as made:
        service = service_of(made, tmp_path)
        on_tty, interactive = await made.running(ON_TTY), await made.running(INTERACTIVE)
        with shim(directory(tmp_path, on_tty)) as one, shim(directory(tmp_path, interactive)) as other:
            await service.resize("on-tty", "", Winsize(4, 5))
            await service.close_stdin("interactive", "")
            await service.reopen_log("interactive")
            assert (one.asked, other.asked) == ([("resize", "4", "5")], [("close-stdin",), ("reopen-log",)])
            counters = await service.counters(made.node.containers.known(on_tty))
            assert counters is not None


@in_loop
async def test_orders_that_do_not_fit_are_refused_before_anybody_is_asked(tmp_path: Path) -> None:
    async with world(tmp_path) as made:
        service = service_of(made, tmp_path)
        for spec in (PLAIN, INTERACTIVE, ON_TTY):
            await made.running(spec)
        with pytest.raises(WrongState, match="no terminal"):
            await service.resize("interactive", "", Winsize(1, 1))
        with pytest.raises(WrongState, match="without stdin"):
            await service.close_stdin("plain", "")
        with pytest.raises(WrongState, match="ctrl-d"):
            await service.close_stdin("on-tty", "")
        with pytest.raises(NoSuchContainer):
            await service.reopen_log("nobody")


@in_loop
async def test_a_shim_that_is_not_there_is_an_error_for_orders_and_none_for_counters(tmp_path: Path) -> None:
    async with world(tmp_path) as made:
        container = await made.running(INTERACTIVE)
        service = service_of(made, tmp_path)
        with pytest.raises(ShimFailed, match="no shim listens"):
            await service.close_stdin(container, "")
        assert await service.counters(made.node.containers.known(container)) is None


@in_loop
async def test_an_exec_is_its_owners_to_find(tmp_path: Path) -> None:
    async with world(tmp_path) as made:
        container = await made.running(PLAIN)
        its_own = directory(tmp_path, "exec")

        async def found(of: Container, exec_id: str) -> AttachTarget:
            assert (of.id, exec_id) == (container, "e1")
            return AttachTarget(
                "e1", str(its_own), True, True, lambda: made.node.containers.until("none", lambda c: False, 9, "it")
            )

        service = StreamService(made.node, str(tmp_path), found)
        with shim(its_own) as fake:
            async with await service.attach("plain", "e1", WantedStreams()) as session:
                assert isinstance(session, AttachSession) and session.tty
            await service.resize("plain", "e1", Winsize(1, 2))
        assert fake.asked[-1] == ("resize", "1", "2")
        with pytest.raises(WrongState, match="has no exec e2"):
            await service_of(made, tmp_path).attach("plain", "e2", WantedStreams())


@in_loop
async def test_a_run_says_who_takes_the_orders(tmp_path: Path) -> None:
    taken: list[object] = []

    def orders(key: RunKey) -> Orders:
        async def resize(line: Control, size: Winsize) -> None:
            taken.append((key, size))

        async def close_stdin(line: Control) -> None:
            await line.close_stdin()
            taken.append(key)

        return Orders(resize, close_stdin)

    async def found(of: Container, exec_id: str) -> AttachTarget:
        return AttachTarget(
            exec_id, str(its_own), True, True, lambda: made.node.containers.until("none", lambda c: False, 9, "it")
        )

    async with world(tmp_path) as made:
        container = await made.running(INTERACTIVE)
        run, its_own = directory(tmp_path, container), directory(tmp_path, "exec")
        service = StreamService(made.node, str(tmp_path), found, orders)
        with shim(run) as fake, shim(its_own) as other:
            await service.close_stdin(container, "")
            async with await service.attach(container, "", WantedStreams()) as session:
                await session.close_stdin()
            async with await service.attach(container, "e1", WantedStreams(size=Winsize(1, 2))) as session:
                await session.resize(Winsize(3, 4))
            await service.resize(container, "e1", Winsize(5, 6))
        assert [op for op, *_ in fake.asked] == ["close-stdin", "attach", "close-stdin"]
        assert [op for op, *_ in other.asked] == ["attach"]
        key, its_key = RunKey(container, 1), RunKey(container, 1, "e1")
        assert taken == [key, key, *((its_key, size) for size in (Winsize(1, 2), Winsize(3, 4), Winsize(5, 6)))]


@in_loop
async def test_output_is_that_of_the_container(tmp_path: Path) -> None:
    async with world(tmp_path) as made:
        container = await made.running(PLAIN)
        with shim(directory(tmp_path, container)) as fake:
            async with await service_of(made, tmp_path).attach(container, "", WantedStreams()) as session:
                assert not session.stdin
                os.write(fake.attached[0]["err"], b"wrong")
                assert await anext(session.items()) == Output("stderr", b"wrong")
