"""A real containerd of a test's own, asked by ctr; and the count of everything its containers could leave behind."""

import contextlib
import glob
import hashlib
import io
import itertools
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from functools import cache

from tests.supervisor.images.building import Made, docker_archive
from tests.system import images, tinyroot
from tests.system.containerd.events import Recorder
from tests.system.daemons import Daemon
from tests.system.processes import cgroup_pids, cgroups_below, commands, cwd_of, empty_cgroup, end_process
from tests.system.waits import LIMIT_SECONDS, until

RUNC, EXITD = "io.containerd.runc.v2", "io.containerd.exitd.v2"
IMAGE, PAUSE = "docker.io/exitd/small:1", "docker.io/exitd/pause:1"
PROGRAMS = ("sh", "true", "sleep", "cat", "head", "tail", "seq", "id", "stty", "env", "grep")
PROGRAMS_OF_THIS_TREE = pathlib.Path(sys.executable).parent
SOCKETS = pathlib.Path("/run/containerd/s")  # of all containerds of the machine, whatever their state directory
# A relay without a client asks after 30 s whether it is still needed (IDLE_MS in shim/relay/daemon.h): one that was
# never asked for anything, or that exitd did not let go because containerd had not taken its last events in 2 s.
RELAY_SECONDS = 45.0
NEEDLESS = (
    *("snapshotter.v1.aufs", "snapshotter.v1.btrfs", "snapshotter.v1.devmapper", "snapshotter.v1.zfs"),
    *("tracing.processor.v1.otlp", "internal.v1.tracing", "internal.v1.restart"),
)
CRI = """
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{pause}"
stats_collect_period = 1
restrict_oom_score_adj = true
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "{base}/none"
conf_dir = "{base}/none"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "{runc}"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.exitd]
runtime_type = "{exitd}"
"""


@dataclass(frozen=True)
class Left:
    """What one containerd's containers have on this machine right now, by name."""

    processes: tuple[str, ...] = ()
    mounts: tuple[str, ...] = ()
    cgroups: tuple[str, ...] = ()
    sockets: tuple[str, ...] = ()
    fifos: tuple[str, ...] = ()
    bundles: tuple[str, ...] = ()
    rows: tuple[str, ...] = ()  # of exitd: containers, and their run directories

    def without(self, *names: str) -> "Left":
        return Left(**{one.name: getattr(self, one.name) for one in fields(self) if one.name not in names})


NOTHING = Left()


@contextlib.contextmanager
def for_one_test(running: "Containerd") -> "Iterator[Containerd]":
    """Of one that several tests share: whoever was ended in a test that has failed is there again for the next one, and
    no task is."""
    yield running
    running.revive()
    running.clear()


@dataclass(frozen=True)
class Said:
    code: int
    out: str
    err: str


@cache
def archive() -> bytes:
    """Two images, as `ctr images import` takes them."""
    buffer = io.BytesIO()
    with tempfile.TemporaryDirectory() as directory:
        root = tinyroot.make(pathlib.Path(directory), PROGRAMS)
        with tarfile.open(fileobj=buffer, mode="w") as packed:
            packed.add(root, ".")
    small = Made([buffer.getvalue()], {"Cmd": ["/bin/true"], "Env": ["PATH=/bin"]})
    return docker_archive((small, [IMAGE]), (images.small(), [PAUSE]))


