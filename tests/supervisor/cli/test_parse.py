"""supervisor/cli/parse.py: words of the command line into values."""

import shlex
from datetime import UTC, datetime
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from supervisor.cli import parse
from supervisor.cli.__main__ import exitctl
from supervisor.model.errors import BadRequest

NOW = 1_800_000_000_000_000_000


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("64m", 64 << 20),
        ("1g", 1 << 30),
        ("1G", 1 << 30),
        ("1.5k", 1536),
        ("7", 7),
        ("7b", 7),
        ("2MiB", 2 << 20),
        ("2mb", 2 << 20),
        ("1t", 1 << 40),
    ],
)
def test_a_size_is_a_number_and_a_unit_of_powers_of_1024(text: str, size: int) -> None:
    assert parse.size_bytes(text) == size


@pytest.mark.parametrize("text", ["", "m", "-1", "1x", "1 2", "64mm", "nan", "1e3"])
def test_what_is_no_size_is_refused_by_its_name(text: str) -> None:
    with pytest.raises(BadRequest, match=r"no size"):
        parse.size_bytes(text)


@given(st.integers(min_value=0, max_value=2**50))
def test_a_plain_number_of_bytes_stays_what_it_is(size: int) -> None:
    assert parse.size_bytes(f"{size}b") == size


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("10m", 600 * 10**9),
        ("1h30m", 5400 * 10**9),
        ("2.5s", 2_500_000_000),
        ("3", 3 * 10**9),
        ("20ms", 20 * 10**6),
        ("1d", 86400 * 10**9),
    ],
)
def test_a_duration_is_numbers_and_units(text: str, ns: int) -> None:
    assert parse.duration_ns(text) == ns


@pytest.mark.parametrize("text", ["", "m", "10x", "1h30", "-5m"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(BadRequest, match=r"no duration"):
        parse.duration_ns(text)


def test_a_duration_as_a_moment_means_so_long_ago() -> None:
    assert parse.moment_ns("10m", NOW) == NOW - 600 * 10**9


def test_an_rfc3339_moment_keeps_all_nine_digits() -> None:
    expected = int(datetime(2026, 1, 31, 12, 0, 0, tzinfo=UTC).timestamp()) * 10**9
    assert parse.moment_ns("2026-01-31T12:00:00.123456789Z", NOW) == expected + 123456789
    assert parse.moment_ns("2026-01-31T13:00:00.5+01:00", NOW) == expected + 500_000_000
    assert parse.moment_ns("2026-01-31T12:00:00Z", NOW) == expected


def test_a_unix_time_is_a_moment_too() -> None:
    assert parse.moment_ns("1700000000.25", NOW) == 1_700_000_000_250_000_000


@pytest.mark.parametrize("text", ["", "yesterday", "2026-13-01", "12:00"])
def test_what_is_no_moment_is_refused_with_examples(text: str) -> None:
    with pytest.raises(BadRequest, match=r"10m"):
        parse.moment_ns(text, NOW)


@pytest.mark.parametrize("text", ["9" * 400, f"{2**63}", f"{2**23}t"])
def test_a_size_that_the_kernel_has_no_number_for_is_refused(text: str) -> None:
    with pytest.raises(BadRequest, match=r"larger size"):
        parse.size_bytes(text)


@pytest.mark.parametrize("text", ["9" * 400, "99999999999", f"{'9' * 400}h", "3000000d"])
def test_a_duration_longer_than_time_is_refused(text: str) -> None:
    with pytest.raises(BadRequest, match=r"longer than any"):
        parse.duration_ns(text)


@pytest.mark.parametrize("text", ["9" * 19, "9" * 5000, "9999-12-31", "0001-01-01", "1969-12-31T23:00:00Z"])
def test_a_moment_before_or_after_the_time_that_there_is_is_refused(text: str) -> None:
    with pytest.raises(BadRequest, match="between 1970 and 2262"):
        parse.moment_ns(text, NOW)
    assert parse.moment_ns("100000d", NOW) == 0


@pytest.mark.parametrize("text", ["nan", "inf", "-1", "1e10", "", "9" * 400])
def test_a_limit_is_a_number_of_seconds(text: str) -> None:
    for kind in (parse.LimitSeconds(), parse.LimitSeconds(is_above=True)):
        with pytest.raises(click.BadParameter):
            kind.convert(text, None, None)
        assert kind.convert("1.5", None, None) == 1.5


def test_an_environment_word_without_a_value_takes_the_callers_or_is_left_out() -> None:
    assert parse.environment(["A=1", "B", "C", "D="], {"B": "2"}) == ("A=1", "B=2", "D=")


def test_an_environment_word_without_a_name_is_refused() -> None:
    with pytest.raises(BadRequest):
        parse.environment(["=x"], {})


def test_a_pair_keeps_further_equal_signs_in_its_value() -> None:
    assert parse.pair("k=a=b", "label") == ("k", "a=b")
    with pytest.raises(BadRequest, match="label"):
        parse.pair("k", "label")


def test_a_file_of_lines_has_comments_and_empty_lines(tmp_path: Path) -> None:
    file = tmp_path / "env"
    file.write_text("\ufeff# for the web\n\nA=1\n  B= two \nC\n#D=4\n")
    assert parse.lines_of("--env-file", [str(file)]) == ("A=1", "B= two ", "C")
    assert parse.environment((*parse.lines_of("--env-file", [str(file)]), "A=2"), {"C": "c"})[-2:] == ("C=c", "A=2")


@pytest.mark.parametrize("content", [None, b"\xff\xfe", b"A=" + b"x" * parse.MOST_FILE])
def test_a_file_that_has_no_lines_is_refused_by_its_name(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "env").write_bytes(content)
    with pytest.raises(BadRequest, match=f"--env-file {tmp_path}/env: "):
        parse.lines_of("--env-file", [f"{tmp_path}/env"])


@pytest.mark.parametrize(
    ("text", "milli"),
    [("1", 1000), ("1.5", 1500), ("0.25", 250), ("0.001", 1), ("2.5000", 2500), (".5", 500), ("2.", 2000)],
)
def test_cpus_are_thousandths(text: str, milli: int) -> None:
    assert parse.cpus_milli(text) == milli


@pytest.mark.parametrize("text", ["", "0", "0.0", "-1", "1.2345", ".", ".0", "..5", "1e3", "half", "\u0661"])
def test_what_is_no_number_of_cpus_is_refused(text: str) -> None:
    with pytest.raises(BadRequest, match="number of CPUs"):
        parse.cpus_milli(text)


@pytest.mark.parametrize(
    "words", [["play", "https://x/a b.yaml"], ["image", "load", "http://x/a"], ["image", "import", "http://x/a"]]
)
def test_the_address_of_a_file_is_refused_with_how_to_fetch_it(words: list[str]) -> None:
    done = CliRunner().invoke(exitctl, words, standalone_mode=False)
    assert f"curl -fsSL {shlex.quote(words[-1])} | exitctl {' '.join(words[:-1])} -" in f"{done.output}{done.exception}"
