"""The process events connector as the kernel's witness, as on kernels before 6.15: forced by `kernel_witness`. What
pidfds have to hold as well is tried with both."""

import asyncio
import contextlib
import os
import pathlib
import shlex
import signal
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator

import pytest

from protos.exitd.v1 import exitd_pb2 as pb
from shim import native
from supervisor.api.client import Client
from supervisor.model.errors import CannotWatch
from supervisor.model.values import Process, Source
from supervisor.monitor import procevents
from supervisor.monitor.epoll import Monitor
from supervisor.monitor.kernelword import BY_PIDFD, NO_WORD, ByEvents, Executions, KernelStatus, KernelWord
from tests.supervisor.descriptors import held_now, opened_since
from tests.system import byhand, daemons, execs, lives
from tests.system.daemons import Daemon, directory, remove_all
from tests.system.exitctl import Cli
from tests.system.faultyfs import mounted
from tests.system.lives import word
from tests.system.oracle import down, inspect
from tests.system.processes import gone, in_mask, kernel_reports, killed, open_files
from tests.system.waits import LIMIT_SECONDS, until
from tests.system.watched import Stranger, ends, said, stranger, told

SYS_EXIT = {"x86_64": 60, "aarch64": 93}[os.uname().machine]
BEYOND_PIDS = 1 << 22
TRAP = "trap 'exit 7' USR1; sleep 1000 & wait"

# Its first thread leaves alone, with a code that is nobody's.
LEADER_LEAVES = f"""
import ctypes, os, sys, threading
{{rest}}
threading.Thread(target=rest).start()
ctypes.CDLL(None).syscall({SYS_EXIT}, 0)
"""
LEADER_STAYS = """
import os, sys, threading
{rest}
threading.Thread(target=rest).start()
threading.Event().wait()
"""
OTHER_EXITS = """
def rest():
    sys.stdin.readline()
    os._exit(7)
"""
OTHER_WAITS = """
def rest():
    open("/mnt/go").read()
    os._exit(7)
"""
OTHER_EXECUTES = """
def rest():
    os.execv("/bin/sh", ["sh", "-c", "read line; exit 7"])
"""
# More threads than events have room, while nobody reads them. It says when it has done that.
STORM = """
import os, sys, threading
for _ in range(4000):
    thread = threading.Thread(target=int)
    thread.start()
    thread.join()
open(sys.argv[1], "w").close()
sys.stdin.readline()
os._exit(7)
"""


def configured(directory: pathlib.Path, witness: str) -> tuple[str, ...]:
    file = directory / "config.toml"
    file.write_text(f'kernel_witness = "{witness}"\n')
    # The next keeper would hold a pidfd, which reports on this kernel.
    return ("--config", str(file), "--keeper", "wait")


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    with tempfile.TemporaryDirectory(prefix="exitd-t-") as directory:
        extra = configured(pathlib.Path(directory), "procevents")
        with daemons.daemon(extra=extra) as made:
            yield made


def program(text: str, *args: str) -> str:
    """A line of shell that becomes this Python program."""
    return f"exec {shlex.join([sys.executable, '-Sc', text, *args])}"


@contextlib.contextmanager
def forked(path: str) -> Iterator[tuple[Process, Callable[[], None]]]:
    """A child that executes the program when it is let go, or ends where it cannot; it is reaped then."""
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        theirs.recv(1)
        with contextlib.suppress(OSError):
            os.execv(path, [path])
        os._exit(1)

    def go() -> None:
        ours.send(b"g")
        os.waitpid(pid, 0)

    with ours, theirs:
        yield Process(pid, native.process_stat(pid)[2]), go


def watch(client: Client, process: Stranger) -> None:
    client.watch(pb.WatchRequest(pid=process.pid))


def orphan(container: pb.Container) -> None:
    """There is no keeper, and the shim is killed; init lives, and its new parent is a stranger."""
    os.kill(container.shim.pid, signal.SIGKILL)
    until(lambda: native.process_stat(container.init.pid)[1] != container.shim.pid, "init has its old parent")


def caught_up(client: Client) -> None:
    """All events of before have been read: that of another end has, which came later."""
    with stranger("exit 0") as other:
        watch(client, other)
        other.go()
        told(client, other)


def is_zombie(pid: int) -> bool:
    return native.process_stat(pid)[0] == "Z"


