"""Decide what becomes of a run directory that exitd did not make for a container it knows. Pure.

Ids of 64 hexadecimal digits are exitd's own; other programs mark the directories they make (shim/mark.py). A directory
without a mark is therefore provably a leftover of exitd if its id is of that kind, or if it belongs to an earlier run
of a container that exitd knows. Only such a directory is ever removed.
"""

from collections.abc import Mapping
from enum import StrEnum

from shim import record
from shim.frozen import field, frozen
from shim.mark import EXITDS_OWN_ID, ID, MARK, RUN, Mark, Started
from shim.names import CREATED, FIFO, LOCK, PLAN
from supervisor.model.lifecycle import Moment, events
from supervisor.model.values import Container, Event, Phase, Process, RunKey, Spec

STARTS_SECONDS = 10.0  # how long each step of making a directory may take before it counts as abandoned


class EntryKind(StrEnum):
    DIRECTORY = "directory"
    FILE = "file"
    FIFO = "fifo"
    LINK = "link"
    OTHER = "special file"


NEEDED: Mapping[str, EntryKind] = {
    MARK: EntryKind.FILE,
    PLAN: EntryKind.FILE,
    LOCK: EntryKind.FILE,
    record.NAME: EntryKind.FILE,
    FIFO: EntryKind.FIFO,
}


@frozen
class DirectoryEntry:
    """One name in the file system, read without following symbolic links."""

    kind: EntryKind
    uid: int
    open_to_others: bool = False  # group or others may write


@frozen
class UnknownRun:
    """A run directory as it was found. What could not be read is None; `unreadable` says why, by file name."""

    id: str
    run: str  # the directory's name, digits; empty if the container's directory has no run in it
    way: tuple[tuple[str, DirectoryEntry], ...]  # `c`, the container's directory, the run's: as many as exist
    entries: tuple[tuple[str, DirectoryEntry], ...] = ()
    mark: Mark | None = None
    planned: tuple[str, int] | None = None  # id and run in its plan
    init: Process | None = None  # as its shim noted it
    shim: Process | None = None  # alive
    started: Started | None = None
    init_alive: bool = False
    recorded: bool = False  # the exit is in the record
    quiet_seconds: float = 0.0  # since anything was last created in it
    unreadable: Mapping[str, str] = field(default_factory=dict)

    @property
    def key(self) -> RunKey:
        return RunKey(self.id, int(self.run))


@frozen
class KnownRuns:
    """What exitd knows about the id: its container, whether the ledger has an exit of this run, and of which
    process."""

    container: Container | None = None
    in_ledger: bool = False
    ended: Process | None = None


@frozen
class Adopt:
    """Adopt the container; `mark` is its maker's, `init` its process."""

    mark: Mark
    init: Process


@frozen
class Leave:
    """Do nothing now. `again_seconds` says when to look again; None: not before something changes."""

    again_seconds: float | None = None


@frozen
class Refuse:
    """Leave the directory as it is, unwatched. `why` names the thing and the next step."""

    why: str


@frozen
class Remove:
    """Remove the directory: it is exitd's own leftover."""


Verdict = Adopt | Leave | Refuse | Remove


def judge(found: UnknownRun, known: KnownRuns, uid: int) -> Verdict:
    """Decide about one directory. `uid` is the daemon's own."""
    c = known.container
    if c is not None and (str(c.run) == found.run or not c.clean):
        return Leave()
    if why := _foreign(found, uid):
        return Refuse(why)
    if _is_leftover(found, c):
        return Remove() if found.run else Leave()
    if not ID.fullmatch(found.id) or EXITDS_OWN_ID.fullmatch(found.id):
        return Refuse(f"the id {found.id!a} is none that can be adopted: ids of 64 hex digits are exitd's own")
    if not found.run:
        return _unfinished(found, "there is no run directory in it")
    if found.run != str(RUN):
        return Refuse(f"run {found.run} cannot be adopted, only run {RUN}")
    if c is not None:
        return Refuse(f"the id {found.id} is that of another container; make it anew under another")
    return _by_content(found, known)


