"""Compare what programs noted about their own ends with what exitd reported. Pure: values in, a verdict out."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from supervisor.monitor.keeper import REST_SECONDS

NEVER_STARTED = "never-started"
UNKNOWN_NUMBER = 255
SIGKILL = 9  # the only signal that the rig sends to containers without a trap
SIGHUP = 1  # from the kernel, when the last one who held a terminal's other end has died
# With one of these on its row an end by SIGKILL is right even behind a noted code: the signal came between the two.
ASKED = frozenset({"kill", "stop", "pause-exit", "container-exit", "timeout"})
PAUSE_ENDS = frozenset({("exited", 0), ("signaled", SIGKILL)})


@dataclass(frozen=True, slots=True)
class Truth:
    """One program's note about itself. `token` is empty for a container's own run, else it names the exec."""

    life: str  # the container's name
    token: str
    ticks: int  # start time, clock ticks since boot
    code: int | None  # None: it began, and was ended before it could note a code


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the ledger, or the exit in one event."""

    life: str
    container: str
    run: int
    exec_id: str
    ticks: int  # 0: exitd does not know the process
    kind: str  # exited | signaled | unknown
    number: int | None  # code or signal
    cause: str = ""
    reason: str = "self"
    source: str = "record"

    @property
    def key(self) -> tuple[str, int, str]:
        return self.container, self.run, self.exec_id


@dataclass(frozen=True, slots=True)
class Failed:
    """The API answered that this exec did not come to be."""

    life: str
    token: str


@dataclass(frozen=True, slots=True)
class Heard:
    """The number that a client of containerd heard of a task's end, or of an exec's."""

    life: str
    token: str
    number: int


@dataclass(frozen=True, slots=True)
class TaskExit:
    """An event of containerd's about the end of a task, or of one of its execs. Two tasks of one name differ by pid."""

    life: str
    is_exec: bool
    id: str  # the task's or the exec's, as containerd knows it
    pid: int
    number: int


@dataclass(frozen=True, slots=True)
class Death:
    """A victim that the rig killed. `life` is empty but for shims, `exec_id` but for shims of execs."""

    victim: str  # daemon | keeper | shim | runtime | relay | containerd
    at: float
    life: str = ""
    exec_id: str = ""


@dataclass(frozen=True, slots=True)
class Stand:
    """A victim that the rig stopped, from one moment to another."""

    victim: str
    begin: float
    end: float


@dataclass(frozen=True, slots=True)
class Seen:
    """All that was observed in one attack."""

    truths: Sequence[Truth] = ()
    ledger: Sequence[Row] = ()
    events: Sequence[Row] = ()  # of events of type exit
    answers: Sequence[Row] = ()  # to waiting clients
    heard: Sequence[Heard] = ()
    task_exits: Sequence[TaskExit] = ()
    failed: Sequence[Failed] = ()
    deaths: Sequence[Death] = ()
    stands: Sequence[Stand] = ()
    spans: dict[str, tuple[float, float]] = field(default_factory=dict)  # by life: its begin and end
    pauses: frozenset[str] = frozenset()  # lives that note nothing: pause containers
    terminals: frozenset[tuple[str, str]] = frozenset()  # life and token of what has a terminal
    leftovers: Sequence[str] = ()
    stuck: Sequence[str] = ()  # steps that did not come to an end within their limit
    pidfd_tells: bool = False  # the kernel reports the status of a reaped child through a pidfd (6.15 and newer)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is wrong, one sentence each. All empty: exitd kept its promise."""

    invented: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    twice: tuple[str, ...] = ()
    failed_but_ran: tuple[str, ...] = ()
    leaked: tuple[str, ...] = ()
    stuck: tuple[str, ...] = ()

    @property
    def good(self) -> bool:
        return not any(self.wrongs().values())

    def wrongs(self) -> dict[str, tuple[str, ...]]:
        return {
            "invented": self.invented,
            "lost": self.lost,
            "twice": self.twice,
            "failed_but_ran": self.failed_but_ran,
            "leaked": self.leaked,
            "stuck": self.stuck,
        }


def judge(seen: Seen) -> Verdict:
    pairs, lost = _pair(seen)
    invented = [wrong for row in seen.ledger for wrong in _invented(seen, row, pairs.get(row))]
    invented += _differing(seen.ledger, seen.events, "event") + _differing(seen.ledger, seen.answers, "answer")
    invented += _misheard(seen) + _wrong_task_exits(seen)
    return Verdict(
        invented=tuple(invented),
        lost=(*lost, *_untold(seen.ledger, seen.events)),
        twice=(*_twice(seen.ledger, "ledger"), *_twice(seen.events, "events"), *_task_exits_twice(seen)),
        failed_but_ran=tuple(_failed_but_ran(seen)),
        leaked=tuple(seen.leftovers),
        stuck=tuple(seen.stuck),
    )


def counts(rows: Iterable[Row]) -> dict[str, int]:
    """How many rows of each kind and source: `exited by record`."""
    return dict(sorted(Counter(f"{_kind(row)} by {row.source}" for row in rows).items()))