@pytest.mark.parametrize(("number", "how"), [(signal.SIGUSR1, "exited 7"), (signal.SIGKILL, "signaled 9")])
def test_a_container_without_shim_and_keeper_ends_with_its_true_code_and_once(
    client: Client, number: signal.Signals, how: str
) -> None:
    container = lives.up_trapping(client, TRAP, signal.SIGUSR1)
    orphan(container)
    os.kill(container.init.pid, number)
    exit_ = lives.last_exit(client, container.id)
    assert (word(exit_), exit_.source) == (how, "procevents")
    assert exit_.init.pid == container.init.pid
    assert len(lives.ledger(client, container.id)) == 1


def test_the_next_exitd_goes_on_with_what_lives_and_says_unknown_of_what_ended_meanwhile(
    daemon: Daemon,
) -> None:
    with daemon.client() as client:
        stays, goes = (lives.up_trapping(client, TRAP, signal.SIGUSR1) for _ in range(2))
    daemon.kill()
    try:
        for container in (stays, goes):
            orphan(container)
        os.kill(goes.init.pid, signal.SIGUSR1)
        until(lambda: not os.path.exists(f"/proc/{goes.init.pid}"), "it is not reaped")
    finally:
        daemon.start()
    with daemon.client() as after:
        lost = lives.last_exit(after, goes.id)
        assert (word(lost), lost.source) == ("unknown monitors-killed", "none")
        os.kill(stays.init.pid, signal.SIGUSR1)
        exit_ = lives.last_exit(after, stays.id)
        assert (word(exit_), exit_.source) == ("exited 7", "procevents")
        remove_all(after)


@pytest.mark.parametrize(
    ("end", "how"),
    [("exit 0", "exited 0"), ("exit 137", "exited 137"), ("kill -KILL $BASHPID", "signaled 9")],
)
def test_what_is_watched_ends_with_its_true_code_and_once(client: Client, end: str, how: str) -> None:
    with stranger(end) as process:
        watch(client, process)
        process.go()
        exit_ = told(client, process)
        assert (word(exit_), exit_.source) == (how, "procevents")


def test_a_first_thread_that_leaves_alone_is_neither_the_end_nor_its_code(client: Client) -> None:
    with stranger(program(LEADER_LEAVES.format(rest=OTHER_EXITS))) as process:
        watch(client, process)
        process.go()
        until(lambda: is_zombie(process.pid), "its first thread does not leave")
        caught_up(client)
        assert ends(client, process) == []
        process.go()
        exit_ = told(client, process)
        assert (word(exit_), exit_.source) == ("exited 7", "procevents")


def test_a_process_whose_first_thread_had_left_before_it_was_watched(client: Client) -> None:
    with stranger(program(LEADER_LEAVES.format(rest=OTHER_EXITS))) as process:
        process.go()
        until(lambda: is_zombie(process.pid), "its first thread does not leave")
        watch(client, process)
        os.kill(process.pid, signal.SIGKILL)
        assert word(told(client, process)) == "signaled 9"


def test_another_thread_than_the_first_ends_the_process(client: Client) -> None:
    with stranger(program(LEADER_STAYS.format(rest=OTHER_EXITS))) as process:
        watch(client, process)
        process.go()
        process.go()
        exit_ = told(client, process)
        assert (word(exit_), exit_.source) == ("exited 7", "procevents")


def test_another_thread_than_the_first_executes_a_program_in_the_process(client: Client) -> None:
    with stranger(program(LEADER_STAYS.format(rest=OTHER_EXECUTES))) as process:
        watch(client, process)
        process.go()
        comm = pathlib.Path(f"/proc/{process.pid}/comm")
        until(lambda: comm.read_text() == "sh\n", "it executes nothing")
        caught_up(client)
        assert ends(client, process) == []
        process.go()
        exit_ = told(client, process)
        assert (word(exit_), exit_.source) == ("exited 7", "procevents")


def test_after_lost_events_an_end_is_unknown_and_what_lives_is_known_again(
    daemon: Daemon, client: Client, tmp_path: pathlib.Path
) -> None:
    def times_again() -> int:
        return daemon.log.read_text().count("process events come again")

    done, before = tmp_path / "done", times_again()
    with stranger(program(STORM, str(done))) as process, stranger("exit 8") as other:
        watch(client, process)
        watch(client, other)
        os.kill(daemon.pid, signal.SIGSTOP)
        try:
            until(lambda: native.process_stat(daemon.pid)[0] == "T", "exitd does not stop")
            process.go()
            until(done.exists, "it does not get through its threads", 120)
            other.go()
            other.reaped()
        finally:
            os.kill(daemon.pid, signal.SIGCONT)
        exit_ = told(client, other)
        assert (said(exit_), exit_.source) == (("unknown kernel-did-not-tell", "unknown"), "none")
        until(lambda: times_again() > before, "no events come again")
        process.go()
        exit_ = told(client, process)
        assert (word(exit_), exit_.source) == ("exited 7", "procevents")