def _is_leftover(found: UnknownRun, container: Container | None) -> bool:
    if any(name == MARK for name, _ in found.entries):
        return False
    earlier = container is not None and found.run != "" and int(found.run) < container.run
    return earlier or EXITDS_OWN_ID.fullmatch(found.id) is not None


def _foreign(found: UnknownRun, uid: int) -> str:
    """Return why the directory, or something in it, cannot be trusted; empty if it can."""
    for name, entry in found.way:
        if entry.kind is not EntryKind.DIRECTORY:
            return f"{name!a} is a {entry.kind}, not a directory"
    for name, entry in (*found.way, *found.entries):
        if entry.kind is EntryKind.LINK:
            return f"{name!a} is a link; nothing here may be one"
        if entry.uid not in (0, uid):
            return f"{name!a} belongs to uid {entry.uid}, not to root"
        if entry.open_to_others:
            return f"{name!a} can be written by others than its owner"
    return ""


def _by_content(found: UnknownRun, known: KnownRuns) -> Verdict:
    entries = dict(found.entries)
    for name, kind in NEEDED.items():
        if name not in entries:
            return _unfinished(found, f"{name} is missing: it was made by half, or not for exitd")
        if entries[name].kind is not kind:
            return Refuse(f"{name} is a {entries[name].kind}, must be a {kind}")
    if found.mark is None or found.planned is None:
        broken = MARK if found.mark is None else PLAN
        return _unfinished(found, f"{broken} cannot be read: {found.unreadable.get(broken, 'it is empty')}")
    if found.planned != (found.id, RUN):
        return Refuse(f"{PLAN} is of run {found.planned[1]} of {found.planned[0]!a}")
    if found.init is None:
        if found.shim is not None:  # it is in the middle of the runtime's create
            return Leave(STARTS_SECONDS)
        why = found.unreadable.get(CREATED)
        return _unfinished(found, f"{CREATED} cannot be read: {why}" if why else "no shim has made a container in it")
    if known.in_ledger:
        if known.ended == found.init:
            return Remove()
        return Refuse(f"the ledger has an exit of run {RUN} of {found.id} already; make it anew under another id")
    if found.started is None and found.init_alive and found.quiet_seconds < STARTS_SECONDS:
        return Leave(STARTS_SECONDS - found.quiet_seconds)
    return Adopt(found.mark, found.init)


def _unfinished(found: UnknownRun, why: str) -> Verdict:
    """Wait while its maker may still be at work, then refuse."""
    left = STARTS_SECONDS - found.quiet_seconds
    return Leave(left) if left > 0 else Refuse(why)


def container_of(found: UnknownRun, adopt: Adopt, name: str, state: str) -> Container:
    """Build the container that is adopted. `state` is the runtime's status, empty if the runtime can no longer be
    asked.

    If the start was not recorded, its time stays None. If the runtime says "created", the container can still be
    started.
    """
    mark, started = adopt.mark, found.started
    phase = Phase.CREATED if started is None and state == "created" else Phase.RUNNING
    phase = Phase.PAUSED if state == "paused" else phase
    return Container(
        id=found.id,
        spec=Spec(name=name, args=mark.args, bundle=mark.bundle, runtime=mark.runtime),
        phase=phase,
        run=RUN,
        created_ns=mark.made_ns,
        init=adopt.init,
        shim=found.shim,
        started_ns=started.realtime_ns if started is not None else None,
        started_boot_ns=started.boottime_ns if started is not None else None,
        clean=False,
        boot_id=mark.boot_id,
    )


def events_of(container: Container, moment: Moment) -> tuple[Event, ...]:
    """Return the events of an adoption, without the exit."""
    created = events(container, moment, "create", adopted="yes")
    if container.phase is Phase.CREATED:
        return created
    return *created, *events(container, moment, "start", adopted="yes", run=str(container.run))


def lost(container: Container, moment: Moment) -> Event:
    """Return the event for a running container whose run directory another program has removed."""
    (lost,) = events(container, moment, "directory-lost", run=str(container.run))
    return lost
