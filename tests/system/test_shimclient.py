"""exitd's client against shims that are in use: containerd's own for runc, and our relay with an exitd behind it."""

import asyncio
import contextlib
import json
import os
import pathlib
import shutil
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

import pytest

from protos.containerd import events_pb2 as pb
from supervisor.model.errors import NameTaken, NoSuchContainer, NoSuchExec, RuntimeFailed, ShimLost, WrongState
from supervisor.model.taskfacts import Stdio
from supervisor.runtime.foreign_shim.binary import find
from supervisor.runtime.foreign_shim.connection import ShimMember, remove_dead_socket, socket_path
from tests.supervisor.runtime.foreign_shim import rig
from tests.supervisor.runtime.foreign_shim.fakerig import SANDBOX, start_of
from tests.supervisor.runtime.foreign_shim.rig import LIMIT_SECONDS, Place, Task
from tests.system import tinyroot
from tests.system.daemons import Daemon
from tests.system.keepers import left_of
from tests.system.processes import cgroups_below, empty_cgroup, end_process, processes_of

RUNC, EXITD = "io.containerd.runc.v2", "io.containerd.exitd.v2"
LIFE = ["/tasks/create", "/tasks/start", "/tasks/exit", "/tasks/delete"]
Make = Callable[..., Task]
STATES = pathlib.Path("/run/containerd/runc")


@contextlib.asynccontextmanager
async def machine() -> AsyncIterator[Place]:
    """Afterwards there is no process, mount, cgroup, socket or runtime state of the test's."""
    async with rig.place() as place:
        try:
            yield place
            assert left_of(place.base) == []
            assert leftovers(place) == []
        finally:
            clear(place)


def leftovers(place: Place) -> list[str]:
    mounts = pathlib.Path("/proc/self/mountinfo").read_text().splitlines()
    sockets = [socket_path(address.address) for address in place.addresses]
    return [
        *(line for line in mounts if f" {place.base}" in line),
        *map(str, cgroups_below(f"/{place.base.name}")),
        *(path for path in sockets if os.path.exists(path)),
        *map(str, (STATES / place.namespace).glob("*")),
    ]


def clear(place: Place) -> None:
    for line in processes_of(place.base):
        end_process(int(line.partition(":")[0]))
    empty_cgroup(f"/{place.base.name}")
    shutil.rmtree(STATES / place.namespace, ignore_errors=True)


def shim_task(place: Place, runtime: str, id: str, *args: str) -> Task:
    bundle = tinyroot.bundle(place.bundle(id), list(args), f"/{place.base.name}/{id}")
    return rig.task(place, find(runtime, os.environ["PATH"]), id, bundle)


