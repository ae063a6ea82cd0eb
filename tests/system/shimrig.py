"""A keeper, a shim and a real runc without the daemon: what the daemon does to them, call by call, with an oracle."""

import json
import os
import pathlib
import select
import shutil
import signal
import socket
import subprocess
from dataclasses import dataclass, field

from shim import fields, journal, launch, plan, programs, record

LIMIT_SECONDS = 20.0


def busybox_bundle(directory: pathlib.Path, args: list[str], cgroup: str) -> pathlib.Path:
    """A bundle whose root holds a static busybox and nothing else."""
    root = directory / "rootfs"
    (root / "bin").mkdir(parents=True)
    shutil.copy(shutil.which("busybox") or "/bin/busybox", root / "bin" / "busybox")
    for name in ("sh", "true", "sleep", "cat"):
        (root / "bin" / name).symlink_to("busybox")
    subprocess.run(["runc", "spec", "--bundle", str(directory)], check=True, timeout=LIMIT_SECONDS)
    config = json.loads((directory / "config.json").read_text())
    config["process"].update(terminal=False, args=args, env=["PATH=/bin"])
    config["linux"]["cgroupsPath"] = cgroup
    (directory / "config.json").write_text(json.dumps(config))
    return directory


def wait_readable(fd: int, seconds: float = LIMIT_SECONDS) -> bool:
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(seconds * 1000))


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
    closed: list[int] = field(default_factory=list)

    def runtime_command(self, *words: str) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run([*self.runtime, *words], capture_output=True, timeout=LIMIT_SECONDS)

    def record(self) -> record.Record | None:
        return record.parse(os.pread(self.record_fd, record.RECORD_BYTES, 0))

    def fifo(self) -> bytes | None:
        try:
            return os.read(self.fifo_fd, 64)
        except BlockingIOError:
            return None

    def log(self) -> str:
        path = self.directory / "log"
        return path.read_text() if path.exists() else ""

    def clean(self) -> None:
        """What the daemon does after an exit, or after a create that failed."""
        if self.shim_pidfd >= 0:
            if not wait_readable(self.shim_pidfd, 3):
                signal.pidfd_send_signal(self.shim_pidfd, signal.SIGKILL)
                assert wait_readable(self.shim_pidfd)
        self.runtime_command("delete", "--force", self.id)
        for fd in (self.record_fd, self.fifo_fd, self.shim_pidfd, getattr(self.status, "pidfd", -1)):
            if fd >= 0:
                os.close(fd)
        shutil.rmtree(self.directory)


class Keeper:
    """exitd-keeper on a state directory of its own. `tracer` words go before the program."""

    def __init__(self, state: pathlib.Path, tracer: tuple[str, ...] = ()) -> None:
        self.state = state
        self.state.mkdir(mode=0o700, exist_ok=True)
        command = [*tracer, str(programs.find("exitd-keeper")), "--state", str(state), "--stay"]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
        self.socket: socket.socket | None = None

    def connect(self) -> bool:
        """False when the keeper has died before it answered."""
        pidfd = os.pidfd_open(self.process.pid)
        try:
            while not wait_readable(pidfd, 0.002):
                try:
                    self.socket = launch.connect(str(self.state))
                    launch.ask(self.socket, fields.encode("exitd-hello", []), [])
                    return True
                except (FileNotFoundError, ConnectionError):
                    continue
            return False
        finally:
            os.close(pidfd)

    def make(
        self, id: str, bundle: pathlib.Path, *, shim: str = "", log: bool = True, oom: str = "", create: str = ""
    ) -> Run:
        """Everything up to the shim's answer. ConnectionError or TimeoutError when the keeper dies meanwhile."""
        directory = self.state / "c" / id / "1"
        directory.mkdir(parents=True, mode=0o700)
        os.mkfifo(directory / "exit_fifo", 0o600)
        fifo_fd = os.open(directory / "exit_fifo", os.O_RDONLY | os.O_NONBLOCK)
        record_fd = os.open(directory / "exit.json", os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        os.posix_fallocate(record_fd, 0, record.RECORD_BYTES)
        (directory / "lock").touch(mode=0o600)
        runc = create or shutil.which("runc") or "runc"
        runtime = (runc, "--root", f"{directory}/rt", "--log", f"{directory}/runtime.log", "--log-format", "json")
        (directory / "plan").write_bytes(
            plan.encode(
                plan.Plan(
                    id=id,
                    run=1,
                    create=(*runtime, "create", "--bundle", str(bundle), "--pid-file", f"{directory}/pid", id),
                    remove=(*runtime, "delete", "--force", id),
                    log=f"{directory}/log" if log else "",
                    oom=oom,
                    keeper=f"{self.state}/{launch.SOCKET_NAME}",
                    create_ms=10_000,
                )
            )
        )
        run = Run(id, directory, record_fd, fifo_fd, runtime)
        self.spawn(run, shim or str(programs.find("exitd-shim")), adopt=False)
        return run

    def spawn(self, run: Run, program: str, *, adopt: bool) -> None:
        assert self.socket is not None
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        pipes = [] if adopt else [*os.pipe(), *os.pipe()]
        order = [pipes[0], pipes[2], pipes[1], pipes[3]] if pipes else []
        request = launch.spawn_request(run.id, 1, "", str(run.directory), program, adopt=adopt)
        try:
            answer, descriptors = launch.ask(self.socket, request, [theirs.fileno(), *order])
            run.shim_pidfd, run.shim_pid = descriptors[0], answer.number("pid")
            theirs.close()
            ours.settimeout(LIMIT_SECONDS)
            data, passed = launch.receive(ours)
            run.status = launch.parse_status(data, passed) if data else None
        finally:
            for fd in pipes:
                os.close(fd)
            ours.close()
            theirs.close()

    def entries(self) -> list[record.Record]:
        return [
            entry for path in self.state.glob("keeper-*.journal") for entry in journal.read(path.read_bytes()).entries
        ]

    def acknowledge(self, id: str) -> None:
        assert self.socket is not None
        launch.ask(self.socket, fields.encode("exitd-ack", launch.key(id, 1)), [])

    def close(self) -> None:
        if self.socket is not None:
            self.socket.close()
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(LIMIT_SECONDS)
