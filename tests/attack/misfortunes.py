"""The misfortunes: their order is planned by the seed alone; whom they meet is who is there at that moment."""

import contextlib
import datetime
import errno
import glob
import json
import os
import pathlib
import random
import resource
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from shim import native
from supervisor.model.values import Process
from supervisor.monitor.rundir import lock_holder
from tests.attack.judge import Death, Stand
from tests.system.processes import commands

VICTIMS = ("daemon", "keeper", "shim", "runtime")
GROUPS = (
    *(("daemon",), ("keeper",), ("shim",), ("shim",), ("shim",), ("runtime",), ("runtime",)),
    *(("shim", "shim"), ("keeper", "shim"), ("daemon", "shim"), ("daemon", "keeper"), ("runtime", "shim")),
    *(("daemon", "runtime"), ("daemon", "keeper", "shim"), ("shim", "shim", "shim")),
)
TASK_GROUPS = (("relay",), ("relay",), ("containerd",), ("containerd",), ("containerd", "daemon"), ("relay", "shim"))
CROWD = ("shim", "shim", "runtime")  # who else is struck where more than three may be
KINDS = ("kill", "stop", "stop-and-kill", "forks", "descriptors", "full", "flushes")
WEIGHTS = {"kill": 10, "stop": 5, "stop-and-kill": 3, "forks": 2, "descriptors": 2, "full": 2, "flushes": 2}
FLUSHES = "fsync,fdatasync"
TRACER_SECONDS = 10.0  # to let go of the daemon
DUE_SECONDS = 0.05  # between two looks whether the next one is due
NOTE = '{"by": "attack", '  # how a line in the log that is not exitd's begins
ROOM = {"forks": 6, "descriptors": 6}  # how many more of these there may be, at most


@dataclass(frozen=True, slots=True)
class Misfortune:
    """After `gap` seconds, for `seconds`. `who` is killed or stopped; `others` are killed while `who` stands still, or
    flushes are slow."""

    gap: float
    kind: str
    who: tuple[str, ...]
    others: tuple[str, ...]
    seconds: float
    room: int  # forks and descriptors that are left
    luck: tuple[float, ...]  # which of several, as a part of their number

    def __str__(self) -> str:
        met = {"kill": " ".join(self.who), "stop": " ".join(self.who)}.get(self.kind, "")
        if self.kind == "stop-and-kill":
            met = f"{' '.join(self.who)} / {' '.join(self.others)}"
        met = " ".join(self.others) if self.kind == "flushes" else met
        return f"+{self.gap:.2f} s {self.kind} {met}".rstrip() + f" ({self.seconds:.2f} s)"


def planned(
    seed: int, kinds: tuple[str, ...] = KINDS, at_once: int = 3, *, tasks: bool = False
) -> Iterator[Misfortune]:
    """Without an end; the same ones for the same arguments. `at_once`: how many victims one of them has at most.
    `tasks`: containerd and relays are among them."""
    number, groups = 0, (*GROUPS, *(TASK_GROUPS if tasks else ()))
    while kinds:
        pick = random.Random(f"{seed} misfortune {number}")
        (kind,) = pick.choices(kinds, [WEIGHTS[each] for each in kinds])
        yield Misfortune(
            gap=round(pick.uniform(0.02, 0.5), 3),
            kind=kind,
            who=_group(pick, at_once, groups),
            others=_group(pick, at_once, groups),
            seconds=round(pick.choice((0.05, 0.3, 1.0, 2.5)) * pick.uniform(0.5, 1.0), 3),
            room=pick.randrange(ROOM.get(kind, 0) + 1),
            luck=tuple(round(pick.random(), 3) for _ in range(2 * max(at_once, 3))),
        )
        number += 1


def _group(pick: random.Random, at_once: int, groups: tuple[tuple[str, ...], ...]) -> tuple[str, ...]:
    group = pick.choice([each for each in groups if len(each) <= at_once])
    if at_once <= 3 or pick.random() < 0.5:
        return group
    return (*group, *pick.choices(CROWD, k=pick.randint(1, at_once - len(group))))


@dataclass(frozen=True, slots=True)
class Target:
    """A process that belongs to the attacked daemon; its name is pid and start time."""

    victim: str
    process: Process
    container: str = ""
    exec_id: str = ""

    def words(self) -> dict[str, object]:
        """For a line of a log."""
        return {"victim": self.victim, "pid": self.process.pid, "container": self.container, "exec": self.exec_id}


