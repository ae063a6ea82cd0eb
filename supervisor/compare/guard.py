"""Around the process that measures: it gets directories and a view of the machine of its own, and whatever it leaves,
however it ends, is ended and removed here."""

import contextlib
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

from shim import native
from supervisor.compare import descent, facts, machine, plan
from supervisor.compare.facts import CompareReport
from supervisor.compare.plan import Plan

INTERRUPTS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class NotMeasured(Exception):
    """There is no report; the text says why not."""


def measured(wanted: Plan) -> tuple[CompareReport, list[str]]:
    """Return the report, and what had to be ended or removed because it was left. Raises NotMeasured; KeyboardInterrupt
    when interrupted, after all is cleared."""
    if os.geteuid() != 0:
        raise NotMeasured("compare needs root: it starts containers, daemons and containerd of its own")
    native.set_subreaper(True)  # a process that loses its parent meanwhile is ours
    name = f"xc{os.getpid()}-"
    state, root = tempfile.mkdtemp(prefix=name, dir=machine.memory_place()), tempfile.mkdtemp(prefix=name)
    pid, left = 0, []
    try:
        with _forwarded() as child:
            pid = child.begin(state, root, plan.encode(wanted))
            code = child.wait()
        report = _report(root, code, child.interrupted)
    finally:
        left += _clear(pid, (state, root))
    return report, left


def _report(root: str, code: int, interrupted: bool) -> CompareReport:
    if interrupted:
        raise KeyboardInterrupt
    if code:
        raise NotMeasured(f"the process that measures ended with {code}")
    return facts.decode(Path(f"{root}/report.json").read_text())


class Child:
    """The process that measures, in a session of its own: a Ctrl-C reaches it through us, and its daemons never."""

    def __init__(self) -> None:
        self.pid = 0
        self.interrupted = False

    def begin(self, *words: str) -> int:
        command = ["unshare", "--mount", "--propagation", "slave", sys.executable, "-m", "supervisor.compare", *words]
        self.pid = os.posix_spawnp("unshare", command, os.environ, setsid=True)
        if self.interrupted:
            os.kill(self.pid, signal.SIGINT)
        return self.pid

    def wait(self) -> int:
        """Return its code, or 128 and the signal. Other children of ours that end meanwhile are reaped."""
        while True:
            pid, status = os.waitpid(-1, 0)
            if pid == self.pid:
                self.pid = 0
                code = os.waitstatus_to_exitcode(status)
                return code if code >= 0 else 128 - code

    def interrupt(self, number: int, frame: FrameType | None) -> None:
        """Interrupt it. The first time it clears up by itself; the second time it is killed, and cleared up after."""
        if self.pid:
            os.kill(self.pid, signal.SIGKILL if self.interrupted else signal.SIGINT)
        self.interrupted = True


@contextlib.contextmanager
def _forwarded() -> Iterator[Child]:
    child = Child()
    before = {number: signal.signal(number, child.interrupt) for number in INTERRUPTS}
    try:
        yield child
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _clear(pid: int, places: tuple[str, ...]) -> list[str]:
    """Processes, cgroups, directories; mounts were in a namespace that ended with the last process."""
    left = [f"the process {name}" for name in descent.end_everybody()]
    own = machine.cgroup_of(pid)
    left += [f"the cgroup {path}" for path in machine.remove_cgroup(own) if not path.endswith(own)]
    for place in places:
        shutil.rmtree(place)
    return left
