"""Everything that iSulad's daemon does around one container, without iSulad: facts of its contract, call by call."""

import contextlib
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from shim import native, record
from tests.system import keepers, tinyroot
from tests.system.processes import cgroup_directories, empty_cgroup, end_process, open_files, processes_of
from tests.system.waits import LIMIT_SECONDS, wait_readable

# As the daemon forks: a session of its own, all descriptors but three closed, those on /dev/null, the shim found on
# PATH; the middle process leaves the shim's pid in `shim-pid` and ends.
DOUBLE_FORK = """
import os, sys
pid = os.fork()
if pid:
    with open(os.open("shim-pid", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o640), "w") as file:
        file.write(str(pid))
    os._exit(0)
os.setsid()
os.closerange(3, 1024)
os.execvp("isulad-shim", ["isulad-shim", *sys.argv[1:]])
"""


@dataclass
class Daemon:
    """The part of iSulad's daemon that has to do with shims. Its log fifo is made and held open, as it does."""

    base: pathlib.Path
    cgroup: str
    log_fd: int = -1
    shims: list["Shim"] = field(default_factory=list)

    def __post_init__(self) -> None:
        os.mkfifo(self.log_fifo, 0o600)
        self.log_fd = os.open(self.log_fifo, os.O_RDONLY | os.O_NONBLOCK)
        (self.base / "bin").mkdir()
        program = self.base / "bin" / "isulad-shim"
        program.write_text(f'#!/bin/sh\nexec {sys.executable} -Im shim "$@"\n')
        program.chmod(0o755)

    @property
    def log_fifo(self) -> pathlib.Path:
        return self.base / "isulad_log_gather_fifo"

    def environment(self, **changed: str | None) -> dict[str, str]:
        found = {
            **os.environ,
            "PATH": f"{self.base}/bin:{os.environ['PATH']}",
            "ISULAD_SHIIM_LOG_PATH": f"fifo:{self.log_fifo}",
            "ISULAD_SHIIM_LOG_LEVEL": "INFO",
            **changed,
        }
        return {name: value for name, value in found.items() if value is not None}

    def said(self) -> str:
        """What shims had to say to the daemon since it was last read."""
        try:
            return os.read(self.log_fd, 65536).decode()
        except BlockingIOError:
            return ""

    def container(self, id: str, *args: str, host_pids: bool = False, **changed: Any) -> "Shim":
        """A bundle and a state directory with everything the daemon puts there, in its order; no shim yet."""
        bundle = tinyroot.bundle(self.base / "engines" / id, list(args), self.cgroup, host_pids)
        state = self.base / "state" / id
        state.mkdir(parents=True, mode=0o700)
        os.mknod(state / "exit_fifo", 0o600 | 0o010000)
        fifo_fd = os.open(state / "exit_fifo", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        config = json.loads((bundle / "config.json").read_text())
        config["process"]["terminal"] = changed.get("terminal", False)
        (bundle / "config.json").write_text(json.dumps(config))
        document = {
            **config["process"],
            "exit_fifo": str(state / "exit_fifo"),
            "attach_socket": str(state / "attach.sock"),
            "open_stdin": False,
            "runtime": "runc",
            "logPath": str(bundle / "console.log"),
            **changed,
        }
        (state / "process.json").write_text(json.dumps(document))
        made = Shim(self, id, state, bundle, fifo_fd)
        self.shims.append(made)
        return made


@dataclass
class Shim:
    """One container, from the daemon's side."""

    daemon: Daemon
    id: str
    state: pathlib.Path
    bundle: pathlib.Path
    fifo_fd: int
    pid: int = 0
    pidfd: int = -1
    exit_code: int | None = None

    def create(self, runtime: str = "runc", **environment: str | None) -> "Shim":
        """By a double fork, its pid in `shim-pid`; returns when the middle process has ended, as the daemon does."""
        subprocess.run(
            [sys.executable, "-Ic", DOUBLE_FORK, self.id, str(self.bundle), runtime, "info"],
            cwd=self.state,
            env=self.daemon.environment(**environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=True,
            timeout=LIMIT_SECONDS,
        )
        self.pid = int((self.state / "shim-pid").read_text())
        self.pidfd = os.pidfd_open(self.pid)
        return self

    def created(self) -> int:
        """init's pid, once the runtime has written it; the daemon looks as long as the shim lives."""
        while not wait_readable(self.pidfd, 0.005):
            with contextlib.suppress(FileNotFoundError, ValueError):
                return int((self.state / "pid").read_text())
        raise AssertionError(f"the shim has ended: {self.ended()}, {self.words()}")

    def runtime(self, *words: str) -> "subprocess.CompletedProcess[str]":
        command = ["runc", "--root", str(self.state / "runc"), *words]
        return subprocess.run(command, cwd=self.state, capture_output=True, text=True, timeout=LIMIT_SECONDS)

    def start(self) -> None:
        self.created()
        # The runtime's create has returned when the shim lives and the pid is there and its state says so.
        while self.state_word() == "creating":
            assert not wait_readable(self.pidfd, 0.005), self.words()
        done = self.runtime("start", self.id)
        # A container that ends at once may be deleted before its start has returned: the record says that it ran.
        assert done.returncode == 0 or self.record(), done

    def state_word(self) -> str:
        done = self.runtime("state", self.id)
        return str(json.loads(done.stdout)["status"]) if done.returncode == 0 else "creating"

    def told(self, seconds: float = LIMIT_SECONDS) -> int | None:
        """The four bytes, as a C int; None when the fifo was hung up without any."""
        assert wait_readable(self.fifo_fd, seconds), f"{self.id}: nothing in {seconds} s"
        data = os.read(self.fifo_fd, 64)
        assert len(data) in (0, 4)
        return int.from_bytes(data, sys.byteorder, signed=True) if data else None

    def ended(self) -> int:
        """The shim's own exit status; waits for it."""
        if self.exit_code is None:
            assert wait_readable(self.pidfd), "the shim does not end"
            self.exit_code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self.exit_code

    def change(self, **changed: Any) -> None:
        """Fields of process.json, before the shim is there."""
        path = self.state / "process.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **changed}))

    def record(self) -> record.Record | None:
        return record.parse((self.state / "exit.json").read_bytes())

    def output(self) -> str:
        """The container's output, put together from its log."""
        return "".join(json.loads(line)["log"] for line in (self.bundle / "console.log").read_text().splitlines())

    def words(self) -> str:
        path = self.state / "log.json"
        return path.read_text() if path.exists() else ""

    def signal(self, number: int) -> None:
        fd = os.pidfd_open(int((self.state / "pid").read_text()))
        signal.pidfd_send_signal(fd, number)
        os.close(fd)

    def close(self) -> None:
        os.close(self.fifo_fd)
        if self.pidfd >= 0:
            if not wait_readable(self.pidfd, 3):
                end_process(self.pid)
            self.ended()
            os.close(self.pidfd)


@contextlib.contextmanager
def daemon() -> Iterator[Daemon]:
    """For one test, whose shims must leave no process, no cgroup and no descriptor. The test's process is the nearest
    subreaper, so that a shim's exit status can be had."""
    before = open_files()
    base = pathlib.Path(tempfile.mkdtemp(prefix="exitd-"))
    native.set_subreaper(True)
    made = Daemon(base, f"/exitd-test-{base.name}")
    try:
        yield made
        for shim in made.shims:
            shim.close()
        os.close(made.log_fd)
        assert keepers.left_of(base) == []
        assert cgroup_directories(made.cgroup) == []
        assert {fd: link for fd, link in open_files().items() if before.get(fd) != link} == {}
    finally:
        for line in processes_of(base):
            end_process(int(line.partition(":")[0]))
        empty_cgroup(made.cgroup)
        native.set_subreaper(False)
        shutil.rmtree(base)


NAMES = ("in", "out", "err")


class Client:
    """Three fifos, and the daemon's ends of them: it opens its own first."""

    def __init__(self, directory: pathlib.Path) -> None:
        directory.mkdir(parents=True)
        self.paths = [directory / name for name in NAMES]
        for path in self.paths:
            os.mkfifo(path, 0o600)
        flags = (os.O_RDWR, os.O_RDONLY | os.O_NONBLOCK, os.O_RDONLY | os.O_NONBLOCK)
        self.fds = {name: os.open(path, how) for name, path, how in zip(NAMES, self.paths, flags, strict=True)}

    def fields(self) -> dict[str, str]:
        """Of process.json."""
        return dict(zip(("isuladStdin", "isuladStdout", "isuladStderr"), map(str, self.paths), strict=True))

    def write(self, data: bytes) -> None:
        while data:
            data = data[os.write(self.fds["in"], data) :]

    def read(self, name: str = "out") -> bytes:
        assert wait_readable(self.fds[name]), f"nothing came to {name}"
        return os.read(self.fds[name], 65536)

    def read_until(self, end: bytes, name: str = "out") -> bytes:
        got = b""
        while end not in got:
            part = self.read(name)
            assert part, got
            got += part
        return got

    def read_to_end(self, name: str = "out") -> bytes:
        return b"".join(iter(lambda: self.read(name), b""))

    def close(self, *names: str) -> None:
        for name in names or tuple(self.fds):
            os.close(self.fds.pop(name))


def attach(box: Shim, message: str) -> int:
    """What the shim answers."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(LIMIT_SECONDS)
        connection.connect(str(box.state / "attach.sock"))
        connection.send(message.encode())
        return int.from_bytes(connection.recv(16), sys.byteorder, signed=True)


def attached(box: Shim, name: str) -> Client:
    client = Client(box.state / "attach" / name)
    assert attach(box, " ".join(map(str, client.paths))) == 0
    return client


@dataclass
class Command:
    """One in a container that runs, with a directory of its own."""

    box: Shim
    directory: pathlib.Path

    def client(self) -> Client:
        made = Client(self.directory / "stdio")
        self.change(**made.fields())
        return made

    def change(self, **changed: Any) -> None:
        path = self.directory / "process.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **changed}))

    def words(self, *timeout: str) -> list[str]:
        return [self.box.id, str(self.box.bundle), "runc", "info", *timeout]

    def begin(self, *timeout: str) -> "subprocess.Popen[bytes]":
        """In the foreground: its code comes on stdout, what is wrong on stderr."""
        return subprocess.Popen(
            ["isulad-shim", *self.words(*timeout)],
            cwd=self.directory,
            env=self.box.daemon.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )

    def outcome(self, *timeout: str) -> tuple[int | None, int, str]:
        return outcome(self.begin(*timeout))

    def detached(self) -> int:
        """The shim's pidfd."""
        command = [sys.executable, "-Ic", DOUBLE_FORK, *self.words()]
        environment = self.box.daemon.environment()
        subprocess.run(command, cwd=self.directory, env=environment, check=True, timeout=LIMIT_SECONDS)
        return os.pidfd_open(int((self.directory / "shim-pid").read_text()))


def outcome(shim: "subprocess.Popen[bytes]") -> tuple[int | None, int, str]:
    """The four bytes as a C int, None when there were none; the shim's exit status; its words."""
    out, err = shim.communicate(timeout=LIMIT_SECONDS)
    assert len(out) in (0, 4)
    return (int.from_bytes(out, sys.byteorder, signed=True) if out else None), shim.returncode, err.decode()


def command(box: Shim, id: str, *args: str, **changed: Any) -> Command:
    """A directory with everything the daemon puts there; no shim yet."""
    directory = box.state / "exec" / id
    directory.mkdir(parents=True, mode=0o700)
    document = {**json.loads((box.bundle / "config.json").read_text())["process"], "args": [*args], "terminal": False}
    document |= {"exec": True, "runtime": "runc", **changed}
    (directory / "process.json").write_text(json.dumps(document))
    return Command(box, directory)
