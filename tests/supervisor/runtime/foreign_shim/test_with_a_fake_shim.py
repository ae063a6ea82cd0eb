"""The client against a shim that is odd in every way some real one is: what its tasks are made of."""

import asyncio
import json
import os
import pathlib
import signal

import pytest

from shim import native
from supervisor.model.errors import (
    NameTaken,
    NoSuchContainer,
    NoSuchExec,
    RuntimeFailed,
    ShimLost,
    TimedOut,
    Unsupported,
    WrongState,
)
from supervisor.model.taskfacts import Stdio
from supervisor.runtime.foreign_shim.connection import ShimConnection, ShimMember
from supervisor.system.aside import Aside
from tests.supervisor.runtime.foreign_shim.fakerig import SANDBOX, Fakes, run
from tests.supervisor.runtime.foreign_shim.rig import LIMIT_SECONDS
from tests.system.waits import until

LIFE = ["/tasks/create", "/tasks/start", "/tasks/exit", "/tasks/delete"]
SLEEP = ("sleep", "1000")
SOON = 0.2  # a limit that is to run out
PROCESS = {"args": ["sh", "-c", "exit 3"], "env": ["PATH=/usr/bin:/bin"], "cwd": "/"}


@run
async def test_a_task_lives_from_start_to_delete_with_its_true_code(f: Fakes) -> None:
    task = await f.task("c1").begun()
    pid = await task.started()
    exit = await task.exit()
    assert exit.number == 7 and exit.at_ns > 0
    deleted = await task.ended()
    assert (deleted.pid, deleted.exit_status, deleted.exited_at_ns) == (pid, 7, exit.at_ns)
    await f.place.until(lambda: f.place.topics("c1") == LIFE)


@run
async def test_a_killed_task_ends_with_the_signals_number(f: Fakes) -> None:
    task = await f.task("c1", *SLEEP).begun()
    await task.started()
    await task.to.kill("c1", signal.SIGKILL, everyone=True)
    assert (await task.exit()).number == 137
    with pytest.raises(WrongState):
        await task.to.kill("c1", signal.SIGTERM)
    await task.ended()


@run
async def test_what_a_task_is_asked_meanwhile(f: Fakes) -> None:
    task = await f.task("c1", *SLEEP).begun()
    assert (await task.to.create("c1", task.bundle)) > 0
    assert (await task.to.state("c1")).status == "created"
    pid = await task.to.start("c1")
    connected = await task.to.connect("c1")
    assert (connected.task_pid, connected.shim_pid in f.processes()) == (pid, True)
    await task.to.pause("c1")
    assert (await task.to.state("c1")).status == "paused"
    await task.to.resume("c1")
    state = await task.to.state("c1")
    assert (state.status, state.pid, state.exit_status, state.exited_at_ns) == ("running", pid, 0, 0)
    assert await task.to.pids("c1") == (ShimMember(pid),)
    await task.to.update("c1", json.dumps({"pids": {"limit": 7}}).encode())
    assert (await task.to.stats("c1")).kind == "io.containerd.cgroups.v2.Metrics"
    await task.to.resize("c1", rows=24, columns=80)
    await task.to.close_io("c1")
    await task.to.kill("c1", signal.SIGKILL)
    await task.to.wait("c1")
    await task.ended()


@run
async def test_an_exec_has_a_life_of_its_own(f: Fakes) -> None:
    task = await f.task("c1", *SLEEP).begun()
    await task.started()
    await task.to.exec("c1", "e1", json.dumps(PROCESS).encode())
    waiting = asyncio.create_task(task.to.wait("c1", "e1"))
    pid = await task.to.start("c1", "e1")
    assert (await waiting).number == 3
    deleted = await task.to.delete("c1", "e1")
    assert (deleted.pid, deleted.exit_status) == (pid, 3)
    await task.to.exec("c1", "e2", json.dumps({**PROCESS, "args": SLEEP}).encode())
    second = await task.to.start("c1", "e2")
    assert ShimMember(second, "e2") in await task.to.pids("c1")
    await task.to.kill("c1", signal.SIGTERM, "e2")
    assert (await task.to.wait("c1", "e2")).number == 143
    await task.to.delete("c1", "e2")
    await task.to.kill("c1", signal.SIGKILL)
    await task.exit()
    await task.ended()


