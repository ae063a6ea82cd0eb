"""The record of the options that were parsed while the tests ran, and the verdict on it."""

import os
import pathlib
import re
import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from supervisor.__main__ import main as exitd
from supervisor.cli.__main__ import exitctl
from tests.optionrecord import __main__ as verdict
from tests.optionrecord import sitecustomize

ROOT = pathlib.Path(__file__).resolve().parents[1]
COMMANDS = re.compile(r"-m pytest [^\n'&]+")
EXITCTL = pathlib.Path(sys.executable).with_name("exitctl")


class Recording(click.Command):
    """So that this process's other commands are not recorded here."""


@click.group()
def planted() -> None: ...


@planted.command(cls=Recording)
@click.option("--used", "-u", is_flag=True)
@click.option("--size", type=int)
@click.option("--forgotten", default="something")
def below(used: bool, size: int | None, forgotten: str) -> None: ...


@pytest.fixture
def record(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    monkeypatch.setattr(Recording, "parse_args", Recording.parse_args)  # to be as it was
    sitecustomize.record(Recording, str(tmp_path))
    return tmp_path


def recorded(directory: pathlib.Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


def test_an_option_is_recorded_by_its_long_name_wherever_it_stands(record: pathlib.Path) -> None:
    assert CliRunner().invoke(planted, ["below", "--size", "3", "-u"]).exit_code == 0
    assert recorded(record) == {"planted below --used", "planted below --size"}


def test_an_option_that_is_refused_is_not_recorded(record: pathlib.Path) -> None:
    assert CliRunner().invoke(planted, ["below", "--used", "--size", "large"]).exit_code == 2
    assert recorded(record) == set()


def test_an_option_that_no_test_used_is_named(record: pathlib.Path) -> None:
    assert CliRunner().invoke(planted, ["below", "-u", "--size", "3"]).exit_code == 0
    assert verdict.unparsed((planted,), record) == ["planted below --forgotten"]


def test_the_verdict_fails_with_every_option_of_both_programs_that_is_missing(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    every = [*verdict.options(exitctl, "exitctl"), *verdict.options(exitd, "exitd")]
    missing = ["exitctl image ls --quiet", "exitctl --grpc", "exitd --exit-retention"]
    for each in set(every) - set(missing):
        (tmp_path / each).touch()
    assert verdict.main(str(tmp_path)) == 1
    assert capsys.readouterr().out.splitlines() == [f"{each}: no test has used it" for each in every if each in missing]
    for each in missing:
        (tmp_path / each).touch()
    assert verdict.main(str(tmp_path)) == 0


def test_a_record_that_was_never_made_fails(tmp_path: pathlib.Path) -> None:
    assert verdict.main(str(tmp_path / "none")) == 1


@pytest.mark.parametrize(
    ("program", "words", "options"),
    [
        ((EXITCTL,), ("-a", "/nowhere", "ps", "--all", "-q"), {"--address", "ps --all", "ps --quiet"}),
        ((sys.executable, "-m", "supervisor.cli"), ("--address=/nowhere", "version"), {"--address"}),
    ],
)
def test_a_program_is_recorded_as_it_is_installed(
    tmp_path: pathlib.Path, program: tuple[str | pathlib.Path, ...], words: tuple[str, ...], options: set[str]
) -> None:
    _run(tmp_path, *program, *words)
    assert recorded(tmp_path) == {f"exitctl {option}" for option in options}


def test_exitd_is_recorded_under_its_name_however_it_is_started(tmp_path: pathlib.Path) -> None:
    _run(tmp_path, sys.executable, "-m", "supervisor", "--debug", "--config", "/nowhere/config.toml")
    assert recorded(tmp_path) == {"exitd --debug", "exitd --config"}


def test_a_program_goes_on_where_nothing_can_be_recorded(tmp_path: pathlib.Path) -> None:
    done = _run(tmp_path / "none", EXITCTL, "-a", "/nowhere", "version")
    assert "Traceback" not in done.stderr and "/nowhere" in done.stderr


def _run(directory: pathlib.Path, *command: str | pathlib.Path) -> "subprocess.CompletedProcess[str]":
    hook = pathlib.Path(sitecustomize.__file__).parent
    environment = {**os.environ, "OPTIONS_RECORD": str(directory), "PYTHONPATH": str(hook)}
    return subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=60)


def test_only_the_whole_suite_is_judged_on_a_record_that_it_began_itself() -> None:
    words = ("make", "--no-print-directory", "--dry-run", "--assume-old", "venv", "--assume-old", "deps")
    lines = {
        target: subprocess.run([*words, target], cwd=ROOT, capture_output=True, text=True, check=True).stdout
        for target in ("test", "unit", "system", "check", "ci")
    }
    begin, judge = "rm -rf", "-m tests.optionrecord"
    assert [name for name, text in lines.items() if judge in text] == ["test", "ci"]
    assert [name for name, text in lines.items() if begin in text] == ["test", "unit", "check", "ci"]
    for text in (lines["test"], lines["ci"]):
        assert text.count(judge) == text.splitlines()[-1].count(judge) == 1
        assert text.index(begin) < text.index("-m pytest")
    assert all(text.count("OPTIONS_RECORD=") == text.count("-m pytest") for text in lines.values()), lines
    assert (ROOT / ".ci/run").read_text().splitlines()[-1] == "make ci"


def test_what_ci_runs_is_all_that_check_and_test_run_and_the_smoke() -> None:
    words = ("make", "--no-print-directory", "--dry-run", "--assume-old", "venv", "--assume-old", "deps")
    check, test, ci = (
        subprocess.run([*words, target], cwd=ROOT, capture_output=True, text=True, check=True).stdout
        for target in ("check", "test", "ci")
    )
    for part in ("ruff check", "ruff format --check", "-m mypy", ".ci/check-c"):
        assert part in check and part in ci
    assert re.search(r"check-c \S+ programs ", ci) and "shim/core/fuzz/run" in ci  # its two parts
    assert "make --no-print-directory bytecode" in ci and not re.search(r"check-c \S+ programs", check)
    smoke = "-m tests.vm --timeout 1800 --capture=no tests/vm/check_smoke.py"
    assert [smoke in each for each in (check, test, ci)] == [False, False, True]
    assert ci.index(".ci/deps --vm") < ci.index("-m ruff"), "what the machine needs is installed before the tests begin"
    in_ci, in_test = (sorted(COMMANDS.findall(re.sub(r"--numprocesses \d+", "", each))) for each in (ci, test))
    (unit,) = [each for each in in_test if '"not system' in each]
    (system,) = [each for each in in_test if each != unit]
    half, rest = [each.removeprefix(unit).split() for each in in_ci if each != system]
    half, rest = (rest, half) if "--ignore" in half else (half, rest)
    assert rest == ["tests", *(word for each in half for word in ("--ignore", each))]
    assert system in in_ci and half and all((ROOT / each).is_dir() for each in half), in_ci
