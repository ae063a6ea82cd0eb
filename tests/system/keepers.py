"""A keeper, a shim and a real runc without the daemon: what the daemon does to them, call by call, with an oracle."""

import contextlib
import itertools
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from shim import fields, journal, launch, plan, programs, record
from tests.system import tinyroot
from tests.system.processes import cgroup_directories, empty_cgroup, end_process, open_files, processes_of
from tests.system.waits import LIMIT_SECONDS, wait_readable

NUMBERS = itertools.count()


def left_of(state: pathlib.Path) -> list[str]:
    """The processes of a state directory that do not end by themselves within 3 s (tracers follow what they traced)."""
    for line in processes_of(state):
        with contextlib.suppress(ProcessLookupError):
            pidfd = os.pidfd_open(int(line.partition(":")[0]))
            wait_readable(pidfd, 3)
            os.close(pidfd)
    return processes_of(state)


@dataclass
class Run:
    """One run: its directory, and the descriptors the daemon would hold of it."""

    id: str
    directory: pathlib.Path
    record_fd: int
    fifo_fd: int
    runtime: tuple[str, ...]
    shim_pidfd: int = -1
    shim_pid: int = 0
    status: launch.Created | launch.Failed | None = None

    @property
    def created(self) -> launch.Created:
        assert isinstance(self.status, launch.Created), self.status
        return self.status

    @property
    def failed(self) -> launch.Failed:
        assert isinstance(self.status, launch.Failed), self.status
        return self.status

    def runtime_command(self, *words: str) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run([*self.runtime, *words], capture_output=True, timeout=LIMIT_SECONDS)

    def start(self) -> None:
        """runtime start. A container that ends at once may be deleted by its shim before start has returned: then start
        fails although it has done its work, and the record says so."""
        done = self.runtime_command("start", self.id)
        assert done.returncode == 0 or self.record(), done

    def ended(self, seconds: float = LIMIT_SECONDS) -> bool:
        """Waits for init's end by the pidfd that came with `created`."""
        return wait_readable(self.created.pidfd, seconds)

    def kill_shim(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.shim_pidfd, signal.SIGKILL)
        assert wait_readable(self.shim_pidfd)

    def record(self) -> record.Record | None:
        return record.parse(os.pread(self.record_fd, record.RECORD_BYTES, 0))

    def fifo(self) -> bytes | None:
        try:
            return os.read(self.fifo_fd, 64) or None  # empty: nobody has it open
        except BlockingIOError:
            return None

    def log(self) -> str:
        path = self.directory / "log"
        return path.read_text() if path.exists() else ""

    def wait_output(self) -> None:
        """Returns when there is something in the log: the shim is in its loop, then."""
        for _ in range(int(LIMIT_SECONDS * 200)):
            if self.log() or self.ended(0.005):
                return
        raise TimeoutError("no output")

    def output(self, stream: str = "stdout") -> bytes:
        """The container's output, put together from its log."""
        lines = (self.directory / "log").read_bytes().split(b"\n")[:-1]
        parts = [line.split(b" ", 3) for line in lines]
        return b"".join(p[3] + (b"\n" if p[2] == b"F" else b"") for p in parts if p[1] == stream.encode())

    def clean(self) -> None:
        """What the daemon does after an exit, or after a create that failed."""
        if self.shim_pidfd >= 0 and not wait_readable(self.shim_pidfd, 3):
            self.kill_shim()
        self.runtime_command("delete", "--force", self.id)
        for fd in (self.record_fd, self.fifo_fd, self.shim_pidfd, getattr(self.status, "pidfd", -1)):
            if fd >= 0:
                os.close(fd)
        shutil.rmtree(self.directory.parent)