@dataclass
class Containerd:
    """containerd as a child process, with directories, socket and namespace of its own.

    `exitd` is the daemon its exitd tasks run under, begun by `with_exitd`; the relay is in `programs`."""

    base: pathlib.Path
    cri: bool = False
    process: subprocess.Popen[bytes] | None = None
    exitd: Daemon | None = None
    programs: pathlib.Path = PROGRAMS_OF_THIS_TREE
    keys: set[str] = field(default_factory=set)  # what a socket could be named by: tasks, groups, pods
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(100))

    @property
    def address(self) -> str:
        return f"{self.base}/sock"

    @property
    def own(self) -> str:
        """The name of what is ours where others have theirs: containerd's rule for names is narrower than mkdtemp's."""
        return self.base.name.replace("_", "0")

    @property
    def namespace(self) -> str:
        return "k8s.io" if self.cri else self.own

    @property
    def cgroup(self) -> str:
        """The parent of all; by containerd's habit where nothing else is asked for."""
        return f"/{self.own}"

    @property
    def log(self) -> pathlib.Path:
        return self.base / "log"

    @property
    def fifos(self) -> pathlib.Path:
        return self.base / "fifo"

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    # -- its life

    def start(self) -> "Containerd":
        """Returns when it answers."""
        (self.base / "config.toml").write_text(self._config())
        # One that was killed in the middle of a fork has a child for a moment that holds its socket.
        pathlib.Path(self.address).unlink(missing_ok=True)
        command = ["containerd", "-c", f"{self.base}/config.toml"]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self._environment()
            )
        until(self._listens, "containerd does not listen")
        self.wanted("version")
        return self

    def kill(self, number: int = signal.SIGKILL) -> None:
        assert self.process is not None
        self.process.send_signal(number)
        self.process.wait(LIMIT_SECONDS)

    def restart(self) -> "Containerd":
        self.kill()
        return self.start()

    def revive(self) -> None:
        """It and its exitd run, whoever was ended."""
        for each in (self, self.exitd):
            if each is not None and (each.process is None or each.process.poll() is not None):
                each.start()

    def with_exitd(self) -> Daemon:
        if self.exitd is None:
            (place := self.base / "e").mkdir()
            self.exitd = Daemon(place).start()
        return self.exitd

    def import_images(self) -> None:
        (self.base / "images.tar").write_bytes(archive())
        self.wanted("images", "import", "--snapshotter", "overlayfs", f"{self.base}/images.tar")

    def end(self) -> None:
        """Every task, container and process gone, nothing mounted, no cgroup; each of it also when another fails."""
        with contextlib.ExitStack() as steps:  # the last one first
            steps.callback(self._sweep)
            if self.exitd is not None:
                steps.callback(self.exitd.end)
                self.exitd = None
            if self.process is not None and self.process.poll() is None:
                steps.callback(self.kill, signal.SIGTERM)
                steps.callback(self.clear)

    def _sweep(self) -> None:
        for pid, _ in self.processes():
            end_process(pid)
        empty_cgroup(self.cgroup)
        now = self.left()
        for mount in sorted(now.mounts, reverse=True):
            subprocess.run(["umount", "--lazy", mount], check=True, timeout=LIMIT_SECONDS)
        for path in now.sockets:
            os.unlink(path)

    def clear(self) -> None:
        """No task and no container, whatever a test has left of them."""
        for id in self.ctr("task", "ls", "-q").out.split():
            self.ctr("task", "rm", "-f", id)
        for id in self.ctr("container", "ls", "-q").out.split():
            self.ctr("container", "rm", id)

    # -- ctr

    def command(self, *words: str) -> list[str]:
        return ["ctr", "--address", self.address, "--namespace", self.namespace, *words]

    def ctr(self, *words: str, stdin: bytes = b"") -> Said:
        done = subprocess.run(self.command(*words), input=stdin, capture_output=True, timeout=LIMIT_SECONDS)
        return Said(done.returncode, done.stdout.decode(), done.stderr.decode())

    def wanted(self, *words: str) -> str:
        """Its output; it must not fail."""
        said = self.ctr(*words)
        assert said.code == 0, f"{words}: {said}"
        return said.out

    def begin(self, *words: str, **ends: int) -> "subprocess.Popen[bytes]":
        """Goes on while the test does something else. `ends` are stdin, stdout, stderr; pipes where none are named."""
        all_ends = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE) | ends
        return subprocess.Popen(self.command(*words), bufsize=0, **all_ends)  # type: ignore[call-overload, no-any-return]

    def box(self, runtime: str, kind: str) -> "Box":
        """A container that is not there yet, with an id that no other has."""
        if runtime == EXITD:
            self.with_exitd()
        id = f"{kind}{next(self._numbers)}"
        self.keys.add(id)
        return Box(self, runtime, id)

    def events(self) -> Recorder:
        return Recorder(self.address, self.namespace)

    # -- the census

    def processes(self) -> Iterator[tuple[int, str]]:
        """All that belong to this containerd but itself, exitd and exitd's keeper."""
        keepers = () if self.exitd is None else (self.exitd.pid, self.exitd.keeper_pid())
        inside = cgroup_pids(self.cgroup)
        for pid, line in commands():
            if pid in keepers or (self.process is not None and pid == self.pid):
                continue
            if pid in inside or f"{self.base}/".encode() in line or cwd_of(pid).startswith(f"{self.base}/"):
                yield pid, line.replace(b"\0", b" ").decode(errors="replace")

    def shims(self, id: str = "") -> list[int]:
        """The processes that serve tasks; only those begun for this one, if named."""
        found = ((pid, text.split()) for pid, text in self.processes())
        # One in the middle of an exec has no words.
        return [pid for pid, words in found if "containerd-shim" in "".join(words[:1]) and (not id or id in words)]

    def left(self) -> Left:
        mounts = re.findall(
            rf"^(?:\S+ ){{4}}({self.base}/\S+)", pathlib.Path("/proc/self/mountinfo").read_text(), flags=re.MULTILINE
        )
        states = [self.base / place / "io.containerd.runtime.v2.task" / self.namespace for place in ("r", "s")]
        return Left(
            processes=tuple(text for _, text in self.processes()),
            mounts=tuple(mounts),
            cgroups=tuple(sorted({str(path).partition(f"{self.cgroup}/")[2] for path in cgroups_below(self.cgroup)})),
            sockets=tuple(path for path in map(self.socket_of, sorted(self.keys)) if os.path.exists(path)),
            # ctr leaves those of detached execs.
            fifos=tuple(
                path
                for path in glob.glob(f"{self.fifos}/*/*-std*")
                if os.path.basename(path).rpartition("-")[0] in self.keys
            ),
            bundles=tuple(str(path) for state in states if state.is_dir() for path in state.iterdir()),
            rows=tuple(self._rows()),
        )

    def socket_of(self, key: str) -> str:
        """Where the shim of a task or group listens."""
        return str(SOCKETS / hashlib.sha256(f"{self.address}/{self.namespace}/{key}".encode()).hexdigest())

    def left_is(self, wanted: Left = NOTHING, *aside: str) -> None:
        """Waits for it: containerd takes a bundle away after it has answered, and a relay may go by itself."""

        def is_it() -> bool:
            return self.left().without(*aside) == wanted.without(*aside)

        try:
            until(is_it, "something is left behind", RELAY_SECONDS)
        except AssertionError:
            lines = (line for line in self.log.read_text().splitlines() if any(key in line for key in self.keys))
            raise AssertionError("\n".join((f"left behind: {self.left()}; containerd:", *lines))) from None

    def descriptors(self) -> int:
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def _rows(self) -> Iterator[str]:
        if self.exitd is not None:
            with self.exitd.client() as client:
                yield from (container.id for container in client.list(all_of_them=True))
            yield from glob.glob(f"{self.exitd.state}/c/*/*")

    def _config(self) -> str:
        disabled = [f"io.containerd.{name}" for name in NEEDLESS]
        disabled += [] if self.cri else ["io.containerd.grpc.v1.cri"]
        text = f'version = 2\nroot = "{self.base}/r"\nstate = "{self.base}/s"\ndisabled_plugins = {disabled}\n'
        text += f'[grpc]\naddress = "{self.address}"\n'
        text += f'[plugins."io.containerd.internal.v1.opt"]\npath = "{self.base}/opt"\n'
        return text + (CRI.format(base=self.base, pause=PAUSE, runc=RUNC, exitd=EXITD) if self.cri else "")

    def _environment(self) -> dict[str, str]:
        """The shims inherit it: our programs first, and the state directory of our exitd."""
        path = f"{self.programs}:{os.environ['PATH']}"
        return {**os.environ, "PATH": path, "EXITD_STATE": f"{self.base}/e/s"}

    def _listens(self) -> bool:
        assert self.process is not None and self.process.poll() is None, self.log.read_text()[-3000:]
        with socket.socket(socket.AF_UNIX) as one, contextlib.suppress(FileNotFoundError, ConnectionRefusedError):
            one.connect(self.address)
            return True
        return False


