"""The steps of exitd: a look at the witnesses, an end on its way to the disk, and what follows it."""

from collections.abc import Iterable

from tests.protocol.processes import left
from tests.protocol.state import (
    ALIVE,
    BLANK,
    CHILD,
    CLEAN,
    COMMITTED,
    DONE,
    DOWN,
    ENDED,
    KEEPER,
    KNOWN,
    LIVE,
    NONE,
    REAPED,
    RUNG,
    SHIM,
    SHOWN,
    STARTING,
    STOPPED,
    UP,
    WAITS,
    WATCHED,
    ZOMBIE,
    Block,
    Database,
    Event,
    Row,
    Run,
    State,
)
from tests.protocol.step import Rules, Wrong, changed, step, with_run

# -- a look


def evidence(run: Run) -> bool:
    return run.record or run.fifo or run.entry


def known(run: Run, value: int, *, is_ordinary: bool = False) -> Run:
    return run._replace(phase=KNOWN, value=value, is_ordinary=is_ordinary, look="")


def looked_at(s: State) -> list[tuple[int, Run]]:
    return [(at, run) for at, run in enumerate(s.runs) if run.phase == LIVE and run.number] if s.exitd == UP else []


@step("exitd reads the record", "supervisor/monitor/witness.py:Watch._look", "the usual end: no other witness is asked")
def _(s: State, rules: Rules) -> Iterable[State]:
    return [with_run(s, at, known(run, run.life, is_ordinary=True)) for at, run in looked_at(s) if run.record]


@step("exitd looks at init", "supervisor/monitor/witness.py:Watch._init_state", "before every other witness")
def _(s: State, rules: Rules) -> Iterable[State]:
    is_last = rules.mutation == "exitd looks at init last"
    found = []
    for at, run in looked_at(s):
        if is_last and not evidence(run):
            found += [changed(s, at, look=BLANK)] if not run.look else []
        elif run.init in (ZOMBIE, REAPED) and run.look not in (run.init, BLANK):
            found.append(changed(s, at, look=run.init))
    return found


@step(
    "exitd judges",
    "supervisor/model/evidence.py:judge",
    "the highest witness that speaks; nobody is given up who may yet",
)
def _(s: State, rules: Rules) -> Iterable[State]:
    found = []
    for at, run in looked_at(s):
        verdict = judged(s, run, rules)
        if verdict is not None:
            found.append(with_run(s, at, verdict))
    return found


def judged(s: State, run: Run, rules: Rules) -> Run | None:
    """The run with the verdict; None: not yet."""
    seen = run.init if run.look == BLANK else run.look
    if seen not in (ZOMBIE, REAPED):
        return None
    if run.look == BLANK and seen == REAPED:
        return unknown(run, rules)
    if run.record:
        return known(run, run.life, is_ordinary=True)
    if run.fifo and not run.is_unrecorded:
        raise Wrong("a bare number is believed, and the record that says more is about to be written")
    if run.fifo and not rules.bound.wide:
        return known(run, run.life)
    if run.fifo and rules.mutation == "a number that is none comes before the keeper":
        return unknown(run, rules)
    if run.entry:
        return known(run, run.life)
    if seen == ZOMBIE:
        is_stuck = run.is_stopped or (run.parent == KEEPER and s.keeper == STOPPED)
        return known(run, run.life) if is_stuck else None
    if run.holds_pidfd and rules.bound.kernel:
        return known(run, run.life)
    if may_write(s, run) and rules.mutation != "a keeper's pidfd is not waited for":
        return None
    return unknown(run, rules)


def may_write(s: State, run: Run) -> bool:
    """Whether a keeper holds the pidfd of an init that is another's child, and has not looked at its end yet."""
    return run.kept == WATCHED and not run.keeper_at and s.keeper != DOWN


