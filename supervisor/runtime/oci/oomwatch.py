"""Memory kills in running containers, reported while they run.

The value is `oom_kill` of the container's own cgroup; the kernel only wakes exitd. v1: an eventfd on
memory.oom_control, before the kill. v2: inotify on memory.events, after counting and before the victim gets its signal.
Neither says which process was killed. So a count is reported once init has outlived it by PATIENCE_SECONDS and is not
dying: then init was not the victim. If it was, its exit reports the kill, and nothing is reported here. A lost wake-up
(a queue that overflowed; v1 also reports only one of several) is made good by `look_at_all`.

Source: docs.kernel.org, admin-guide/cgroup-v1/memory (section 10) and admin-guide/cgroup-v2 (memory.events);
mm/oom_kill.c, __oom_kill_process.
"""

import asyncio
import contextlib
import os
import select
from collections.abc import Callable

import structlog

from shim.frozen import mutable
from supervisor.model.values import RunKey
from supervisor.monitor import epoll
from supervisor.runtime.oci import cgroups
from supervisor.system import inotify

PATIENCE_SECONDS = 0.5
SLICE = 200  # cgroups read in one turn of the loop

log = structlog.get_logger(__name__)


@mutable
class _Run:
    key: RunKey
    cgroup: str
    counter: str | None = None  # the file that counts, once it is known
    event_fd: int = -1  # v1
    watch: inotify.InotifyWatch | None = None  # v2
    noted: int = 0  # kills counted elsewhere: no cgroup of this host counts those inside a virtual machine
    seen: int = 0  # the count when it last grew
    seen_at: float = 0.0  # loop time of that growth
    reported: int = 0
    timer: asyncio.TimerHandle | None = None


class OomWatch:
    """One per daemon, for all containers: with v1 a descriptor each, with v2 one inotify instance for all."""

    def __init__(
        self,
        watcher: epoll.Monitor,
        changes: inotify.Inotify,
        *,
        lives: Callable[[RunKey], bool],
        report: Callable[[RunKey, int], None],
        root: str = cgroups.ROOT,
        touching: bool = True,
    ) -> None:
        """`lives` says whether the run's init is neither dead nor dying. `report` gets the run's count so far; the same
        count may be reported again. Not `touching`: nothing may be written in a cgroup, so that v1's cgroups are left
        to `look_at_all`."""
        self._monitor = watcher
        self._changes = changes
        self._lives = lives
        self._report = report
        self._root = root
        self._touching = touching
        self._runs: dict[RunKey, _Run] = {}

    def __len__(self) -> int:
        return len(self._runs)

    def begin(self, key: RunKey, cgroup: str, noted: int = 0) -> None:
        """Watch a run until `end`. A cgroup that cannot be watched is left to `look_at_all`. `noted`: the kills of this
        run that `note` has counted under an earlier daemon."""
        self.end(key)
        run = self._runs[key] = _Run(key, cgroup, noted=noted)
        try:
            if cgroups.mode(self._root) is cgroups.Mode.V2:
                self._watch_v2(run)
            elif self._touching:
                self._watch_v1(run)
        except OSError as error:
            log.warning("memory kills are noticed late", container=key.container, run=key.run, why=str(error))
        self._look(run)

    def _watch_v2(self, run: _Run) -> None:
        path = self._counter_of(run)
        if path is not None:
            with contextlib.suppress(FileNotFoundError):  # it has ended already
                run.watch = self._changes.watch(path, inotify.IN_MODIFY, lambda _: self._wake(run))

    def _watch_v1(self, run: _Run) -> None:
        run.event_fd = cgroups.oom_event(run.cgroup, self._root)
        if run.event_fd >= 0:
            self._monitor.watch(run.event_fd, select.EPOLLIN, lambda _: self._drain(run))

    def note(self, key: RunKey) -> None:
        """Count a kill that the run's cgroup on this host does not count. It is reported like the others."""
        run = self._runs.get(key)
        if run is not None:
            run.noted += 1
            self._look(run)

    def wake(self, key: RunKey) -> None:
        """Read the run's cgroup, since a kill was reported there."""
        run = self._runs.get(key)
        if run is not None:
            self._wake(run)

    def seen(self, key: RunKey) -> int:
        """Return the count of the last look: it is lost with the cgroup."""
        run = self._runs.get(key)
        return run.seen if run is not None else 0

    def end(self, key: RunKey) -> None:
        """Stop watching. Repeatable. Nothing is reported of the run after this."""
        run = self._runs.pop(key, None)
        if run is None:
            return
        if run.timer is not None:
            run.timer.cancel()
        if run.watch is not None:
            run.watch.close()
        if run.event_fd >= 0:
            self._monitor.unwatch(run.event_fd)
            os.close(run.event_fd)

    def close(self) -> None:
        for key in list(self._runs):
            self.end(key)

    async def look_at_all(self) -> None:
        """Called by the reconcile loop. What was reported, but perhaps could not be stored, is reported again."""
        for number, run in enumerate(list(self._runs.values()), start=1):
            run.reported = 0
            self._look(run)
            if run.seen:
                self._later(run, PATIENCE_SECONDS)
            if number % SLICE == 0:
                await asyncio.sleep(0)

    def _drain(self, run: _Run) -> None:
        """The kernel also signals the descriptor when the cgroup is removed."""
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(run.event_fd)
        self._wake(run)

    def _wake(self, run: _Run) -> None:
        """Look now, and once more later: v1 signals before it counts. A container whose children are killed all the
        time costs at most one look each PATIENCE_SECONDS."""
        if run.timer is None:
            self._look(run)
            self._later(run, PATIENCE_SECONDS)

    def _look(self, run: _Run) -> None:
        try:
            kills = max(cgroups.oom_kills_in(self._counter_of(run)) or 0, run.noted)
        except OSError as error:  # out of descriptors: the next look counts
            log.debug("memory kills cannot be counted now", container=run.key.container, why=str(error))
            return
        if kills > run.seen and self._runs.get(run.key) is run:
            run.seen, run.seen_at = kills, asyncio.get_running_loop().time()
            self._later(run, PATIENCE_SECONDS)

    def _counter_of(self, run: _Run) -> str | None:
        if run.counter is None:
            run.counter = cgroups.oom_counter_path(run.cgroup, self._root)
        return run.counter

    def _later(self, run: _Run, seconds: float) -> None:
        if run.timer is None and self._runs.get(run.key) is run:
            run.timer = asyncio.get_running_loop().call_later(seconds, self._due, run)

    def _due(self, run: _Run) -> None:
        """Report if init has outlived the count: a kill is counted before its victim gets the signal."""
        run.timer = None
        if run.seen > run.reported:
            left = run.seen_at + PATIENCE_SECONDS - asyncio.get_running_loop().time()
            if left > 0:
                return self._later(run, left)
            if self._lives(run.key):
                run.reported = run.seen
                self._report(run.key, run.seen)
        self._look(run)
