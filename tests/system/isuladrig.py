"""Everything that iSulad's daemon does around one container, without iSulad: facts of its contract, call by call."""

import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from shim import native, record
from tests.system import shimrig, tinyroot
from tests.system.shimrig import LIMIT_SECONDS, end_process, wait_readable

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
    before = shimrig.open_files()
    base = pathlib.Path(tempfile.mkdtemp(prefix="exitd-"))
    native.set_subreaper(True)
    made = Daemon(base, f"/exitd-test-{base.name}")
    try:
        yield made
        for shim in made.shims:
            shim.close()
        os.close(made.log_fd)
        assert shimrig.left_of(base) == []
        assert shimrig.cgroup_directories(made.cgroup) == []
        assert {fd: link for fd, link in shimrig.open_files().items() if before.get(fd) != link} == {}
    finally:
        for line in shimrig.processes_of(base):
            end_process(int(line.partition(":")[0]))
        shimrig.empty_cgroup(made.cgroup)
        native.set_subreaper(False)
        shutil.rmtree(base)
