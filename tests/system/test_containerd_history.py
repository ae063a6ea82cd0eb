"""The oracle of test_containerd_random.py complains of every kind of history that cannot be, and of no other."""

from dataclasses import replace

import pytest

from tests.system.containerd.history import (
    CREATED,
    PAUSED,
    RUNNING,
    STOPPED,
    Call,
    Doomed,
    End,
    History,
    Row,
    Struck,
    Told,
    Who,
    violations,
)

INIT, EXEC = Who("a"), Who("a", "e")
AT = {INIT: 8_300_000_000, EXEC: 5_100_000_000}
ENDS = {INIT: End(43, AT[INIT]), EXEC: End(5, AT[EXEC])}
PIDS = {INIT: 100, EXEC: 200}
EXITD, CONTAINERD = Struck(5.5, 6.5, "exitd"), Struck(5.5, 6.5, "containerd")


def call(at: float, verb: str, who: Who = INIT, **fields: object) -> Call:
    """Answered half a second later."""
    return replace(Call(at, at + 0.5, who, verb), **fields)  # type: ignore[arg-type]


def told(at: float, topic: str, who: Who = INIT) -> Told:
    end = ENDS[who] if topic in ("exit", "delete") else None
    return Told(at, who, topic, f"{topic} {who}".encode(), PIDS[who], end, is_taken=True)


CALLS = (
    call(1, "create", pid=100),
    call(2, "start", pid=100),
    call(3, "exec", EXEC),
    call(4, "start", EXEC, pid=200),
    call(5, "wait", EXEC, end=ENDS[EXEC]),
    call(6, "pause"),
    call(7, "resume"),
    call(8, "kill"),
    call(8.2, "wait", end=ENDS[INIT]),
    call(9, "state", pid=100, status=STOPPED, end=ENDS[INIT]),
    call(10, "delete", pid=100, end=ENDS[INIT]),
)
TOLD = (
    told(1.2, "create"),
    told(2.2, "start"),
    told(3.2, "exec-added", EXEC),
    told(4.2, "exec-started", EXEC),
    told(5.2, "exit", EXEC),
    told(6.2, "paused"),
    told(7.2, "resumed"),
    told(8.4, "exit"),
    told(10.2, "delete"),
)
TRUE = History(CALLS, TOLD, doomed=(Doomed(5, EXEC, 5), Doomed(8, INIT, 43)), rows=(Row(EXEC, 5), Row(INIT, 43)))


def with_call(number: int, **fields: object) -> History:
    changed = replace(CALLS[number], **fields)  # type: ignore[arg-type]
    return replace(TRUE, calls=(*CALLS[:number], changed, *CALLS[number + 1 :]))


def with_told(*events: Told) -> History:
    return replace(TRUE, told=events)


def changed(number: int, **fields: object) -> History:
    return with_told(*TOLD[:number], replace(TOLD[number], **fields), *TOLD[number + 1 :])  # type: ignore[arg-type]


def swapped(number: int) -> History:
    return with_told(*TOLD[:number], TOLD[number + 1], TOLD[number], *TOLD[number + 2 :])


def without(number: int) -> History:
    return with_told(*TOLD[:number], *TOLD[number + 1 :])


def test_a_history_without_a_fault_is_true() -> None:
    assert violations(TRUE) == []