@run
async def test_a_task_writes_to_fifos_and_reads_from_one(f: Fakes) -> None:
    task = await f.task("c1", "cat").begun()
    stdio = Stdio(f"{f.place.base}/in", f"{f.place.base}/out")
    for path in (stdio.stdin, stdio.stdout):
        os.mkfifo(path)
    read_fd = os.open(stdio.stdout, os.O_RDONLY | os.O_NONBLOCK)
    await task.to.create("c1", task.bundle, stdio=stdio)
    task.waiting = asyncio.create_task(task.to.wait("c1"))
    await task.to.start("c1")
    write_fd = os.open(stdio.stdin, os.O_WRONLY | os.O_NONBLOCK)
    os.write(write_fd, b"hello\n")
    os.close(write_fd)
    await task.to.close_io("c1")
    assert (await task.exit()).number == 0
    assert os.read(read_fd, 100) == b"hello\n"
    os.close(read_fd)
    await task.ended()


@run
async def test_what_a_shim_refuses_is_an_error_by_its_code(f: Fakes) -> None:
    task = await f.task("c1", *SLEEP).begun()
    await task.started()
    for error, call in (
        (NameTaken, task.to.create("c1", task.bundle)),
        (NoSuchContainer, task.to.state("c2")),
        (NoSuchContainer, task.to.exec("c2", "e1", b"{}")),
        (NoSuchExec, task.to.wait("c1", "e1")),
        (NoSuchExec, task.to.start("c1", "e1")),
        (RuntimeFailed, task.to.start("c1")),
        (RuntimeFailed, task.to.delete("c1")),
        (RuntimeFailed, task.to.resume("c1")),
    ):
        with pytest.raises(error):
            await call
    assert (await task.to.state("c1")).status == "running"
    await task.to.kill("c1", signal.SIGKILL)
    await task.exit()
    await task.ended()


@run
async def test_a_create_that_fails_tells_the_runtimes_words_and_leaves_nothing(f: Fakes) -> None:
    task = f.task("c1")
    (pathlib.Path(task.bundle) / "config.json").write_text(json.dumps({"process": {**PROCESS, "env": ["PATH=/none"]}}))
    await task.begun()
    with pytest.raises(RuntimeFailed, match="OCI runtime create failed"):
        await task.to.create("c1", task.bundle)
    await task.to.shutdown("c1")
    await asyncio.wait_for(task.to.closed.wait(), LIMIT_SECONDS)
    await task.swept()
    assert f.place.happened == []


@run
async def test_members_of_a_pod_share_a_shim_and_perhaps_a_pid(f: Fakes) -> None:
    f.fake.does(one_pid=True)
    words = {SANDBOX: "c1"}
    pause = await f.task("c1", *SLEEP, **words).begun()
    member = await f.task("c2", "sh", "-c", "exit 5", **words).begun()
    assert pause.address == member.address
    pids = {await pause.started(), await member.started(), (await pause.to.state("c1")).pid}
    pids |= {each.pid for id in ("c1", "c2") for each in await pause.to.pids(id)}
    assert pids == {(await pause.to.connect("c1")).shim_pid}
    assert (await member.exit()).number == 5
    await member.to.delete("c2")
    await member.to.shutdown("c2")
    assert (await pause.to.state("c1")).status == "running"
    await member.swept()
    await pause.to.kill("c1", signal.SIGKILL)
    await pause.exit()
    await pause.ended()


# -- odd ends


@run
async def test_an_exit_is_reported_without_an_event(f: Fakes) -> None:
    f.fake.does(exit_events=0)
    task = await f.task("c1").begun()
    await task.started()
    assert (await task.exit()).number == 7
    await task.ended()
    await f.place.until(lambda: f.place.topics("c1") == ["/tasks/create", "/tasks/start", "/tasks/delete"])


@run
async def test_an_exit_that_is_reported_twice_is_heard_twice(f: Fakes) -> None:
    f.fake.does(exit_events=2)
    task = await f.task("c1").begun()
    await task.started()
    await task.exit()
    await f.place.until(lambda: f.place.topics("c1").count("/tasks/exit") == 2)
    first, second = f.place.of("c1")[2:]
    assert first == second
    await task.ended()


@run
async def test_a_number_that_stands_for_a_lost_exit_comes_through_as_it_is(f: Fakes) -> None:
    f.fake.does(status=255)
    task = await f.task("c1").begun()
    await task.started()
    assert (await task.exit()).number == 255
    assert (await task.ended()).exit_status == 255


@run
async def test_an_answer_to_wait_may_come_after_the_event(f: Fakes) -> None:
    f.fake.does(wait="after-event")
    task = await f.task("c1").begun()
    await task.started()
    assert (await task.exit()).number == 7
    assert "/tasks/exit" in f.place.topics("c1")
    f.fake.does(wait="late", late_seconds=SOON)
    assert (await task.to.wait("c1")).number == 7
    await task.ended()


@run
async def test_an_answer_to_wait_may_never_come_and_the_event_has_it(f: Fakes) -> None:
    f.fake.does(wait="never")
    task = await f.task("c1").begun()
    await task.started()
    await f.place.until(lambda: "/tasks/exit" in f.place.topics("c1"))
    assert (await task.to.state("c1")).exit_status == 7
    assert task.waiting is not None and not task.waiting.done()
    await task.ended()


