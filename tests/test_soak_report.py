"""What is said of a soak's samples, and the page that it writes."""

import json
from dataclasses import replace

import pytest

from tests.attack.report import Machine
from tests.soak import report
from tests.soak.__main__ import arguments, planned
from tests.soak.regression import TooFew, Verdict
from tests.soak.run import Plan, Result, Sample

MACHINE = Machine("abc123", False, "2026-01-02", "6.18.0-cloud", 2, "runc version 1.1.5")
SAMPLE = Sample(100, 9.0, 30_000, 40_000, 42, 12, 90, 130, 15, 1, 1, 1, 1, 10, 1, 0, 5000)
FLAT = tuple(replace(SAMPLE, lives=100 + 10 * n) for n in range(60))
RESULT = Result(Plan(700, 0, 10, 100), FLAT, lives=700, ends=1100, seconds=350.0)


def verdicts(result: Result) -> dict[str, Verdict]:
    return {row.figure.name: row.verdict for row in report.judged(result)}


def test_every_figure_of_a_sample_is_judged() -> None:
    assert set(verdicts(RESULT)) == set(Sample.__dataclass_fields__) - {"lives", "seconds"}
    assert set(verdicts(RESULT).values()) == {Verdict.FLAT}


@pytest.mark.parametrize("name", [figure.name for figure in report.FIGURES])
def test_one_that_grows_by_more_than_its_bound_is_found_and_no_other(name: str) -> None:
    (bound,) = (figure.bound for figure in report.FIGURES if figure.name == name)
    leaking = tuple(
        replace(each, **{name: getattr(each, name) + 2 * bound * each.lives + number % 3 * bound})
        for number, each in enumerate(FLAT)
    )
    found = verdicts(replace(RESULT, samples=leaking))
    assert found.pop(name) is Verdict.GROWS and set(found.values()) == {Verdict.FLAT}


def test_the_page_names_its_size_its_machine_and_each_figure() -> None:
    text = report.page(MACHINE, RESULT)
    assert "**700 lives** with 1,100 ends in 5.8 minutes, 0.50 s for each life" in text
    assert "60 samples, one after every 10 lives, the first after 100. That is a small soak" in text
    assert "commit abc123, Linux 6.18.0, 2 processors" in text
    assert (
        "| daemon: memory (PSS) | 40,000 kB | 40,000 kB | 40,000 kB | 0.00 kB | 0.00 to 0.00 | 100 kB | flat |" in text
    )
    assert "small" not in report.page(MACHINE, replace(RESULT, lives=10_000))
    assert "not committed" in report.page(replace(MACHINE, is_dirty=True), RESULT)


def test_lines_and_document_say_the_same() -> None:
    shown = list(report.lines(report.judged(RESULT)))
    assert len(shown) == len(report.FIGURES) and all(line.startswith("flat ") for line in shown)
    figures = report.document(MACHINE, RESULT)["figures"]
    assert isinstance(figures, list) and {each["verdict"] for each in figures} == {"flat"}


def test_what_was_written_is_read_and_judged_without_its_first_lives() -> None:
    leaking = tuple(replace(each, daemon_fds=min(each.lives, 300)) for each in FLAT)
    result = replace(RESULT, samples=leaking)
    machine, read = report.loaded(json.dumps(report.document(MACHINE, result)))
    assert (machine, read) == (MACHINE, result) and verdicts(read)["daemon_fds"] is Verdict.GROWS
    assert verdicts(report.later(read, 300))["daemon_fds"] is Verdict.FLAT
    assert "the first after 300" in report.page(machine, report.later(read, 300))


def test_too_few_samples_are_refused() -> None:
    with pytest.raises(TooFew):
        report.page(MACHINE, replace(RESULT, samples=FLAT[:3]))


@pytest.mark.parametrize("words", [[], ["--lives", "0"], ["--lives", "5"], ["--lives", "-3"]])
def test_a_soak_without_an_end_or_of_too_few_lives_is_refused(words: list[str]) -> None:
    with pytest.raises(SystemExit):
        arguments(words)


@pytest.mark.parametrize(
    ("words", "plan"),
    [
        (["--lives", "10000"], Plan(10_000, 0, 150, 1000)),
        (["--lives", "40"], Plan(40, 0, 1, 20)),
        (["--hours", "2"], Plan(0, 2, 50, 1000)),
        (["--lives", "300", "--every", "7", "--warm-up", "0"], Plan(300, 0, 7, 0)),
    ],
)
def test_samples_are_spread_over_the_lives(words: list[str], plan: Plan) -> None:
    assert planned(arguments(words)) == plan
