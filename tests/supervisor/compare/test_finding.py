"""The finding comes first: who was right about how containers ended, and who invented what."""

from dataclasses import replace

import pytest

from supervisor.compare.facts import CompareReport, Fault, Latency, Restart, Way, decode, encode
from supervisor.compare.finding import TruthFound, findings, headline
from supervisor.compare.summary import honest, is_idle, warning
from supervisor.compare.table import COLUMNS, table

WAYS = (Way("a", "Ah", ""), Way("b", "Bee", ""), Way("c", "Cee", ""))
FAULTS = (
    Fault("a", "shim", "kill", "exit 43", "exit 137", "wrong"),
    Fault("a", "shim", "kill", "exit 43", "exit 137", "wrong"),
    Fault("a", "shim", "stop", "exit 43", "", "lost"),
    Fault("b", "shim", "kill", "exit 43", "exit 43", "right"),
    Fault("b", "keeper", "kill", "exit 43", "unknown: monitors-killed", "unknown"),
)
REPORT = CompareReport((), WAYS, faults=FAULTS, restarts=(Restart("b", 5, (1.0,), 2, 2, 0, 0, 0),))
TIMED = CompareReport((), WAYS, latencies=(Latency("a", "exit", "idle", (1.0,)), Latency("a", "exit", "busy", (2.0,))))


def test_who_said_the_truth_comes_first_and_every_invention_is_named() -> None:
    right, wrong = findings(REPORT)
    assert right == TruthFound("b", 4, {"right": 3, "unknown": 1, "wrong": 0, "lost": 0}, ())
    assert (wrong.way, wrong.tried, wrong.invented) == ("a", 3, ("exit 137 for exit 43 (shim killed), 2 times",))
    assert (right.is_true, wrong.is_true) == (True, False)


def test_the_headline_names_who_was_right_and_who_invented() -> None:
    assert headline(REPORT) == (
        "Every exit was reported right, or honestly unknown, by Bee. Ah invented 2 and lost 1, of 3 exits."
    )
    assert headline(CompareReport((), WAYS)).startswith("No exit was tried")


def test_the_table_begins_with_the_finding() -> None:
    lines = table(replace(REPORT, latencies=TIMED.latencies, rest=(0.99,))).splitlines()
    assert lines[0] == "Who was right about how containers ended"
    assert lines[2].split() == ["Bee", "4", "3", "1", "0", "0"]


@pytest.mark.parametrize(
    ("rest", "load", "warned"),
    [
        ((0.99, 0.95), "idle", ""),
        ((0.99, 0.6), "unloaded", "Warning: not idle: others used up to 40 % of all processors meanwhile."),
        ((), "unloaded", "Warning: whether the machine was idle was not measured."),
    ],
)
def test_a_machine_is_called_idle_only_when_it_was_seen_to_be(rest: tuple[float, ...], load: str, warned: str) -> None:
    report = replace(TIMED, rest=rest)
    assert [row.load for row in honest(report).latencies] == [load, "busy"]
    assert warning(honest(report)) == warning(report) == warned
    assert is_idle(report) is (not warned)
    text = table(report)
    assert (text.splitlines()[0] == warned) is bool(warned) and len(warned) <= COLUMNS
    assert ("idle" in text.replace(warned, "")) is not bool(warned)


def test_where_nothing_was_timed_nobody_is_warned() -> None:
    assert warning(REPORT) == ""


def test_a_report_of_before_has_no_looks_and_is_read() -> None:
    text = encode(TIMED).replace(',\n "rest": []', "")
    assert '"rest"' not in text and decode(text) == TIMED
    assert decode(encode(replace(TIMED, rest=(0.5, 1.0)))).rest == (0.5, 1.0)
