"""supervisor/cli/spoken.py and table.py: few words for people."""

import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from hypothesis import given
from hypothesis import strategies as st

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.cli import spoken, table

NOW_S = 1_700_000_000
NOW = NOW_S * 10**9


def seconds_ago(seconds: int) -> Timestamp:
    return Timestamp(seconds=NOW_S - seconds)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "Less than a second"),
        (1, "1 second"),
        (3, "3 seconds"),
        (59, "59 seconds"),
        (60, "About a minute"),
        (300, "5 minutes"),
        (3600, "About an hour"),
        (7200, "2 hours"),
        (86400 * 3, "3 days"),
        (86400 * 21, "3 weeks"),
        (86400 * 90, "3 months"),
        (-5, "Less than a second"),
    ],
)
def test_a_span_is_said_as_docker_says_it(seconds: int, text: str) -> None:
    assert spoken.span(seconds * 10**9) == text


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"phase": pb.PHASE_RUNNING, "started_at": seconds_ago(300)}, "Up 5 minutes"),
        ({"phase": pb.PHASE_PAUSED, "started_at": seconds_ago(300)}, "Up 5 minutes (Paused)"),
        (
            {"phase": pb.PHASE_EXITED, "exit": pb.Exit(kind="exited", code=7, at=seconds_ago(3))},
            "Exited (7) 3 seconds ago",
        ),
        (
            {"phase": pb.PHASE_EXITED, "exit": pb.Exit(kind="signaled", signal=9, at=seconds_ago(3))},
            "Exited (137) 3 seconds ago",
        ),
        (
            {"phase": pb.PHASE_EXITED, "exit": pb.Exit(kind="unknown", cause="monitors-killed", at=seconds_ago(3))},
            "Exited (unknown: monitors-killed) 3 seconds ago",
        ),
        ({"phase": pb.PHASE_EXITED, "error": "no such command"}, "Exited: no such command"),
        ({"phase": pb.PHASE_RESTARTING, "restart_at": seconds_ago(-3)}, "Restarting in 3 s"),
        ({"phase": pb.PHASE_RESTARTING, "restart_at": seconds_ago(2)}, "Restarting now"),
        ({"phase": pb.PHASE_RESTARTING}, "Restarting now"),
        ({"phase": pb.PHASE_CREATED}, "Created"),
        ({"phase": pb.PHASE_REMOVING}, "Removing"),
        ({"phase": pb.PHASE_RUNNING, "recovering": True}, "Recovering"),
        ({"phase": pb.PHASE_UNSPECIFIED}, "Unknown"),
    ],
)
def test_a_status_says_phase_and_how_long(fields: dict[str, object], text: str) -> None:
    assert spoken.status(pb.Container(**fields), NOW) == text  # type: ignore[arg-type]


def test_an_outcome_names_the_signal() -> None:
    assert spoken.outcome(pb.Exit(kind="exited", code=0)) == "0"
    assert spoken.outcome(pb.Exit(kind="signaled", signal=11, core=True)) == "139 SIGSEGV (core)"
    assert spoken.outcome(pb.Exit(kind="unknown", number=0)) == "unknown"


@given(st.integers(min_value=-5, max_value=200))
def test_every_signal_number_has_some_name(number: int) -> None:
    assert spoken.signal_name(number)


@given(st.integers(min_value=0, max_value=2**62))
def test_a_moment_is_the_reverse_of_its_nanoseconds(ns: int) -> None:
    assert spoken.nanoseconds(spoken.moment(ns)) == ns


def test_a_size_and_a_precise_span_are_short() -> None:
    assert spoken.size(64 << 20) == "64 MiB"
    assert spoken.size(1536) == "1.5 KiB"
    assert spoken.precise(12_300_000) == "12.3 ms"
    assert [spoken.precise(ns) for ns in (999_400_000, 999_600_000)] == ["999 ms", "1 s"]
    assert spoken.precise(185 * 10**9) == "3 min 5 s"


def test_a_long_command_is_cut_to_its_column_unless_it_is_wanted_whole() -> None:
    words = ["sh", "-c", "echo a very long command line; exit 7"]
    assert len(spoken.command(words, whole=False)) == spoken.COMMAND_WIDTH
    assert spoken.command(words, whole=True) == "sh -c 'echo a very long command line; exit 7'"


def test_columns_line_up_and_nothing_trails() -> None:
    assert table.columns([("A", "B"), ("long", "x"), ("s", "")]) == "A      B\nlong   x\ns\n"


def test_a_table_shows_no_control_characters() -> None:
    assert table.columns([("a\x1b[31m", "b\n")]) == "a?[31m   b?\n"
