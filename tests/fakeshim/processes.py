"""The fake shim's processes: real ones on the host, each in a session of its own, with a true status."""

import asyncio
import contextlib
import os
import pathlib
import signal
import stat
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from shim import native

GO_FD = 9  # dash knows descriptors of one digit
# The pid of a container that is created and not started is its init's already.
WAITS = f'read -r go <&{GO_FD} && exec "$@" {GO_FD}<&-'


def reserve() -> None:
    """Nobody else may get that number."""
    null_fd = os.open(os.devnull, os.O_RDONLY)
    if null_fd != GO_FD:
        os.dup2(null_fd, GO_FD, inheritable=False)
        os.close(null_fd)


@dataclass(frozen=True)
class Io:
    stdin: str = ""
    stdout: str = ""
    stderr: str = ""


@dataclass
class Process:
    """One init or exec. `status` is -1 until its end."""

    args: list[str]
    env: dict[str, str]
    cwd: str
    io: Io
    popen: subprocess.Popen[bytes] | None = None
    go_fd: int = -1
    stdin_fd: int = -1
    started: bool = False
    paused: bool = False
    status: int = -1
    at_ns: int = 0
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def pid(self) -> int:
        return self.popen.pid if self.popen is not None else 0

    @property
    def word(self) -> str:
        if self.status >= 0:
            return "STOPPED"
        if not self.started:
            return "CREATED"
        return "PAUSED" if self.paused else "RUNNING"

    def make(self, bundle: str, on_end: Callable[["Process"], None]) -> None:
        """It is there, and waits for `start`."""
        read_fd, self.go_fd = os.pipe()
        os.dup2(read_fd, GO_FD, inheritable=False)
        os.close(read_fd)
        ends = [self._stdin(), output(self.io.stdout), output(self.io.stderr)]
        try:
            self.popen = subprocess.Popen(
                ["sh", "-c", WAITS, "sh", *self.args],
                stdin=ends[0],
                stdout=ends[1],
                stderr=ends[2],
                env=self.env,
                cwd=self.cwd,
                pass_fds=(GO_FD,),
                start_new_session=True,
            )
        finally:
            for fd in ends:
                os.close(fd)
            reserve()
        with pathlib.Path(bundle, "begun").open("a") as file:
            file.write(f"{self.pid} {native.process_stat(self.pid)[2]}\n")
        self._watch(on_end)

    def start(self) -> None:
        self.started = True
        with contextlib.suppress(BrokenPipeError):  # it has been killed meanwhile
            os.write(self.go_fd, b"go\n")
        os.close(self.go_fd)
        self.go_fd = -1

    def signal(self, number: int, *, everyone: bool) -> None:
        assert self.popen is not None
        with contextlib.suppress(ProcessLookupError):
            if everyone:
                os.killpg(self.pid, number)
            else:
                self.popen.send_signal(number)
            if number == signal.SIGKILL:
                os.killpg(self.pid, signal.SIGCONT)

    def pause(self, *, is_paused: bool) -> None:
        self.paused = is_paused
        os.killpg(self.pid, signal.SIGSTOP if is_paused else signal.SIGCONT)

    def close_stdin(self) -> None:
        if self.stdin_fd >= 0:
            os.close(self.stdin_fd)
            self.stdin_fd = -1

    def forget(self) -> None:
        self.close_stdin()
        if self.go_fd >= 0:
            os.close(self.go_fd)
            self.go_fd = -1

    def _stdin(self) -> int:
        """Held open by the shim too, until it is told to close it."""
        if not self.io.stdin:
            return os.open(os.devnull, os.O_RDONLY)
        fd = os.open(self.io.stdin, os.O_RDONLY | os.O_NONBLOCK)
        self.stdin_fd = os.open(self.io.stdin, os.O_WRONLY | os.O_NONBLOCK)
        os.set_blocking(fd, True)
        return fd

    def _watch(self, on_end: Callable[["Process"], None]) -> None:
        loop, pidfd = asyncio.get_running_loop(), os.pidfd_open(self.pid)

        def ended() -> None:
            assert self.popen is not None
            loop.remove_reader(pidfd)
            os.close(pidfd)
            code = self.popen.wait()
            self.at_ns = time.time_ns()
            self.status = code if code >= 0 else 128 - code
            on_end(self)

        loop.add_reader(pidfd, ended)


def output(path: str) -> int:
    """A fifo is opened for reading too: that waits for nobody."""
    path = path.removeprefix("fifo://").removeprefix("file://")
    if not path:
        return os.open(os.devnull, os.O_WRONLY)
    is_fifo = os.path.exists(path) and stat.S_ISFIFO(os.stat(path).st_mode)
    return os.open(path, os.O_RDWR if is_fifo else os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