def deaths(died: Iterable[Death]) -> dict[str, int]:
    return dict(sorted(Counter(death.victim for death in died).items()))


def _kind(row: Row) -> str:
    return NEVER_STARTED if row.cause == NEVER_STARTED else row.kind


def _pair(seen: Seen) -> tuple[dict[Row, Truth], list[str]]:
    """Each row's truth, and the truths that no row is about.

    A row names its process by its start time. One that names none can only stand for a truth that no other row took.
    """
    failed = {(each.life, each.token) for each in seen.failed}
    waiting = defaultdict[tuple[str, bool, int], list[Truth]](list)
    for truth in seen.truths:
        if (truth.life, truth.token) not in failed:
            waiting[truth.life, bool(truth.token), truth.ticks].append(truth)
    pairs: dict[Row, Truth] = {}
    for row in seen.ledger:
        if mine := waiting.get((row.life, bool(row.exec_id), row.ticks)):
            pairs[row] = mine.pop(_best(row, mine))
    rest = [truth for truths in waiting.values() for truth in truths]
    for row in (row for row in seen.ledger if row.ticks == 0 and row not in pairs):
        like = [each for each in rest if (each.life, bool(each.token)) == (row.life, bool(row.exec_id))]
        if like:
            pairs[row] = like[0]
            rest.remove(like[0])
    return pairs, [f"no row for {truth}" for truth in rest]


def _best(row: Row, truths: Sequence[Truth]) -> int:
    """Two execs of one container may begin within the same tick: the code says which is meant."""
    code = row.number if row.kind == "exited" else None
    return next((at for at, truth in enumerate(truths) if truth.code == code), 0)


def _invented(seen: Seen, row: Row, truth: Truth | None) -> list[str]:
    """Why the row says what is not known to be so; nothing when it is right."""
    if row.life in seen.pauses and not row.exec_id:
        right = row.kind == "unknown" or (row.kind, row.number) in PAUSE_ENDS
        return [] if right else [f"a pause container cannot end so: {row}"]
    match row.kind:
        case "exited":
            right = truth is not None and truth.code == row.number and row.source != "none"
            return [] if right else [f"{row}, but the truth is {truth}"]
        case "signaled":
            right = _may_be_killed(row, truth) if row.number == SIGKILL else _hung_up(seen, row, truth)
            return [] if right else [f"{row}, but the truth is {truth}"]
        case "unknown":
            return _wrongly_unknown(seen, row, truth)
    return [f"no such kind: {row}"]


def _may_be_killed(row: Row, truth: Truth | None) -> bool:
    """A program that noted its code ends by SIGKILL only where it was asked for. Without a note, it was killed."""
    return truth is None or truth.code is None or row.reason in ASKED


def _hung_up(seen: Seen, row: Row, truth: Truth | None) -> bool:
    """Its shim and the keeper held the other end of its terminal, and both were killed. The keeper gets an exec's when
    the runtime has returned, and the program runs already: until then its shim alone holds it."""
    mine = {token for life, token in seen.terminals if life == row.life and bool(token) == bool(row.exec_id)}
    has_terminal = truth.code is None and truth.token in mine if truth is not None else bool(row.exec_id and mine)
    return row.number == SIGHUP and has_terminal and _were_killed(seen, row, set() if row.exec_id else {"keeper"})


def _wrongly_unknown(seen: Seen, row: Row, truth: Truth | None) -> list[str]:
    if not row.cause or row.number is not None:
        return [f"an unknown end has a cause and no number: {row}"]
    if row.cause == NEVER_STARTED:
        return [] if truth is None else [f"{row}, but it noted {truth}"]
    if _witnesses_died(seen, row) or (truth is None and _anybody_died(seen, row)):
        return []
    return [f"{row}, but {truth}, and a witness lived; killed meanwhile: {_killed_meanwhile(seen, row.life)}"]


def _killed_meanwhile(seen: Seen, life: str) -> str:
    """Each with its seconds since the life began, and with whose shim it was."""
    begin, _ = seen.spans.get(life, (0.0, 0.0))
    during = _during(seen, life)
    words = [f"{death.victim} {death.life} {death.exec_id}".rstrip() for death in during]
    return ", ".join(f"{word} +{death.at - begin:.2f} s" for word, death in zip(words, during, strict=True)) or "nobody"


def _witnesses_died(seen: Seen, row: Row) -> bool:
    """Whoever could have seen the end was killed during the life; where pidfds report, the daemon is a witness too.

    A keeper that stood still has no part in shims that are made meanwhile, or shortly afterwards. The daemon, their
    parent then, has from nobody but the shim which process it is about.
    """
    if row.ticks == 0 and _keeper_stood(seen, row):
        return _were_killed(seen, row, set())
    return _were_killed(seen, row, {"keeper", "daemon"} if seen.pidfd_tells else {"keeper"})