@dataclass
class Fate:
    """Carries the misfortunes out, one after the other, until it is over. Each is undone before the next one."""

    state: pathlib.Path
    root: pathlib.Path
    daemon: Callable[[], int]  # its pid; 0 without one
    keeper: Callable[[], int]
    cgroup: pathlib.Path | None  # of daemon, keeper and shims; none where there is no pids controller
    over: threading.Event
    due: Callable[[], int]  # how many misfortunes there may have been by now
    of_containerd: Callable[[str], list[int]] = lambda victim: []  # pids of containerd, or of relays
    log: pathlib.Path | None = None  # exitd's: what happens to whom is written among its entries
    deaths: list[Death] = field(default_factory=list)  # with the container's id for its life
    stands: list[Stand] = field(default_factory=list)
    met: list[str] = field(default_factory=list)

    def run(self, plan: Iterator[Misfortune]) -> None:
        for misfortune in plan:
            if self.over.wait(misfortune.gap):
                return
            while len(self.met) >= self.due():
                if self.over.wait(DUE_SECONDS):
                    return
            self.met.append(misfortune.kind)
            self._note("misfortune", what=str(misfortune), luck=misfortune.luck)
            with contextlib.suppress(ProcessLookupError, FileNotFoundError):
                getattr(self, f"_{misfortune.kind.replace('-', '_')}")(misfortune)

    def _note(self, event: str, **fields: object) -> None:
        if self.log is not None:
            with self.log.open("a") as log:  # one write: exitd appends to it, too
                log.write(json.dumps({"by": "attack", "event": event, **fields, "timestamp": f"{_utc()}Z"}) + "\n")

    def _kill(self, misfortune: Misfortune) -> None:
        for target in self._targets(misfortune.who, misfortune.luck):
            self._slay(target)

    def _stop(self, misfortune: Misfortune) -> None:
        with self._standing(misfortune):
            self.over.wait(misfortune.seconds)

    def _stop_and_kill(self, misfortune: Misfortune) -> None:
        with self._standing(misfortune):
            self.over.wait(misfortune.seconds / 2)
            for target in self._targets(misfortune.others, misfortune.luck[::-1]):
                self._slay(target)
            self.over.wait(misfortune.seconds / 2)

    @contextlib.contextmanager
    def _standing(self, misfortune: Misfortune) -> Iterator[None]:
        """Its victims stand still for the block, and it is noted."""
        targets, begin = self._targets(misfortune.who, misfortune.luck), time.monotonic()
        try:
            with contextlib.ExitStack() as still:
                for target in targets:
                    self._note("stopped", **target.words())
                    still.enter_context(_standing(target.process))
                yield
        finally:
            self._note("gone on", count=len(targets))
            self.stands += [Stand(target.victim, begin, time.monotonic()) for target in targets]

    def _forks(self, misfortune: Misfortune) -> None:
        """Each fork and each new thread may fail."""
        if self.cgroup is None:
            return
        now = int((self.cgroup / "pids.current").read_text())
        (self.cgroup / "pids.max").write_text(str(now + misfortune.room))
        try:
            self.over.wait(misfortune.seconds)
        finally:
            (self.cgroup / "pids.max").write_text("max")

    def _descriptors(self, misfortune: Misfortune) -> None:
        """Each new descriptor may fail: every second time of the daemon, else of whom the misfortune would kill."""
        others = self._targets(misfortune.who, misfortune.luck) if misfortune.luck[-1] < 0.5 else []
        with contextlib.ExitStack() as short:
            for target in others or _named("daemon", self.daemon()):
                short.enter_context(_without_descriptors(target.process, misfortune.room))
            self.over.wait(misfortune.seconds)

    def _flushes(self, misfortune: Misfortune) -> None:
        """Each flush of the daemon's takes longer by the misfortune's seconds, by strace(1): a slow disk. Others are
        killed meanwhile."""
        pid, strace = self.daemon(), shutil.which("strace")
        if not pid or strace is None:
            return
        delay = f"inject={FLUSHES}:delay_enter={int(misfortune.seconds * 1e6)}"
        words = (strace, "-f", "-qq", "-o", "/dev/null", "-e", f"trace={FLUSHES}", "-e", delay, "-p", str(pid))
        with _ended_in_time(subprocess.Popen(words, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)):
            self.over.wait(2 * misfortune.seconds)
            for target in self._targets(misfortune.others, misfortune.luck):
                self._slay(target)
            self.over.wait(misfortune.seconds)

    def _full(self, misfortune: Misfortune) -> None:
        """Not a byte is free in the state directory, or in the root directory."""
        path = (self.state if misfortune.luck[-1] < 0.5 else self.root) / "filling"
        try:
            _fill(path)
            self.over.wait(misfortune.seconds)
        finally:
            path.unlink(missing_ok=True)

    def _targets(self, who: tuple[str, ...], luck: tuple[float, ...]) -> list[Target]:
        found: list[Target] = []
        for victim, part in zip(who, luck, strict=False):
            there = [target for target in self._all_of(victim) if target not in found]
            found += [there[min(int(part * len(there)), len(there) - 1)]] if there else []  # a rounded part may be 1
        return found

    def _all_of(self, victim: str) -> list[Target]:
        match victim:
            case "daemon":
                return _named(victim, self.daemon())
            case "keeper":
                return _named(victim, self.keeper())
            case "relay" | "containerd":
                return [each for pid in self.of_containerd(victim) for each in _named(victim, pid)]
            case "runtime":
                return [each for pid in self._runtimes() for each in _named(victim, pid)]
        return list(self._shims())

    def _shims(self) -> Iterator[Target]:
        """Of containers and of execs, by the locks that they signed."""
        # pathlib's own glob breaks off when a directory goes meanwhile.
        for path in sorted(glob.glob(f"{self.state}/c/*/*") + glob.glob(f"{self.state}/c/*/*/e/*")):
            holder = _holder(path)
            parts = pathlib.PurePath(path).relative_to(self.state / "c").parts
            if holder is not None and _lives(holder):
                yield Target("shim", holder, parts[0], parts[3] if len(parts) == 4 else "")

    def _runtimes(self) -> list[int]:
        """Commands in flight: their words name this state directory."""
        here = str(self.state).encode()
        found = ((pid, command.split(b"\0")) for pid, command in commands())
        return sorted(
            pid
            for pid, words in found
            if os.path.basename(words[0]) in (b"runc", b"crun") and any(word.startswith(here) for word in words)
        )

    def _slay(self, target: Target) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._note("killed", **target.words())
            at = time.monotonic()  # before it: whoever waits for the death may be faster than this thread
            _send(target.process, signal.SIGKILL)
            self.deaths.append(Death(target.victim, at, target.container, target.exec_id))


