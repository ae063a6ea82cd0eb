"""The streams of tasks and execs as containerd names them, under real shims: the first, and the next."""

import asyncio
import contextlib
import os
import pathlib
import shutil
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field

import pytest

from shim import programs
from supervisor.containerd import stdio
from supervisor.containerd.stdio import Words
from supervisor.model.execs import Exec, ExecPhase, ExecSpec
from supervisor.model.values import Container, ForeignStreams, LogDriver, LogSpec, Phase, Report, RunKey, Spec
from supervisor.monitor import epoll, keeper
from supervisor.monitor.control import Control
from supervisor.monitor.kernelword import BY_PIDFD
from supervisor.monitor.ownership import Owner
from supervisor.runtime.oci.execs import NativeExecs
from supervisor.runtime.oci.native import NativeContainers
from supervisor.runtime.oci.runplan import Place
from supervisor.runtime.oci.watching import Watching
from supervisor.system.inotify import Inotify
from tests.system import keepers, streams
from tests.system.keepers import Node
from tests.system.processes import empty_cgroup, wait_state
from tests.system.waits import LIMIT_SECONDS, wait_readable

KEY = RunKey("box", 1)
KEPT_BYTES = 1 << 20  # by a shim, for a client that does not read
ECHOES = 'read a; echo "got $a"; echo "err $a" >&2; read b; echo "got $b"; read c || echo over; exit 43'


@dataclass
class Room:
    """What a daemon has for its containers, and the one container of a test."""

    node: Node
    watching: Watching
    containers: NativeContainers
    execs: NativeExecs
    container: Container | None = None
    ends: dict[str, asyncio.Event] = field(default_factory=dict)

    async def create(
        self, script: str, words: Words, *, owner: tuple[int, int] = (0, 0), runtime: str = "runc"
    ) -> None:
        foreign = await settled(words, owner)
        bundle = self.node.bundle("/bin/sh", "-c", script)
        if words.terminal:
            streams.terminal(bundle)
        spec = Spec(
            name="box",
            bundle=str(bundle),
            runtime=runtime,
            log=LogSpec(LogDriver.NONE),
            stdin=bool(foreign.stdin),
            tty=words.terminal,
            foreign=foreign,
        )
        self.container = Container(KEY.container, spec, Phase.CREATING, KEY.run, 0)
        await self.containers.create_container(self.container)

    async def start(self) -> None:
        assert self.container is not None
        with contextlib.suppress(Exception):  # of one that ends at once; its end is waited for all the same
            await self.containers.start_process(self.container)

    async def exec(self, script: str, words: Words, *, owner: tuple[int, int] = (0, 0), name: str = "sh") -> RunKey:
        assert self.container is not None
        foreign = await settled(words, owner)
        spec = ExecSpec(("/bin/sh", "-c", script), stdin=bool(foreign.stdin), tty=words.terminal, foreign=foreign)
        e = Exec(RunKey("box", 1, name), spec, ExecPhase.CREATING, "box", "default", "")
        await self.execs.create_exec(self.container, e)
        return e.key

    async def replace_shim(self) -> None:
        """Its shim killed where it rests; the next one comes by itself. What a shim is killed over in the middle of
        writing to a fifo its next one may write again: a fifo does not show how far it was."""
        watch = self.watching.get(KEY)
        assert watch is not None and watch.shim is not None
        before = watch.shim
        assert await asyncio.to_thread(wait_state, before.pid, watch.shim_fd, "S")
        signal.pidfd_send_signal(watch.shim_fd, signal.SIGKILL)
        async with asyncio.timeout(LIMIT_SECONDS):
            while watch.shim == before or watch.shim_fd < 0 or not await self.answers():
                await asyncio.to_thread(wait_readable, watch.init_fd, 0.01)

    async def answers(self) -> bool:
        """A shim opens its streams before it listens."""
        watch = self.watching.get(KEY)
        assert watch is not None
        try:
            (await Control.open(watch.directory.path)).close()
        except Exception:
            return False
        return True

    async def close_stdin(self, key: RunKey = KEY) -> None:
        watch = self.watching.get(key)
        assert watch is not None
        control = await Control.open(watch.directory.path)
        await control.close_stdin()
        control.close()

    async def moved_bytes(self, key: RunKey) -> int:
        """Of stdout, taken by its shim."""
        watch = self.watching.get(key)
        assert watch is not None
        control = await Control.open(watch.directory.path)
        try:
            return (await control.counters()).stdout_bytes
        finally:
            control.close()

    async def held_up(self, key: RunKey) -> None:
        """Returns when its client's fifo is full, and so is what its shim keeps for it, or nearly."""
        task = self.watching.get(KEY)
        assert task is not None
        async with asyncio.timeout(LIMIT_SECONDS):
            while await self.moved_bytes(key) < KEPT_BYTES:
                await asyncio.to_thread(wait_readable, task.init_fd, 0.01)

    async def ended(self, key: RunKey = KEY) -> None:
        """It is dead, and its shim has left."""
        watch = self.watching.get(key)
        assert watch is not None
        async with asyncio.timeout(LIMIT_SECONDS):
            await self.ends.setdefault(key.exec_id, asyncio.Event()).wait()
            await watch.shim_gone.wait()

    async def end(self) -> None:
        watch = self.watching.get(KEY)
        if watch is not None and watch.init_fd >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(watch.init_fd, signal.SIGKILL)
            await self.ended()

    def exit_seen(self, key: RunKey, report: Report) -> None:
        self.ends.setdefault(key.exec_id, asyncio.Event()).set()

    def memory_kills_seen(self, key: RunKey, kills: int) -> None:
        """Nothing is asked about them."""

    def shim_seen(self, key: RunKey, *, lost: bool) -> None:
        """They are looked at by their watches."""

    def silence_seen(self, key: RunKey, silent: bool) -> None:
        """exitd-shim has no such moments."""


