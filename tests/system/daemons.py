"""A real exitd in directories of its own, and the count of everything it could leave behind."""

import contextlib
import glob
import os
import pathlib
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import grpc

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.api.client import Client, Unreachable
from supervisor.api.rpc import Stub
from supervisor.api.sockets import name_before
from supervisor.model.errors import NoSuchContainer
from supervisor.model.values import Source
from tests.system.processes import commands, cwd_of, descriptors_of, links_of, processes_of, zombies_of
from tests.system.waits import LIMIT_SECONDS, until
from tests.system.warm import Forked

START_SECONDS = 120.0  # of a program that loads everything first
WARM_SECONDS = 3.0
OURS = (sys.executable, "-m", "supervisor")  # this tree's exitd
# `make rig` has the tests over gRPC.
OVER_TTRPC = os.environ.get("EXITD_TEST_TRANSPORT", "ttrpc") != "grpc"
APART = ("--default-network", "none")  # nothing of this machine's network is touched, even where CNI is configured


@dataclass
class Daemon:
    """exitd as a child process. `wrapper` words go before the program (strace, setpriv, ...).

    It is forked from one that is loaded, see warm, but for a wrapper, where the start itself is looked at (`wait` is
    false), its memory (`forked` is), or where the `program` is another version's. Only a forked one can have other
    `limits`: for tests that would wait for a limit to pass.
    """

    base: pathlib.Path
    wrapper: tuple[str, ...] = ()
    extra: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)  # besides the test's own
    forked: bool = True
    limits: Mapping[str, float] = field(default_factory=dict)  # of the program, by `module.NAME`
    program: tuple[str, ...] = OURS
    grpc: bool = not OVER_TTRPC  # what its clients speak
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

    @property
    def over_ttrpc(self) -> bool:
        """Whether `client` is, as exitctl: a daemon whose tests need no gRPC does not begin it, which is an eighth of
        their processor time."""
        return not self.grpc and self.program == OURS

    def start(self, *, wait: bool = True) -> "Daemon":
        apart = APART if self.program == OURS else ()
        words = ("--root", str(self.root), "--state", str(self.state), "--log-format", "json", "--debug", *apart)
        words = (*words, *asked(), *self.extra)  # whose words override
        environment = {**os.environ, **self.environment}
        with self.log.open("ab") as log, open(os.devnull, "rb") as nothing:
            if self.forked and wait and not self.wrapper and self.program == OURS:
                stdio = (nothing.fileno(), log.fileno(), log.fileno())
                self.process = Forked("exitd", self.program, words, stdio, environment, self.limits)
            else:
                assert not self.limits, "only a forked one can have others"
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
        """Next to nothing to ask, and a start is asked for dozens of times; a client is thousands of objects.

        Over gRPC, that listens itself: the line of a client that came before is handed over, by two more descriptors,
        which its process uses again for the next client.
        """
        with socket.socket(socket.AF_UNIX) as line:
            if line.connect_ex(f"{self.state}/exitd.{'ttrpc' if self.over_ttrpc else 'sock'}") != 0:
                return False
            grpc_itself = bool(line.getpeername() == name_before(f"{self.state}/exitd.sock"))
            return grpc_itself or self.over_ttrpc or self.program != OURS

    def client(self) -> Client:
        return Client(f"{self.state}/exitd.sock", f"{self.state}/exitd.ttrpc" if self.over_ttrpc else None)

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
        process = self.process  # another test thread may start the next one while this waits
        assert process is not None
        process.send_signal(number)
        process.wait(LIMIT_SECONDS)

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


def asked() -> list[str]:
    """Options of exitd that a whole run is made with, from EXITD_TEST_OPTIONS: another cgroup driver, say."""
    return shlex.split(os.environ.get("EXITD_TEST_OPTIONS", ""))


def remove_all(client: Client) -> None:
    """A pod takes its members with it."""
    for container in client.list(all_of_them=True):
        with contextlib.suppress(NoSuchContainer):
            client.remove(container.id, force=True)


def warm_up(client: Client) -> None:
    """One container's life: what the daemon opens once for all (keeper line, database reader) is open after it, and
    what it has opened for this one is closed: the last reference to its overlay, a detached mount whose path is /, is
    let go of by another thread after the removal is answered."""
    container = client.create(spec("true")).id
    waiting = client.begin_wait(container)
    client.start(container)
    waiting.result(LIMIT_SECONDS)
    client.remove(container, force=False)
    info = client.info()
    if (
        info.state.encode() in pathlib.Path(f"/proc/{info.pid}/cmdline").read_bytes()
    ):  # not in a pid namespace of its own
        until(lambda: has_probed(client), "exitd does not know its sources of evidence")
        until(lambda: "/" not in links_of(info.pid), "the overlay is held")