@run
async def test_a_wait_that_fails_is_no_exit(f: Fakes) -> None:
    f.fake.does(wait="error")
    task = await f.task("c1").begun()
    await task.started()
    with pytest.raises(RuntimeFailed):
        await task.exit()
    assert not task.to.closed.is_set()
    await task.ended()


@run
async def test_a_shutdown_that_ends_the_connection_is_done(f: Fakes) -> None:
    f.fake.does(shutdown="eof")
    task = await f.task("c1").begun()
    await task.started()
    await task.exit()
    await task.ended()


@run
async def test_a_shim_that_takes_its_life_is_lost_and_no_exit_is_made_up(f: Fakes) -> None:
    task = await f.task("c1", *SLEEP).begun()
    pid = await task.started()
    await f.place.until(lambda: f.place.topics("c1") == LIFE[:2])
    os.kill((await task.to.connect("c1")).shim_pid, signal.SIGUSR1)
    with pytest.raises(ShimLost):
        await task.exit()
    await asyncio.wait_for(task.to.closed.wait(), LIMIT_SECONDS)
    with pytest.raises(ShimLost):
        await task.to.state("c1")
    assert f.place.topics("c1") == LIFE[:2]
    deleted = await task.swept()
    assert deleted is not None and (deleted.pid, deleted.exit_status) == (pid, 137)
    assert f.dead_sockets_removed() == 1


@pytest.mark.parametrize("call", ["Create", "Start", "Wait", "Delete"])
def test_a_shim_that_dies_of_a_call_is_lost(call: str) -> None:
    @run
    async def test(f: Fakes) -> None:
        task = await f.task("c1", "true").begun()
        f.fake.does(dies_on=(call,))
        with pytest.raises(ShimLost):
            await task.started()
            await task.exit()
            await task.to.delete("c1")
        await task.swept()
        assert f.dead_sockets_removed() == 1

    test()


@run
async def test_a_frozen_shim_is_silent_and_its_waits_stay_pending(f: Fakes) -> None:
    task = await f.task("c1", *SLEEP).begun()
    await task.started()
    shim_pid = (await task.to.connect("c1")).shim_pid
    f.fake.does(freezes_on=("State",))
    with pytest.raises(TimedOut):
        await task.to.state("c1", seconds=SOON)
    until(lambda: native.process_stat(shim_pid)[0] == "T", "it has not stopped")
    f.fake.does()
    another = await ShimConnection.open(task.to.address, Aside())
    for link in (task.to, another):
        with pytest.raises(TimedOut):
            await link.connect("c1", seconds=SOON)
        assert not link.closed.is_set()
    assert task.waiting is not None and not task.waiting.done()
    os.kill(shim_pid, signal.SIGCONT)
    assert (await another.connect("c1")).shim_pid == shim_pid
    another.close()
    await task.to.kill("c1", signal.SIGKILL)
    assert (await task.exit()).number == 137
    await task.ended()


@run
async def test_calls_that_hang_hold_nobody_else_up(f: Fakes) -> None:
    f.fake.does(never=("State", "Stats", "Pids"))
    task = await f.task("c1").begun()
    await task.started()
    for call in (task.to.state, task.to.stats, task.to.pids):
        with pytest.raises(TimedOut):
            await call("c1", seconds=SOON)
    assert (await task.exit()).number == 7
    await task.ended()


@pytest.mark.parametrize("code, error", [(2, RuntimeFailed), (5, NoSuchContainer), (9, WrongState), (12, Unsupported)])
def test_a_delete_that_is_refused_says_why(code: int, error: type[Exception]) -> None:
    @run
    async def test(f: Fakes) -> None:
        f.fake.does(refused={"Delete": (code, "not now")})
        task = await f.task("c1").begun()
        await task.started()
        await task.exit()
        with pytest.raises(error, match="not now"):
            await task.to.delete("c1")
        f.fake.does()
        await task.ended()

    test()


@run
async def test_a_task_is_found_again_over_a_new_connection(f: Fakes) -> None:
    task = await f.task("c1", "sh", "-c", "read x; exit 4").begun()
    os.mkfifo(f"{f.place.base}/in")
    await task.to.create("c1", task.bundle, stdio=Stdio(f"{f.place.base}/in"))
    pid = await task.to.start("c1")
    task.to.close()
    await asyncio.wait_for(task.to.closed.wait(), LIMIT_SECONDS)
    await task.linked()
    assert (await task.to.connect("c1")).task_pid == pid
    task.waiting = asyncio.create_task(task.to.wait("c1"))
    await task.to.close_io("c1")
    assert (await task.exit()).number == 4
    await task.ended()
