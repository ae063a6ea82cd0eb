"""`exitctl compare`: what it refuses before anything is begun, and where a report goes."""

import os
import pathlib
import subprocess
import sys

import pytest
from click.testing import CliRunner

from supervisor.cli.__main__ import exitctl
from supervisor.cli.compare import drawings, write
from supervisor.compare import guard
from supervisor.compare.facts import CompareReport, Way, decode

REPORT = CompareReport(
    (("kernel", "6.18"),), (Way("conmon", "conmon alone", "monitor per container", "not installed"),)
)


def test_without_root_it_says_so_and_begins_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    done = CliRunner().invoke(exitctl, ["compare", "--quick"], standalone_mode=False)
    assert done.return_value == 125
    assert "compare needs root" in done.output


@pytest.mark.parametrize("words", [["--pods", "0"], ["--rounds", "-1"], ["--containers", "many"], ["--way", "docker"]])
def test_what_makes_no_sense_is_refused(words: list[str]) -> None:
    assert CliRunner().invoke(exitctl, ["compare", *words]).exit_code == 2


def test_a_directory_gets_the_page_and_the_data(tmp_path: pathlib.Path) -> None:
    write(REPORT, tmp_path / "new", None, None, drawings())
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == ["report.html", "report.json"]
    assert decode((tmp_path / "new/report.json").read_text()) == REPORT


def test_each_file_is_written_where_it_is_wanted(tmp_path: pathlib.Path) -> None:
    write(REPORT, tmp_path / "a.html", tmp_path / "b.json", tmp_path / "c.svg", drawings())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.html", "b.json", "c.svg"]
    assert decode((tmp_path / "b.json").read_text()) == REPORT


def test_without_matplotlib_there_are_tables_and_a_line_that_says_how_to_get_the_page(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    for name in [name for name in sys.modules if name.startswith("supervisor.compare.html.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(guard, "measured", lambda wanted: (REPORT, []))
    words = ["compare", "--out", str(tmp_path / "out"), "--picture", str(tmp_path / "picture.svg")]
    done = CliRunner().invoke(exitctl, words, standalone_mode=False)
    assert "not measured: conmon alone: not installed" in done.stdout
    assert done.stderr.splitlines()[0] == (
        "exitctl: matplotlib is not installed, so there are tables alone; for the page: pip install 'exitd[compare]'"
    )
    assert [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.*")] == ["out/report.json"]


def test_no_command_and_no_daemon_loads_matplotlib_before_there_is_a_report_to_draw() -> None:
    look = "import sys, supervisor.cli.compare, supervisor.__main__; print('matplotlib' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "False\n"
