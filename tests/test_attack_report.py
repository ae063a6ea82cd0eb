"""The page of the mass attack: of whole attacks on one committed tree, and with the findings as they are today."""

import json
import pathlib
import tomllib
from dataclasses import replace
from typing import Any

import pytest

from tests.attack import peers, report
from tests.attack.__main__ import arguments
from tests.attack.judge import Verdict
from tests.attack.report import Machine, Refused
from tests.attack.run import Plan, Result

TESTS = pathlib.Path(__file__).resolve().parent
MACHINE = Machine("abc123", False, "2026-01-02", "6.18.0", 2, "runc version 1.1.5")
RESULT = Result(
    plan=Plan(7, 100),
    verdict=Verdict(lost=("no row for a",)),
    exits={"exited by record": 90, "unknown by none": 3},
    task_exits=12,
    deaths={"daemon": 4},
    misfortunes={"kill": 9},
    fallen=("status 1: out of threads",),
    seconds=5400.0,
    lives=60,
    interrupted=False,
)
OTHER = replace(RESULT, plan=Plan(8, 100), verdict=Verdict(), seconds=1800.0, containerd="1.7.24")
FINDINGS: dict[str, dict[str, Any]] = {
    "T1": {"what": "it hangs", "tests": ["tests/a.py::b"]},
    "S2": {"what": "it leaks", "open": "not yet"},
}


def test_what_was_written_for_machines_is_read_as_it_was() -> None:
    text = json.dumps(report.document(MACHINE, [RESULT, OTHER]))
    assert report.loaded(text) == (MACHINE, [RESULT, OTHER])


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"machine": {}, "attacks": []}', '{"machine": 1, "attacks": 2}'])
def test_what_is_none_of_ours_is_refused(text: str) -> None:
    with pytest.raises(Refused, match="not the results"):
        report.loaded(text)


def test_runs_of_one_commit_are_merged_and_every_machine_is_named() -> None:
    later = replace(MACHINE, date="2026-01-03", kernel="7.2.0")
    machine, results = report.merged([(later, [OTHER]), (MACHINE, [RESULT])])
    assert machine == replace(later, kernel="6.18.0, 7.2.0") and results == [OTHER, RESULT]


@pytest.mark.parametrize(
    ("machine", "result", "why"),
    [
        (replace(MACHINE, commit="def456"), OTHER, "different commits"),
        (replace(MACHINE, is_dirty=True), OTHER, "not committed"),
        (MACHINE, replace(OTHER, interrupted=True), "seed 8 was interrupted"),
        (MACHINE, RESULT, "twice"),
    ],
)
def test_what_would_make_the_page_untrue_is_refused(machine: Machine, result: Result, why: str) -> None:
    with pytest.raises(Refused, match=why):
        report.merged([(MACHINE, [RESULT]), (machine, [result])])


def test_there_is_no_page_of_nothing_and_none_of_a_broken_run() -> None:
    with pytest.raises(Refused, match="no commit"):
        report.merged([(replace(MACHINE, commit=""), [RESULT])])
    with pytest.raises(Refused, match="no results"):
        report.merged([])
    with pytest.raises(Refused, match="interrupted"):
        report.page(MACHINE, [replace(RESULT, interrupted=True)], FINDINGS)


def test_the_page_says_hours_seeds_figures_and_what_holds_each_finding() -> None:
    text = report.page(MACHINE, [RESULT, OTHER], FINDINGS)
    assert "**186 exits** of 120 lives, under 18 misfortunes and 8 kills, in 2.0 hours." in text
    assert "| lost: it ended, and nothing was reported | 1 |" in text
    assert "| 7 | runc | - | 12 | 93 | 60 | 9 | 4 | 5400.0 |" in text
    assert "| 8 | runc | 1.7.24 | 12 | 93 | 60 | 9 | 4 | 1800.0 |" in text
    assert "| T1 | it hangs | `tests/a.py::b` |" in text and "| S2 | it leaks | open: not yet |" in text
    assert "commit abc123" in text


def test_only_the_findings_are_written_anew() -> None:
    text = report.page(MACHINE, [RESULT, OTHER], FINDINGS)
    assert report.rows_anew(text, FINDINGS) == text
    mended = {**FINDINGS, "S2": {"what": "it leaks", "tests": ["tests/c.py::d"], "open": "in part"}}
    assert report.rows_anew(text, mended) == text.replace("open: not yet", "`tests/c.py::d`<br>open: in part")
    with pytest.raises(Refused, match="lacks a section about others"):
        report.rows_anew("nothing", FINDINGS)
    with pytest.raises(Refused, match="lacks a table of rows"):
        report.rows_anew(report.beside(), FINDINGS)


def test_what_is_known_of_others_is_written_anew_with_the_findings() -> None:
    text = report.page(MACHINE, [RESULT, OTHER], FINDINGS)
    assert report.rows_anew(text.replace("moby#43491", "a thread"), FINDINGS) == text


def test_of_each_misfortune_each_engine_has_a_cell() -> None:
    for row in peers.ROWS:
        assert len(row.cells()) == len(peers.HEAD) and all(row.cells())
        assert not any("|" in cell or "\n" in cell for cell in row.cells())


def test_the_findings_in_the_page_are_those_there_are() -> None:
    findings = tomllib.loads((TESTS / "findings.toml").read_text())
    for path in (TESTS.parent / "docs").glob("reliability.md"):
        text = path.read_text()
        assert report.rows_anew(text, findings) == text, (
            "run `python -m tests.attack --rows --page docs/reliability.md`"
        )


def test_the_page_is_of_the_results_that_are_kept() -> None:
    """`make attack` writes both; `python -m tests.attack --merge tests/attack/results/*.json --page
    docs/reliability.md` the page when results have been added."""
    findings = tomllib.loads((TESTS / "findings.toml").read_text())
    kept = [report.loaded(path.read_text()) for path in sorted((TESTS / "attack/results").glob("*.json"))]
    page = report.page(*report.merged(kept), findings)
    assert (TESTS.parent / "docs/reliability.md").read_text() == page


@pytest.mark.parametrize("words", [["--rows"], ["--merge", "a.json"]])
def test_without_a_page_there_is_nothing_to_write(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        arguments(words)
    assert "--page" in capsys.readouterr().err