def unknown(run: Run, rules: Rules) -> Run:
    """The verdict that nobody knows, which must be so. Raises Wrong."""
    if evidence(run) and not (run.fifo and rules.bound.wide and not run.record and not run.entry):
        raise Wrong("an end is called unknown, and a witness has written it down")
    if run.init == ZOMBIE:
        raise Wrong("an end is called unknown, and its zombie is there")
    if run.kept == WATCHED and not run.keeper_at and rules.bound.kernel:
        raise Wrong("an end is called unknown, and a keeper that lives is about to write it down")
    if run.init == REAPED and not (run.has_shim_died and run.has_keeper_died):
        raise Wrong("an end is called unknown, and not both of its monitors have died")
    return known(run, 0)


@step(
    "exitd finds another boot",
    "supervisor/engine/recovery.py:_after_reboot",
    "what ran has ended with the host: unknown",
)
def _(s: State, rules: Rules) -> Iterable[State]:
    row = s.versions[-1].rows
    lost = [(at, run) for at, run in enumerate(s.runs) if run.phase in (LIVE, STARTING) and s.exitd == UP]
    return [with_run(s, at, known(run, 0)) for at, run in lost if (of := row[at]) is not None and of.boot != s.boot]


# -- onto the disk


def newest(s: State) -> Database:
    return s.versions[-1]


def written(s: State, new: Database, *, flush: bool) -> State:
    """The state with one transaction more. Flushed, it takes all before it onto the disk, and frees the page."""
    if s.void > new.void:
        new = new._replace(void=s.void)
    if not flush:
        return s._replace(versions=(*s.versions, new))
    only_in_ring = {run.seq for run in s.runs if run.phase in (RUNG, SHOWN)}
    needed = s.page is not None and s.page.seq in only_in_ring
    return s._replace(versions=(new,), used=s.used if needed else ())


def with_row(db: Database, at: int, row: Row) -> Database:
    return db._replace(rows=(*db.rows[:at], row, *db.rows[at + 1 :]))


def end_of(at: int, run: Run) -> tuple[int, int, int]:
    return at, run.number, run.value


def event_of(at: int, run: Run, seq: int) -> Event:
    return seq, "exit", at, run.number, run.value


def has_exit(db: Database, at: int, number: int) -> bool:
    return any(each[0] == at and each[1] == number for each in db.exits)


def ended(db: Database, at: int, run: Run, seq: int, boot: int) -> Database:
    new = with_row(db, at, Row(run.number, ENDED, boot))
    return new._replace(exits=db.exits | {end_of(at, run)}, events=db.events | {event_of(at, run, seq)})


def in_phase(s: State, phase: str) -> list[tuple[int, Run]]:
    return [(at, run) for at, run in enumerate(s.runs) if run.phase == phase] if s.exitd == UP else []


def is_in_a_turn(s: State) -> bool:
    """The ring's write and what shows it are one turn of the loop: nothing else of the loop comes between."""
    return any(run.phase == RUNG for run in s.runs)


@step(
    "exitd writes the ring",
    "supervisor/store/ringends.py:RingEnds.begin",
    "an ordinary end, with its event's number: one flushed write",
)
def _(s: State, rules: Rules) -> Iterable[State]:
    if not s.has_ring or (s.used and rules.mutation != "a page of the ring is used again before its end is flushed"):
        return []
    found = []
    for at, run in in_phase(s, KNOWN):
        if run.is_ordinary:
            seq = s.given + 1
            new = changed(s, at, phase=RUNG, seq=seq)
            page = Block(s.block + 1, end_of(at, run), seq)
            found.append(new._replace(page=page, used=(page.number,), block=page.number, given=seq))
    return found if not is_in_a_turn(s) else []


