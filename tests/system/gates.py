"""Processes killed, stopped and halted at exact moments."""

import contextlib
import os
import pathlib
import shutil
import signal
from collections.abc import Iterator

from shim import native
from tests.system.daemonrig import until
from tests.system.shimrig import wait_readable


def killed(pid: int, number: int = signal.SIGKILL) -> None:
    """By pid, as an operator would; dead when this returns."""
    pidfd = os.pidfd_open(pid)
    try:
        signal.pidfd_send_signal(pidfd, number)
        assert wait_readable(pidfd), f"{pid} does not die"
    finally:
        os.close(pidfd)


GATED = """#!/bin/sh
for verb; do case $verb in create|start|state|delete|exec) break ;; esac; done
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

    def end(self) -> None:
        for path, fd in self._closed:
            path.unlink(missing_ok=True)
            os.close(fd)
        self._closed.clear()


def gone(pid: int) -> bool:
    """Not even a zombie of it is left."""
    return not pathlib.Path(f"/proc/{pid}").exists()


def in_mask(pid: int, mask: str, number: int) -> bool:
    """Whether the process ignores (SigIgn), catches (SigCgt), ... this signal."""
    lines = pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
    found = next(int(line.split()[1], 16) for line in lines if line.startswith(f"{mask}:"))
    return bool(found & 1 << number - 1)


def state_of(pid: int) -> str:
    """proc(5)'s letter; empty when it has gone."""
    try:
        return native.process_stat(pid)[0]
    except ProcessLookupError:
        return ""


@contextlib.contextmanager
def stopped(pid: int) -> Iterator[int]:
    """The process stands still for the block, or until it is killed. Its pidfd; -1 when there is no such process."""
    pidfd = -1
    with contextlib.suppress(ProcessLookupError):
        pidfd = os.pidfd_open(pid) if pid else -1
    try:
        if pidfd >= 0:
            signal.pidfd_send_signal(pidfd, signal.SIGSTOP)
        yield pidfd
    finally:
        if pidfd >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(pidfd, signal.SIGCONT)
            os.close(pidfd)