def _utc() -> str:
    return datetime.datetime.now(datetime.UTC).replace(tzinfo=None).isoformat()


def _holder(path: str) -> Process | None:
    """Return who holds the lock; None too where the run has gone since it was listed."""
    try:
        return lock_holder(path)
    except FileNotFoundError:
        return None


def _named(victim: str, pid: int) -> list[Target]:
    try:
        return [Target(victim, Process(pid, native.process_stat(pid)[2]))] if pid else []
    except ProcessLookupError:
        return []


def _lives(process: Process) -> bool:
    try:
        state, _, started, _ = native.process_stat(process.pid)
    except ProcessLookupError:
        return False
    return started == process.started_ticks and state != "Z"


def _send(process: Process, number: int) -> None:
    """ProcessLookupError when this very process has gone: its pid alone may be a stranger's."""
    pidfd = os.pidfd_open(process.pid)
    try:
        if not _lives(process):
            raise ProcessLookupError(errno.ESRCH, f"{process.pid} has gone")
        signal.pidfd_send_signal(pidfd, number)
    finally:
        os.close(pidfd)


@contextlib.contextmanager
def _standing(process: Process) -> Iterator[None]:
    """The process stands still for the block, if it is there."""
    try:
        with contextlib.suppress(ProcessLookupError):
            _send(process, signal.SIGSTOP)
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            _send(process, signal.SIGCONT)


@contextlib.contextmanager
def _without_descriptors(process: Process, room: int) -> Iterator[None]:
    """So many new ones may the process have for the block. Nothing when it has just died."""
    soft, hard = resource.prlimit(process.pid, resource.RLIMIT_NOFILE)
    highest = max((int(name) for name in os.listdir(f"/proc/{process.pid}/fd")), default=0)
    if highest and _lives(process):
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (min(hard, highest + 1 + room), hard))
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            if highest and _lives(process):
                resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (soft, hard))


@contextlib.contextmanager
def _ended_in_time(tracer: subprocess.Popen[bytes]) -> Iterator[None]:
    """End the tracer however the block ends: one that is left holds the daemon, and all that waits for it."""
    try:
        yield
    finally:
        tracer.terminate()
        try:
            tracer.wait(TRACER_SECONDS)
        except subprocess.TimeoutExpired:
            tracer.kill()
            tracer.wait()


def _fill(path: pathlib.Path) -> None:
    """Large pieces first, then single bytes, until there is no room for one."""
    with path.open("wb", buffering=0) as file:
        for size in (1 << 20, 1 << 12, 1):
            with contextlib.suppress(OSError):
                while file.write(b"\0" * size) == size:
                    pass
