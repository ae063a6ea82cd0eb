"""A stage for a demonstration: a separate exitd in temporary directories, of which nothing is left afterwards."""

import contextlib
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from shim import native
from supervisor.api.client import Client, answers
from supervisor.compare import descent
from supervisor.model.errors import ExitdError
from supervisor.runtime.oci import bundle, cgroups, rootfs

APART = ("--default-network", "none")  # nothing of this machine's network is touched
ANSWER_SECONDS = 30.0
LEAVE_SECONDS = 10.0
MNT_DETACH = 2
INTERRUPTS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
PARENT_CGROUP = bundle.CGROUP_PARENT


@contextlib.contextmanager
def held_back() -> Iterator[None]:
    """Delay interrupts until what begins here is known: half made, nothing would clean it up."""
    came: list[int] = []
    before = {number: signal.signal(number, lambda number, _: came.append(number)) for number in INTERRUPTS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if came:
        signal.raise_signal(came[0])


class StageFailed(Exception):
    """exitd did not do what the stage needs; the text says what, its log says why."""


class Stage:
    """Call `raise_daemon` and `kill_daemon` as often as needed, then `clear` once, in any case.

    This process becomes a subreaper: processes that lose their parent (keeper, shims, containers) become its children,
    so that at the end all can be found by descent and not by name.
    """

    def __init__(self) -> None:
        native.set_subreaper(True)
        self._cgroups_were = _cgroup_parents()
        self.base = Path(tempfile.mkdtemp(prefix="exitd-demo-", dir="/tmp"))  # short: unix sockets are below it
        self._log = self.base / "exitd.log"
        self.up = threading.Event()
        self.cleared = threading.Event()
        self.back_ns = 0  # CLOCK_REALTIME of the daemon's first answer after its last start
        self._daemon: subprocess.Popen[bytes] | None = None

    @property
    def root(self) -> Path:
        return self.base / "root"

    @property
    def state(self) -> Path:
        return self.base / "state"

    @property
    def daemon_pid(self) -> int:
        return self._daemon.pid if self._daemon is not None else 0

    def client(self) -> Client:
        return Client(f"{self.state}/exitd.sock")

    def log(self) -> str:
        """Return the daemon's log."""
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def raise_daemon(self) -> None:
        """Start exitd and return when it answers. Raises StageFailed."""
        words = ("--root", str(self.root), "--state", str(self.state), "--log-format", "json", *APART)
        with self._log.open("ab") as log, held_back():
            self._daemon = subprocess.Popen(
                (sys.executable, "-m", "supervisor", *words),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # a Ctrl-C is for this process, which passes it on to the daemon
            )
        self._wait_for_answer()

    def _wait_for_answer(self) -> None:
        """Return when the daemon that was started answers. Raises StageFailed when it ends instead, or takes long."""
        assert self._daemon is not None
        deadline = time.monotonic() + ANSWER_SECONDS
        while not self._answers():
            if self._daemon.poll() is not None:
                raise StageFailed(f"exitd ended with {self._daemon.returncode} instead of answering")
            if time.monotonic() > deadline:
                raise StageFailed(f"exitd did not answer within {ANSWER_SECONDS:.0f} s")
            select.select([], [], [], 0.01)
        self.back_ns = time.time_ns()
        self.up.set()

    def kill_daemon(self) -> None:
        """Kill the daemon with SIGKILL, and wait for its end."""
        assert self._daemon is not None
        self.up.clear()
        self._daemon.kill()
        self._daemon.wait()

    def clear(self) -> list[str]:
        """End and remove everything. Return what was still there although it should not have been, in words."""
        self.cleared.set()
        self.up.set()  # threads that wait for the daemon look at `cleared` now
        found, containers = [], [path.name for path in self.root.glob("c/*")]
        try:
            self._remove_containers()
            self._end_daemon()
        except (StageFailed, ExitdError, OSError) as error:
            found.append(f"exitd did not clear up by itself: {error}")
        found += [f"the process {name}" for name in descent.end_everybody() if name != "exitd-keeper"]
        return found + self._clear_machine(containers)

    def _answers(self) -> bool:
        return answers(f"{self.state}/exitd.sock")

    def _remove_containers(self) -> None:
        """Let the daemon remove the containers. A daemon that has ended is started again; one whose start was
        interrupted may not answer yet."""
        if not (self.root / "exitd.db").exists():
            return
        if self._daemon is None or self._daemon.poll() is not None:
            self.raise_daemon()
        else:
            self._wait_for_answer()
        with self.client() as client:
            for container in client.list(all_of_them=True):
                client.remove(container.id, force=True)

    def _end_daemon(self) -> None:
        if self._daemon is None or self._daemon.poll() is not None:
            return
        self._daemon.terminate()
        try:
            self._daemon.wait(LEAVE_SECONDS)
        except subprocess.TimeoutExpired:
            self._daemon.kill()
            self._daemon.wait()
            raise StageFailed("SIGTERM did not end it") from None

    def _clear_machine(self, containers: list[str]) -> list[str]:
        """Remove cgroups, mounts, directories; never anything below a mount, which may be the host's /."""
        found = []
        for path in (path for container in containers for path in bundle.leaked_cgroups(container)):
            if any(os.path.isdir(each) for each in cgroups.paths(path).values()):
                found.append(f"the cgroup {path}")
                cgroups.remove(path)
        for point in reversed(rootfs.mounts_under(str(self.base))):
            found.append(f"the mount {point}")
            native.unmount(point, MNT_DETACH)
        for parent in _cgroup_parents() - self._cgroups_were:
            with contextlib.suppress(OSError):  # another exitd uses it by now
                os.rmdir(parent)
        if rootfs.mounts_under(str(self.base)):
            return [*found, f"the directory {self.base}, which has mounts in it"]
        found += [f"the run directory {path}" for path in self.state.glob("c/*/*")]
        shutil.rmtree(self.base)
        return found


def _cgroup_parents() -> set[str]:
    return {path for path in cgroups.paths(PARENT_CGROUP).values() if os.path.isdir(path)}