@dataclass
class Box:
    """One container of one runtime, as ctr sees it."""

    containerd: Containerd
    runtime: str
    id: str

    def another(self) -> "Box":
        return self.containerd.box(self.runtime, "another")

    def words(self, *words: str) -> list[str]:
        """Of `ctr run`: all before `--` are options, the rest is the container's command."""
        at = words.index("--") if "--" in words else len(words)
        options = (
            "--runtime",
            self.runtime,
            *(() if "--log-uri" in words else ("--fifo-dir", str(self.containerd.fifos))),
        )
        return ["run", *options, *words[:at], IMAGE, self.id, *words[at + 1 :]]

    def run(self, *words: str, stdin: bytes = b"") -> Said:
        return self.containerd.ctr(*self.words(*words), stdin=stdin)

    def started(self, *words: str) -> "Box":
        """Detached, its task running."""
        said = self.run("-d", *words)
        assert said == Said(0, "", ""), said
        return self

    def begun(self, *words: str, **ends: int) -> "subprocess.Popen[bytes]":
        return self.containerd.begin(*self.words(*words), **ends)

    def task(self, verb: str, *words: str, stdin: bytes = b"") -> Said:
        """`ctr task VERB OPTIONS ID`."""
        return self.containerd.ctr("task", verb, *words, self.id, stdin=stdin)

    def exec_words(self, exec_id: str, *words: str) -> list[str]:
        """Of `ctr task exec`; options and command as in `words`."""
        at = words.index("--")
        options = () if "--log-uri" in words else ("--fifo-dir", str(self.containerd.fifos))
        return ["task", "exec", *options, "--exec-id", exec_id, *words[:at], self.id, *words[at + 1 :]]

    def exec(self, exec_id: str, *words: str, stdin: bytes = b"") -> Said:
        return self.containerd.ctr(*self.exec_words(exec_id, *words), stdin=stdin)

    def row(self) -> tuple[int, str]:
        """pid and state of the task as `ctr task ls` tells; 0 and nothing without a task."""
        rows = [line.split() for line in self.containerd.wanted("task", "ls").splitlines()]
        return next(((int(row[1]), row[2]) for row in rows if row[0] == self.id), (0, ""))

    @property
    def pid(self) -> int:
        return self.row()[0]

    @property
    def state(self) -> str:
        return self.row()[1]

    def program(self) -> bytes:
        """init's command line: it is the runtime's for a moment after the start."""
        path = pathlib.Path(f"/proc/{self.pid}/cmdline")
        until(lambda: not path.read_bytes().startswith(b"runc"), f"{self.id} is still the runtime")
        return path.read_bytes()

    def until(self, state: str) -> None:
        until(lambda: self.state == state, f"{self.id} is not {state}")

    def end(self) -> Said:
        """The task is killed and both are removed; what the removal of the task said."""
        said = self.task("rm", "-f")
        self.containerd.wanted("container", "rm", self.id)
        return said


@contextlib.contextmanager
def running(*, cri: bool = False, programs: pathlib.Path = PROGRAMS_OF_THIS_TREE) -> Iterator[Containerd]:
    """One that runs and has the images; nothing is left of it."""
    base = pathlib.Path(tempfile.mkdtemp(prefix="exitd-"))
    base.chmod(0o711)  # the root of a user namespace comes through, as it does through /run
    made = Containerd(base, cri=cri, programs=programs)
    made.fifos.mkdir()
    try:
        made.start().import_images()
        yield made
    finally:
        made.end()
        shutil.rmtree(base)
