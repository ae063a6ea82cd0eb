"""A command of exitctl loads what it needs: each module more is time that every call takes."""

import importlib
import subprocess
import sys
from pathlib import Path

import click
import pytest

from supervisor.cli.__main__ import exitctl
from supervisor.cli.app import COMMANDS
from tests.supervisor.cli.fake_attach import FakeAttach
from tests.supervisor.cli.fake_daemon import FakeDaemon, exit_of
from tests.supervisor.cli.test_exec import made_exec

LIMIT_SECONDS = 60
PROGRAM = "import sys, supervisor.cli.__main__ as m; code = m.run(sys.argv[1:]); print(code, *sys.modules)"
NEVER = {
    *("grpc", "asyncio", "structlog", "traceback", "json", "pathlib", "subprocess", "logging", "dataclasses"),
    *("supervisor.model.values", "supervisor.cli.template"),
}
WITHOUT_DAEMON = {"google.protobuf", "shim.frozen", "socket", "supervisor.api", "supervisor.ttrpc"}


@pytest.fixture
def fake(tmp_path: Path) -> FakeDaemon:
    return FakeDaemon(tmp_path, "ttrpc")


def loaded(*words: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *words], capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False
    )
    code, *modules = done.stdout.splitlines()[-1].split()
    assert code == "0", done.stderr
    return set(modules)


def test_help_loads_no_command_and_nothing_to_reach_the_daemon_with() -> None:
    modules = loaded("--help")
    assert not modules & (NEVER | WITHOUT_DAEMON)
    assert {name for name in modules if name.startswith("supervisor.")} == {
        *("supervisor.cli", "supervisor.cli.__main__", "supervisor.cli.app", "supervisor.cli.spelling"),
        *("supervisor.model", "supervisor.model.errors"),
    }


@pytest.mark.parametrize("words", [("ps",), ("exec", "web", "true"), ("run", "--rm", "--rootfs", "/", "true")])
def test_a_command_over_ttrpc_loads_neither_grpc_nor_what_the_daemon_knows(
    fake: FakeDaemon, words: tuple[str, ...]
) -> None:
    attach = FakeAttach()
    attach.end()
    fake.answers.Exec, fake.answers.Attach, fake.exit = made_exec, attach, exit_of(kind="exited", code=0)
    fake.started.set()
    assert not loaded("--address", fake.path, *words) & NEVER
    fake.stop()


def test_the_table_has_every_command_of_its_modules_by_its_name() -> None:
    context = click.Context(exitctl)
    found = {name: exitctl.get_command(context, name) for name in COMMANDS}
    assert {name: command.name for name, command in found.items() if command} == {name: name for name in COMMANDS}
    modules = {module: importlib.import_module(f"supervisor.cli.{module}") for module, _ in COMMANDS.values()}
    defined = {
        (module, command.name)
        for module, content in modules.items()
        for command in vars(content).values()
        if isinstance(command, click.Command)
    }
    below = {
        (module, each.name)
        for module, content in modules.items()
        for group in vars(content).values()
        if isinstance(group, click.Group)
        for each in group.commands.values()
    }
    assert defined - below == {(module, name) for name, (module, _) in COMMANDS.items()}