class Keeper:
    """exitd-keeper on a state directory of its own. `tracer` words go before the program."""

    def __init__(self, state: pathlib.Path, tracer: tuple[str, ...] = (), stay: bool = True) -> None:
        self.state = state
        self.state.mkdir(mode=0o700, exist_ok=True)
        command = [*tracer, str(programs.find("exitd-keeper")), "--state", str(state), *(["--stay"] if stay else [])]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
        self.socket: socket.socket | None = None

    def connect(self) -> bool:
        """False when the keeper has died before it answered. One that goes into the background listens by then."""
        pidfd = os.pidfd_open(self.process.pid)
        try:
            while not wait_readable(pidfd, 0.002):
                if self.greet():
                    return True
            return self.process.wait() == 0 and self.greet()
        finally:
            os.close(pidfd)

    def greet(self) -> bool:
        try:
            self.socket = launch.connect(str(self.state))
            launch.ask(self.socket, fields.encode("exitd-hello", []), [])
        except (FileNotFoundError, ConnectionError):
            return False
        return True

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def ask(self, kind: str, *pairs: tuple[str, str | int]) -> fields.Message:
        assert self.socket is not None
        return launch.ask(self.socket, fields.encode(kind, pairs), [])[0]

    def run_directory(self, id: str, runtime: str = "runc") -> Run:
        """The directory of a run and the descriptors the daemon keeps of it, nothing started yet."""
        directory = self.state / "c" / id / "1"
        directory.mkdir(parents=True, mode=0o700)
        os.mkfifo(directory / "exit_fifo", 0o600)
        fifo_fd = os.open(directory / "exit_fifo", os.O_RDONLY | os.O_NONBLOCK)
        record_fd = os.open(directory / "exit.json", os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        os.posix_fallocate(record_fd, 0, record.RECORD_BYTES)
        (directory / "lock").touch(mode=0o600)
        program = shutil.which(runtime) or runtime
        return Run(id, directory, record_fd, fifo_fd, (program, "--root", f"{directory}/rt"))

    def make(
        self,
        id: str,
        bundle: pathlib.Path,
        *,
        shim: str = "",
        log: bool = True,
        oom: str = "",
        memcg: str = "",
        create: str = "",
        create_ms: int = 10_000,
        drain_ms: int = 2_000,
        rest_ms: int = 0,
        log_path: str = "",
        runtime: str = "runc",
        joins: Sequence[tuple[str, int]] = (),
    ) -> Run:
        """Everything up to the shim's answer. ConnectionError or TimeoutError when the keeper dies meanwhile; then the
        run is in `self.last`. `create`: what to call instead of the runtime to create; `joins`: links, namespaces."""
        run = self.last = self.run_directory(id, runtime)
        logging = ("--log", f"{run.directory}/runtime.log", "--log-format", "json")
        command = (*logging, "create", "--bundle", str(bundle), "--pid-file", f"{run.directory}/pid", id)
        wanted = plan.Plan(
            id=id,
            run=1,
            create=(create or run.runtime[0], *run.runtime[1:], *command),
            remove=(*run.runtime, "delete", "--force", id),
            pid_file=f"{run.directory}/pid",
            runtime_log=f"{run.directory}/runtime.log",
            log=log_path or (f"{run.directory}/log" if log else ""),
            oom=oom,
            memcg=memcg,
            join=tuple(path for path, _ in joins),
            keeper=f"{self.state}/{launch.SOCKET_NAME}",
            create_ms=create_ms,
            drain_ms=drain_ms,
            rest_ms=rest_ms,
        )
        (run.directory / "plan").write_bytes(plan.encode(wanted))
        self.spawn(run, shim or str(programs.find("exitd-shim")), adopt=False, joins=[fd for _, fd in joins])
        return run

    def spawn(self, run: Run, program: str, *, adopt: bool, joins: Sequence[int] = ()) -> None:
        """Has the keeper start a shim and waits for its status, even when the keeper dies before it has answered."""
        assert self.socket is not None
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        pipes = [] if adopt else [*os.pipe(), *os.pipe()]
        order = [pipes[0], pipes[2], pipes[1], pipes[3]] if pipes else []
        request = launch.spawn_request(run.id, 1, "", str(run.directory), program, adopt=adopt)
        try:
            answer, descriptors = launch.ask(self.socket, request, [theirs.fileno(), *order, *joins])
            if run.shim_pidfd >= 0:
                os.close(run.shim_pidfd)
            run.shim_pidfd, run.shim_pid = descriptors[0], answer.number("pid")
        finally:
            for fd in pipes:
                os.close(fd)
            theirs.close()
            ours.settimeout(LIMIT_SECONDS)
            try:
                data, passed = launch.receive(ours)
            except ConnectionResetError:
                data, passed = b"", []
            status = launch.parse_status(data, passed) if data else None
            if adopt and isinstance(status, launch.Created) and status.pidfd >= 0:
                os.close(status.pidfd)
            if not adopt:
                run.status = status
            ours.close()

    def entries(self) -> list[record.Record]:
        return [
            entry for path in self.state.glob("keeper-*.journal") for entry in journal.read(path.read_bytes()).entries
        ]

    def settle(self) -> None:
        """Returns when the keeper has done whatever was there to do before: it looks at its children first."""
        self.ask("exitd-list", ("at", 999_999))

    def acknowledge(self, id: str) -> None:
        assert self.socket is not None
        launch.ask(self.socket, fields.encode("exitd-ack", launch.key(id, 1)), [])

    def close(self) -> None:
        if self.socket is not None:
            self.socket.close()
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(LIMIT_SECONDS)


@dataclass(frozen=True)
class Node:
    """A scratch directory, a cgroup, and the keeper that a test works with."""

    directory: pathlib.Path
    cgroup: str

    @property
    def state(self) -> pathlib.Path:
        return self.directory / "s"

    def keeper(self, *tracer: str, stay: bool = True) -> Keeper:
        """A keeper that answers."""
        keeper = Keeper(self.state, tracer, stay)
        assert keeper.connect()
        return keeper

    def bundle(self, *args: str, host_pids: bool = False) -> pathlib.Path:
        name = f"bundle{next(NUMBERS)}"
        return tinyroot.bundle(self.directory / name, list(args), self.cgroup, host_pids)

    def script(self, text: str) -> str:
        """An executable shell script."""
        path = self.directory / f"script{next(NUMBERS)}"
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
        return str(path)

    def traced_shim(self, *strace_words: str) -> str:
        """exitd-shim under strace. The tracer is no ancestor (-DDD): parents, children and pids are as without it."""
        words = " ".join(strace_words)
        return self.script(f'exec strace -DDD {words} {programs.find("exitd-shim")} "$@"')


@contextlib.contextmanager
def node() -> Iterator[Node]:
    """A place for one test, which must leave no process and no cgroup behind and no descriptor open."""
    before = open_files()
    # Not pytest's own directory: the path of a unix socket has 107 bytes.
    directory = pathlib.Path(tempfile.mkdtemp(prefix="exitd-"))
    made = Node(directory, f"/exitd-test-{directory.name}")  # no parent, which another node would remove
    try:
        yield made
        assert left_of(made.state) == []
        assert cgroup_directories(made.cgroup) == []
        # Fewer are no harm: what another test's gRPC closes, it closes later, in a thread of its own. Nor is another
        # number: a living gRPC exchanges its eventfd for a new one whenever this process forks.
        opened = Counter(open_files().values()) - Counter(before.values())
        assert not opened, opened  # said, since pytest explains the assertions of test files only
    finally:
        for line in processes_of(made.state):
            end_process(int(line.partition(":")[0]))
        empty_cgroup(made.cgroup)
        shutil.rmtree(directory)
