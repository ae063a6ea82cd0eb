"""What was asked of a containerd, answered and told while misfortunes befell it, and what cannot be true of that. Pure.

Every process has an end that is known beforehand: whoever makes it end says so (`Doomed`) before he does. A number that
is told of a process and is of none of its ends is made up. All times are seconds of the day's clock.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import NamedTuple

KILLED, UNKNOWN = 137, 255
CREATED, RUNNING, STOPPED, PAUSED = 1, 2, 3, 4
# What an answered call has containerd told, and the topics that come when nobody asks.
TOPICS = {
    "create": "create",
    "start": "start",
    "exec": "exec-added",
    "pause": "paused",
    "resume": "resumed",
    "delete": "delete",
}
SILENT_SECONDS, LATE_SECONDS = 1.0, 5.0  # the latter: until every relay has found exitd again, at the very most
BECOMES = {"create": CREATED, "start": RUNNING, "pause": PAUSED, "resume": RUNNING}
NO_TRACE = ("wait", "state")  # calls that change nothing
CLOCK_SECONDS = 0.01  # the kernel's clock has ticks
# What ends a connection of containerd's clients, or of containerd with a relay.
LOST = ("UNAVAILABLE", "CANCELLED", "UNKNOWN")


class Who(NamedTuple):
    """A process: a task's init, or one of its execs."""

    task: str
    exec: str = ""

    @property
    def init(self) -> "Who":
        return Who(self.task)


class End(NamedTuple):
    code: int
    at_ns: int


@dataclass(frozen=True)
class Call:
    """Of a client, with its answer. `end`: what it says of an end."""

    begun: float
    over: float
    who: Who
    verb: str
    error: str = ""
    text: str = ""
    pid: int = 0
    status: int = 0
    end: End | None = None


@dataclass(frozen=True)
class Told:
    """An event, as exitd sent it (`bytes`) or as containerd published it by itself. `is_taken`: it was thanked for."""

    at: float
    who: Who
    topic: str
    bytes: bytes = field(default=b"", repr=False)
    pid: int = 0
    end: End | None = None
    is_taken: bool = False

    def taken(self) -> "Told":
        return replace(self, is_taken=True)


@dataclass(frozen=True)
class Struck:
    """`what` was killed, or stopped, and was there again at `over`. `tasks`: those of a relay, or of a shim."""

    begun: float
    over: float
    what: str
    tasks: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Doomed:
    """From then on it may end with this code."""

    at: float
    who: Who
    code: int


@dataclass(frozen=True)
class Row:
    """Of exitd's own ledger: one end. `code` is folded: 128 + signal; None: unknown."""

    who: Who
    code: int | None


@dataclass(frozen=True)
class History:
    calls: tuple[Call, ...] = ()
    told: tuple[Told, ...] = ()  # by exitd, to containerd
    published: tuple[Told, ...] = ()  # by containerd, of the tasks of dead relays
    struck: tuple[Struck, ...] = ()
    doomed: tuple[Doomed, ...] = ()
    rows: tuple[Row, ...] = ()

    # -- what is allowed

    def died(self, begun: float, over: float, *what: str) -> bool:
        """Whether one of these was away in that time."""
        return any(one.what in what and one.begun <= over and begun <= one.over for one in self.struck)

    def orphaned(self, task: str, until: float = float("inf")) -> Struck | None:
        """Its relay was killed."""
        return next((s for s in self.struck if s.what == "relay" and task in s.tasks and s.begun <= until), None)

    def unwatched(self, task: str) -> bool:
        """Its shim was killed, and a keeper since it was made: it may have ended where nobody could know."""
        made = min((call.begun for call in self.calls if call.who.task == task), default=0.0)
        keeper = any(s.what == "keeper" and s.over >= made for s in self.struck)
        return keeper and any(s.what == "shim" and task in s.tasks for s in self.struck)

    def is_lost(self, call: Call) -> bool:
        """What came of it nobody knows: containerd died meanwhile."""
        return call.error in LOST and self.died(call.begun, call.over, "containerd")

    def is_doubtful(self, who: Who, until: float) -> bool:
        """How far the task, or the exec, has come is not known: an answer about it was lost."""
        return any(
            self.is_lost(call) and call.verb not in NO_TRACE and call.who in (who, who.init) and call.over <= until
            for call in self.calls
        )

    def codes(self, who: Who, until: float) -> set[int]:
        """What it may have ended with by then."""
        found = {one.code for one in self.doomed if one.who == who and one.at <= until}
        if who.exec and any(one.who == who.init and one.at <= until for one in self.doomed):
            found.add(KILLED)  # with all that its init leaves behind
        if self.orphaned(who.task, until) is not None:
            found |= {KILLED, UNKNOWN}  # by containerd's cleaning; of which nobody may hear
        if found and self.unwatched(who.task):
            found.add(UNKNOWN)
        return found