def _keeper_stood(seen: Seen, row: Row) -> bool:
    begin, end = seen.spans.get(row.life, (0.0, 0.0))
    keepers = (stand for stand in seen.stands if stand.victim == "keeper")
    return any(stand.begin <= end and begin <= stand.end + REST_SECONDS for stand in keepers)


def _anybody_died(seen: Seen, row: Row) -> bool:
    """Somebody was killed who makes it: of what did not begin then it may not be known that it did not."""
    mine = {("shim", row.life, row.exec_id), ("shim", row.life, "")}
    died = _during(seen, row.life)
    return any(death.victim != "shim" or (death.victim, death.life, death.exec_id) in mine for death in died)


def _during(seen: Seen, life: str) -> list[Death]:
    begin, end = seen.spans.get(life, (0.0, 0.0))
    return [death for death in seen.deaths if begin <= death.at <= end]


def _were_killed(seen: Seen, row: Row, others: set[str]) -> bool:
    """The row's own shim and all these others, during its life."""
    during = _during(seen, row.life)
    names = {death.victim for death in during if death.victim != "shim"}
    shim = any(death.victim == "shim" and death.life == row.life and death.exec_id == row.exec_id for death in during)
    return shim and others <= names


def _twice(rows: Iterable[Row], where: str) -> list[str]:
    """By its key, and by the process: no two rows are about the same end."""
    rows = list(rows)
    keys = Counter(row.key for row in rows)
    processes = Counter((row.life, bool(row.exec_id), row.ticks, row.run, row.exec_id) for row in rows if row.ticks)
    found = [f"{count} times in the {where}: {key}" for key, count in keys.items() if count > 1]
    runs = Counter((life, ticks) for life, is_exec, ticks, _, _ in processes if not is_exec)
    return found + [f"{count} runs in the {where} of one process: {name}" for name, count in runs.items() if count > 1]


def _untold(ledger: Iterable[Row], events: Iterable[Row]) -> list[str]:
    told = {row.key for row in events}
    return [f"no event for {row}" for row in ledger if row.key not in told]


def _differing(ledger: Iterable[Row], others: Iterable[Row], what: str) -> list[str]:
    known = {row.key: row for row in ledger}
    return [f"the {what} {row}, the ledger {known.get(row.key)}" for row in others if known.get(row.key) != row]


def _misheard(seen: Seen) -> list[str]:
    """containerd hears what the ledger says. Of a task whose relay, or containerd itself, was killed it may hear that
    nobody knows: 255."""
    said = _numbers(seen)
    return [
        f"{each}, the ledger {said[each.life, bool(each.token)]}"
        for each in seen.heard
        if each.number not in said[each.life, bool(each.token)] and not _may_not_know(seen, each)
    ]


def _wrong_task_exits(seen: Seen) -> list[str]:
    """containerd publishes the ledger's number, or 255 where it had lost the relay. Of a task that was never made it
    cleans up behind the relay too, and publishes 255 for process 0: that is no end."""
    said = _numbers(seen)
    return [
        f"{each}, the ledger {said[each.life, each.is_exec]}"
        for each in seen.task_exits
        if each.number not in said[each.life, each.is_exec]
        and not (each.number == UNKNOWN_NUMBER and (each.pid == 0 or _lost_its_relay(seen, each.life)))
    ]


def _task_exits_twice(seen: Seen) -> list[str]:
    """A relay that is killed between containerd's answer and its note, and a containerd that cleans up behind a relay,
    may say it once more: decision 26."""
    often = Counter((each.life, each.is_exec, each.id, each.pid) for each in seen.task_exits)
    return [
        f"{count} events of containerd's: {life}, {id}, pid {pid}, {_numbers_of(seen, id, pid)}; killed meanwhile: "
        f"{_killed_meanwhile(seen, life)}"
        for (life, _, id, pid), count in often.items()
        if count > 1 and not _lost_its_relay(seen, life)
    ]


def _numbers_of(seen: Seen, id: str, pid: int) -> list[int]:
    return [each.number for each in seen.task_exits if (each.id, each.pid) == (id, pid)]


def _numbers(seen: Seen) -> dict[tuple[str, bool], set[int]]:
    """What the ledger says, as containerd has it: of each life's own ends, and of those of its execs."""
    said = defaultdict[tuple[str, bool], set[int]](set)
    for row in seen.ledger:
        said[row.life, bool(row.exec_id)].add(_folded(row))
    return said


def _folded(row: Row) -> int:
    """As exit(3) and shells have it."""
    if row.number is None:
        return UNKNOWN_NUMBER
    return row.number if row.kind == "exited" else 128 + row.number


def _may_not_know(seen: Seen, each: Heard) -> bool:
    return each.number == UNKNOWN_NUMBER and _lost_its_relay(seen, each.life)


def _lost_its_relay(seen: Seen, life: str) -> bool:
    return any(death.victim in ("relay", "containerd") for death in _during(seen, life))


def _failed_but_ran(seen: Seen) -> list[str]:
    began = {(truth.life, truth.token): truth for truth in seen.truths if truth.token}
    return [f"{each}, but {began[each.life, each.token]}" for each in seen.failed if (each.life, each.token) in began]
