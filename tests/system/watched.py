"""Processes and containers that exitd does not run: who ends and who reaps them, and what exitd says of their ends."""

import contextlib
import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field

from protos.exitd.v1 import exitd_pb2 as pb
from shim import native
from supervisor.api.client import Client
from supervisor.monitor import probe
from tests.system import tinyroot
from tests.system.lives import word
from tests.system.processes import empty_cgroup
from tests.system.runtimes import program
from tests.system.waits import LIMIT_SECONDS, until

# Which of the kernel's words has the end of a process whose parent is not exitd's: a pidfd has the code since 6.15.
KERNELS_SOURCE = "pidfd" if probe.kernel() >= (6, 15) else "procevents"
# And where its parent does not reap it: process events come before it is a zombie.
ZOMBIES_SOURCE = "zombie" if KERNELS_SOURCE == "pidfd" else KERNELS_SOURCE

# Says its pid and that of a child, which ends as it is told after a line of input; then reaps it, or never does.
CHILD = "read line; {}"
REAPS = ["bash", "-c", 'bash -c "$0" <&0 & echo $!; wait']
NEVER_REAPS = [
    sys.executable,
    "-Sc",
    """import signal, subprocess, sys
child = subprocess.Popen(["bash", "-c", *sys.argv[1:]])
print(child.pid, flush=True)
signal.pause()""",
]


@dataclass
class Stranger:
    """A process whose parent is not of ours and not of exitd's."""

    pid: int
    parent: "subprocess.Popen[bytes]"
    started_ticks: int = 0  # with the pid, a name: pids come again, and the ledger keeps what was

    def __post_init__(self) -> None:
        self.started_ticks = native.process_stat(self.pid)[2]

    def go(self) -> None:
        """It ends now."""
        assert self.parent.stdin is not None
        self.parent.stdin.write(b"go\n")
        self.parent.stdin.flush()

    def reaped(self) -> None:
        until(lambda: not os.path.exists(f"/proc/{self.pid}"), f"{self.pid} is not reaped")


@contextlib.contextmanager
def stranger(end: str, parents: list[str] = REAPS, cwd: pathlib.Path | None = None) -> Iterator[Stranger]:
    command = [*parents, CHILD.format(end)]
    parent = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=cwd)
    assert parent.stdin is not None and parent.stdout is not None
    try:
        yield Stranger(int(parent.stdout.readline()), parent)
    finally:
        with contextlib.suppress(BrokenPipeError):
            parent.stdin.close()
        parent.kill()
        parent.wait(LIMIT_SECONDS)
        parent.stdout.close()


def zombie(end: str) -> contextlib.AbstractContextManager[Stranger]:
    """One that will be a zombie for as long as the block lasts."""
    return stranger(end, NEVER_REAPS)


