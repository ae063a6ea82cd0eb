"""Runtimes as tests need them: runc that halts around a command, runc with a script before one, crun as it works."""

import contextlib
import os
import pathlib
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass

from supervisor.runtime.oci import cgroups
from tests.system import oracle
from tests.system.daemons import Daemon
from tests.system.waits import LIMIT_SECONDS, until

GATED = """#!/bin/sh
for verb; do case $verb in create|start|state|delete|exec|update) break ;; esac; done
gate={gates}/$verb
if [ -p $gate.before ]; then echo $$ >$gate.here; read line <$gate.before; fi
if [ -p $gate.after ]; then
	{runtime} "$@"
	status=$?
	echo $$ >$gate.here
	read line <$gate.after
	exit $status
fi
exec {runtime} "$@"
"""
# crun (1.8) refuses a hybrid host whose v2 side has controllers: it is shown a host without that side.
# Mounts of the machine and of containers spread as they would without it, but for this one.
ON_HYBRID = """#!/bin/sh
exec unshare --mount --propagation unchanged sh -c '
    mount --make-rprivate /sys/fs/cgroup && umount /sys/fs/cgroup/unified && exec crun "$@"' crun "$@"
"""


class Gates:
    """A runtime that can be halted before or after the work of each of its commands."""

    def __init__(self, directory: pathlib.Path) -> None:
        self.directory = directory
        directory.mkdir()
        self.runtime = directory / "runtime"
        self.runtime.write_text(GATED.format(gates=directory, runtime=shutil.which("runc")))
        self.runtime.chmod(0o755)
        self._closed: list[tuple[pathlib.Path, int]] = []

    def close(self, moment: str) -> None:
        """`moment`: create.before, start.after, ..."""
        path = self.directory / moment
        os.mkfifo(path)
        self._closed.append((path, os.open(path, os.O_RDWR | os.O_NONBLOCK)))
        (self.directory / moment.split(".")[0]).with_suffix(".here").unlink(missing_ok=True)

    def reached(self, moment: str) -> int:
        """The pid of the runtime command that waits there."""
        here = (self.directory / moment.split(".")[0]).with_suffix(".here")
        return int(until(lambda: here.exists() and here.read_text().strip(), f"nobody came to {moment}"))

    def open(self) -> None:
        """Whoever waits at a gate goes on, and later ones do not stop."""
        for path, fd in self._closed:
            path.unlink()
            os.write(fd, b"\n" * 16)

    def flags(self) -> tuple[str, str]:
        """Of `ctr run`, for a task under this runtime."""
        (options := self.directory / "options.toml").write_text(f'BinaryName = "{self.runtime}"\n')
        return "--runtime-config-path", str(options)

    def end(self) -> None:
        for path, fd in self._closed:
            path.unlink(missing_ok=True)
            os.close(fd)
        self._closed.clear()


@dataclass
class Wrapper:
    """A runtime that is runc, or another, but for what `on` puts before one of its commands. Named runc, it is that for
    whoever has its directory first in PATH."""

    path: pathlib.Path

    @classmethod
    def make(cls, directory: pathlib.Path, name: str = "runtime", runtime: str = "runc") -> "Wrapper":
        path = directory / name
        path.write_text(
            f"""#!/bin/sh
            for verb; do
                case $verb in create|start|state|kill|delete|pause|resume|exec) break ;; esac
            done
            [ ! -e {directory}/$verb ] || . {directory}/$verb
            exec {shutil.which(runtime)} "$@"
            """
        )
        path.chmod(0o755)
        return cls(path)

    def on(self, verb: str, script: str) -> None:
        """A shell script with runc's words in "$@". When it comes to its end, runc has its turn."""
        self.path.with_name(verb).write_text(script)

    @property
    def name(self) -> str:
        return str(self.path)


def runc_version() -> tuple[int, ...]:
    """As in (1, 1, 5)."""
    said = subprocess.run(["runc", "--version"], capture_output=True, text=True, check=True, timeout=LIMIT_SECONDS)
    found = re.search(r"(\d+)\.(\d+)\.(\d+)", said.stdout)
    assert found is not None, said.stdout
    return tuple(map(int, found.groups()))


@contextlib.contextmanager
def gated(daemon: Daemon) -> Iterator[Gates]:
    made = Gates(daemon.base / f"gates{oracle.fresh_name()}")
    try:
        yield made
    finally:
        made.end()


def program(name: str, directory: pathlib.Path) -> str:
    """What to run for a runtime of this name: crun by a script in the directory, where it needs one."""
    if name != "crun" or cgroups.mode() is not cgroups.Mode.HYBRID:
        return name
    wrapper = directory / "crun"
    wrapper.write_text(ON_HYBRID)
    wrapper.chmod(0o755)
    return str(wrapper)
