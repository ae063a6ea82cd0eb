"""A real exitd in directories of its own, and the count of everything it could leave behind."""

import contextlib
import glob
import os
import pathlib
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from protos.exitd.v1 import exitd_pb2 as pb
from shim import native
from supervisor.api.client import Client, Unreachable
from supervisor.model.errors import NoSuchContainer
from tests.system.warm import Forked

LIMIT_SECONDS = 30.0
START_SECONDS = 120.0  # of a program that loads everything first
WARM_SECONDS = 3.0
OURS = (sys.executable, "-m", "supervisor")  # this tree's exitd
SCALE = float(os.environ.get("EXITD_SCALE", "0.02"))


def scaled(count: int, least: int = 20) -> int:
    """A count above 200, by EXITD_SCALE."""
    return max(least, int(count * SCALE))


T = TypeVar("T")


def until(look: Callable[[], T], what: str, seconds: float = LIMIT_SECONDS) -> T:
    """The first true answer of `look`; asked again after milliseconds, then less often: it costs those who are waited
    for their processor. Never longer than `seconds`."""
    deadline, pause = time.monotonic() + seconds, 0.005
    while not (answer := look()):
        assert time.monotonic() < deadline, f"{what}: not within {seconds} s"
        select.select([], [], [], pause)
        pause = min(pause * 1.3, 0.02)
    return answer


@dataclass
class Daemon:
    """exitd as a child process. `wrapper` words go before the program (strace, setpriv, ...).

    It is forked from one that is loaded, see warm, but for a wrapper, where the start itself is looked at (`wait` is
    false), its memory (`forked` is), or where the `program` is another version's.
    """

    base: pathlib.Path
    wrapper: tuple[str, ...] = ()
    extra: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)  # besides the test's own
    forked: bool = True
    program: tuple[str, ...] = OURS
    process: subprocess.Popen[bytes] | Forked | None = None
    warmed: tuple[int, float] = (0, 0.0)  # which process, and when

    @property
    def state(self) -> pathlib.Path:
        return self.base / "s"

    @property
    def root(self) -> pathlib.Path:
        return self.base / "r"

    @property
    def log(self) -> pathlib.Path:
        return self.base / "exitd.log"

    def start(self, *, wait: bool = True) -> "Daemon":
        words = ("--root", str(self.root), "--state", str(self.state), "--log-format", "json", "--debug", *self.extra)
        environment = {**os.environ, **self.environment}
        with self.log.open("ab") as log, open(os.devnull, "rb") as nothing:
            if self.forked and wait and not self.wrapper and self.program == OURS:
                stdio = (nothing.fileno(), log.fileno(), log.fileno())
                self.process = Forked("exitd", self.program, words, stdio, environment)
            else:
                command = (*self.wrapper, *self.program, *words)
                self.process = subprocess.Popen(command, stdin=nothing, stdout=log, stderr=log, env=environment)
        if wait:
            until(self.answers, "exitd does not answer", START_SECONDS)
        return self

    def answers(self) -> bool:
        assert self.process is not None and self.process.poll() is None, self.log.read_text()[-3000:]
        if not self._listens():
            return False
        try:
            with self.client() as client:
                client.version()
        except Unreachable:
            return False
        return True

    def _listens(self) -> bool:
        """Next to nothing to ask, and a start is asked for dozens of times; a client is thousands of objects."""
        with socket.socket(socket.AF_UNIX) as line:
            return line.connect_ex(f"{self.state}/exitd.sock") == 0

    def client(self) -> Client:
        return Client(f"{self.state}/exitd.sock")

    def warm(self, client: Client) -> None:
        """Connected, and `warm_up` where it was not a moment ago: a keeper with nothing to keep ends after 10 s."""
        if self.warmed[0] != self.pid or time.monotonic() - self.warmed[1] > WARM_SECONDS:
            warm_up(client)
            self.warmed = self.pid, time.monotonic()
        client.version()

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def kill(self, number: int = signal.SIGKILL) -> None:
        assert self.process is not None
        self.process.send_signal(number)
        self.process.wait(LIMIT_SECONDS)

    def restart(self) -> "Daemon":
        self.kill()
        return self.start()

    def keeper_pid(self) -> int:
        """Of the keeper that serves this state directory; 0 without one."""
        wanted = f"--state\0{self.state}\0".encode()
        for pid, command in commands():
            if b"exitd-keeper" in command.split(b"\0")[0] and wanted in command:
                return pid
        return 0

    def end(self) -> None:
        """Every container removed, daemon and keeper gone, nothing mounted."""
        with contextlib.suppress(Unreachable), self.client() as client:
            remove_all(client)
        if self.process is not None and self.process.poll() is None:
            self.kill(signal.SIGTERM)
        keeper = self.keeper_pid()
        if keeper:
            os.kill(keeper, signal.SIGKILL)