@dataclass
class Engine:
    """A runtime used by hand, with a state directory and a parent cgroup of its own. `go` in a script waits to be
    told."""

    name: str
    base: pathlib.Path
    made: list[str] = field(default_factory=list)

    @property
    def root(self) -> pathlib.Path:
        return self.base / "state"

    @property
    def cgroup(self) -> str:
        return f"/exitd/{self.base.parent.name}-{self.base.name}-{self.name}"

    def run(self, id: str, script: str, *, memory_bytes: int = 0) -> None:
        """It runs when this returns, detached. Its parent is whoever reaps the orphans of this machine."""
        bundle = self._bundle(id, ["sh", "-c", f"go() {{ read line </mnt/{id}; }}; {script}"], memory_bytes)
        self.made.append(id)
        self._command("run", "--detach", "--bundle", str(bundle), id)

    def go(self, id: str) -> None:
        fifo = self.base / "mnt" / id
        with contextlib.closing(_Writer(fifo)) as writer:
            writer.write()

    def pid(self, id: str) -> int:
        state = self.root / id / ("status" if self.name == "crun" else "state.json")
        found = json.loads(state.read_text())
        return int(found.get("init_process_pid", found.get("pid")))

    def delete(self, id: str) -> None:
        self._command("delete", "--force", id)
        self.made.remove(id)

    def end(self) -> None:
        for id in list(self.made):
            with contextlib.suppress(subprocess.CalledProcessError):
                self.delete(id)
        empty_cgroup(self.cgroup)

    def _command(self, *words: str) -> None:
        command = [program(self.name, self.base), "--root", str(self.root), *words]
        nothing = subprocess.DEVNULL
        subprocess.run(command, stdin=nothing, stdout=nothing, stderr=nothing, check=True, timeout=LIMIT_SECONDS)

    def _bundle(self, id: str, args: list[str], memory_bytes: int) -> pathlib.Path:
        """All on one root file system."""
        bundle, shared = self.base / "b" / id, self.base / "root"
        bundle.mkdir(parents=True)
        (self.base / "mnt").mkdir(exist_ok=True)
        os.mkfifo(self.base / "mnt" / id)
        if not shared.exists():
            tinyroot.make(shared, (*tinyroot.PROGRAMS, "tail"))
            (shared / "mnt").mkdir()
        subprocess.run(["runc", "spec", "--bundle", str(bundle)], check=True, timeout=LIMIT_SECONDS)
        config = json.loads((bundle / "config.json").read_text())
        config["root"] = {"path": str(shared), "readonly": True}
        config["process"].update(terminal=False, args=args, env=["PATH=/bin"])
        config["linux"]["cgroupsPath"] = f"{self.cgroup}/{id}"
        config["linux"]["resources"]["memory"] = {"limit": memory_bytes} if memory_bytes else {}
        source = str(self.base / "mnt")
        config["mounts"].append({"destination": "/mnt", "type": "bind", "source": source, "options": ["rbind", "rw"]})
        (bundle / "config.json").write_text(json.dumps(config))
        return bundle


def alone_with(root: pathlib.Path) -> tuple[str, ...]:
    """The words before a daemon's for which the machine has one state directory, /run/runc, which is `root`: what other
    tests and this machine run is not found there."""
    script = 'mount -t tmpfs tmpfs /run && mkdir /run/runc && mount --bind "$0" /run/runc && exec "$@"'
    return ("unshare", "--mount", "--propagation", "private", "sh", "-c", script, str(root))


class _Writer:
    """A fifo that somebody reads."""

    def __init__(self, path: pathlib.Path) -> None:
        self._fd = -1
        self._path = path
        until(self._opened, f"nobody reads {path}")

    def _opened(self) -> bool:
        with contextlib.suppress(OSError):  # ENXIO: a fifo without a reader cannot be opened for writing only
            self._fd = os.open(self._path, os.O_WRONLY | os.O_NONBLOCK)
        return self._fd >= 0

    def write(self) -> None:
        os.write(self._fd, b"go\n")

    def close(self) -> None:
        os.close(self._fd)


@contextlib.contextmanager
def engine(name: str, base: pathlib.Path) -> Iterator[Engine]:
    made = Engine(name, base)
    made.root.mkdir(parents=True)
    try:
        yield made
    finally:
        made.end()


def ends(client: Client, process: Stranger) -> list[pb.Exit]:
    found = exits(client, f"{process.pid}@pid")
    return [each for each in found if each.init.started_ticks == process.started_ticks]


def told(client: Client, process: Stranger) -> pb.Exit:
    """Its end, which is reported once."""
    until(lambda: ends(client, process), f"no end of {process.pid}")
    (exit_,) = ends(client, process)
    return exit_


def exits(client: Client, container: str) -> list[pb.Exit]:
    return list(client.exits(pb.ExitsRequest(id=container)))


def end_of(client: Client, container: str, run: int = 1) -> pb.Exit:
    """Return once it is reported. It is reported once."""
    until(lambda: len(exits(client, container)) >= run, f"no end of {container}")
    found = exits(client, container)
    assert [each.run for each in found] == list(range(1, run + 1)), found
    return found[-1]


def said(exit_: pb.Exit) -> tuple[str, str]:
    return word(exit_), exit_.reason


def observed(client: Client, target: str, count: int) -> None:
    """Until so many of its processes are watched."""

    def look() -> bool:
        return any(watch.target == target and watch.processes == count for watch in client.watches())

    until(look, f"{target}: not {count} processes")


def watch_of(client: Client, target: str) -> pb.Watch:
    return next(watch for watch in client.watches() if watch.target == target)