async def settled(words: Words, owner: tuple[int, int]) -> ForeignStreams:
    return await asyncio.to_thread(stdio.settle, stdio.parse(words, owner))


@contextlib.asynccontextmanager
async def room(node: Node) -> AsyncIterator[Room]:
    place, watcher, inotify = Place(str(node.directory / "r"), str(node.state)), epoll.Monitor(), Inotify()
    inotify.start()
    line = keeper.Keeper(str(node.state), str(programs.find("exitd-keeper")), lambda: watching.news(), may_start=False)
    watching = Watching(watcher, line, inotify, zombie=False, kernel=BY_PIDFD)
    made = Room(node, watching, NativeContainers(place, watching, Owner("0" * 32)), NativeExecs(place, watching))
    made.containers.listen(made)
    try:
        yield made
    finally:
        if made.container is not None:
            await made.end()
            await made.containers.settle(made.container)
            await made.containers.delete_process(made.container)
            await made.containers.discard(made.container.id)
        for each in (watching, line, watcher, inotify):
            each.close()


@pytest.fixture
def node() -> Iterator[Node]:
    with keepers.node() as made:
        held = made.keeper()
        yield made
        held.close()
        shutil.rmtree(made.state / "c", ignore_errors=True)
        empty_cgroup(made.cgroup)


def run(node: Node, act: Callable[[Room], Awaitable[None]]) -> None:
    async def all_of_it() -> None:
        async with room(node) as made:
            await act(made)

    asyncio.run(all_of_it())


class Fifos:
    """A client's, with their reading ends open, as containerd's clients have them."""

    def __init__(self, directory: pathlib.Path) -> None:
        self.paths = {name: str(directory / f"box-{name}") for name in ("stdin", "stdout", "stderr")}
        for path in self.paths.values():
            os.mkfifo(path, 0o700)
        self.fds: dict[str, int] = {}
        self.open()

    def open(self) -> None:
        self.fds = {name: os.open(self.paths[name], os.O_RDONLY | os.O_NONBLOCK) for name in ("stdout", "stderr")}

    def close(self) -> None:
        for fd in self.fds.values():
            os.close(fd)

    def words(self, *, terminal: bool = False) -> Words:
        stdin, stdout, stderr = self.paths.values()
        return Words("default", "box", stdin, stdout, stderr, terminal)

    def reads(self, text: bytes, name: str = "stdout") -> None:
        """Returns when exactly this has come."""
        found = b""
        while len(found) < len(text):
            assert wait_readable(self.fds[name]), found
            found += os.read(self.fds[name], len(text) - len(found))
        assert found == text

    def reads_end(self, name: str) -> None:
        assert os.read(self.fds[name], 100) == b""

    def types(self, text: bytes) -> None:
        """As a client that goes afterwards. The shim has it open: this does not wait."""
        fd = os.open(self.paths["stdin"], os.O_WRONLY | os.O_NONBLOCK)
        os.write(fd, text)
        os.close(fd)


