"""Runtime commands are run with a limit on everything, and told apart by what can be looked at."""

import asyncio
import errno
import functools
import gc
import os
import pathlib
import signal
import subprocess
from collections.abc import Callable, Coroutine

import pytest

from supervisor.model.errors import Busy, RuntimeFailed, RuntimeMissing, TimedOut
from supervisor.runtime.oci import runtime
from supervisor.runtime.oci.runtime import CommandInput, ExecFiles, Runtime, last_error, parse_state, run
from supervisor.system import room
from supervisor.system.aside import Aside
from tests.supervisor.descriptors import held_now, only, open_now, opened_since

RUNC = Runtime("/usr/sbin/runc", "/run/r")


def in_a_loop(test: Callable[..., Coroutine[None, None, None]]) -> Callable[..., None]:
    @functools.wraps(test)
    def run_it(*args: object, **fixtures: object) -> None:
        asyncio.run(test(*args, **fixtures))

    return run_it


def test_argv_of_every_command() -> None:
    head = ["/usr/sbin/runc", "--root", "/run/r"]
    log = ["--log", "/l", "--log-format", "json"]
    assert RUNC.create("/b", "/p", "id", "/l") == [*head, *log, "create", "--bundle", "/b", "--pid-file", "/p", "id"]
    assert RUNC.create("/b", "/p", "id", "/l", console="/c")[-3:] == ["--console-socket", "/c", "id"]
    choosy = Runtime("/usr/sbin/runc", "/run/r", create_options=("--no-pivot",))
    assert choosy.create("/b", "/p", "id", "/l")[-4:] == ["--pid-file", "/p", "--no-pivot", "id"]
    files = ExecFiles("/process", "/p", "/l")
    named = ["exec", "--process", "/process", "--pid-file", "/p", "--detach"]
    assert RUNC.exec("id", files) == [*head, *log, *named, "id"]
    assert RUNC.exec("id", files, console="/c") == [*head, *log, *named, "--console-socket", "/c", "id"]
    assert RUNC.start("id") == [*head, "start", "id"]
    assert RUNC.kill("id", 9) == [*head, "kill", "id", "9"]
    assert RUNC.kill("id", 15, everyone=True) == [*head, "kill", "--all", "id", "15"]
    assert RUNC.delete("id") == [*head, "delete", "--force", "id"]
    assert RUNC.state("id")[-2:] == ["state", "id"]
    assert (RUNC.pause("id")[-2:], RUNC.resume("id")[-2:]) == (["pause", "id"], ["resume", "id"])
    assert Runtime("/r", "/s", ("--debug", "-x"), systemd_cgroup=True).start("id") == [
        *("/r", "--debug", "-x", "--root", "/s", "--systemd-cgroup", "start", "id")
    ]


@in_a_loop
async def test_a_command_gives_its_code_and_both_outputs() -> None:
    result = await run(["sh", "-c", "echo out; echo err >&2; exit 7"], timeout_seconds=10)
    assert (result.returncode, result.stdout, result.stderr) == (7, "out\n", "err\n")


@in_a_loop
async def test_a_signal_is_a_negative_code() -> None:
    assert (await run(["sh", "-c", "kill -SEGV $$"], timeout_seconds=10)).returncode == -signal.SIGSEGV


@in_a_loop
async def test_output_is_bounded_and_never_blocks_the_command() -> None:
    result = await run(["sh", "-c", "head -c 3000000 /dev/zero; echo end >&2"], timeout_seconds=10)
    assert (len(result.stdout), result.stderr) == (65536, "end\n")