def violations(history: History) -> list[str]:
    """In words; none of a history that may be."""
    rules = (failures, states, numbers, ends, times, orders, completeness, repetitions, orphans, ledger)
    return [words for rule in rules for words in rule(history)]


# -- answers


def failures(h: History) -> Iterator[str]:
    for call in h.calls:
        if call.error and not (h.is_lost(call) or _may_fail(h, call)):
            yield f"fails: {call}"


def _may_fail(h: History, call: Call) -> bool:
    if call.error == "NO_ANSWER":
        return False
    if h.orphaned(call.who.task, call.over) is not None:
        return True
    doubtful = h.is_doubtful(call.who, call.begun)
    if call.error == "NOT_FOUND":  # it is gone, or has ended
        ended = any(d.who in (call.who, call.who.init) and d.at < call.begun for d in h.doomed)
        return doubtful or (call.verb == "kill" and ended)
    return doubtful and call.verb == "resume"  # it may never have been paused


def states(h: History) -> Iterator[str]:
    """What State says of a task is what has become of it. Where exitd was away, or silent for a second, the relay may
    have said what was (docs/decisions/0022)."""
    for call in h.calls:
        away = h.died(call.begun - LATE_SECONDS, call.over, "exitd", "stop", "containerd")
        away |= call.over - call.begun >= SILENT_SECONDS
        if call.verb == "state" and not call.error and not away and not h.is_doubtful(call.who, call.over):
            allowed = _states(h, call)
            if call.status not in allowed:
                yield f"state: {call}, not {sorted(allowed)}"


def _states(h: History, asked: Call) -> set[int]:
    before = [call for call in h.calls if call.who == asked.who and call.over <= asked.begun and not call.error]
    if any(call.end is not None for call in before):
        return {STOPPED}
    now = [BECOMES[call.verb] for call in sorted(before, key=lambda call: call.over) if call.verb in BECOMES]
    ending = h.codes(asked.who, asked.over)
    return {*now[-1:], *([STOPPED] if ending else [])}


# -- ends


def sayings(h: History, who: Who) -> Iterator[tuple[float, End, int, str]]:
    """Whatever was said of its end: when, what, of which pid, where. 0 where no pid is reported."""
    for call in h.calls:
        if call.who == who and call.end is not None and not _never_started(h, call):
            yield call.over, call.end, call.pid, call.verb
    for name, events in (("told", h.told), ("published", h.published)):
        for event in events:
            if event.who == who and event.end is not None:
                yield event.at, event.end, event.pid, f"{name} {event.topic}"


def _never_started(h: History, call: Call) -> bool:
    """An exec whose start came to nothing has neither code nor time."""
    return bool(call.who.exec) and call.end == End(0, 0) and h.is_doubtful(call.who, call.over)


def everybody(h: History) -> list[Who]:
    there = [*(one.who for one in h.calls), *(one.who for one in h.told), *(one.who for one in h.doomed)]
    return sorted({*there, *(one.who for one in h.published), *(one.who for one in h.rows)})


def numbers(h: History) -> Iterator[str]:
    """Never one that is made up, nor reported before there was a reason to end."""
    for who in everybody(h):
        for at, end, _, where in sayings(h, who):
            if end.code not in h.codes(who, at):
                yield f"made up: {who} {end} by {where}, not {sorted(h.codes(who, at))}"


def ends(h: History) -> Iterator[str]:
    """A process ends once: with one code, one time and one pid, whoever says so. Of what a dead relay left behind
    containerd may say that it does not know, unless somebody had said it before."""
    for who in everybody(h):
        orphan = h.orphaned(who.task)
        said = list(sayings(h, who))
        if orphan is not None and not any(at < orphan.begun for at, _, _, _ in said):
            said = [one for one in said if one[1].code != UNKNOWN]
        if len({end for _, end, _, _ in said}) > 1:
            yield f"two ends: {who} {[(end, where) for _, end, _, where in said]}"
        if len({pid for _, _, pid, _ in said if pid}) > 1:
            yield f"two pids: {who} {[(pid, where) for _, _, pid, where in said]}"


def times(h: History) -> Iterator[str]:
    """It ended behind its first reason to, and before anybody heard of it."""
    for who in everybody(h):
        reasons = [one.at for one in h.doomed if one.who in (who, who.init)]
        reasons += [one.begun for one in [h.orphaned(who.task)] if one is not None]
        for at, end, _, where in sayings(h, who):
            if reasons and not min(reasons) - CLOCK_SECONDS <= end.at_ns / 1e9 <= at + CLOCK_SECONDS:
                yield f"no such time: {who} {end} by {where}, between {min(reasons)} and {at}"


def ledger(h: History) -> Iterator[str]:
    """exitd's own list has one row for each end, and it says the same."""
    for who in everybody(h):
        rows = [row.code for row in h.rows if row.who == who]
        said = {end.code for _, end, _, _ in sayings(h, who)}
        if len(rows) > 1 or (said - {UNKNOWN} and not rows):
            yield f"rows: {who} {rows}, {said} was said"
        for code in rows:
            number = UNKNOWN if code is None else code
            if number not in h.codes(who, float("inf")):
                yield f"made up: {who} {number} in the ledger"
            if (said - {UNKNOWN} if h.orphaned(who.task) is not None else said) - {number}:
                yield f"the ledger differs: {who} {number}, {said} was said"