@step(
    "exitd commits",
    "supervisor/store/groupcommit.py:Writer._transact",
    "every other end: one flushed transaction of exit, event and row",
)
def _(s: State, rules: Rules) -> Iterable[State]:
    found = []
    for at, run in in_phase(s, KNOWN):
        if rules.mutation == "a client is answered before the flush":
            new = changed(s, at, phase=COMMITTED, seq=s.given + 1)
            found.append(
                written(new._replace(given=s.given + 1), ended(newest(s), at, run, s.given + 1, s.boot), flush=False)
            )
        elif has_exit(newest(s), at, run.number):
            row = with_row(newest(s), at, Row(run.number, ENDED, s.boot))
            found.append(written(changed(s, at, phase=ENDED), row, flush=True))
        else:
            seq = s.given + 1
            new = changed(s, at, phase=COMMITTED, seq=seq)._replace(given=seq)
            found.append(written(new, ended(newest(s), at, run, seq, s.boot), flush=True))
    return found


@step(
    "exitd shows",
    "supervisor/engine/node.py:Node._show",
    "Waits are answered and the event is published: it is on the disk",
)
def _(s: State, rules: Rules) -> Iterable[State]:
    shown = [(at, run, SHOWN) for at, run in in_phase(s, RUNG)] + [
        (at, run, ENDED) for at, run in in_phase(s, COMMITTED)
    ]
    found = []
    for at, run, phase in shown:
        new = changed(s, at, phase=phase)
        found.append(heard(new._replace(told=s.told | {end_of(at, run)})))
    return found


def heard(s: State) -> State:
    """A subscriber receives what is published, by number: what is stored and not shown yet holds up the rest."""
    hidden = min((run.seq for run in s.runs if run.phase in (RUNG, COMMITTED)), default=1 << 30)
    events = {each for each in newest(s).events if s.cursor < each[0] < hidden}
    for at, run in enumerate(s.runs):
        if run.phase == SHOWN and s.cursor < run.seq < hidden:
            events.add(event_of(at, run, run.seq))
    return s._replace(heard=s.heard | events, cursor=max((each[0] for each in events), default=s.cursor))


@step(
    "exitd takes over",
    "supervisor/store/ringends.py:apply",
    "the database gets what the ring has, without a flush, and the mark with it",
)
def _(s: State, rules: Rules) -> Iterable[State]:
    some = in_phase(s, SHOWN)
    if not some or is_in_a_turn(s):
        return []
    db, new = newest(s), s
    for at, run in some:
        db = ended(db, at, run, run.seq, s.boot)
        new = changed(new, at, phase=ENDED)
    return [written(new, db._replace(mark=s.block), flush=False)]


@step(
    "exitd commits something else",
    "supervisor/store/database.py:Store.commit_soon",
    "an event of another container, flushed",
)
def _(s: State, rules: Rules) -> Iterable[State]:
    if s.exitd != UP or is_in_a_turn(s) or s.faults[OTHERS] == 0:
        return []
    seq, db = s.given + 1, newest(s)
    new = s._replace(given=seq, faults=(*s.faults[:OTHERS], s.faults[OTHERS] - 1, *s.faults[OTHERS + 1 :]))
    return [heard(written(new, db._replace(events=db.events | {(seq, "other", -1, 0, 0)}), flush=True))]


OTHERS = 0  # the place of "another event" in State.faults


# -- what follows


@step(
    "exitd ends a stuck shim",
    "supervisor/monitor/witness.py:ShimWatch.kill_stopped_shim",
    "one that stands still, after its end is stored",
)
def _(s: State, rules: Rules) -> Iterable[State]:
    return [with_run(s, at, left(s, run)) for at, run in in_phase(s, ENDED) if run.is_stopped]


@step(
    "exitd cleans up",
    "supervisor/engine/node.py:Node._clean_up",
    "the keeper may forget the run, its directory goes, and that is noted",
)
def _(s: State, rules: Rules) -> Iterable[State]:
    found = []
    for at, run in in_phase(s, ENDED):
        if run.shim in (DONE, NONE) and run.init in (REAPED, NONE) and not is_in_a_turn(s):
            done = with_run(s, at, bare(run)._replace(phase=CLEAN, holds_pidfd=False))
            found.append(written(done, with_row(newest(s), at, Row(run.number, CLEAN, s.boot)), flush=False))
    if rules.mutation == "a run is cleaned up before its end is stored":
        found += [with_run(s, at, bare(run)) for at, run in in_phase(s, KNOWN) if run.shim == DONE and evidence(run)]
    return found


