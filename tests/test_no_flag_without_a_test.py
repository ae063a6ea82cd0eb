"""Every option of exitctl and exitd is used by some test: what nobody tries dies unnoticed."""

import functools
import pathlib
from collections.abc import Iterator

import click
import pytest
from click import Command, Group

from supervisor.__main__ import main as exitd
from supervisor.cli.__main__ import exitctl

TESTS = pathlib.Path(__file__).parent


def options(command: Command, path: tuple[str, ...]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Each option with all its names, as `exitctl image ls --quiet`."""
    for parameter in command.params:
        if isinstance(parameter, click.Option) and parameter.name not in ("help", "version"):
            yield f"{' '.join(path)} {max(parameter.opts, key=len)}", tuple(parameter.opts)
    if isinstance(command, Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from options(below, (*path, name))


@functools.cache
def everything_tested() -> str:
    return "\n".join(path.read_text() for path in sorted(TESTS.rglob("*.py")) if path != pathlib.Path(__file__))


ALL = dict([*options(exitctl, ("exitctl",)), *options(exitd, ("exitd",))])


@pytest.mark.parametrize("names", ALL.values(), ids=ALL.keys())
def test_every_option_is_used_by_a_test(names: tuple[str, ...]) -> None:
    words = everything_tested()
    assert any(f'"{name}"' in words or f"{name} " in words or f"{name}=" in words for name in names), names
