"""`exitctl compare`: what it refuses before anything is begun, and where a report goes."""

import os
import pathlib

import pytest
from click.testing import CliRunner

from supervisor.cli.__main__ import exitctl
from supervisor.cli.compare import write
from supervisor.compare.facts import Report, Way, decode

REPORT = Report((("kernel", "6.18"),), (Way("conmon", "conmon alone", "monitor per container", "not installed"),))


def test_without_root_it_says_so_and_begins_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    done = CliRunner().invoke(exitctl, ["compare", "--quick"], standalone_mode=False)
    assert done.return_value == 125
    assert "compare needs root" in done.output


@pytest.mark.parametrize("words", [["--pods", "0"], ["--rounds", "-1"], ["--containers", "many"], ["--way", "docker"]])
def test_what_makes_no_sense_is_refused(words: list[str]) -> None:
    assert CliRunner().invoke(exitctl, ["compare", *words]).exit_code == 2


def test_a_directory_gets_the_page_and_the_data(tmp_path: pathlib.Path) -> None:
    write(REPORT, tmp_path / "new", None, None)
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == ["report.html", "report.json"]
    assert decode((tmp_path / "new/report.json").read_text()) == REPORT


def test_each_file_is_written_where_it_is_wanted(tmp_path: pathlib.Path) -> None:
    write(REPORT, tmp_path / "a.html", tmp_path / "b.json", tmp_path / "c.svg")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.html", "b.json", "c.svg"]
    assert decode((tmp_path / "b.json").read_text()) == REPORT