@in_a_loop
async def test_a_heir_of_the_outputs_does_not_hold_up_the_end(tmp_path: pathlib.Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    result = await run(["sh", "-c", f"cat {fifo} & echo started"], timeout_seconds=10)
    assert result.stdout == "started\n"
    os.close(os.open(fifo, os.O_WRONLY))  # comes back once the heir reads, which then ends


@in_a_loop
async def test_a_command_past_its_limit_is_killed_with_its_children(tmp_path: pathlib.Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    witness = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    with pytest.raises(TimedOut, match=r"did not end in 0\.3 s"):
        await run(["sh", "-c", f"exec 3>{fifo}; sleep 1000 & sleep 1000"], timeout_seconds=0.3)
    os.close(os.open(fifo, os.O_WRONLY | os.O_NONBLOCK))  # a reader hears of no end where there never was a writer
    loop = asyncio.get_running_loop()
    gone = asyncio.Event()
    loop.add_reader(witness, gone.set)  # end of file: no writer lives
    await asyncio.wait_for(gone.wait(), 60)
    assert os.read(witness, 1) == b""
    loop.remove_reader(witness)
    os.close(witness)


@in_a_loop
async def test_a_cancelled_caller_leaves_nothing_behind(tmp_path: pathlib.Path) -> None:
    before = held_now()
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    witness = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    task = asyncio.create_task(run(["sh", "-c", f"echo x >{fifo}; exec sleep 1000"], timeout_seconds=60))
    loop = asyncio.get_running_loop()
    begun = asyncio.Event()
    loop.add_reader(witness, begun.set)
    await asyncio.wait_for(begun.wait(), 60)
    loop.remove_reader(witness)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    os.close(witness)
    assert not opened_since(before)


@in_a_loop
async def test_a_command_with_a_grace_period_goes_on_when_its_caller_is_cancelled(tmp_path: pathlib.Path) -> None:
    before = held_now()
    fifo, gate = tmp_path / "fifo", tmp_path / "gate"
    os.mkfifo(fifo)
    os.mkfifo(gate)
    witness, key = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK), os.open(gate, os.O_RDWR)
    script = f"exec 3>{fifo}; echo begun >&3; read line <{gate}; echo whole >&3"
    given = CommandInput(alone=True)
    task = asyncio.create_task(run(["sh", "-c", script], timeout_seconds=60, grace_ms=60_000, given=given))

    async def word() -> bytes:
        readable = asyncio.Event()
        asyncio.get_running_loop().add_reader(witness, readable.set)
        await asyncio.wait_for(readable.wait(), 60)
        asyncio.get_running_loop().remove_reader(witness)
        return os.read(witness, 100)

    assert await word() == b"begun\n"
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    os.write(key, b"\n")
    assert await word() == b"whole\n"
    os.close(witness)
    os.close(key)
    assert not opened_since(before)


@in_a_loop
async def test_nothing_of_systemd_is_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in runtime.NOT_PASSED_ON:
        monkeypatch.setenv(name, "1")
    env = (await run(["env"], timeout_seconds=10)).stdout
    assert not [name for name in runtime.NOT_PASSED_ON if name in env]


@in_a_loop
async def test_a_command_starts_with_null_input_in_its_own_session(tmp_path: pathlib.Path) -> None:
    result = await run(
        ["sh", "-c", "readlink /proc/self/fd/0; pwd; cut -d' ' -f1,6 /proc/$$/stat"],
        timeout_seconds=10,
        cwd=str(tmp_path),
    )
    null, cwd, stat = result.stdout.splitlines()
    assert (null, cwd) == ("/dev/null", str(tmp_path))
    pid, session = stat.split()
    assert pid == session


def fake(tmp_path: pathlib.Path, script: str) -> Runtime:
    program = tmp_path / "fake"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return Runtime(str(program), str(tmp_path / "state"))


@in_a_loop
async def test_absent_is_known_by_the_state_directory_not_by_words(tmp_path: pathlib.Path) -> None:
    broken = fake(tmp_path, "echo container does not exist >&2; exit 1")
    assert await runtime.state(broken, "x", Aside(), timeout_seconds=10) == "absent"
    (tmp_path / "state/x").mkdir(parents=True)
    assert await runtime.state(broken, "x", Aside(), timeout_seconds=10) == "creating"
    (tmp_path / "state/x/state.json").write_text("{")
    with pytest.raises(RuntimeFailed, match="does not exist"):
        await runtime.state(broken, "x", Aside(), timeout_seconds=10)


@in_a_loop
async def test_a_hung_runtime_is_not_an_absent_container(tmp_path: pathlib.Path) -> None:
    with pytest.raises(TimedOut):
        await runtime.state(fake(tmp_path, "exec sleep 1000"), "x", Aside(), timeout_seconds=0.2)


@in_a_loop
async def test_the_word_of_the_runtime_is_passed_on(tmp_path: pathlib.Path) -> None:
    assert (
        await runtime.state(fake(tmp_path, """echo '{"status": "paused"}'"""), "x", Aside(), timeout_seconds=10)
        == "paused"
    )


@pytest.mark.parametrize("text", ["", "{}", "[]", "null", '{"status": 3}', "gibberish"])
def test_a_state_that_is_none_is_an_error(text: str) -> None:
    with pytest.raises(RuntimeFailed):
        parse_state(text)


@pytest.mark.parametrize(
    ("log", "message"),
    [
        ("", ""),
        ('{"level":"error","msg":"exec: \\"x\\""}\n', 'exec: "x"'),
        ('{"level":"error","msg":"first"}\n{"level":"error","msg":"last"}\n{"level":"warning","msg":"w"}\n', "last"),
        ('{"level":"info","msg":"only"}', "only"),
        ('time="2026" level=error msg="runc create failed: \\"x\\""\n', 'runc create failed: "x"'),
        ("executable file `nope` not found\n", "executable file `nope` not found"),
        ('{"torn', '{"torn'),
        ('{\n  "msg": "no `x`",\n  "level": "error"\n}\n', "no `x`"),  # crun 1.28
        ('{\n "msg": "a",\n "level": "error"\n}\n{\n "msg": "b",\n "level": "error"\n}\nrest {c}\n', "rest {c}"),
        ('{"msg": "a", "level": "error"}{"msg": "b", "level": "warning"}\n', "a"),
        ("{}\n", ""),
        ('{"msg": "real", "level": "error"} trailing\n', "trailing"),
        ('{\n  "time": 3\n}\n', ""),
        ("{\n" * 2000 + "the end", "the end"),
        ("[1]", "[1]"),
        ('{"msg": 3}', "3"),
    ],
)
def test_the_last_error_is_found_in_every_kind_of_log(log: str, message: str) -> None:
    assert last_error(log) == message


def test_a_runtime_is_found_by_name_or_path(tmp_path: pathlib.Path) -> None:
    program = tmp_path / "rt"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    assert runtime.resolve("sh").endswith("/sh")
    assert runtime.resolve(str(program)) == str(program)


@pytest.mark.parametrize("name", ["", "no-such-runtime", "./sh", "/nope/runc", "/etc"])
def test_a_missing_runtime_is_named(name: str) -> None:
    with pytest.raises(RuntimeMissing) as caught:
        runtime.resolve(name)
    assert name in str(caught.value)


@in_a_loop
async def test_a_command_needs_less_room_than_a_run_that_is_to_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "PATIENCE_SECONDS", 0.05)
    assert room.FOR_COMMAND < room.FOR_ONE
    with only(room.FOR_COMMAND + 1):
        assert (await run(["true"], timeout_seconds=30)).returncode == 0
    with only(room.FOR_COMMAND - 1), pytest.raises(Busy):
        await run(["true"], timeout_seconds=30)