@pytest.mark.parametrize("is_witness", [True, False])
def test_what_a_process_has_executed_is_known_when_it_has_been_reaped(is_witness: bool) -> None:
    """Whether the kernel is asked by its events anyhow, or these are listened to for the start alone."""

    async def main() -> None:
        monitor = Monitor()
        kernel: KernelWord = ByEvents(monitor) if is_witness else BY_PIDFD
        starts = Executions(kernel, lambda: ByEvents(monitor))
        for program, has_executed in (("/bin/true", True), ("/no/such/program", False)):
            with forked(program) as (process, go):
                pidfd = os.pidfd_open(process.pid)
                kernel.hold(process, pidfd)
                assert starts.of(process) is None
                starts.hold(process, pidfd)
                assert starts.of(process) is False
                go()
                assert starts.of(process) is has_executed
                starts.let_go(process)
                assert starts.of(process) is None
                kernel.let_go(process, pidfd)
                os.close(pidfd)
        starts.close()
        kernel.close()
        monitor.close()

    before = held_now()
    asyncio.run(main())
    assert not opened_since(before)


def test_of_starts_whose_events_were_lost_nothing_is_concluded() -> None:
    async def main() -> None:
        monitor = Monitor()
        starts = Executions(BY_PIDFD, lambda: ByEvents(monitor, buffer_bytes=4096))
        with forked("/no/such/program") as (process, go), forked("/bin/true") as (other, go_other):
            pidfd = os.pidfd_open(process.pid)
            starts.hold(process, pidfd)
            starts.hold(other, pidfd)
            go_other()
            assert starts.of(other) is True
            with stranger(program(STORM, "/dev/null")) as storm:
                starts.hold(Process(storm.pid, native.process_stat(storm.pid)[2]), pidfd)
                storm.go()
                until(lambda: starts.of(process) is None, "no event is lost")
            go()
            assert starts.of(process) is None
            assert starts.of(other) is True
            os.close(pidfd)
        starts.close()
        monitor.close()

    asyncio.run(main())


def test_of_more_processes_than_a_filter_has_room_for_every_end_is_known() -> None:
    """The events of everybody come with theirs."""
    children = [subprocess.Popen(["sh", "-c", "read line; exit 7"], stdin=subprocess.PIPE) for _ in range(3)]
    held = [(Process(each.pid, native.process_stat(each.pid)[2]), os.pidfd_open(each.pid)) for each in children]

    async def main() -> None:
        monitor, own = Monitor(), os.pidfd_open(os.getpid())
        kernel = ByEvents(monitor, buffer_bytes=64 << 20)  # not overrun by what else the machine does
        for number in range(procevents.MOST_EXACT):
            kernel.hold(Process(BEYOND_PIDS + number, 0), own)
        for process, pidfd in held:
            kernel.hold(process, pidfd)
        for each in children:
            each.communicate(timeout=LIMIT_SECONDS)
        for process, pidfd in held:
            until(lambda: not kernel.of(process, pidfd).is_coming, "its event does not come")  # noqa: B023
            assert kernel.of(process, pidfd) == KernelStatus(7 << 8, Source.PROCEVENTS)
            kernel.let_go(process, pidfd)
            assert kernel.of(process, pidfd) == NO_WORD
            os.close(pidfd)
        kernel.close()
        monitor.close()
        os.close(own)

    asyncio.run(main())


def test_an_event_that_the_kernel_has_not_sent_is_not_believed(daemon: Daemon, client: Client) -> None:
    """With CAP_NET_ADMIN anyone may send to the port that exitd listens on."""
    fds = set(open_files(daemon.pid).values())
    rows = [line.split() for line in pathlib.Path("/proc/net/netlink").read_text().splitlines()[1:]]
    (port,) = [int(row[2]) for row in rows if int(row[1]) == procevents.PROTOCOL and f"socket:[{row[-1]}]" in fds]
    with stranger("exit 7") as process, socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, procevents.PROTOCOL) as own:
        watch(client, process)
        event = struct.pack("=IIQIIIIII", 0x80000000, 0, 1, process.pid, process.pid, 3 << 8, 17, 1, 1)
        connector = struct.pack("=IIIIHH", 1, 1, 1, 0, len(event), 0)
        header = struct.pack("=IHHII", 36 + len(event), 3, 0, 1, 0)
        own.sendto(header + connector + event, (port, 0))
        process.go()
        assert word(told(client, process)) == "exited 7"


