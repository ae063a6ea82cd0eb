"""The judge of the mass attack: right reports pass, and each kind of wrong one is found."""

import itertools
import random
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.attack import lives, misfortunes, smallpids
from tests.attack.judge import ASKED, Death, Failed, Heard, Row, Seen, Stand, TaskExit, Truth, Verdict, counts, judge
from tests.attack.lives import truths_of
from tests.attack.run import Plan

TRUTH = Truth("a", "", 100, 7)
ROW = Row("a", "id", 1, "", 100, "exited", 7)
UNKNOWN = replace(ROW, kind="unknown", number=None, cause="monitors-killed", source="none")
NEVER = replace(UNKNOWN, cause="never-started")
SPAN = {"a": (1.0, 9.0)}
WITNESSES = ("shim", "keeper", "daemon")


def told(truths: Sequence[Truth], rows: Sequence[Row], **more: object) -> Verdict:
    """The events say what the ledger says."""
    return judge(Seen(truths, rows, rows, **more))  # type: ignore[arg-type]


def wrong(verdict: Verdict) -> dict[str, int]:
    return {name: len(each) for name, each in verdict.wrongs().items() if each}


def died(*victims: str, at: float = 5.0, life: str = "a") -> list[Death]:
    return [Death(victim, at, life if victim == "shim" else "") for victim in victims]


@pytest.mark.parametrize("code", [None, 0, 7])
@pytest.mark.parametrize("number", [0, 7, 137])
def test_a_reported_code_is_the_noted_one_or_invented(code: int | None, number: int) -> None:
    verdict = told([replace(TRUTH, code=code)], [replace(ROW, number=number)])
    assert wrong(verdict) == ({} if code == number else {"invented": 1})


def test_a_code_of_what_noted_nothing_is_invented() -> None:
    assert wrong(told([], [ROW])) == {"invented": 1}
    assert wrong(told([TRUTH], [replace(ROW, ticks=101)])) == {"invented": 1, "lost": 1}


def test_a_code_that_no_source_saw_is_invented() -> None:
    assert wrong(told([TRUTH], [replace(ROW, source="none")])) == {"invented": 1}


@pytest.mark.parametrize("reason", ["self", "oom", "kill", "stop", "pause-exit", "container-exit", "timeout"])
@pytest.mark.parametrize("code", [None, 7])
@pytest.mark.parametrize("number", [1, 9, 15])
def test_a_signal_is_the_rigs_own_and_behind_a_note_it_was_asked_for(
    reason: str, code: int | None, number: int
) -> None:
    verdict = told([replace(TRUTH, code=code)], [replace(ROW, kind="signaled", number=number, reason=reason)])
    right = number == 9 and (code is None or reason in ASKED)
    assert wrong(verdict) == ({} if right else {"invented": 1})


@pytest.mark.parametrize("code", [None, 7])
@pytest.mark.parametrize("terminal", [False, True])
def test_a_hangup_is_true_of_a_terminal_whose_shim_and_keeper_died(code: int | None, terminal: bool) -> None:
    truth, row = replace(TRUTH, code=code), replace(ROW, kind="signaled", number=1, source="pidfd")
    terminals = frozenset({("a", "")} if terminal else ())
    for count in range(len(WITNESSES) + 1):
        for victims in itertools.combinations(WITNESSES, count):
            verdict = told([truth], [row], terminals=terminals, deaths=died(*victims), spans=SPAN)
            right = terminal and code is None and {"shim", "keeper"} <= set(victims)
            assert wrong(verdict) == ({} if right else {"invented": 1}), victims


