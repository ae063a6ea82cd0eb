"""The C programs are found where an installation puts them."""

import pathlib
import sys

import pytest

from shim import programs


def made(directory: pathlib.Path, name: str = "exitd-shim", mode: int = 0o755) -> pathlib.Path:
    directory.mkdir(parents=True, exist_ok=True)
    program = directory / name
    program.touch()
    program.chmod(mode)
    return program


def test_the_program_beside_the_interpreter_wins(tmp_path: pathlib.Path) -> None:
    beside = made(tmp_path / "bin")
    made(tmp_path / "_bin")
    assert programs.find("exitd-shim", str(tmp_path / "bin" / "python"), tmp_path / "_bin") == beside


def test_an_interpreter_that_is_a_link_is_not_resolved(tmp_path: pathlib.Path) -> None:
    beside = made(tmp_path / "bin")
    (tmp_path / "bin" / "python").symlink_to(sys.executable)
    assert programs.find("exitd-shim", str(tmp_path / "bin" / "python"), tmp_path / "_bin") == beside


def test_without_it_the_source_tree_is_looked_at_then_path(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_path = made(tmp_path / "elsewhere")
    monkeypatch.setenv("PATH", str(tmp_path / "elsewhere"))
    assert programs.find("exitd-shim", str(tmp_path / "python"), tmp_path / "_bin") == on_path
    in_tree = made(tmp_path / "_bin")
    assert programs.find("exitd-shim", str(tmp_path / "python"), tmp_path / "_bin") == in_tree


def test_a_file_that_cannot_be_executed_is_passed_over(tmp_path: pathlib.Path) -> None:
    made(tmp_path / "bin", mode=0o644)
    in_tree = made(tmp_path / "_bin")
    assert programs.find("exitd-shim", str(tmp_path / "bin" / "python"), tmp_path / "_bin") == in_tree


def test_an_interpreter_without_a_name_does_not_mean_the_working_directory(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made(tmp_path, "exitd-nothing")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileNotFoundError):
        programs.find("exitd-nothing", "", tmp_path / "_bin")


def test_a_missing_program_names_the_next_step(tmp_path: pathlib.Path) -> None:
    with pytest.raises(FileNotFoundError, match="exitd-nothing is not installed: run `pip install"):
        programs.find("exitd-nothing", str(tmp_path / "python"), tmp_path / "_bin")