@pytest.fixture
def fifos(node: Node) -> Iterator[Fifos]:
    made = Fifos(node.directory)
    yield made
    made.close()


def test_fifos_carry_a_task_over_the_loss_of_its_client_and_of_its_shim(node: Node, fifos: Fifos) -> None:
    async def act(room: Room) -> None:
        await room.create(ECHOES, fifos.words())
        await room.start()
        fifos.types(b"one\n")
        fifos.reads(b"got one\n")
        fifos.reads(b"err one\n", "stderr")
        fifos.close()
        await room.replace_shim()
        fifos.types(b"two\n")
        fifos.open()
        fifos.reads(b"got two\n")
        await room.close_stdin()
        await room.ended()
        fifos.reads(b"over\n")
        fifos.reads_end("stdout")
        fifos.reads_end("stderr")

    run(node, act)


def test_an_exec_has_fifos_of_its_own(node: Node, fifos: Fifos) -> None:
    async def act(room: Room) -> None:
        await room.create("exec sleep 1000", Words("default", "box"))
        await room.start()
        key = await room.exec(ECHOES, fifos.words())
        fifos.types(b"one\ntwo\n")
        fifos.reads(b"got one\ngot two\n")
        fifos.reads(b"err one\n", "stderr")
        await room.close_stdin(key)
        await room.ended(key)
        fifos.reads(b"over\n")
        fifos.reads_end("stdout")

    run(node, act)


@contextlib.contextmanager
def more_fifos(node: Node, name: str) -> Iterator[Fifos]:
    (directory := node.directory / name).mkdir()
    made = Fifos(directory)
    try:
        yield made
    finally:
        made.close()


def test_a_full_fifo_of_one_exec_stalls_no_other_stream_and_loses_nothing(node: Node, fifos: Fifos) -> None:
    """Its own stderr goes on, and so do another exec and the task itself."""
    wanted = b"".join(b"%d\n" % n for n in range(1, 300_001))  # more than its pipe, the shim and the fifo hold
    some = wanted[: wanted.index(b"\n30000\n") + len(b"\n30000\n")]  # more than a pipe and a fifo hold
    talk = "read go; seq 1 30000; seq 1 30000 >&2; read go"

    async def act(room: Room) -> None:
        with more_fifos(node, "full") as full, more_fifos(node, "other") as other:
            await room.create(talk, fifos.words())
            await room.start()
            full_key = await room.exec("seq 1 300000 & read go; seq 1 30000 >&2; wait", full.words(), name="full")
            await room.held_up(full_key)
            other_key = await room.exec(talk, other.words(), name="other")
            for each in (full, other, fifos):
                each.types(b"go\n")
            for each in (other, fifos):
                each.reads(some)
            for each in (full, other, fifos):
                each.reads(some, "stderr")
            other.types(b"go\n")
            await room.ended(other_key)
            assert await room.moved_bytes(full_key) < len(wanted)
            full.reads(wanted)
            await room.ended(full_key)
            full.reads_end("stdout")
            fifos.types(b"go\n")
            await room.ended()

    run(node, act)


def test_a_terminal_comes_out_of_one_fifo(node: Node, fifos: Fifos) -> None:
    async def act(room: Room) -> None:
        await room.create("read a; echo got $a; echo err >&2", fifos.words(terminal=True))
        await room.start()
        fifos.types(b"one\n")
        fifos.reads(b"one\r\ngot one\r\nerr\r\n")
        await room.ended()

    run(node, act)


def test_a_create_does_not_wait_for_a_client_that_never_comes(node: Node, fifos: Fifos) -> None:
    fifos.close()

    async def act(room: Room) -> None:
        async with asyncio.timeout(LIMIT_SECONDS):
            await room.create("echo said", fifos.words())
        await room.start()
        await room.ended()

    run(node, act)
    fifos.open()