@pytest.mark.parametrize("noted", [True, False])
@pytest.mark.parametrize("terminal", ["", "e0"])
def test_a_hangup_is_true_of_an_exec_whose_shim_alone_held_its_terminal(noted: bool, terminal: str) -> None:
    truths = [replace(TRUTH, token="e0", code=None)] if noted else []
    row = replace(ROW, exec_id="x", kind="signaled", number=1, source="keeper")
    terminals = frozenset({("a", terminal)})
    right = terminal == "e0"
    own, others = [Death("shim", 5.0, "a", "x")], [Death("shim", 5.0, "a", "y"), *died(*WITNESSES)]
    assert wrong(told(truths, [row], terminals=terminals, deaths=own, spans=SPAN)) == ({} if right else {"invented": 1})
    assert wrong(told(truths, [row], terminals=terminals, deaths=others, spans=SPAN)) == {"invented": 1}


@pytest.mark.parametrize("tells", [False, True])
def test_an_end_is_unknown_only_when_every_witness_died_in_that_life(tells: bool) -> None:
    for count in range(len(WITNESSES) + 1):
        for victims in itertools.combinations(WITNESSES, count):
            verdict = told([TRUTH], [UNKNOWN], deaths=died(*victims), spans=SPAN, pidfd_tells=tells)
            needed = set(WITNESSES) if tells else {"shim", "keeper"}
            assert wrong(verdict) == ({} if needed <= set(victims) else {"invented": 1}), victims


def test_witnesses_that_died_before_or_behind_the_life_or_of_another_one_are_no_excuse() -> None:
    for deaths in (died(*WITNESSES, at=0.5), died(*WITNESSES, at=9.5), died(*WITNESSES, life="b")):
        assert wrong(told([TRUTH], [UNKNOWN], deaths=deaths, spans=SPAN)) == {"invented": 1}


def test_the_death_of_an_execs_shim_is_no_excuse_for_its_container() -> None:
    deaths = [Death("shim", 5.0, "a", "x"), *died("keeper", "daemon")]
    assert wrong(told([TRUTH], [UNKNOWN], deaths=deaths, spans=SPAN)) == {"invented": 1}
    truth, row = replace(TRUTH, token="e0"), replace(UNKNOWN, exec_id="x")
    assert told([truth], [row], deaths=deaths, spans=SPAN).good


@pytest.mark.parametrize("victim", ["keeper", "daemon"])
def test_a_keeper_that_stood_still_knows_nothing_of_a_process_that_nobody_named(victim: str) -> None:
    truth, row = replace(TRUTH, token="e0", code=None), replace(UNKNOWN, exec_id="x", ticks=0)
    shim, excuse = [Death("shim", 5.0, "a", "x")], {} if victim == "keeper" else {"invented": 1}

    def seen(row: Row, begin: float, end: float, deaths: Sequence[Death] = shim) -> dict[str, int]:
        stands = [Stand(victim, begin, end)]
        return wrong(told([truth], [row], deaths=deaths, spans=SPAN, stands=stands, pidfd_tells=True))

    assert seen(row, 4.0, 4.5) == excuse
    assert seen(row, 0.1, 0.5) == excuse  # exitd does not ask it for a while
    assert seen(row, 9.5, 9.7) == seen(row, -9.0, -8.0) == seen(row, 4.0, 4.5, deaths=[]) == {"invented": 1}
    assert seen(replace(row, ticks=TRUTH.ticks), 4.0, 4.5) == {"invented": 1}


def test_an_unknown_end_has_a_cause_and_no_number() -> None:
    begun, deaths = replace(TRUTH, code=None), died(*WITNESSES)
    assert told([begun], [UNKNOWN], deaths=deaths, spans=SPAN).good
    assert wrong(told([begun], [replace(UNKNOWN, cause="")], deaths=deaths, spans=SPAN)) == {"invented": 1}
    assert wrong(told([begun], [replace(UNKNOWN, number=255)], deaths=deaths, spans=SPAN)) == {"invented": 1}


def test_what_was_killed_is_not_unknown_while_a_witness_lived() -> None:
    begun = replace(TRUTH, code=None)
    assert wrong(told([begun], [UNKNOWN], spans=SPAN)) == {"invented": 1}
    assert wrong(told([begun], [UNKNOWN], deaths=died("shim"), spans=SPAN)) == {"invented": 1}


