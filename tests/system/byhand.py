"""Containers started by hand, without exitd, which write down for themselves how they end."""

import json
import os
import pathlib
import subprocess
import sys

from protos.exitd.v1 import exitd_pb2 as pb
from tests.system import oracle, tinyroot
from tests.system.daemons import Daemon
from tests.system.faultyfs import Faulty
from tests.system.oracle import SCRIPT, WHEN_TOLD, Subject
from tests.system.processes import cgroup_directories
from tests.system.waits import LIMIT_SECONDS, until


def cgroup_of(daemon: Daemon, name: str) -> str:
    return f"/exitd/{daemon.base.name}-{name}"


def bundle(daemon: Daemon, name: str, *args: str, truth: pathlib.Path | None = None) -> pathlib.Path:
    """A bundle on a small root file system; `truth` is what it sees as /mnt."""
    directory = tinyroot.bundle(daemon.base / "bundles" / name, list(args), cgroup_of(daemon, name))
    config = json.loads((directory / "config.json").read_text())
    if truth is not None:
        mount = {"destination": "/mnt", "type": "bind", "source": str(truth), "options": ["rbind", "rw"]}
        (directory / "rootfs" / "mnt").mkdir()
        config["mounts"].append(mount)
    (directory / "config.json").write_text(json.dumps(config))
    return directory


def observed(daemon: Daemon, before_end: str = WHEN_TOLD, code: int = 43) -> tuple[Subject, pathlib.Path]:
    """What will be under observation, and its bundle; nothing is started."""
    name = oracle.fresh_name()
    truth = daemon.base / "truth" / name
    truth.mkdir(parents=True)
    os.mkfifo(truth / "go")
    made = bundle(daemon, name, "/bin/sh", "-c", SCRIPT, "sh", before_end, str(code), truth=truth)
    return Subject(name, truth, pb.ContainerSpec()), made


def command(daemon: Daemon, *words: str) -> list[str]:
    return [sys.executable, "-m", "shim.byhand", "--state", str(daemon.state), "--root", str(daemon.root), *words]


def by_hand(daemon: Daemon, *words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(command(daemon, *words), capture_output=True, text=True, timeout=LIMIT_SECONDS)


def begun(daemon: Daemon, before_end: str = WHEN_TOLD, code: int = 43, *options: str) -> Subject:
    """One that was started by hand and has noted its beginning."""
    subject, made = observed(daemon, before_end, code)
    done = by_hand(daemon, "--name", subject.name, *options, str(made))
    assert done.returncode == 0, done.stderr
    subject.id = done.stdout.strip()
    until(subject.truth, f"{subject.name} does not begin")
    return subject


def begun_on(disk: Faulty, daemon: Daemon) -> Subject:
    """One whose configuration is on that file system; exitd has adopted it."""
    subject, made = observed(daemon)
    (on_disk := disk.path / "bundle").mkdir()
    config = json.loads((made / "config.json").read_text())
    config["root"]["path"] = str(made / "rootfs")
    (on_disk / "config.json").write_text(json.dumps(config))
    done = by_hand(daemon, "--name", subject.name, str(on_disk))
    assert done.returncode == 0, done.stderr
    subject.id = done.stdout.strip()
    adopted(daemon, subject)
    return subject


def run_directory(daemon: Daemon, subject: Subject) -> pathlib.Path:
    return daemon.state / "c" / subject.id / "1"


def adopted(daemon: Daemon, subject: Subject, seconds: float = LIMIT_SECONDS) -> pb.Container:
    """As exitd shows it, once it does."""

    def ask() -> pb.Container | None:
        with daemon.client() as client:
            found = [c for c in client.list(all_of_them=True) if c.id == subject.id]
            return found[0] if found and not found[0].recovering else None

    found = until(ask, f"{subject.name} is not adopted", seconds)
    assert found is not None
    return found


def refusals(daemon: Daemon, id: str) -> list[str]:
    """Why exitd did not adopt it, as often as it said so."""
    lines = [json.loads(line) for line in daemon.log.read_text().splitlines() if line.startswith("{")]
    return [
        line["why"] for line in lines if line["event"] == "run directory not adopted" and line["container"] == ascii(id)
    ]


def no_cgroup(daemon: Daemon, *subjects: Subject) -> None:
    """Nothing is left of the cgroups that the bundles name."""
    assert [s.name for s in subjects if cgroup_directories(cgroup_of(daemon, s.name))] == []
