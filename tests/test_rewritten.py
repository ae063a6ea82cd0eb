"""What `make bytecode` keeps of the test files is what pytest runs."""

import importlib.util
import pathlib

import pytest
import rewritten
from _pytest.assertion import rewrite


def test_pytest_runs_what_was_kept_and_only_of_the_file_as_it_is(
    tmp_path: pathlib.Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    anew = list[pathlib.Path]()
    make = rewrite._rewrite_test

    def counted(file: pathlib.Path, config: pytest.Config) -> object:
        anew.append(file)
        return make(file, config)

    def run() -> None:
        hook = rewrite.AssertionRewritingHook(request.config)
        spec = importlib.util.spec_from_file_location("one", file, loader=hook)
        assert spec is not None
        hook.exec_module(importlib.util.module_from_spec(spec))

    file = tmp_path / "test_one.py"
    file.write_text("number = 1\nassert number == 1\n")
    assert rewritten.rewritten(file)
    assert not rewritten.rewritten(file)
    monkeypatch.setattr(rewrite, "_rewrite_test", counted)
    run()
    assert anew == []
    file.write_text("number = 22\nassert number == 1\n")  # before 9.2 it looks at time and size
    with pytest.raises(AssertionError, match="assert 22 == 1"):  # pytest's own words
        run()
    assert anew == [file]


def test_a_file_that_is_no_python_is_left_to_the_tests_own_run(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "test_one.py"
    file.write_text("assert (\n")
    assert not rewritten.rewritten(file)
    assert not rewritten.kept(file).exists()