@pytest.mark.parametrize("victim", [*WITNESSES, "runtime"])
def test_what_noted_nothing_is_unknown_only_where_one_of_its_makers_died(victim: str) -> None:
    assert wrong(told([], [UNKNOWN], spans=SPAN)) == {"invented": 1}
    assert told([], [UNKNOWN], deaths=died(victim), spans=SPAN).good
    assert wrong(told([], [UNKNOWN], deaths=died(victim, at=20.0), spans=SPAN)) == {"invented": 1}
    assert wrong(told([], [UNKNOWN], deaths=died("shim", life="b"), spans=SPAN)) == {"invented": 1}


TASK_EXIT = TaskExit("a", is_exec=False, id="a", pid=40, number=7)


def test_an_event_of_containerds_has_the_ledgers_number_and_comes_once() -> None:
    assert told([TRUTH], [ROW], task_exits=[TASK_EXIT]).good
    unsure = [replace(TASK_EXIT, number=255)]
    assert wrong(told([TRUTH], [ROW], task_exits=unsure)) == {"invented": 1}
    assert told([TRUTH], [ROW], task_exits=unsure, deaths=died("relay"), spans=SPAN).good
    assert wrong(told([TRUTH], [ROW], task_exits=[replace(TASK_EXIT, number=8)])) == {"invented": 1}
    assert told([TRUTH], [ROW], task_exits=[TASK_EXIT, replace(TASK_EXIT, pid=0, number=255)]).good  # was never made
    assert wrong(told([TRUTH], [ROW], task_exits=[replace(TASK_EXIT, pid=0, number=8)])) == {"invented": 1}
    assert wrong(told([TRUTH], [ROW], task_exits=[TASK_EXIT, TASK_EXIT])) == {"twice": 1}
    assert told([TRUTH], [ROW], task_exits=[TASK_EXIT, replace(TASK_EXIT, pid=41)]).good


@pytest.mark.parametrize("victim", ["relay", "containerd"])
def test_it_may_come_twice_where_a_relay_or_containerd_died_meanwhile(victim: str) -> None:
    events = [TASK_EXIT, TASK_EXIT]
    assert told([TRUTH], [ROW], task_exits=events, deaths=died(victim), spans=SPAN).good
    assert wrong(told([TRUTH], [ROW], task_exits=events, deaths=died(victim, at=20.0), spans=SPAN)) == {"twice": 1}


def test_what_noted_anything_did_begin() -> None:
    assert told([], [NEVER]).good
    assert wrong(told([TRUTH], [NEVER])) == {"invented": 1}
    assert wrong(told([replace(TRUTH, code=None)], [NEVER])) == {"invented": 1}


def test_a_truth_without_a_row_is_lost_whether_it_came_to_its_code_or_not() -> None:
    assert wrong(told([TRUTH], [])) == {"lost": 1}
    assert wrong(told([replace(TRUTH, code=None)], [])) == {"lost": 1}


def test_a_row_that_names_no_process_stands_for_one_truth_and_no_more() -> None:
    nameless, other = replace(UNKNOWN, ticks=0), replace(TRUTH, ticks=200)
    deaths = died("shim", "keeper")
    assert told([TRUTH], [nameless], deaths=deaths, spans=SPAN).good
    assert wrong(told([TRUTH, other], [nameless], deaths=deaths, spans=SPAN)) == {"lost": 1}
    assert wrong(told([TRUTH, other], [ROW, replace(nameless, run=2)], spans=SPAN)) == {"invented": 1}


def test_a_containers_row_is_not_for_its_exec() -> None:
    assert wrong(told([replace(TRUTH, token="e0")], [ROW])) == {"invented": 1, "lost": 1}


