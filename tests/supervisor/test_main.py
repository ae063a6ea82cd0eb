"""Flags, variables and a file, on the way to a configuration."""

import gc
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from supervisor.__main__ import KEYS, _given, _inotify, main
from supervisor.config.settings import PLAIN, Given
from supervisor.model.errors import CannotStart
from tests.supervisor.descriptors import only

gc.enable()  # the import of exitd's entry has turned it off, for exitd's own process


def test_every_flag_that_means_a_key_means_one_that_exists() -> None:
    assert set(KEYS.values()) <= set(PLAIN)
    assert set(KEYS) < {str(parameter.name) for parameter in main.params}


def test_a_flag_goes_before_the_variable_and_a_flag_not_given_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EXITD_STATE", "/env")
    absent = dict.fromkeys(KEYS)
    assert _given(absent) == {("state",): Given("/env", "EXITD_STATE")}
    assert _given({**absent, "state": "/flag"}) == {("state",): Given("/flag", "flag")}
    monkeypatch.setenv("EXITD_STATE", "")
    assert _given(absent) == {}


def test_directories_on_a_command_line_may_be_relative(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert _given({"root": "r"}) == {("root",): Given(f"{tmp_path.resolve()}/r", "flag")}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--runtime", "a b"], "--runtime: must be a runtime's name"),
        (["--runtime", "./runc"], "--runtime: must be a runtime's name"),
        (["--exit-retention", "-1"], "--exit-retention: must be a number from 0 to 2592000, and is -1.0"),
        (["--cgroup-driver", "upstart"], "'upstart' is not one of"),
        (["--config"], "requires an argument"),
    ],
)
def test_a_flag_that_a_file_could_not_say_either_is_a_usage_error(arguments: list[str], words: str) -> None:
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 2
    assert words in result.output


def started(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "supervisor", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def test_a_configuration_that_is_wrong_is_reported_line_by_line_and_nothing_is_touched(tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    file.write_text(f"root = '{tmp_path}/r'\nstat = 1\n[limits]\nscratch_mib = 'x'\n")
    found = started("--config", str(file))
    assert (found.returncode, found.stdout) == (1, "")
    assert found.stderr.splitlines() == [
        f"exitd: {file}:2: stat: there is no such key; did you mean state?",
        f'exitd: {file}:4: limits.scratch_mib: must be a whole number from 1 to 1048576, and is "x"',
    ]
    assert not (tmp_path / "r").exists()


def test_a_named_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    found = started("--config", str(tmp_path / "none.toml"))
    assert (found.returncode, found.stdout) == (1, "")
    assert f"{tmp_path}/none.toml: no such file" in found.stderr


def test_a_file_can_say_the_directories_too(tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    file.write_text(f"root = '{tmp_path}/same'\nstate = '{tmp_path}/same'\n")
    assert "--root and --state are both" in started("--config", str(file)).stderr


SEES_GRPC = """
import os, sys

class Look:
    def find_spec(self, name, path=None, target=None):
        if name == "grpc":
            print(os.environ.get("GRPC_ENABLE_FORK_SUPPORT"))
            sys.meta_path.remove(self)

sys.meta_path.insert(0, Look())
for name in sys.argv[1:]:
    __import__(name)
"""


@pytest.mark.parametrize("inherited", [{}, {"GRPC_ENABLE_FORK_SUPPORT": "1"}], ids=["nothing", "on"])
@pytest.mark.parametrize(
    "program",
    ["supervisor.__main__ supervisor.api.grpcserver", "supervisor.compare.__main__", "supervisor.api.overgrpc"],
)
def test_grpc_is_imported_after_its_fork_handlers_are_switched_off(program: str, inherited: dict[str, str]) -> None:
    """They wait for ever in the fork that CPython falls back to when vfork has failed."""
    environment = {name: value for name, value in os.environ.items() if name != "GRPC_ENABLE_FORK_SUPPORT"}
    command = [sys.executable, "-c", SEES_GRPC, *program.split()]
    found = subprocess.run(
        command, env={**environment, **inherited}, capture_output=True, text=True, timeout=60, check=True
    )
    assert found.stdout == "0\n"


def test_without_a_descriptor_for_inotify_it_says_so_in_one_line() -> None:
    with only(0), pytest.raises(CannotStart, match=r"inotify: .*max_user_instances"):
        _inotify()


def test_the_daemon_loads_grpc_when_ttrpc_serves() -> None:
    """Its import takes as long as many look-ups of containers."""
    late = {"grpc", "grpc_reflection", "supervisor.api.grpcserver", "supervisor.api.containerd", "supervisor.compare"}
    code = f"import sys, supervisor.__main__; print({late} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "set()\n"), done.stderr
