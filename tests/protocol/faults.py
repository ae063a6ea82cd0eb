"""What may happen between any two steps."""

from collections.abc import Iterable

from tests.protocol.daemon import forgotten, in_phase, is_in_a_turn
from tests.protocol.processes import left, shims
from tests.protocol.state import (
    DONE,
    DOWN,
    HOST,
    KEEPER,
    KNOWN,
    LOOKED,
    NONE,
    STOPPED,
    UNSAFE,
    UP,
    Block,
    Run,
    State,
)
from tests.protocol.step import Rules, changed, fault, with_run


@fault("a shim is killed", "kill -9")
def _(s: State, rules: Rules) -> Iterable[State]:
    return [with_run(s, at, left(s, run)) for at, run in enumerate(s.runs) if run.shim not in (NONE, DONE)]


@fault("a shim is stopped", "kill -STOP")
def _(s: State, rules: Rules) -> Iterable[State]:
    living = [(at, run) for at, run in enumerate(s.runs) if run.shim not in (NONE, DONE) and not run.is_stopped]
    return [changed(s, at, is_stopped=True) for at, _ in living]


@fault("a stopped shim goes on", "kill -CONT, which nothing may depend on")
def _(s: State, rules: Rules) -> Iterable[State]:
    return [changed(s, at, is_stopped=False) for at, run in enumerate(s.runs) if run.is_stopped]


@fault("the keeper is killed", "kill -9; its journal stays, its zombies go to the host's init")
def _(s: State, rules: Rules) -> Iterable[State]:
    return [s._replace(keeper=DOWN, runs=tuple(without_keeper(run) for run in s.runs))] if s.keeper != DOWN else []


def without_keeper(run: Run) -> Run:
    parent = HOST if run.parent == KEEPER else run.parent
    has_died = run.has_keeper_died or bool(run.kept)
    return run._replace(parent=parent, kept="", keeper_at="", has_keeper_died=has_died)


@fault("the keeper is stopped", "kill -STOP")
def _(s: State, rules: Rules) -> Iterable[State]:
    return [s._replace(keeper=STOPPED)] if s.keeper == UP else []


@fault("exitd is killed", "kill -9; what its database has, flushed or not, the next one finds")
def _(s: State, rules: Rules) -> Iterable[State]:
    if s.exitd != UP:
        return []
    relay = s.relay._replace(is_handed=False)
    gone = s._replace(exitd=DOWN, used=(), block=0, has_ring=True, void=0, given=0, relay=relay)
    return [gone._replace(runs=tuple(map(forgotten, s.runs)))]


@fault("the relay is killed", "kill -9; what it has sent may or may not have been taken")
def _(s: State, rules: Rules) -> Iterable[State]:
    return [s._replace(relay=s.relay._replace(is_up=False, has_died=True, flight=None))] if s.relay.is_up else []


@fault(
    "the power fails", "every process and the state directory are gone; of the disk, what was flushed, and perhaps more"
)
def _(s: State, rules: Rules) -> Iterable[State]:
    runs = tuple(Run() for _ in s.runs)
    pages: list[Block | None] = [s.page]
    if s.page is not None and not s.page.is_safe:
        pages = [None, s.page._replace(is_safe=True)]
    off = s._replace(
        boot=s.boot + 1, runs=runs, keeper=DOWN, exitd=DOWN, used=(), block=0, has_ring=True, void=0, given=0
    )
    return [off._replace(versions=(kept,), page=page) for kept in s.versions for page in pages]


@fault("a commit fails", "a full disk, or an error of it: nothing is stored, and the event's number is void")
def _(s: State, rules: Rules) -> Iterable[State]:
    return [s._replace(given=s.given + 1)] if in_phase(s, KNOWN) and not is_in_a_turn(s) else []


@fault(
    "a write to the ring fails",
    "the block may be in the file all the same, for a while or for good; the ring is given up",
)
def _(s: State, rules: Rules) -> Iterable[State]:
    if not s.has_ring or s.used or is_in_a_turn(s):
        return []
    failed = s._replace(has_ring=False, void=s.block + 1, block=s.block + 1, given=s.given + 1)
    found = []
    for at, run in in_phase(s, KNOWN):
        if run.is_ordinary:
            page = Block(failed.block, (at, run.number, run.value), failed.given, is_safe=False)
            found += [failed, failed._replace(page=page)]
    return found


@fault("a record cannot be written", "an error of the file system: the shim reports, and does not reap")
def _(s: State, rules: Rules) -> Iterable[State]:
    return [changed(s, at, shim=UNSAFE, is_unrecorded=True) for at, _ in shims(s, LOOKED)]