FALSE = {
    "a call that fails": (with_call(5, error="UNKNOWN"), "fails"),
    "a call that is not answered": (with_call(5, error="NO_ANSWER"), "fails"),
    "a kill that finds nothing": (with_call(7, error="NOT_FOUND", begun=7.9), "fails"),
    "a made-up code of a Wait": (with_call(8, end=End(137, AT[INIT])), "made up"),
    "an invented 0": (with_call(8, end=End(0, AT[INIT])), "made up"),
    "an unknown one without a reason": (with_call(8, end=End(255, AT[INIT])), "made up"),
    "an end before there was a reason": (replace(TRUE, doomed=(*TRUE.doomed[:1], Doomed(9.9, INIT, 43))), "made up"),
    "an end of nobody's doing": (replace(TRUE, doomed=TRUE.doomed[1:]), "made up"),
    "another time": (with_call(10, end=End(43, AT[INIT] + 1)), "two ends"),
    "a time of before": (with_call(10, end=End(43, 7_900_000_000)), "no such time"),
    "a time to come": (with_call(8, end=End(43, 8_800_000_000)), "no such time"),
    "no time": (with_call(8, end=End(43, 0)), "no such time"),
    "another code in an event": (changed(7, end=End(44, AT[INIT])), "made up"),
    "another pid": (with_call(10, pid=101), "two pids"),
    "an event that is not told": (without(6), "too early"),
    "an end that is not told": (without(7), "no end told"),
    "an exec's end that is not told": (without(4), "no end told"),
    "a deletion that is not told": (without(8), "never told"),
    "an event that is not taken": (changed(8, is_taken=False), "never taken"),
    "an event told twice": (with_told(*TOLD[:6], TOLD[5], *TOLD[6:]), "told again"),
    "an event told once more later": (with_told(*TOLD[:8], TOLD[1], TOLD[8]), "told again later"),
    "two different ends": (with_told(*TOLD[:8], replace(TOLD[7], bytes=b"x"), TOLD[8]), "two ends told"),
    "resumed before it is paused": (swapped(5), "too early"),
    "an end before the start": (with_told(TOLD[0], TOLD[7], *TOLD[1:7], TOLD[8]), "behind init's end"),
    "an exec's end before its start": (swapped(3), "an end before its begin"),
    "an exec's end behind its init's": (with_told(*TOLD[:4], *TOLD[5:8], TOLD[4], TOLD[8]), "behind init's end"),
    "deleted before its end": (swapped(7), "deleted before its end"),
    "an event behind the deletion": (with_told(*TOLD[:6], *TOLD[7:], TOLD[6]), "behind the deletion"),
    "an event that nobody asked for": (with_told(*TOLD[:7], told(7.3, "paused"), *TOLD[7:]), "unasked"),
    "a state that was": (with_call(9, status=RUNNING, end=None), "state"),
    "a state that never was": (with_call(9, begun=7.6, over=7.7, status=PAUSED, end=None), "state"),
    "a state of before the start": (with_call(9, begun=5.6, over=5.7, status=CREATED, end=None), "state"),
    "two rows of one end": (replace(TRUE, rows=(*TRUE.rows, Row(INIT, 43))), "rows"),
    "no row of an end": (replace(TRUE, rows=TRUE.rows[:1]), "rows"),
    "another code in the ledger": (replace(TRUE, rows=(TRUE.rows[0], Row(INIT, 44))), "the ledger differs"),
    "an unknown end in the ledger": (replace(TRUE, rows=(TRUE.rows[0], Row(INIT, None))), "made up"),
}


@pytest.mark.parametrize(("history", "words"), FALSE.values(), ids=FALSE.keys())
def test_a_history_that_cannot_be_is_complained_of(history: History, words: str) -> None:
    found = violations(history)
    assert any(words in one for one in found), found


def test_what_was_on_its_way_when_containerd_died_may_be_reported_again_word_for_word() -> None:
    again = with_told(*TOLD[:5], replace(TOLD[4], at=5.9), *TOLD[5:])
    assert violations(replace(again, struck=(CONTAINERD,))) == []
    assert violations(replace(again, struck=(EXITD,)))
    assert violations(replace(again, struck=(Struck(6.0, 6.1, "containerd"),)))  # nobody was dead in between
    assert violations(replace(again, struck=(Struck(5.5, 6.5, "stop"),)))
    other = with_told(*TOLD[:5], replace(TOLD[4], at=5.9, bytes=b"other"), *TOLD[5:])
    assert violations(replace(other, struck=(CONTAINERD,)))