# -- events


def told_once(h: History, task: str) -> list[Told]:
    """In their order, each repetition taken for its last."""
    events = [event for event in h.told if event.who.task == task]
    return [event for at, event in enumerate(events, 1) if at == len(events) or not _same(event, events[at])]


def _same(event: Told, other: Told) -> bool:
    return event.bytes == other.bytes


def repetitions(h: History) -> Iterator[str]:
    """Only of what was on its way when a relay or containerd died, and word for word (docs/decisions/0026)."""
    for task in sorted({event.who.task for event in h.told}):
        events = [event for event in h.told if event.who.task == task]
        for event, other in pairwise(events):
            if _same(event, other) and not h.died(event.at, other.at, "relay", "containerd"):
                yield f"told again: {other}"
        once = [event.bytes for event in told_once(h, task)]
        for event in told_once(h, task):
            if once.count(event.bytes) > 1:
                yield f"told again later: {event}"


def expected(h: History, task: str) -> list[tuple[str, str, bool]]:
    """Topic, exec, and whether it must come: what the calls have brought about, in their order. Ends are not among
    them: they come when they come."""
    found = []
    for call in sorted(h.calls, key=lambda call: call.begun):
        if call.who.task == task and call.verb in TOPICS:
            topic = "exec-started" if call.verb == "start" and call.who.exec else TOPICS[call.verb]
            found.append((topic, call.who.exec, not call.error and h.orphaned(task) is None))
    return found


def orders(h: History) -> Iterator[str]:
    """What was asked for is reported, in that order; an end behind its begin, an exec's before its init's, and nothing
    more behind the deletion."""
    for task in sorted({who.task for who in everybody(h)}):
        events, wanted = told_once(h, task), expected(h, task)
        about = f"{[(event.topic, event.who.exec) for event in events]} of {task}, asked for: {wanted}"
        places = _behind(wanted, {0})
        for event in events:
            if event.topic != "exit" and places:
                asked = (event.topic, event.who.exec)
                places = _behind(wanted, {at + 1 for at in places if at < len(wanted) and wanted[at][:2] == asked})
                if not places:
                    yield f"unasked, or too early: {asked} in {about}"
        if places and len(wanted) not in places:
            yield f"never told: {wanted[max(places)]} in {about}"
        yield from _ends_in_order(events)


def _behind(wanted: list[tuple[str, str, bool]], places: set[int]) -> set[int]:
    """And whatever may be left out from there."""
    found = set(places)
    for at, (_, _, must) in enumerate(wanted):
        if at in found and not must:
            found.add(at + 1)
    return found


def _ends_in_order(events: list[Told]) -> Iterator[str]:
    seen = set[tuple[str, str]]()
    for event in events:
        about = f"{event} of {[(e.topic, e.who.exec) for e in events]}"
        exec = event.who.exec
        if ("delete", "") in seen:
            yield f"behind the deletion: {about}"
        if event.topic != "delete" and ("exit", "") in seen:
            yield f"behind init's end: {about}"
        if event.topic == "exit" and (("exec-started" if exec else "create"), exec) not in seen:
            yield f"an end before its begin: {about}"
        if event.topic == "delete" and ("exit", "") not in seen:
            yield f"deleted before its end: {about}"
        seen.add((event.topic, exec))


def completeness(h: History) -> Iterator[str]:
    """Everything is sent until containerd has it, and each end, unless containerd reports the rest itself."""
    for task in sorted({who.task for who in everybody(h)}):
        if h.orphaned(task) is not None:
            continue
        events = told_once(h, task)
        yield from (f"never taken: {event}" for event in events if not event.is_taken)
        there = [(event.topic, event.who.exec) for event in events]
        yield from (f"no end told: {who} in {there}" for who in _must_end(h, task) if ("exit", who.exec) not in there)
        for twice in {one for one in there if one[0] == "exit" and there.count(one) > 1}:
            yield f"two ends told: {twice} of {task} in {there}"


def _must_end(h: History, task: str) -> Iterator[Who]:
    """Those of whom a client has heard that they have ended."""
    return (who for who in everybody(h) if who.task == task and any(True for _ in sayings(h, who)))


def orphans(h: History) -> Iterator[str]:
    """Of the tasks of a dead relay containerd reports one end and one deletion, and exitd neither behind that."""
    for one in h.struck:
        for task in one.tasks if one.what == "relay" else ():
            published = [event.topic for event in h.published if event.who == Who(task)]
            if published != ["exit", "delete"]:
                yield f"containerd tells of {task}: {published}"
            if any(event.topic == "delete" for event in h.told if event.who.task == task):
                yield f"exitd tells of the deletion of {task}, as containerd does"