def test_two_execs_that_begin_in_the_same_tick_are_told_apart_by_their_codes() -> None:
    truths = [Truth("a", "e0", 100, 7), Truth("a", "e1", 100, None), Truth("a", "e2", 100, 8)]
    rows = [
        replace(ROW, exec_id="y", kind="signaled", number=9),
        replace(ROW, exec_id="z", number=8),
        replace(ROW, exec_id="x"),
    ]
    for order in itertools.permutations(rows):
        assert told(truths, order).good


def test_what_is_reported_twice_is_found_by_its_key_and_by_its_process() -> None:
    again = replace(ROW, number=8)
    assert "twice" in wrong(told([TRUTH], [ROW, again]))
    assert "twice" in wrong(told([TRUTH], [ROW, replace(ROW, run=2)]))
    assert wrong(judge(Seen([TRUTH], [ROW], [ROW, ROW]))) == {"twice": 1}


def test_ledger_events_and_answers_say_the_same() -> None:
    other = replace(ROW, number=8)
    assert wrong(judge(Seen([TRUTH], [ROW], []))) == {"lost": 1}
    assert wrong(judge(Seen([TRUTH], [ROW], [other]))) == {"invented": 1}
    assert wrong(judge(Seen([TRUTH], [ROW], [ROW], [other]))) == {"invented": 1}
    assert wrong(judge(Seen([], [], [ROW]))) == {"invented": 1}
    assert judge(Seen([TRUTH], [ROW], [ROW], [ROW, ROW])).good


@pytest.mark.parametrize("number", [7, 8, 255])
@pytest.mark.parametrize("victim", ["", "daemon", "relay", "containerd"])
def test_containerds_client_hears_what_the_ledger_says_or_that_nobody_knows(number: int, victim: str) -> None:
    deaths = [Death(victim, 5.0)] if victim else []
    verdict = told([TRUTH], [ROW], heard=[Heard("a", "", number)], deaths=deaths, spans=SPAN)
    right = number == 7 or (number == 255 and victim in ("relay", "containerd"))
    assert wrong(verdict) == ({} if right else {"invented": 1})


def test_what_containerds_client_hears_of_an_exec_is_not_said_of_its_task() -> None:
    truth, row = replace(TRUTH, token="e0", code=9), replace(ROW, exec_id="x", number=9)
    rows = [ROW, row, replace(ROW, run=2, ticks=300, kind="signaled", number=9)]
    truths = [TRUTH, truth, Truth("a", "", 300, None)]
    assert told(truths, rows, heard=[Heard("a", "e0", 9), Heard("a", "", 7), Heard("a", "", 137)]).good
    assert wrong(told(truths, rows, heard=[Heard("a", "", 9)])) == {"invented": 1}
    assert wrong(told([], [], heard=[Heard("b", "", 0)])) == {"invented": 1}


def test_an_exec_that_failed_has_noted_nothing() -> None:
    truth, failed = replace(TRUTH, token="e0"), [Failed("a", "e0")]
    assert told([], [], failed=failed).good
    assert wrong(told([truth], [], failed=failed)) == {"failed_but_ran": 1}
    assert told([replace(truth, token="e1")], [replace(ROW, exec_id="x")], failed=failed).good


@pytest.mark.parametrize(
    ("kind", "number", "right"),
    [("exited", 0, True), ("signaled", 9, True), ("exited", 1, False), ("signaled", 15, False)],
)
def test_a_pause_container_notes_nothing_and_ends_as_it_can(kind: str, number: int, right: bool) -> None:
    verdict = told([], [replace(ROW, kind=kind, number=number)], pauses=frozenset({"a"}))
    assert wrong(verdict) == ({} if right else {"invented": 1})


def test_what_is_left_and_what_is_stuck_is_wrong() -> None:
    assert wrong(told([], [], leftovers=["cgroup"], stuck=["a does not end"])) == {"leaked": 1, "stuck": 1}


ENDS = st.lists(st.tuples(st.sampled_from("abc"), st.booleans(), st.integers(0, 255)), max_size=12)