def test_a_client_that_reads_late_has_all_that_was_written(node: Node, fifos: Fifos) -> None:
    wanted = b"".join(b"%d\n" % n for n in range(1, 30001))  # more than a fifo holds

    async def act(room: Room) -> None:
        await room.create("seq 1 30000", fifos.words())
        await room.start()
        async with asyncio.timeout(LIMIT_SECONDS):
            await room.ends.setdefault("", asyncio.Event()).wait()
        fifos.reads(wanted)
        await room.ended()
        fifos.reads_end("stdout")

    run(node, act)


def test_a_file_gets_both_streams_behind_what_it_has_and_goes_on_under_the_next_shim(node: Node, fifos: Fifos) -> None:
    path = node.directory / "logs" / "task.log"
    path.parent.mkdir()
    path.write_text("before\n")
    words = Words("default", "box", fifos.paths["stdin"], f"file://{path}", f"file://{path}")

    async def act(room: Room) -> None:
        await room.create(ECHOES, words)
        await room.start()
        fifos.types(b"one\n")
        while len(path.read_bytes()) < len(b"before\ngot one\nerr one\n"):
            await asyncio.to_thread(wait_readable, fifos.fds["stdout"], 0.01)
        await room.replace_shim()
        fifos.types(b"two\n")
        await room.close_stdin()
        await room.ended()

    run(node, act)
    first, *rest = path.read_text().splitlines()
    assert (first, sorted(rest)) == ("before", ["err one", "got one", "got two", "over"])


LOGGER = """exec 5>&-
echo "$@" >>{0}/args
env >>{0}/env
cat <&4 >>{0}/err &
cat <&3 >>{0}/out
wait"""


def test_a_program_of_its_own_gets_the_streams_also_from_the_next_shim(node: Node, fifos: Fifos) -> None:
    program = node.script(LOGGER.format(node.directory))
    words = Words("k8s.io", "box", fifos.paths["stdin"], f"binary://{program}?a=b%20c&d=")

    async def act(room: Room) -> None:
        await room.create(ECHOES, words)
        await room.start()
        fifos.types(b"one\n")
        while not (node.directory / "err").exists() or (node.directory / "err").read_bytes() != b"err one\n":
            await asyncio.to_thread(wait_readable, fifos.fds["stdout"], 0.01)
        await room.replace_shim()
        fifos.types(b"two\n")
        await room.close_stdin()
        await room.ended()

    run(node, act)
    assert (node.directory / "out").read_text() == "got one\ngot two\nover\n"
    assert (node.directory / "args").read_text() == "a b c d \n" * 2
    env = (node.directory / "env").read_text()
    assert env.count("CONTAINER_ID=box\n") == env.count("CONTAINER_NAMESPACE=k8s.io\n") == 2


# runc gives them to the container's user, where it can: what counts is what it got.
SEES = """case " $* " in *" create "* | *" exec "*)
	owners=$(stat -L -c '%F %u:%g' /proc/$$/fd/0 /proc/$$/fd/1 /proc/$$/fd/2)
	echo "$owners" >>{0}/owners ;;
esac
exec runc "$@\""""


def test_the_pipes_belong_to_whom_the_options_name(node: Node, fifos: Fifos) -> None:
    runtime = node.script(SEES.format(node.directory))

    async def act(room: Room) -> None:
        await room.create("exec sleep 1000", fifos.words(), owner=(1234, 1235), runtime=runtime)
        await room.start()
        await room.exec("exec sleep 1000", fifos.words(), owner=(77, 78))

    run(node, act)
    assert (node.directory / "owners").read_text() == "fifo 1234:1235\n" * 3 + "fifo 77:78\n" * 3


def test_the_streams_lie_in_the_plan_which_the_next_shim_reads_again(node: Node, fifos: Fifos) -> None:
    plans: list[bytes] = []

    async def act(room: Room) -> None:
        await room.create("exec sleep 1000", fifos.words())
        plans.extend(path.read_bytes() for path in node.state.glob("c/box/1/plan"))
        await room.start()

    run(node, act)
    for key, name in (("sink_out", "stdout"), ("sink_err", "stderr"), ("in_from", "stdin")):
        assert f"{key}={fifos.paths[name]}".encode() in plans[0]
