"""Input, terminals and the stage, as the daemon gives them to a shim: they outlive it, and are its successor's."""

import asyncio
import contextlib
import json
import os
import pathlib
import shutil
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass

import pytest

from shim import launch, plan, programs
from supervisor.model.values import Process, RunKey
from supervisor.monitor import epoll, keeper, rundir
from supervisor.monitor.control import Control
from supervisor.monitor.kernelword import BY_PIDFD
from supervisor.monitor.shims import Shims
from supervisor.monitor.witness import Senses, Watch
from tests.shim.test_journald import Journal
from tests.system import keepers
from tests.system.keepers import Keeper, Node
from tests.system.processes import empty_cgroup, open_files
from tests.system.waits import LIMIT_SECONDS, wait_readable

KEY = RunKey("box", 1)
ECHOES = 'read a; echo "got $a"; read b; echo "got $b"; read c || echo over; exit 43'


@dataclass
class Stage:
    """A container whose shim was begun by the daemon's hand, and that waits to be started."""

    node: Node
    shims: Shims
    watch: Watch
    runtime: tuple[str, ...]

    async def start(self) -> None:
        """One that ends at once may be deleted by its shim before start has returned: then the record says so."""
        process = await asyncio.create_subprocess_exec(*self.runtime, "start", "box")
        async with asyncio.timeout(LIMIT_SECONDS):
            assert await process.wait() == 0 or rundir.read_record(self.watch.directory) is not None

    async def replaced(self) -> None:
        """Its shim killed, another in its place. In between the container goes on: it has no reason to end."""
        signal.pidfd_send_signal(self.watch.shim_fd, signal.SIGKILL)
        async with asyncio.timeout(LIMIT_SECONDS):
            await self.watch.shim_gone.wait()
        assert not wait_readable(self.watch.init_fd, 0.1)
        status = await self.shims.begin(self.watch, LIMIT_SECONDS, adopt=True)
        assert isinstance(status, launch.Created), status
        if status.pidfd >= 0:
            os.close(status.pidfd)

    async def ended(self) -> None:
        """Init is dead, and its shim has written all there was."""
        async with asyncio.timeout(LIMIT_SECONDS):
            await asyncio.to_thread(wait_readable, self.watch.init_fd)
            await self.watch.shim_gone.wait()

    def log(self) -> bytes:
        """The output, put together from the log."""
        parts = [line.split(b" ", 3) for line in (self.node.directory / "log").read_bytes().splitlines()]
        return b"".join(p[3] + (b"\n" if p[2] == b"F" else b"") for p in parts)

    @contextlib.asynccontextmanager
    async def attached(self) -> AsyncIterator["Client"]:
        control = await Control.open(self.watch.directory.path)
        client = Client(control, *os.pipe(), *os.pipe())
        try:
            assert await control.attach(["in", "out"], "lossless", [client.in_read_fd, client.out_write_fd])
            yield client
        finally:
            control.close()
            for fd in (client.in_read_fd, client.in_write_fd, client.out_read_fd, client.out_write_fd):
                os.close(fd)


@dataclass
class Client:
    """Attached to a shim."""

    control: Control
    in_read_fd: int
    in_write_fd: int
    out_read_fd: int
    out_write_fd: int

    def types(self, text: bytes) -> None:
        os.write(self.in_write_fd, text)

    def reads(self, text: bytes) -> None:
        """Returns when this has come out."""
        found = b""
        while text not in found:
            assert wait_readable(self.out_read_fd), found
            found += os.read(self.out_read_fd, 65536)


def written_plan(node: Node, state: pathlib.Path, tty: bool, logger: tuple[str, ...]) -> tuple[tuple[str, ...], bytes]:
    bundle, directory = node.bundle("/bin/sh", "-c", ECHOES), rundir.path_of(str(state), "box", 1)
    if tty:
        config = json.loads((bundle / "config.json").read_text())
        config["process"]["terminal"] = True
        (bundle / "config.json").write_text(json.dumps(config))
    runc = (shutil.which("runc") or "runc", "--root", f"{directory}/rt")
    console = ("--console-socket", "@console") if tty else ()
    wanted = plan.Plan(
        id="box",
        run=1,
        create=(*runc, "create", "--bundle", str(bundle), "--pid-file", f"{directory}/pid", *console, "box"),
        remove=(*runc, "delete", "--force", "box"),
        log=str(node.directory / "log"),
        keeper=f"{state}/{launch.SOCKET_NAME}",
        tty=tty,
        logger=logger,
        logger_env=("CONTAINER_ID=0123456789abcdef", "CONTAINER_NAME=web"),
    )
    return runc, plan.encode(wanted)


def senses(watcher: epoll.Monitor) -> Senses:
    return Senses(
        monitor=watcher,
        zombie_readable=False,
        kernel=BY_PIDFD,
        now_ns=time.time_ns,
        entry=lambda key: None,
        entry_is_coming=lambda key: False,
        oom_kills=lambda key: 0,
        on_exit=lambda key, report: None,
        on_shim_lost=lambda key: None,
        on_begin=lambda key: None,
        on_over=lambda key: None,
    )