def test_of_a_call_that_containerd_does_not_live_to_answer_nobody_knows_what_came() -> None:
    made = History((replace(CALLS[0], error="UNAVAILABLE"),), struck=(replace(CONTAINERD, begun=1.2),))
    assert violations(made) == []
    lost = with_call(5, error="UNAVAILABLE")
    assert violations(replace(lost, struck=(CONTAINERD,))) == []
    assert violations(replace(lost, struck=(EXITD,)))  # which is no reason to fail
    refused = replace(lost, calls=(*lost.calls[:6], replace(CALLS[6], error="UNKNOWN"), *lost.calls[7:]))
    assert violations(replace(refused, struck=(CONTAINERD,), told=(*TOLD[:5], *TOLD[7:]))) == []
    assert violations(replace(refused, struck=(EXITD,), told=(*TOLD[:5], *TOLD[7:])))


def test_a_kill_may_come_too_late_for_who_was_to_end_anyway() -> None:
    assert violations(with_call(7, error="NOT_FOUND", begun=8.1)) == []


def orphan() -> History:
    """Its relay dies at 6.6: containerd says that it is dead, and exitd nothing more."""
    ended = (
        Told(7, INIT, "exit", end=End(137, 6_800_000_000), pid=100),
        Told(7, INIT, "delete", end=End(137, 6_800_000_000), pid=100),
    )
    calls = (*CALLS[:6], call(6.5, "wait", error="UNKNOWN"))
    struck = (Struck(6.6, 6.7, "relay", frozenset({"a"})),)
    rows = (TRUE.rows[0], Row(INIT, 137))
    return History(calls, TOLD[:6], ended, struck, TRUE.doomed[:1], rows)


def test_the_task_of_a_dead_relay_is_reported_dead_once_and_by_containerd() -> None:
    true = orphan()
    assert violations(true) == []
    assert violations(replace(true, published=()))
    assert violations(replace(true, published=(*true.published, true.published[1])))
    assert violations(replace(true, told=(*true.told, told(6.9, "exit"), told(7, "delete"))))
    nobody_knows = tuple(replace(one, end=End(255, 6_900_000_000)) for one in true.published)
    assert violations(replace(true, published=nobody_knows)) == []
    known = call(0.5, "wait", end=true.published[0].end)  # before the relay died: then containerd has the same to say
    assert any(
        "two ends" in one for one in violations(replace(true, calls=(known, *true.calls), published=nobody_knows))
    )
    invented = tuple(replace(one, end=End(0, 6_800_000_000)) for one in true.published)
    assert any("made up" in one for one in violations(replace(true, published=invented)))
    two = (true.published[0], replace(true.published[1], end=End(137, 6_800_000_001)))
    assert any("two ends" in one for one in violations(replace(true, published=two)))


def test_an_end_that_neither_shim_nor_keeper_lived_to_see_may_be_unknown() -> None:
    unknown = End(255, AT[INIT])
    calls = tuple(replace(one, end=unknown) if one.end == ENDS[INIT] else one for one in CALLS)
    events = tuple(replace(one, end=unknown) if one.end == ENDS[INIT] else one for one in TOLD)
    shim, keeper = Struck(5, 5.1, "shim", frozenset({"a"})), Struck(6, 6.1, "keeper")
    history = replace(TRUE, calls=calls, told=events, rows=(TRUE.rows[0], Row(INIT, None)))
    assert violations(replace(history, struck=(shim, keeper))) == []
    for struck in ((shim,), (keeper,), (replace(shim, tasks=frozenset({"b"})), keeper)):
        assert any("made up" in one for one in violations(replace(history, struck=struck)))
    earlier = replace(keeper, begun=0.1, over=0.2)
    assert violations(replace(history, struck=(shim, earlier)))


def test_an_exec_ends_with_its_init_or_by_itself() -> None:
    taken = End(137, 8_200_000_000)
    calls = tuple(replace(one, begun=8.1, over=8.5, end=taken) if one == CALLS[4] else one for one in CALLS)
    events = (*TOLD[:4], *TOLD[5:7], replace(TOLD[4], at=8.3, end=taken), *TOLD[7:])
    history = History(calls, events, doomed=TRUE.doomed[1:], rows=(Row(EXEC, 137), TRUE.rows[1]))
    assert violations(history) == []
    assert any("made up" in one for one in violations(replace(history, doomed=TRUE.doomed[:1])))