def test_commands_say_which_witness_is_in_force(daemon: Daemon, client: Client) -> None:
    cli = Cli(daemon)
    assert "procevents" in cli.ok("info", "--format", "{{.Settings.kernel_witness}}")
    assert "source procevents" in cli("doctor").out
    with stranger("exit 7") as process:
        watch(client, process)
        process.go()
        told(client, process)
        assert "the kernel's process events reported" in cli.ok("why", f"{process.pid}@pid")


@pytest.mark.parametrize("witness", ["procevents", "pidfd"])
def test_the_code_of_a_first_thread_that_has_left_is_not_its_containers_after_the_death_of_both_monitors(
    tmp_path: pathlib.Path, witness: str
) -> None:
    os.mkfifo(tmp_path / "go")
    mounts = [pb.Mount(source=str(tmp_path), destination="/mnt")]
    program = LEADER_LEAVES.format(rest=OTHER_WAITS)
    with daemons.daemon(extra=configured(tmp_path, witness)) as daemon, daemon.client() as client:
        container = lives.up(client, "/usr/bin/python3", "-ISc", program, mounts=mounts)
        until(lambda: is_zombie(container.init.pid), "its first thread does not leave")
        if witness == "procevents":
            caught_up(client)
        orphan(container)
        (tmp_path / "go").write_text("go")
        exit_ = lives.last_exit(client, container.id)
        known = witness == "procevents" or kernel_reports()
        assert (word(exit_), exit_.source) == (("exited 7", witness) if known else ("unknown monitors-killed", "none"))


@pytest.mark.parametrize("witness", ["procevents", "pidfd"])
def test_of_what_ends_and_is_reaped_before_it_is_looked_up_the_kernels_word_is_had(witness: str) -> None:
    """The look-up waits for the bundle's file system. The shims were killed while exitd was down."""
    with directory() as base, mounted(base) as disk, daemons.daemon(extra=configured(base, witness)) as daemon:
        subject = byhand.begun_on(disk, daemon)
        with daemon.client() as client:
            exec_ = client.exec(subject.id, pb.ExecSpec(args=["sh", "-c", TRAP]))
        until(lambda: in_mask(exec_.init.pid, "SigCgt", signal.SIGUSR1), "the trap is not set")
        container = inspect(daemon, subject)
        with disk.failing("read config.json stall"):
            with down(daemon):
                for shim in (execs.shim_of(daemon, exec_.id), container.shim.pid):
                    killed(shim)
            with daemon.client() as client:
                assert [each.recovering for each in client.list(all_of_them=True)] == [True]
            os.kill(exec_.init.pid, signal.SIGUSR1)
            until(lambda: gone(exec_.init.pid), "the exec is not reaped")
            subject.go()
            until(lambda: gone(container.init.pid), "init is not reaped")
        with daemon.client() as client:
            told = execs.end_of(client, subject.id, exec_.id), lives.last_exit(client, subject.id)
            found = [(word(each), each.source) for each in told]
        if witness == "procevents" or kernel_reports():
            assert found == [("exited 7", witness), ("exited 43", witness)]
        else:
            assert found == [("unknown monitors-killed", "none")] * 2


def test_where_there_are_no_process_events_that_is_said_once_and_watch_is_refused(tmp_path: pathlib.Path) -> None:
    """They are sent in the first network namespace only."""
    extra = configured(tmp_path, "procevents")
    with daemons.daemon(extra=extra, wrapper=("unshare", "--net")) as daemon, daemon.client() as client:
        with pytest.raises(CannotWatch, match="no process events connector in this network namespace"):
            client.watch(pb.WatchRequest(pid=1))
        _, exit_ = lives.run(client, "sh", "-c", "exit 7")
        assert (word(exit_), exit_.source) == ("exited 7", "record")
        assert daemon.log.read_text().count("the kernel is no witness of ends here") == 1


def test_without_a_witness_of_the_kernels_an_end_is_unknown(tmp_path: pathlib.Path) -> None:
    with daemons.daemon(extra=configured(tmp_path, "none")) as daemon, daemon.client() as client:
        with pytest.raises(CannotWatch, match="kernel_witness = none"):
            client.watch(pb.WatchRequest(pid=1))
        container = lives.up_trapping(client, TRAP, signal.SIGUSR1)
        orphan(container)
        os.kill(container.init.pid, signal.SIGUSR1)
        exit_ = lives.last_exit(client, container.id)
        assert (word(exit_), exit_.source) == ("unknown monitors-killed", "none")
