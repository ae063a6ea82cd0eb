"""The steps of containerd's relay, of containerd, and of exitd where it speaks with them."""

from collections.abc import Iterable
from typing import Any

from tests.protocol.daemon import in_phase
from tests.protocol.state import ALIVE, CLEAN, DONE, ENDED, NONE, REAPED, SHOWN, UP, ZOMBIE, Exit, Flight, Relay, State
from tests.protocol.step import Rules, step


def is_to_bring(r: Relay) -> bool:
    return r.at == ENDED and not r.has_brought and not r.last and r.flight is None and not r.is_deleted


def with_relay(s: State, **fields: Any) -> State:
    return s._replace(relay=s.relay._replace(**fields))


@step("relay sees init's end", "shim/relay/watch.c:watch_read", "by the pidfd of the init that its task's bundle names")
def _(s: State, rules: Rules) -> Iterable[State]:
    is_due = s.relay.is_up and s.relay.at == NONE and s.runs[0].init in (ZOMBIE, REAPED)
    return [with_relay(s, at=ZOMBIE)] if is_due else []


@step("relay looks at init", "shim/relay/watch.c:is_there", "before the record: once init is reaped none will come")
def _(s: State, rules: Rules) -> Iterable[State]:
    is_gone = s.relay.is_up and s.relay.at == ZOMBIE and s.runs[0].init == REAPED
    return [with_relay(s, at=REAPED)] if is_gone else []


@step("relay reads the record", "shim/relay/watch.c:look", "and nothing else: without one the end is exitd's to report")
def _(s: State, rules: Rules) -> Iterable[State]:
    r, run = s.relay, s.runs[0]
    if not r.is_up or r.at not in (ZOMBIE, REAPED):
        return []
    if run.record:
        return [with_relay(s, at=ENDED, value=run.life)]
    if rules.mutation == "the relay takes a missing record for an end":
        return [with_relay(s, at=ENDED, value=0)]
    if rules.mutation == "the relay reads the fifo" and run.fifo:
        return [with_relay(s, at=ENDED, value=0 if rules.bound.wide else run.life)]
    return [with_relay(s, at=DONE)] if r.at == REAPED else []


@step("relay answers", "shim/relay/session.c:session_witness", "a Wait, for an exitd that is away or has been silent")
def _(s: State, rules: Rules) -> Iterable[State]:
    r = s.relay
    if not r.is_up or r.at != ENDED or r.has_answered:
        return []
    return [with_relay(s, has_answered=True, answered=r.answered | {r.value})]


@step(
    "relay brings",
    "shim/relay/courier.c:courier_bring",
    "the exit event, where exitd does not, and containerd has not had it",
)
def _(s: State, rules: Rules) -> Iterable[State]:
    r = s.relay
    is_due = r.is_up and is_to_bring(r) and (s.exitd != UP or r.has_answered)
    return [with_relay(s, flight=Flight(0, r.value))] if is_due else []


@step(
    "containerd takes an event",
    "shim/relay/courier.c:courier_hear",
    "and answers; nobody knows of that before the answer is read",
)
def _(s: State, rules: Rules) -> Iterable[State]:
    r = s.relay
    if r.flight is None or r.flight.is_taken:
        return []
    return [with_relay(s, flight=r.flight._replace(is_taken=True), heard=(*r.heard, r.flight.value))]


@step(
    "relay hears the answer",
    "shim/relay/courier.c:over",
    "and remembers the number of exitd's event, or that it brought the end itself",
)
def _(s: State, rules: Rules) -> Iterable[State]:
    r = s.relay
    if not r.is_up or r.flight is None or not r.flight.is_taken:
        return []
    ours = r.flight.seq == 0
    if rules.mutation == "the relay forgets what it has brought":
        return [with_relay(s, flight=None, last=r.flight.seq)]
    return [with_relay(s, flight=None, has_brought=r.has_brought or ours, last=r.last if ours else r.flight.seq)]


def reported(s: State) -> Exit | None:
    """The end of the task as exitd has shown it."""
    done = [end for end in s.told if end[0] == 0]
    is_shown = any(in_phase(s, phase) for phase in (SHOWN, ENDED, CLEAN))
    return done[0] if done and is_shown else None


def seq_of(s: State) -> int:
    run = s.runs[0]
    return run.seq or next((each[0] for each in s.versions[-1].events if each[1] == "exit"), 0)


@step(
    "exitd hands over",
    "supervisor/containerd/couriers.py:Courier.hand",
    "the event to the relay; one that comes again is not sent again",
)
def _(s: State, rules: Rules) -> Iterable[State]:
    r, end = s.relay, reported(s)
    if end is None or not r.is_up or r.is_noted or r.is_handed or r.is_deleted:
        return []
    if r.has_brought or r.last == seq_of(s):
        return [with_relay(s, is_handed=True)]
    return [with_relay(s, is_handed=True, flight=Flight(seq_of(s), end[2]))] if r.flight is None else []


@step(
    "exitd notes",
    "supervisor/containerd/forwarded.py:Forwarded.note",
    "that containerd has it, in the state directory, after the relay's answer",
)
def _(s: State, rules: Rules) -> Iterable[State]:
    r = s.relay
    is_over = s.exitd == UP and r.is_handed and r.is_up and (r.has_brought or r.last == seq_of(s)) and not r.is_noted
    return [with_relay(s, is_noted=True)] if is_over else []


@step(
    "exitd sends the event itself", "supervisor/containerd/publish.py:RelayLink.send", "where the task's relay has died"
)
def _(s: State, rules: Rules) -> Iterable[State]:
    r, end = s.relay, reported(s)
    if end is None or r.is_up or not r.has_died or r.is_noted or r.is_deleted:
        return []
    return [with_relay(s, is_noted=True, heard=(*r.heard, end[2]))]


@step(
    "containerd deletes the task",
    "shim/relay/delete.c:delete_main",
    "of a dead relay: exitd answers, or the record, else 255 for unknown",
)
def _(s: State, rules: Rules) -> Iterable[State]:
    r, end, run = s.relay, reported(s), s.runs[0]
    if r.is_up or not r.has_died or r.is_deleted or run.init == ALIVE:
        return []
    if s.exitd == UP and end is None:
        return []
    value = end[2] if end is not None else run.life if run.record else 0
    return [with_relay(s, is_deleted=True, answered=r.answered | {value}, heard=(*r.heard, value))]