def has_probed(client: Client) -> bool:
    """Whether exitd has tried every source of evidence, with whatever result. It does so after its start, and has
    descriptors and a child for it."""
    return Source.PROCEVENTS in client.info().evidence  # the last one; they are reported together


def spec(*args: str, **fields: object) -> pb.ContainerSpec:
    """A container on an overlay of the host's root."""
    fields.setdefault("rootfs", "/")
    return pb.ContainerSpec(args=args, **fields)  # type: ignore[arg-type]


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
    """Looked at by every test, again and again: all processes once, and each name of a cgroup once, in however many
    hierarchies it is."""
    base, log = str(daemon.base), daemon.log.read_text()
    keeper, shims = f"--state\0{daemon.state}\0".encode(), 0
    parents = {daemon.pid}
    for pid, command in commands():
        shims += command.startswith(b"exitd-shim\0") and cwd_of(pid).startswith(base)
        if keeper in command and b"exitd-keeper" in command.split(b"\0")[0]:
            parents.add(pid)
    names = Counter(name for _, name in _cgroups())
    return Left(
        shims=shims,
        zombies=len(zombies_of(parents)),
        mounts=pathlib.Path("/proc/self/mountinfo").read_text().count(f" {base}/"),
        # Other daemons' containers are not in its log.
        cgroups=sum(count for name, count in names.items() if _id_of(name) in log),
        run_directories=len(glob.glob(f"{daemon.state}/c/*/*")),
        bundles=len(list((daemon.root / "c").glob("*"))),
        descriptors=descriptors_of(daemon.pid),
    )


def cgroups() -> list[pathlib.Path]:
    """Of every container and pod of every daemon; others' come and go meanwhile."""
    return [pathlib.Path(directory, name) for directory, name in _cgroups()]


def cgroups_of(ids: Container[str]) -> list[pathlib.Path]:
    """Those of containers and pods with these ids: a path is made of no others'."""
    return [pathlib.Path(directory, name) for directory, name in _cgroups() if _id_of(name) in ids]


def _cgroups() -> Iterator[tuple[str, str]]:
    """Directory and name of each."""
    tops = ["/sys/fs/cgroup", *(f"/sys/fs/cgroup/{name}" for name in _directories("/sys/fs/cgroup"))]
    for parent in (f"{top}/{name}" for top in tops for name in ("exitd", "exitd.slice")):
        for name in _directories(parent):
            yield parent, name
            if name.endswith(".slice") or name.startswith("pod-"):
                yield from ((f"{parent}/{name}", inside) for inside in _directories(f"{parent}/{name}"))


def _directories(path: str) -> list[str]:
    """Names of those in it; none in one that is not there."""
    try:
        with os.scandir(path) as entries:
            return [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:  # it went meanwhile, or in the middle: ENODEV
        return []


def _id_of(name: str) -> str:
    """The container's or the pod's, whichever driver has made the cgroup."""
    return name.removeprefix("pod-").removeprefix("exitd-").removesuffix(".scope").removesuffix(".slice")


@contextlib.contextmanager
def directory() -> Iterator[pathlib.Path]:
    """A short one: the state directory's sockets have little room for their paths."""
    base = pathlib.Path(tempfile.mkdtemp(prefix="exitd-"))
    yield base
    assert str(base) not in pathlib.Path("/proc/self/mountinfo").read_text()
    shutil.rmtree(base)


@contextlib.contextmanager
def daemon(**how: Any) -> Iterator[Daemon]:
    """A daemon of its own for the block, already up; afterwards no process of it may live, and no mount stay."""
    with directory() as base:
        made = Daemon(base, **how)
        try:
            yield made.start()
        finally:
            made.end()
        until(lambda: not processes_of(base), f"still there: {processes_of(base)}")


@contextlib.contextmanager
def stub(daemon: Daemon) -> Iterator[Stub]:
    """The whole API, also what exitctl has no use for, for the block."""
    with grpc.insecure_channel(f"unix:{daemon.state}/exitd.sock") as channel:
        grpc.channel_ready_future(channel).result(LIMIT_SECONDS)  # ttrpc answers a little earlier
        yield Stub(channel)