def honest(ends: list[tuple[str, bool, int]]) -> tuple[list[Truth], list[Row]]:
    """Of each: what it noted, and the true report."""
    truths, rows = [], []
    for at, (life, is_exec, code) in enumerate(ends):
        truths.append(Truth(life, f"e{at}" if is_exec else "", 100 + at, code))
        rows.append(
            Row(life, f"id-{life}", 1 if is_exec else at, f"x{at}" if is_exec else "", 100 + at, "exited", code)
        )
    return truths, rows


@given(ENDS, st.randoms())
def test_true_reports_are_right_in_any_order(ends: list[tuple[str, bool, int]], pick: random.Random) -> None:
    truths, rows = honest(ends)
    pick.shuffle(truths)
    pick.shuffle(rows)
    assert told(truths, rows).good
    assert sum(counts(rows).values()) == len(ends)


@given(ENDS.filter(bool), st.data())
def test_one_wrong_report_among_true_ones_is_found_and_nothing_else(
    ends: list[tuple[str, bool, int]], data: st.DataObject
) -> None:
    truths, rows = honest(ends)
    at = data.draw(st.integers(0, len(rows) - 1))
    rest = rows[:at] + rows[at + 1 :]
    number = rows[at].number
    assert number is not None
    assert wrong(told(truths, rest)) == {"lost": 1}
    assert wrong(told(truths, [*rest, replace(rows[at], number=number + 1)])) == {"invented": 1}
    assert wrong(told([*truths[:at], *truths[at + 1 :]], rows)) == {"invented": 1}
    assert "twice" in wrong(told(truths, [*rows, rows[at]]))


def test_the_notes_of_a_life_are_read_by_who_wrote_them() -> None:
    text = "- 100 begun\ne0 120 begun\n- 100 7\n- 130 begun\n"
    assert truths_of("a", text) == [Truth("a", "", 100, 7), Truth("a", "e0", 120, None), Truth("a", "", 130, None)]


def test_a_seed_plans_the_same_lives_and_misfortunes_again() -> None:
    first, second = (list(lives.planned(seed, 200)) for seed in (1, 2))
    assert first == list(lives.planned(1, 200)) and first != second
    assert sum(life.exits for life in first) >= 200 and {life.kind for life in first} == set(lives.KINDS)
    plans = [list(itertools.islice(misfortunes.planned(seed), 100)) for seed in (1, 1, 2)]
    assert plans[0] == plans[1] != plans[2] and {each.kind for each in plans[0]} == set(misfortunes.KINDS)


@pytest.mark.parametrize("most", [1, 2, 3, 8])
def test_a_misfortune_has_as_many_victims_as_were_asked_for_and_luck_for_each(most: int) -> None:
    plan = list(itertools.islice(misfortunes.planned(1, at_once=most), 300))
    assert max(len(each.who) for each in plan) == most
    assert not {"relay", "containerd"} & {name for each in plan for name in each.who}
    tasks = list(itertools.islice(misfortunes.planned(1, at_once=most, tasks=True), 300))
    assert {"relay", "containerd", "daemon", "shim"} <= {name for each in tasks for name in each.who}
    assert all(len(each.luck) >= len(each.who) + len(each.others) for each in plan)


def test_misfortunes_keep_pace_with_the_lives() -> None:
    plan = Plan(1, 100, crowd=10, hits=0.5)
    assert [plan.due(exits) for exits in (0, 1, 2, 90)] == [5, 5, 6, 50]


def test_more_exits_begin_with_the_same_lives() -> None:
    few = list(lives.planned(1, 50))
    assert list(lives.planned(1, 100))[: len(few)] == few


@pytest.mark.parametrize(
    ("release", "works"), [("6.14.0", True), ("6.18.44-x", True), ("7.2", True), ("6.13.9", False), ("5.15.1", False)]
)
def test_pids_are_few_only_where_a_namespace_has_a_limit_of_its_own(release: str, works: bool) -> None:
    assert smallpids.works(release) is works