@pytest.fixture(params=[RUNC, EXITD])
def runtime(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def run(runtime: str, test: Callable[[Make], Awaitable[None]]) -> None:
    """`test` gets a maker of tasks of this runtime; for ours there is an exitd."""

    async def all_of_it() -> None:
        async with machine() as place:
            with exitd(place) if runtime == EXITD else contextlib.nullcontext():
                await test(lambda id, *args: shim_task(place, runtime, id, *args))

    before = rig.descriptors()
    asyncio.run(all_of_it())
    if runtime == RUNC:  # a daemon of a test's holds some of this process as long as it is remembered
        assert rig.descriptors() - before == set()


@contextlib.contextmanager
def exitd(place: Place) -> Iterator[Daemon]:
    """One for containerd's side, which we are: the relays find it by their environment."""
    (place.base / "e").mkdir()
    daemon = Daemon(place.base / "e")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EXITD_STATE", str(daemon.state))
        patch.setenv("PATH", f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}")
        try:
            yield daemon.start()
        finally:
            daemon.end()


async def whole(task: Task, number: int) -> None:
    """The rest of a task that has started, to its end."""
    exit = await task.exit()
    assert exit.number == number and exit.at_ns > 0
    state = await task.to.state(task.id)
    assert (state.status, state.exit_status, state.exited_at_ns) == ("stopped", number, exit.at_ns)
    deleted = await task.ended()
    assert (deleted.exit_status, deleted.exited_at_ns) == (number, exit.at_ns)
    await task.place.until(lambda: task.place.topics(task.id) == LIFE)
    (exited,) = [event for event in task.place.of(task.id) if isinstance(event, pb.TaskExit)]
    assert (exited.id, exited.exit_status, exited.exited_at.ToNanoseconds()) == (task.id, number, exit.at_ns)


@pytest.mark.parametrize("code", [0, 7, 137])
def test_a_task_lives_from_start_to_delete_with_its_true_code(runtime: str, code: int) -> None:
    async def test(make: Make) -> None:
        task = await make("c1", "sh", "-c", f"exit {code}").begun()
        pid = await task.started()
        assert pid > 0
        await whole(task, code)

    run(runtime, test)


def test_a_killed_task_ends_with_the_signals_number(runtime: str) -> None:
    async def test(make: Make) -> None:
        task = await make("c1", "sleep", "1000").begun()
        await task.started()
        await task.to.kill("c1", signal.SIGKILL, everyone=True)
        await task.exit()
        with pytest.raises(WrongState):
            await task.to.kill("c1", signal.SIGTERM)
        await whole(task, 137)

    run(runtime, test)


def test_what_a_task_is_asked_meanwhile(runtime: str) -> None:
    async def test(make: Make) -> None:
        task = await make("c1", "sleep", "1000").begun()
        created = await task.to.create("c1", task.bundle)
        assert (await task.to.state("c1")).status == "created"
        task.waiting = asyncio.create_task(task.to.wait("c1"))
        pid = await task.to.start("c1")
        connected = await task.to.connect("c1")
        assert created == pid == connected.task_pid and connected.shim_pid > 1
        state = await task.to.state("c1")
        assert (state.status, state.pid, state.exit_status, state.exited_at_ns) == ("running", pid, 0, 0)
        assert await task.to.pids("c1") == (ShimMember(pid),)
        await task.to.pause("c1")
        assert (await task.to.state("c1")).status == "paused"
        await task.to.resume("c1")
        await task.to.update("c1", b'{"pids": {"limit": 77}}')
        assert (await task.to.stats("c1")).kind.startswith("io.containerd.cgroups.v")
        await task.to.resize("c1", rows=24, columns=80)
        await task.to.close_io("c1")
        with pytest.raises(RuntimeFailed):
            await task.to.delete("c1")
        with pytest.raises(NoSuchContainer):
            await task.to.state("c2")
        await task.to.kill("c1", signal.SIGKILL)
        assert (await task.exit()).number == 137
        await task.ended()

    run(runtime, test)


def test_an_exec_has_a_life_of_its_own(runtime: str) -> None:
    async def test(make: Make) -> None:
        task = await make("c1", "sleep", "1000").begun()
        await task.started()
        await task.to.exec("c1", "e1", process_of("sh", "-c", "exit 3"))
        waiting = asyncio.create_task(task.to.wait("c1", "e1"))
        pid = await task.to.start("c1", "e1")
        assert (await asyncio.wait_for(waiting, LIMIT_SECONDS)).number == 3
        deleted = await task.to.delete("c1", "e1")
        assert (deleted.pid, deleted.exit_status) == (pid, 3)
        await task.to.exec("c1", "e2", process_of("sleep", "1000"))
        second = await task.to.start("c1", "e2")
        assert ShimMember(second, "e2") in await task.to.pids("c1")
        with pytest.raises(NameTaken):
            await task.to.exec("c1", "e2", process_of("true"))
        await task.to.kill("c1", signal.SIGTERM, "e2")
        assert (await asyncio.wait_for(task.to.wait("c1", "e2"), LIMIT_SECONDS)).number == 143
        await task.to.delete("c1", "e2")
        with pytest.raises(NoSuchExec):
            await task.to.state("c1", "e2")
        await task.to.kill("c1", signal.SIGKILL)
        assert (await task.exit()).number == 137
        await task.ended()

    run(runtime, test)


def process_of(*args: str) -> bytes:
    process = {"args": args, "cwd": "/", "env": ["PATH=/bin"], "user": {"uid": 0, "gid": 0}, "terminal": False}
    return json.dumps(process).encode()


def test_a_task_writes_to_fifos_and_reads_from_one(runtime: str) -> None:
    async def test(make: Make) -> None:
        task = await make("c1", "cat").begun()
        base = task.place.base
        stdio = Stdio(f"{base}/in", f"{base}/out", f"{base}/err")
        for path in (stdio.stdin, stdio.stdout, stdio.stderr):
            os.mkfifo(path)
        fds = [os.open(path, os.O_RDONLY | os.O_NONBLOCK) for path in (stdio.stdout, stdio.stderr)]
        write_fd = os.open(stdio.stdin, os.O_RDWR | os.O_NONBLOCK)
        await task.to.create("c1", task.bundle, stdio=stdio)
        task.waiting = asyncio.create_task(task.to.wait("c1"))
        await task.to.start("c1")
        os.write(write_fd, b"hello\n")
        os.close(write_fd)
        await task.to.close_io("c1")
        assert (await task.exit()).number == 0
        await task.ended()
        assert os.read(fds[0], 100) == b"hello\n"
        for fd in fds:
            os.close(fd)

    run(runtime, test)


def test_a_create_that_fails_tells_the_runtimes_words_and_leaves_nothing(runtime: str) -> None:
    async def test(make: Make) -> None:
        task = await make("c1", "/none").begun()
        with pytest.raises(RuntimeFailed, match="none"):
            await task.to.create("c1", task.bundle)
            await task.to.start("c1")
        await task.to.shutdown("c1")
        await asyncio.wait_for(task.to.closed.wait(), LIMIT_SECONDS)
        await task.swept()
        assert task.place.happened == []

    run(runtime, test)


def annotate(task: Task, name: str, value: str) -> None:
    path = pathlib.Path(task.bundle, "config.json")
    path.write_text(json.dumps({**json.loads(path.read_text()), "annotations": {name: value}}))


def test_members_of_a_pod_share_a_shim(runtime: str) -> None:
    async def test(make: Make) -> None:
        tasks = [make(id, "sleep", "1000") for id in ("c1", "c2")]
        for task in tasks:
            annotate(task, SANDBOX, "c1")
            await task.begun()
        assert tasks[0].address == tasks[1].address
        pids = [await task.started() for task in tasks]
        shims = {(await task.to.connect(task.id)).shim_pid for task in tasks}
        assert len(shims) == 1 and pids[0] != pids[1]
        member, pause = tasks[1], tasks[0]
        await member.to.kill("c2", signal.SIGKILL)
        assert (await member.exit()).number == 137
        await member.to.delete("c2")
        await member.to.shutdown("c2")
        assert (await pause.to.state("c1")).status == "running"
        await member.swept()
        await pause.to.kill("c1", signal.SIGKILL)
        await whole(pause, 137)

    run(runtime, test)


def test_a_task_is_found_again_over_a_new_connection(runtime: str) -> None:
    async def test(make: Make) -> None:
        task = await make("c1", "sleep", "1000").begun()
        pid = await task.started()
        task.to.close()
        with pytest.raises(ShimLost):
            await task.exit()
        await task.linked()
        assert (await task.to.connect("c1")).task_pid == pid
        task.waiting = asyncio.create_task(task.to.wait("c1"))
        await task.to.kill("c1", signal.SIGKILL)
        assert (await task.exit()).number == 137
        await task.ended()

    run(runtime, test)


def test_a_killed_shim_is_lost_no_exit_is_made_up_and_delete_ends_what_it_leaves(runtime: str) -> None:
    async def test(make: Make) -> None:
        task = await make("c1", "sleep", "1000").begun()
        pid = await task.started()
        await task.place.until(lambda: task.place.topics("c1") == LIFE[:2])
        end_process((await task.to.connect("c1")).shim_pid)
        with pytest.raises(ShimLost):
            await task.exit()
        await asyncio.wait_for(task.to.closed.wait(), LIMIT_SECONDS)
        assert task.place.topics("c1") == LIFE[:2]
        deleted = await task.swept()
        assert deleted is not None and (deleted.pid, deleted.exit_status) == (pid, 137)
        assert start_of(pid) == 0
        assert task.address is not None
        remove_dead_socket(task.address)

    run(runtime, test)