def bare(run: Run) -> Run:
    return run._replace(record=False, fifo=False, entry=False, kept="", keeper_at="")


@step(
    "exitd begins a run",
    "supervisor/engine/runs.py:Runs.launch",
    "the next one, when nothing of the last is left: the intention is not flushed",
)
def _(s: State, rules: Rules) -> Iterable[State]:
    found = []
    for at, run in in_phase(s, CLEAN):
        if run.number < rules.bound.runs and not is_in_a_turn(s):
            kept = CHILD if s.keeper == UP else ""
            new = Run(run.number + 1, s.lives + 1, ALIVE, SHIM, WAITS, phase=STARTING, holds_pidfd=True, kept=kept)
            new = new._replace(has_keeper_died=not kept)
            row = Row(run.number + 1, STARTING, s.boot)
            found.append(
                written(with_run(s, at, new), with_row(newest(s), at, row), flush=False)._replace(lives=s.lives + 1)
            )
    return found


@step(
    "exitd stores a start",
    "supervisor/engine/exits.py:Exits.held_back",
    "the start is stored, flushed, before an end that was seen meanwhile",
)
def _(s: State, rules: Rules) -> Iterable[State]:
    found = []
    for at, run in in_phase(s, STARTING):
        if run.init == NONE or is_in_a_turn(s):
            continue
        seq = s.given + 1
        db = with_row(newest(s), at, Row(run.number, LIVE, s.boot))
        db = db._replace(events=db.events | {(seq, "start", at, run.number, 0)})
        found.append(heard(written(changed(s, at, phase=LIVE)._replace(given=seq), db, flush=True)))
    return found


# -- a new exitd


@step(
    "exitd begins",
    "supervisor/store/ringends.py:opened",
    "takes over what only the ring has, flushed; then looks at every run",
)
def _(s: State, rules: Rules) -> Iterable[State]:
    if s.exitd == UP:
        return []
    db, page = newest(s), s.page
    is_new = page is not None and page.number > db.mark and page.number != db.void
    if rules.mutation == "a block whose write failed counts at the next start" and page is not None:
        is_new = page.number > db.mark
    s = s._replace(exitd=UP, used=(), has_ring=True, void=0)
    if page is not None and is_new and rules.mutation != "the ring is not read at a start":
        at, number, value = page.end
        if not has_exit(db, at, number):
            of = db.rows[at]
            db = ended(db, at, Run(number=number, value=value), page.seq, of.boot if of is not None else s.boot)
        db = db._replace(mark=page.number)
        s = s._replace(versions=(db,))
    elif rules.mutation != "the ring's page is used again before the mark is flushed":
        s = s._replace(versions=(db,))
    block = max(db.mark, db.void, page.number if page is not None and is_new else 0)
    s = s._replace(block=block, given=max((each[0] for each in db.events), default=0))
    runs = tuple(found_again(s, run, row) for run, row in zip(s.runs, db.rows, strict=True))
    told = s.told | db.exits  # who asks late is answered
    return [heard(s._replace(runs=runs, told=told))]


def found_again(s: State, run: Run, row: Row | None) -> Run:
    if row is None:
        return run
    run = run._replace(number=row.run, phase=row.phase, look="", value=0, seq=0, is_ordinary=False)
    return run._replace(holds_pidfd=run.init in (ALIVE, ZOMBIE))


def forgotten(run: Run) -> Run:
    """The run when exitd has been killed."""
    has_fifo = run.fifo and run.shim not in (DONE, NONE)
    bare = run._replace(phase="", holds_pidfd=False, look="", value=0, is_ordinary=False, seq=0)
    return bare._replace(fifo=has_fifo)
