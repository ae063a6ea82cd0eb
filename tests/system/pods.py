"""A pod without the daemon: exitd-pause under a shim of its own, and members that join it by descriptor."""

import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from shim import programs
from tests.system import runtimes
from tests.system.keepers import Keeper, Node, Run
from tests.system.processes import empty_cgroup, in_mask, open_files
from tests.system.waits import LIMIT_SECONDS, before_the_end, wait_readable

FILES = {"network": "net", "ipc": "ipc", "uts": "uts", "pid": "pid"}  # of /proc/PID/ns, by their names in config.json
SHARED = ("network", "ipc", "uts")
ALL = (*SHARED, "pid")
NAMESPACE = re.compile(r"(net|ipc|uts|pid):\[[0-9]+\]")


def namespace(pid: int, kind: str) -> str:
    """Which one it is: `net:[4026531840]`."""
    return os.readlink(f"/proc/{pid}/ns/{FILES[kind]}")


def namespace_descriptors(pid: int | str) -> list[str]:
    return [link for link in open_files(pid).values() if NAMESPACE.fullmatch(link)]


def pause_bundle(node: Node, name: str) -> pathlib.Path:
    """Its root file system holds the program and nothing else."""
    directory = node.directory / name
    (directory / "rootfs").mkdir(parents=True)
    shutil.copy(programs.find("exitd-pause"), directory / "rootfs" / "pause")
    subprocess.run(["runc", "spec", "--bundle", str(directory)], check=True, timeout=LIMIT_SECONDS)
    config = json.loads((directory / "config.json").read_text())
    config["process"].update(terminal=False, args=["/pause"])
    config["linux"]["cgroupsPath"] = f"{node.cgroup}/{name}"
    (directory / "config.json").write_text(json.dumps(config))
    return directory


@dataclass(frozen=True)
class Pod:
    """Its pause container's run, and descriptors of the namespaces, which outlive that."""

    node: Node
    keeper: Keeper
    runtime: str
    pause: Run
    fds: dict[str, int]

    def links(self, id: str, kinds: Sequence[str]) -> list[tuple[str, int]]:
        directory = self.node.directory / f"ns-{id}"
        directory.mkdir(exist_ok=True)
        return [(f"{directory}/{kind}", self.fds[kind]) for kind in kinds]

    def bundle(self, id: str, kinds: Sequence[str], *args: str) -> pathlib.Path:
        """A member's: its namespaces are links that the shim makes."""
        bundle = self.node.bundle(*args)
        config = json.loads((bundle / "config.json").read_text())
        paths = dict(zip(kinds, (path for path, _ in self.links(id, kinds)), strict=True))
        for each in config["linux"]["namespaces"]:
            if each["type"] in paths:
                each["path"] = paths[each["type"]]
        config["linux"]["cgroupsPath"] = f"{self.node.cgroup}/{id}"
        config.pop("hostname")  # it would become the whole pod's
        (bundle / "config.json").write_text(json.dumps(config))
        return bundle

    def member(self, id: str, kinds: Sequence[str], *args: str, shim: str = "", create: str = "") -> Run:
        bundle, joins = self.bundle(id, kinds, *args), self.links(id, kinds)
        return self.keeper.make(id, bundle, runtime=self.runtime, joins=joins, shim=shim, create=create)

    def finish(self, *runs: Run) -> None:
        """What the daemon does when they have ended."""
        for run in runs:
            run.clean()
            self.keeper.acknowledge(run.id)
            empty_cgroup(f"{self.node.cgroup}/{run.id}")

    def end_pause(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.pause.created.pidfd, signal.SIGTERM)
        assert wait_readable(self.pause.shim_pidfd)


def listening(pid: int, pidfd: int) -> None:
    """Returns when exitd-pause has set its signals up: before that the kernel drops those for a first process."""
    ready = before_the_end(pidfd, lambda: in_mask(pid, "SigIgn", signal.SIGCHLD))
    assert ready, "exitd-pause ended by itself, or does not come to wait"


@contextlib.contextmanager
def pod(node: Node, keeper: Keeper, runtime: str = "runc") -> Iterator[Pod]:
    """A pod whose pause runs; it is ended and forgotten after the block, and the keeper's descriptors are counted."""
    files = open_files(keeper.process.pid).keys()
    program = runtimes.program(runtime, node.directory)
    run = keeper.make("pause", pause_bundle(node, "pause"), runtime=program)
    assert run.created.keeper_knows
    run.start()
    listening(run.created.pid, run.created.pidfd)
    fds = {kind: os.open(f"/proc/{run.created.pid}/ns/{file}", os.O_RDONLY) for kind, file in FILES.items()}
    made = Pod(node, keeper, program, run, fds)
    try:
        yield made
        made.end_pause()
        made.finish(run)
        empty_cgroup(node.cgroup)
        assert keeper.entries() == []
        assert open_files(keeper.process.pid).keys() == files
    finally:
        for fd in fds.values():
            os.close(fd)


def kill(run: Run) -> None:
    """SIGKILL to init; its shim has recorded that and gone when this returns."""
    signal.pidfd_send_signal(run.created.pidfd, signal.SIGKILL)
    assert wait_readable(run.shim_pidfd)
    written = run.record()
    assert written is not None and written.signal == signal.SIGKILL
