"""An end that came before the program was executed has no code: the number is that of the runtime's init. Whoever saw
that end says so: the shim, the keeper, the zombie that nobody reaps; and exitd, of what it has never asked to start.
"""

import contextlib
import os
import pathlib
import shutil
import signal
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.api.client import Client, Unreachable
from supervisor.model.errors import CommandNotExecutable, ExitdError
from supervisor.monitor import rundir
from tests.system import execs, lives, oracle, tinyroot
from tests.system.daemons import Daemon, daemon, remove_all, spec
from tests.system.exitctl import Cli
from tests.system.foreign_shims import RUNC
from tests.system.lives import ended, last_exit, ledger, types, word
from tests.system.processes import in_mask
from tests.system.runtimes import Wrapper, program
from tests.system.waits import LIMIT_SECONDS, until

pytestmark = pytest.mark.usefixtures("has_had_a_foreign_shim")

REFUSED = {"format": b"\x7fELF of no machine", "bare": b"no interpreter line\n", "interpreter": b"#!/no/such/program\n"}
TURNS = b"#!/bin/sh\n>/bin/turns; exit 3\n"  # the next run finds an empty file
NEVER = "unknown never-started"

# In the place of a start: init ends while it waits for that.
ENDS_INIT = """
while [ "$1" != --root ]; do shift; done
root=$2
for id; do :; done
kill -9 $(sed 's/.*"init_process_pid":\\([0-9]*\\).*/\\1/' "$root/$id/state.json")
"""


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A root file system with programs that the kernel refuses."""
    made = tinyroot.make(tmp_path_factory.mktemp("root"), ("sh", "sleep"))
    for name, content in {**REFUSED, "turns": TURNS}.items():
        (made / "bin" / name).write_bytes(content)
        (made / "bin" / name).chmod(0o755)
    return str(made)


def end(client: Client, id: str) -> pb.Exit:
    """The only one that is told of the container, and it has no code."""
    told = last_exit(client, id)
    assert word(told) == NEVER
    assert [each.cause for each in ledger(client, id)] == ["never-started"]
    assert types(client, id).count("exit") == 1
    return told


def refused(client: Client, id: str) -> pb.Exit:
    """Its start fails for its program, and its end follows."""
    with pytest.raises(CommandNotExecutable):
        client.start(id)
    told = end(client, id)
    assert "start" not in types(client, id)
    assert types(client, id).count("failed") == 1
    return told


@pytest.mark.parametrize("runtime", ["runc", "crun"])
@pytest.mark.parametrize("name", REFUSED)
def test_a_program_that_the_kernel_refuses_never_began(
    client: Client, root: str, tmp_path: pathlib.Path, name: str, runtime: str
) -> None:
    id = client.create(spec(name, rootfs=root, runtime=program(runtime, tmp_path))).id
    told = refused(client, id)
    assert told.source == "record"
    assert not told.HasField("started_at")


def test_run_and_start_say_126_and_why_says_never(client: Client, cli: Cli, root: str) -> None:
    said = cli("run", "--name", "bare", "--rootfs", root, "bare")
    assert said.code == 126
    assert "never executed" in said.err
    assert "its program was never executed" in cli.ok("why", "bare")
    assert cli("start", "bare").code == 126
    assert cli("wait", "bare").out.strip() == "unknown"


def test_a_run_that_never_began_counts_as_failed(client: Client, root: str) -> None:
    id = client.create(spec("turns", rootfs=root, restart="on-failure:2")).id
    client.start(id)
    until(lambda: len(ledger(client, id)) == 3, "three runs")
    assert [word(each) for each in sorted(ledger(client, id), key=lambda each: each.run)] == ["exited 3", NEVER, NEVER]
    until(lambda: client.inspect(id).phase == pb.PHASE_EXITED, "no rest")


def test_what_was_made_and_not_started_never_began_whoever_ends_it(client: Client) -> None:
    removed, killed = client.create(spec("sh")).id, client.create(spec("sh")).id
    client.remove(removed, force=True)
    assert [(word(each), each.reason) for each in ledger(client, removed)] == [(NEVER, "kill")]
    os.kill(client.inspect(killed).init.pid, signal.SIGTERM)
    assert end(client, killed).reason == "unknown"


def test_the_keeper_says_so_when_the_shim_is_dead(client: Client, root: str) -> None:
    id = client.create(spec("bare", rootfs=root)).id
    made = client.inspect(id)
    os.kill(made.shim.pid, signal.SIGKILL)
    until(lambda: client.inspect(id).monitored_by == "keeper", "not inherited")
    assert refused(client, id).source == "keeper"


@pytest.mark.parametrize("name", REFUSED)
def test_an_exec_that_the_kernel_refuses_has_failed_and_exec_returns_126(
    client: Client, cli: Cli, root: str, name: str
) -> None:
    up = lives.up(client, "sleep", "1000", rootfs=root)
    said = cli("exec", up.id, name)
    assert (said.code, "never executed" in said.err) == (126, True)
    assert types(client, up.id) == ["create", "start", "failed"]
    assert not ledger(client, up.id)
    assert cli("exec", up.id, "sh", "-c", "exit 7").code == 7


@pytest.mark.parametrize("name", REFUSED)
def test_under_anothers_shim_a_program_that_the_kernel_refuses_never_began_either(
    client: Client, cli: Cli, root: str, name: str
) -> None:
    id = client.create(spec(name, rootfs=root, runtime=RUNC)).id
    told = refused(client, id)
    assert told.source == "shimv2-wait"
    assert cli("start", id).code == 126
    ended(client.begin_wait(id, run=2).result(LIMIT_SECONDS))  # its start has failed; its end may not be stored yet
    assert [word(each) for each in ledger(client, id)] == [NEVER, NEVER]


def test_what_begins_under_anothers_shim_and_ends_at_once_has_its_code(client: Client, root: str) -> None:
    for code in (1, 7):
        id = client.create(spec("sh", "-c", f"exit {code}", rootfs=root, runtime=RUNC)).id
        client.start(id)
        assert word(last_exit(client, id)) == f"exited {code}"
        assert types(client, id) == ["create", "start", "exit"]


def test_what_was_made_and_not_started_under_anothers_shim_never_began(client: Client) -> None:
    removed, killed = (client.create(spec("sh", runtime=RUNC)).id for _ in range(2))
    client.remove(removed, force=True)
    assert [(word(each), each.reason) for each in ledger(client, removed)] == [(NEVER, "kill")]
    os.kill(client.inspect(killed).init.pid, signal.SIGTERM)
    assert end(client, killed).reason == "unknown"


@pytest.fixture
def own() -> Iterator[Daemon]:
    """A daemon that may be killed, and its keeper."""
    with daemon() as made:
        yield made
        with made.client() as client:
            remove_all(client)


def test_so_does_the_zombie_of_a_stopped_shim(own: Daemon, root: str) -> None:
    with own.client() as client:
        id = client.create(spec("bare", rootfs=root)).id
        os.kill(client.inspect(id).shim.pid, signal.SIGSTOP)
        assert refused(client, id).source == "zombie"


def test_a_terminal_that_hangs_up_on_what_was_not_started_gives_no_code(own: Daemon) -> None:
    with own.client() as client:
        id = client.create(spec("sh", tty=True)).id
        keeper, shim = own.keeper_pid(), client.inspect(id).shim.pid
        os.kill(shim, signal.SIGSTOP)  # it gives its terminal to no other keeper
    own.kill()  # it has a copy
    for pid in (keeper, shim):
        os.kill(pid, signal.SIGKILL)
    own.start()
    with own.client() as client:
        end(client, id)


def test_nor_does_what_was_not_started_and_ended_when_nobody_was_there(own: Daemon) -> None:
    with own.client() as client:
        id = client.create(spec("sh")).id
        made = client.inspect(id)
        keeper = own.keeper_pid()
    own.kill()
    for pid in (keeper, made.shim.pid, made.init.pid):
        os.kill(pid, signal.SIGKILL)
    until(lambda: not pathlib.Path(f"/proc/{made.init.pid}").exists(), "init has not gone")
    own.start()
    with own.client() as client:
        end(client, id)


def test_a_start_in_which_init_ends_gives_no_code(own: Daemon, tmp_path: pathlib.Path) -> None:
    wrapper = Wrapper.make(tmp_path)
    wrapper.on("start", f"{ENDS_INIT} exit 1")
    with own.client() as client:
        id = client.create(spec("sh", runtime=wrapper.name)).id
        with pytest.raises(ExitdError):
            client.start(id)
        end(client, id)
        assert "start" not in types(client, id)


def test_a_daemon_killed_in_such_a_start_is_followed_by_one_that_knows(own: Daemon, tmp_path: pathlib.Path) -> None:
    wrapper = Wrapper.make(tmp_path)
    with own.client() as client:
        wrapper.on("start", f"{ENDS_INIT} kill -9 {own.pid}; exit 1")
        id = client.create(spec("sh", runtime=wrapper.name)).id
        with contextlib.suppress(Unreachable):
            client.start(id)
    assert own.process is not None
    own.process.wait(LIMIT_SECONDS)
    own.start()
    with own.client() as client:
        end(client, id)
        assert "start" not in types(client, id)


def test_what_a_kernel_refused_is_found_refused_by_the_next_daemon(own: Daemon, root: str) -> None:
    with own.client() as client:
        id = client.create(spec("bare", rootfs=root)).id
        place = own.state / "c" / id / "1"
    own.kill()
    # It may fail: the shim deletes what has ended already.
    subprocess.run(["runc", "--root", place / "rt", "start", id], timeout=LIMIT_SECONDS)
    until(lambda: (place / "exit.json").read_bytes().startswith(b"{"), "no record")
    own.start()
    with own.client() as client:
        end(client, id)


UNSEEN = (NEVER, "unknown start-unconfirmed")
# The program of an exec waits at its execve(2), as do those of the runtime that come before it.
SLOWLY = """
exec strace -D -f -o /dev/null -e trace=execve -e inject=execve:delay_enter=1500000 runc "$@"
"""


@pytest.mark.parametrize("first", ["keeper", "shim"])
def test_no_code_is_invented_when_shim_and_keeper_were_killed_before_the_start(
    own: Daemon, root: str, first: str
) -> None:
    """The keeper first: the next one knows init, which is not its child."""
    with own.client() as client:
        id = client.create(spec("bare", rootfs=root)).id
        keeper, shim = own.keeper_pid(), client.inspect(id).shim.pid
        os.kill(keeper if first == "keeper" else shim, signal.SIGKILL)
        if first == "keeper":
            until(lambda: own.keeper_pid() not in (0, keeper), "no other keeper")
        os.kill(shim if first == "keeper" else keeper, signal.SIGKILL)
        until(lambda: client.inspect(id).monitored_by == "other", "not inherited")
        with pytest.raises(ExitdError):
            client.start(id)
        told = last_exit(client, id)
        assert word(told) in UNSEEN, told
        assert not told.HasField("started_at")
        assert (types(client, id).count("start"), types(client, id).count("exit")) == (0, 1)


def test_what_was_seen_executed_keeps_its_code_when_shim_and_keeper_are_killed(own: Daemon) -> None:
    with own.client() as client:
        id = client.create(spec("sh", "-c", "trap 'exit 43' TERM; while :; do sleep 0.05; done")).id
        keeper, shim = own.keeper_pid(), client.inspect(id).shim.pid
        for pid in (shim, keeper):
            os.kill(pid, signal.SIGKILL)
        until(lambda: client.inspect(id).monitored_by == "other", "not inherited")
        init = client.start(id).init.pid
        until(lambda: in_mask(init, "SigCgt", signal.SIGTERM), "the trap is not set")
        os.kill(init, signal.SIGTERM)
        assert word(last_exit(client, id)) == "exited 43"  # by the kernel


def test_nor_for_an_exec(own: Daemon, root: str, tmp_path: pathlib.Path) -> None:
    wrapper = Wrapper.make(tmp_path)
    wrapper.on("exec", SLOWLY)
    with own.client() as client, ThreadPoolExecutor(1) as caller:
        up = lives.up(client, "sleep", "1000", rootfs=root, runtime=wrapper.name)
        asked = caller.submit(client.exec, up.id, pb.ExecSpec(args=("bare",)))
        (directory,) = until(lambda: execs.exec_directories(own), "no exec is made")
        until(lambda: (directory / "created").exists(), "its shim has not named it")
        (shim,) = execs.shims_of(own, directory.name)
        for pid in (own.keeper_pid(), shim):
            os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ExitdError):
            asked.result(LIMIT_SECONDS)
        until(lambda: not client.inspect(up.id).execs, "its end")
        assert {word(row) for row in ledger(client, up.id)} <= {*UNSEEN, "unknown monitors-killed"}


# init comes to write that its start was noticed, and the runtime's start is dead: its pipe has no reader.
BREAKS_FIFO = """
while [ "$1" != --root ]; do shift; done
root=$2
for id; do :; done
init=$(sed 's/.*"init_process_pid":\\([0-9]*\\).*/\\1/' "$root/$id/state.json")
strace -qq -o /dev/null -p $init -e trace=write -e inject=write:error=EPIPE 2>/dev/null &
timeout 30 sh -c "while grep -q '^TracerPid:.0$' /proc/$init/status; do sleep 0.01; done"
cat "$root/$id/exec.fifo" >/dev/null
wait
"""
Wrapped = tuple[Daemon, Wrapper]
STARTS = f'{shutil.which("runc")} "$@"'


@pytest.fixture(scope="module", params=["auto", "pidfd"])
def under_wrapper(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Wrapped]:
    """A daemon under which another's shim finds the wrapper in runc's place. With `pidfd` as the kernel's witness it
    does not listen to the process events: as without CAP_NET_ADMIN, or after lost ones."""
    place = tmp_path_factory.mktemp("bin")
    (place / "exitd.toml").write_text(f'kernel_witness = "{request.param}"\n')
    path = f"{place}:{os.environ['PATH']}"
    with daemon(extra=("--config", str(place / "exitd.toml")), environment={"PATH": path}) as made:
        yield made, Wrapper.make(place, "runc")


@pytest.fixture
def foreign(under_wrapper: Wrapped) -> Iterator[Wrapped]:
    made, wrapper = under_wrapper
    yield made, wrapper
    wrapper.on("start", "")
    oracle.clear(made)


def never(client: Client, id: str) -> pb.Exit:
    """The only end that is told of it has no number, and the start has failed where it was not seen."""
    told = last_exit(client, id)
    assert word(told) in UNSEEN, told
    assert not told.HasField("code")
    assert [word(each) for each in ledger(client, id)] == [word(told)]
    return told


CUT_OFF = pytest.mark.parametrize(
    ("command", "script"), [("bare", STARTS), ("sh", BREAKS_FIFO)], ids=["refused", "cut"]
)


@contextlib.contextmanager
def killed_in_its_start(foreign: Wrapped, wanted: pb.ContainerSpec, script: str) -> Iterator[str]:
    """Created; the script works in the place of the runtime's start, in whose middle exitd is killed. It is up again
    after the block."""
    own, wrapper = foreign
    wrapper.on("start", f"{script}\nkill -9 {own.pid}; exit 1")
    with own.client() as client:
        made = client.create(wanted)
        with contextlib.suppress(Unreachable):
            client.start(made.id)
    assert own.process is not None
    own.process.wait(LIMIT_SECONDS)
    yield made.id
    wrapper.on("start", "")
    own.start()


def reaped(pid: int) -> None:
    until(lambda: not os.path.exists(f"/proc/{pid}"), "init is not reaped")


@CUT_OFF
def test_no_code_of_init_is_the_programs_under_anothers_shim_when_exitd_was_away(
    foreign: Wrapped, root: str, command: str, script: str
) -> None:
    own, _ = foreign
    with killed_in_its_start(foreign, spec(command, rootfs=root, runtime=RUNC), script) as id:
        reaped(_init(own, id))
    with own.client() as client:
        never(client, id)
        assert "start" not in types(client, id)


@CUT_OFF
def test_no_code_of_init_is_the_programs_under_anothers_shim_while_exitd_looks_on(
    foreign: Wrapped, root: str, command: str, script: str
) -> None:
    own, wrapper = foreign
    wrapper.on("start", f"{script}\n[ {command} = bare ]; exit $?")
    with own.client() as client:
        id = client.create(spec(command, rootfs=root, runtime=RUNC)).id
        with contextlib.suppress(ExitdError):
            client.start(id)
        never(client, id)


@pytest.mark.parametrize("code", [0, 1, 43])
def test_a_code_that_no_init_ends_with_is_the_programs_also_when_exitd_was_away(
    foreign: Wrapped, root: str, code: int
) -> None:
    own, _ = foreign
    wanted = spec("sh", "-c", f"exit {code}", rootfs=root, runtime=RUNC)
    with killed_in_its_start(foreign, wanted, STARTS) as id:
        reaped(_init(own, id))
    with own.client() as client:
        assert word(last_exit(client, id)) == ("unknown start-unconfirmed" if code == 1 else f"exited {code}")


def test_what_the_next_daemon_sees_alive_keeps_any_code(foreign: Wrapped, root: str) -> None:
    own, _ = foreign
    wanted = spec("sh", "-c", "trap 'exit 1' TERM; while :; do sleep 0.05; done", rootfs=root, runtime=RUNC)
    with killed_in_its_start(foreign, wanted, STARTS) as id:
        init = _init(own, id)
        until(lambda: in_mask(init, "SigCgt", signal.SIGTERM), "the trap is not set")
    with own.client() as client:
        until(lambda: client.inspect(id).phase == pb.PHASE_RUNNING, "it is not found running")
        os.kill(init, signal.SIGTERM)
        assert word(last_exit(client, id)) == "exited 1"


def _init(own: Daemon, id: str) -> int:
    made = rundir.created(str(own.state / "c" / id / "1"))
    assert made is not None
    return made.pid