@pytest.mark.parametrize("number", [errno.EAGAIN, errno.ENOMEM])
@in_a_loop
async def test_a_command_for_which_there_is_no_process_has_not_begun_and_may_be_tried_again(
    monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """pids.max, say. Whoever takes any error for the command's own outcome would go on as if it had run."""

    def refused(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(subprocess, "Popen", refused)
    with pytest.raises(Busy, match=os.strerror(number)):
        await run(["true"], timeout_seconds=30)


def children() -> set[str]:
    return {*pathlib.Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()}


@in_a_loop
async def test_a_command_that_cannot_be_watched_is_ended_and_closed_while_its_error_lives(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: object) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    before, others = {*open_now()}, children()  # of earlier tests: some may go meanwhile
    gc.disable()  # garbage that closes what it holds would prove nothing
    try:
        for place in ("pidfd_open", "set_blocking"):
            with monkeypatch.context() as patched, pytest.raises(Busy, match="Too many") as caught:
                patched.setattr(os, place, refuse)
                await run(["sleep", "1000"], timeout_seconds=30)
            assert {*os.listdir("/proc/self/fd")} <= before, place
            assert children() <= others, place
            assert isinstance(caught.value.__cause__, OSError) and caught.value.__cause__.errno == errno.EMFILE
    finally:
        gc.enable()
