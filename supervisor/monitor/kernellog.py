"""Which processes the kernel killed for memory, according to its log: records of /dev/kmsg in, kills out. Pure.

The lines (mm/oom_kill.c); the kernel omits the first when there are more than ten in five seconds:

    oom-kill:constraint=CONSTRAINT_MEMCG,...,task_memcg=/system.slice/x.scope,task=tail,pid=28900,uid=0
    Memory cgroup out of memory: Killed process 28900 (tail) total-vm:34520kB, ...

One memory kill is written at a time, so a first line belongs to the next second line. Users choose the names of cgroups
and programs: a line in which the words around the cgroup occur twice names none. Privileged programs may write into the
log, but not as the kernel.

Source: Documentation/ABI/testing/dev-kmsg.
"""

import re
from collections.abc import Iterable
from signal import SIGKILL

from shim.frozen import frozen, replace
from shim.patterns import LatePattern
from supervisor.model.values import Process, Report, Signaled

KERNEL = 0  # the facility of the kernel's own records
SURE_US = 1_000_000  # possible difference between the log's clock and others at boot
DRIFT = 0.001  # for every second since: more than a clock is ever adjusted by

_CHOSEN = LatePattern(rb"oom-kill:constraint=.*,task_memcg=(/.*),task=.*,pid=(\d{1,10}),uid=\d+", re.S)
_KILLED = LatePattern(
    rb"(?:Memory cgroup out|Out) of memory(?: \(oom_kill_allocating_task\))?: Killed process (\d{1,10}) \("
)
_SPARED = LatePattern(rb"(?:Memory cgroup out|Out) of memory.*: OOM victim \d+ .* is already exiting")
_ESCAPED = LatePattern(rb"\\x([0-9a-f]{2})")


@frozen
class MemoryKill:
    """One process killed for memory. `cgroup`: its path from the top of the hierarchy; empty if the log names none."""

    pid: int  # in the first pid namespace
    at_us: int  # on the log's clock
    cgroup: str = ""


@frozen
class Since:
    """When a run began on the log's clock, with which no other clock agrees: the earliest time, and an estimate."""

    earliest_us: int
    about_us: int


class Reader:
    """Reads the log's records one by one, in order."""

    def __init__(self) -> None:
        self._chosen: MemoryKill | None = None

    def read(self, record: bytes) -> MemoryKill | None:
        """Return the kill that this record completes; None for every other record, whatever its bytes."""
        head, _, rest = record.partition(b";")
        fields = head.split(b",")
        if len(fields) < 4 or not fields[0].isdigit() or not fields[2].isdigit() or int(fields[0]) >> 3 != KERNEL:
            return None
        text = _ESCAPED.sub(lambda found: bytes((int(found[1], 16),)), rest.partition(b"\n")[0])
        if chosen := _CHOSEN.fullmatch(text):
            plain = text.count(b",task_memcg=") == text.count(b",task=") == 1
            path = chosen[1].decode(errors="surrogateescape") if plain else ""
            self._chosen = MemoryKill(int(chosen[2]), int(fields[2]), path)
        elif killed := _KILLED.match(text):
            return self._killed(int(killed[1]), int(fields[2]))
        elif _SPARED.match(text):
            self._chosen = None
        return None

    def _killed(self, pid: int, at_us: int) -> MemoryKill:
        """The first line names the leader of the process; the second may name another of its threads."""
        chosen, self._chosen = self._chosen, None
        return replace(chosen, at_us=at_us) if chosen is not None else MemoryKill(pid, at_us)


@frozen
class KnownKills:
    """What is known of memory kills before an end is weighed.

    `reported`: kills reported while init lived; `before`: kills from before the process began; `asked_kill`: a client
    asked for SIGKILL.
    """

    reported: int = 0
    before: int = 0
    asked_kill: bool = False


def since(age_seconds: float, now_us: Iterable[int]) -> Since:
    """Return when a process of that age began. `now_us`: the clocks that the log may use."""
    age_us, clocks = round(age_seconds * 1e6), tuple(now_us)
    return Since(min(clocks) - age_us - SURE_US - round(age_us * DRIFT), max(clocks) - age_us)


def is_wanted(report: Report, known: KnownKills) -> bool:
    """Return whether the count leaves a question: it was not read at the end, or does not explain a SIGKILL."""
    unexplained = report.status == Signaled(SIGKILL) and report.oom_kills <= known.reported and not known.asked_kill
    return not report.counted or unexplained


def with_kills(
    report: Report, kills: Iterable[MemoryKill], init: Process, inner: str, known: KnownKills, began: Since
) -> Report:
    """Return the report, completed by what the log says about the run of `init` in the cgroup `inner`, a path without
    slashes at its ends.

    Init was a victim if the log has its pid within its lifetime, and names no other cgroup. Other processes count only
    if the log names this cgroup.
    """
    theirs = [kill for kill in kills if kill.at_us >= began.about_us and is_within(kill.cgroup, inner)]
    counted = max(report.oom_kills, known.before + len(theirs) if theirs else 0)
    if report.status != Signaled(SIGKILL):
        return replace(report, oom_kills=counted)
    victim = any(
        kill.pid == init.pid and kill.at_us >= began.earliest_us and (not kill.cgroup or is_within(kill.cgroup, inner))
        for kill in kills
    )
    return replace(report, oom_kills=max(counted, known.reported + 1)) if victim else report


def is_within(cgroup: str, inner: str) -> bool:
    """Return whether the cgroup is `inner` or one below it."""
    return bool(inner) and f"{cgroup}/".startswith(f"/{inner}/")