def remove_all(client: Client) -> None:
    """A pod takes its members with it."""
    for container in client.list(all_of_them=True):
        with contextlib.suppress(NoSuchContainer):
            client.remove(container.id, force=True)


def warm_up(client: Client) -> None:
    """One container's life: what the daemon opens once for all (keeper line, database reader) is open after it."""
    container = client.create(spec("true")).id
    waiting = client.begin_wait(container)
    client.start(container)
    waiting.result(LIMIT_SECONDS)
    client.remove(container, force=False)


def spec(*args: str, **fields: object) -> pb.ContainerSpec:
    """A container on an overlay of the host's root."""
    fields.setdefault("rootfs", "/")
    return pb.ContainerSpec(args=args, **fields)  # type: ignore[arg-type]


def commands() -> Iterator[tuple[int, bytes]]:
    """pid and command line of every process."""
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError):
                yield int(name), pathlib.Path(f"/proc/{name}/cmdline").read_bytes()


@dataclass(frozen=True)
class Left:
    """What one daemon's containers have on this machine right now."""

    shims: int
    zombies: int
    mounts: int
    cgroups: int
    run_directories: int
    bundles: int
    descriptors: int  # of the daemon


NOTHING = Left(0, 0, 0, 0, 0, 0, 0)


def left(daemon: Daemon) -> Left:
    base, log = str(daemon.base), daemon.log.read_text()
    return Left(
        shims=sum(command.startswith(b"exitd-shim\0") and cwd_of(pid).startswith(base) for pid, command in commands()),
        zombies=len(zombies_of({daemon.pid, daemon.keeper_pid()})),
        mounts=pathlib.Path("/proc/self/mountinfo").read_text().count(f" {base}/"),
        # Other daemons' containers are not in its log.
        cgroups=sum(path.name.removeprefix("pod-") in log for path in cgroups()),
        run_directories=len(list((daemon.state / "c").glob("*/*"))),
        bundles=len(list((daemon.root / "c").glob("*"))),
        descriptors=descriptors_of(daemon.pid),
    )


def descriptors_of(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def cgroups() -> list[pathlib.Path]:
    """Of every daemon: others' come and go meanwhile, which glob.glob does not mind and Path.glob does."""
    found = (path for word in ("*/exitd/*", "*/exitd/pod-*/*") for path in glob.glob(f"/sys/fs/cgroup/{word}"))
    return [pathlib.Path(path) for path in found if os.path.isdir(path)]


def cwd_of(pid: int) -> str:
    """Empty when it has gone."""
    try:
        return os.readlink(f"/proc/{pid}/cwd")
    except OSError:
        return ""


def private_kb(pid: int) -> int:
    """What it has written and shares with nobody."""
    rollup = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in rollup if line.startswith("Private_Dirty"))


def children_of(pid: int) -> list[int]:
    """Of its first thread, zombies included."""
    return [int(word) for word in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def zombies_of(parents: set[int]) -> list[int]:
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(ProcessLookupError):
            state, parent, _, _ = native.process_stat(int(name))
            found += [int(name)] if state == "Z" and parent in parents else []
    return found