async def play(
    node: Node,
    state: pathlib.Path,
    act: Callable[[Stage], Awaitable[None]],
    *,
    stdin: bool = False,
    tty: bool = False,
    logger: tuple[str, ...] = (),
) -> None:
    """`act` with a container that runs ECHOES."""
    watcher = epoll.Monitor()
    line = keeper.Keeper(str(state), str(programs.find("exitd-keeper")), lambda: None, may_start=False)
    runc, text = written_plan(node, state, tty, logger)
    watch = Watch(KEY, rundir.make(str(state), "box", 1, text), senses(watcher))
    stage = Stage(node, Shims(watcher, line), watch, runc)
    try:
        status = await stage.shims.begin(watch, LIMIT_SECONDS, adopt=False, stdin=stdin, tty=tty)
        assert isinstance(status, launch.Created), status
        watch.init, watch.init_fd = Process(status.pid, status.started), status.pidfd
        await stage.start()
        await act(stage)
    finally:
        watch.close()
        line.close()
        watcher.close()


@pytest.fixture
def node() -> Iterator[Node]:
    with keepers.node() as made:
        yield made
        shutil.rmtree(made.state / "c", ignore_errors=True)
        empty_cgroup(made.cgroup)


@pytest.fixture
def journal(node: Node) -> Iterator[Journal]:
    made = Journal(node.directory)
    made.open()
    yield made
    made.close()


@pytest.fixture
def held(node: Node) -> Iterator[Keeper]:
    made = node.keeper()
    yield made
    made.close()


def deleted(node: Node) -> None:
    """What a replacement leaves to the daemon: it is not init's parent."""
    root = rundir.path_of(str(node.state), "box", 1)
    rig_runtime = (shutil.which("runc") or "runc", "--root", f"{root}/rt")
    os.spawnv(os.P_WAIT, rig_runtime[0], [*rig_runtime, "delete", "--force", "box"])


def test_input_stays_open_over_the_death_of_its_shim_and_ends_when_it_is_closed(node: Node, held: Keeper) -> None:
    async def act(stage: Stage) -> None:
        async with stage.attached() as client:
            client.types(b"one\n")
            client.reads(b"got one\n")
        await stage.replaced()
        async with stage.attached() as client:
            client.types(b"two\n")
            client.reads(b"got two\n")
            await client.control.close_stdin()
            await stage.ended()

    asyncio.run(play(node, node.state, act, stdin=True))
    assert (node.directory / "log").read_bytes().endswith(b" stdout F over\n")
    held.settle()
    assert [entry.code for entry in held.entries()] == [43]
    files = open_files(held.process.pid)
    held.acknowledge("box")
    assert len(open_files(held.process.pid)) == len(files) - 4  # its input has been released before
    deleted(node)


def test_a_terminal_outlives_its_shim(node: Node, held: Keeper) -> None:
    async def act(stage: Stage) -> None:
        async with stage.attached() as client:
            client.types(b"one\n")
            client.reads(b"got one\r\n")
        await stage.replaced()
        async with stage.attached() as client:
            client.types(b"two\n\x04")
            await stage.ended()

    asyncio.run(play(node, node.state, act, tty=True))
    held.settle()
    assert [entry.code for entry in held.entries()] == [43]
    files = open_files(held.process.pid)
    held.acknowledge("box")
    assert len(open_files(held.process.pid)) == len(files) - 3
    deleted(node)


@pytest.mark.parametrize("tty", [False, True])
def test_without_a_keeper_input_and_terminal_are_the_shims_alone(node: Node, tty: bool) -> None:
    state = node.directory / "s"
    state.mkdir()

    async def act(stage: Stage) -> None:
        async with stage.attached() as client:
            client.types(b"one\ntwo\n\x04")
            if not tty:
                client.types(b"\n")
            await stage.ended()
        assert rundir.read_record(stage.watch.directory) is not None
        assert b"got two" in stage.log()

    asyncio.run(play(node, state, act, stdin=not tty, tty=tty))


def test_a_container_whose_input_is_not_open_reads_its_end_at_once(node: Node, held: Keeper) -> None:
    async def act(stage: Stage) -> None:
        await stage.ended()
        assert stage.log() == b"got \ngot \nover\n"

    asyncio.run(play(node, node.state, act))
    held.acknowledge("box")


def test_output_is_in_the_journal_also_after_its_shim_was_replaced(node: Node, held: Keeper, journal: Journal) -> None:
    async def act(stage: Stage) -> None:
        async with stage.attached() as client:
            client.types(b"one\n")
            first = journal.next()
            assert (first["MESSAGE"], first["PRIORITY"], first["SYSLOG_IDENTIFIER"]) == (b"got one", b"6", b"web")
            client.reads(b"got one\n")
            await client.control.counters()  # its answer comes between two batches: one that is cut off comes twice
        await stage.replaced()
        async with stage.attached() as client:
            client.types(b"two\n")
            assert journal.next()["MESSAGE"] == b"got two"
            await client.control.close_stdin()
            assert journal.next()["MESSAGE"] == b"over"
            await stage.ended()

    logger = (str(programs.find("exitd-journald")), journal.path)
    asyncio.run(play(node, node.state, act, stdin=True, logger=logger))
    assert journal.queued() == 0
    held.acknowledge("box")
    deleted(node)
