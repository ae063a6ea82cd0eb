"""The steps of init, its shim, the keeper and the host's init: who reaps, and what is written before that."""

from collections.abc import Iterable

from tests.protocol.state import (
    ALIVE,
    CHILD,
    DONE,
    DOWN,
    HOST,
    KEEPER,
    LOOKED,
    REAPED,
    RECORDED,
    REPORTED,
    SEEN,
    SHIM,
    STOPPED,
    UNSAFE,
    UP,
    WAITS,
    WATCHED,
    WRITTEN,
    ZOMBIE,
    Run,
    State,
)
from tests.protocol.step import Rules, changed, step, with_run


def left(s: State, run: Run) -> Run:
    """The run when its shim has gone: init is the next subreaper's, and nobody but exitd has the fifo open."""
    run = run._replace(shim=DONE, is_stopped=False)
    if run.init in (ALIVE, ZOMBIE):
        next_one = KEEPER if run.kept == CHILD else HOST
        run = run._replace(parent=next_one if run.parent == SHIM else run.parent, has_shim_died=True)
    return run._replace(fifo=run.fifo and s.exitd == UP)


def reaped(s: State, run: Run) -> Run:
    """The kernel keeps the status for who holds a pidfd."""
    return run._replace(init=REAPED)


@step("init ends", "shim/core/loop.c:on_signal", "init becomes a zombie, and its parent gets SIGCHLD")
def _(s: State, rules: Rules) -> Iterable[State]:
    return [changed(s, at, init=ZOMBIE) for at, run in enumerate(s.runs) if run.init == ALIVE]


def shims(s: State, at: str) -> list[tuple[int, Run]]:
    return [(n, run) for n, run in enumerate(s.runs) if run.shim == at and not run.is_stopped]


@step("shim looks", "shim/core/wait.c:wait_look", "the shim finds the zombie and leaves it one (WNOWAIT)")
def _(s: State, rules: Rules) -> Iterable[State]:
    return [changed(s, at, shim=LOOKED) for at, run in shims(s, WAITS) if run.init == ZOMBIE and run.parent == SHIM]


@step("shim records", "shim/core/reap.c:write_record", "one pwrite of the whole record, into blocks that exist already")
def _(s: State, rules: Rules) -> Iterable[State]:
    if rules.mutation == "the fifo's byte comes before the record":
        return [changed(s, at, shim=RECORDED, record=True) for at, run in shims(s, LOOKED) if run.fifo]
    if rules.mutation == "the shim reaps before it records":
        return [changed(s, at, shim=RECORDED, record=True) for at, run in shims(s, LOOKED) if run.init == REAPED]
    return [changed(s, at, shim=RECORDED, record=True) for at, _ in shims(s, LOOKED)]


@step("shim reports", "shim/core/shim.c:shim_report", "four bytes into the fifo")
def _(s: State, rules: Rules) -> Iterable[State]:
    found = [changed(s, at, shim=REPORTED, fifo=True) for at, _ in shims(s, RECORDED)]
    found += [changed(s, at, fifo=True) for at, run in shims(s, UNSAFE) if not run.fifo]
    if rules.mutation == "the fifo's byte comes before the record":
        found += [changed(s, at, fifo=True) for at, run in shims(s, LOOKED) if not run.fifo]
    return found


@step("shim reaps", "shim/core/reap.c:reap_children", "waitid without WNOWAIT; never what could not be recorded")
def _(s: State, rules: Rules) -> Iterable[State]:
    at_what = LOOKED if rules.mutation == "the shim reaps before it records" else REPORTED
    return [with_run(s, at, reaped(s, run)) for at, run in shims(s, at_what) if run.init == ZOMBIE]


@step(
    "shim leaves", "shim/core/main.c:finish", "when init is reaped, or its end could not be recorded and was reported"
)
def _(s: State, rules: Rules) -> Iterable[State]:
    done = [(at, run) for at, run in shims(s, REPORTED) if run.init == REAPED]
    unsafe = [(at, run) for at, run in shims(s, UNSAFE) if run.fifo]
    return [with_run(s, at, left(s, run)) for at, run in (*done, *unsafe)]


@step("shim registers", "shim/core/heir.c:knock", "with the next keeper, while init lives; that one takes init's pidfd")
def _(s: State, rules: Rules) -> Iterable[State]:
    return [
        changed(s, at, kept=WATCHED)
        for at, run in shims(s, WAITS)
        if s.keeper == UP and not run.kept and run.init == ALIVE
    ]


@step("keeper begins", "shim/keeper/main.c:start", "a new keeper with an empty journal; the old journals stay")
def _(s: State, rules: Rules) -> Iterable[State]:
    return [s._replace(keeper=UP)] if s.keeper == DOWN else []


@step("keeper goes on", "shim/keeper/main.c:turn", "SIGCONT to one that was stopped")
def _(s: State, rules: Rules) -> Iterable[State]:
    return [s._replace(keeper=UP)] if s.keeper == STOPPED else []


def orphans(s: State, at: str) -> list[tuple[int, Run]]:
    if s.keeper != UP:
        return []
    return [(n, r) for n, r in enumerate(s.runs) if r.init == ZOMBIE and r.parent == KEEPER and r.keeper_at == at]


@step("keeper looks", "shim/keeper/children.c:whose", "the keeper finds the zombie of a run whose shim has died")
def _(s: State, rules: Rules) -> Iterable[State]:
    return [changed(s, at, keeper_at=SEEN) for at, _ in orphans(s, "")]


@step(
    "keeper journals", "shim/keeper/children.c:journal_exit", "one pwrite into the entry that was reserved for the run"
)
def _(s: State, rules: Rules) -> Iterable[State]:
    if rules.mutation == "the keeper reaps before it journals":
        return [
            changed(s, at, keeper_at=WRITTEN, entry=True)
            for at, run in enumerate(s.runs)
            if s.keeper == UP and run.keeper_at == SEEN and run.init == REAPED
        ]
    return [changed(s, at, keeper_at=WRITTEN, entry=True) for at, _ in orphans(s, SEEN)]


@step("keeper reaps", "shim/keeper/children.c:children_reap", "what is in the journal, and nothing else")
def _(s: State, rules: Rules) -> Iterable[State]:
    at_what = SEEN if rules.mutation == "the keeper reaps before it journals" else WRITTEN
    return [with_run(s, at, reaped(s, run)) for at, run in orphans(s, at_what)]


@step(
    "keeper sees a stranger's end", "shim/keeper/strangers.c:look_at", "by pidfd, after another process has reaped it"
)
def _(s: State, rules: Rules) -> Iterable[State]:
    if s.keeper != UP:
        return []
    return [
        changed(s, at, keeper_at=WRITTEN, entry=rules.bound.kernel or run.entry)
        for at, run in enumerate(s.runs)
        if run.kept == WATCHED and run.init == REAPED and not run.keeper_at
    ]


@step("host reaps", "shim/keeper/strangers.c:reaps", "the host's init reaps what no subreaper has, and writes nothing")
def _(s: State, rules: Rules) -> Iterable[State]:
    return [
        with_run(s, at, reaped(s, run)) for at, run in enumerate(s.runs) if run.init == ZOMBIE and run.parent == HOST
    ]
