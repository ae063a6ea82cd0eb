"""Every number that may be typed has two ends: what is beyond them fits into no message, and is refused at the door."""

from collections.abc import Iterator
from typing import Any

import click

from supervisor.cli import parse
from supervisor.cli.__main__ import exitctl

CURE = "parse.UINT32, INT32, UINT64 and WholeNumber are for numbers, LimitSeconds for seconds"


def numbers(command: click.Command, place: str) -> Iterator[tuple[str, click.ParamType[Any]]]:
    """Each option and argument that takes a number, by its place."""
    for parameter in command.params:
        if isinstance(parameter.type, click.types.IntParamType | click.types.FloatParamType):
            is_counted = isinstance(parameter, click.Option) and parameter.count
            if not is_counted:
                yield f"{place} {max(parameter.opts, key=len)}", parameter.type
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from numbers(below, f"{place} {name}")


def test_every_number_has_two_ends_and_is_one() -> None:
    found = dict(numbers(exitctl, "exitctl"))
    assert len(found) > 20
    for place, kind in found.items():
        whole = isinstance(kind, click.IntRange) and None not in (kind.min, kind.max)
        assert whole or isinstance(kind, parse.WholeNumber | parse.LimitSeconds), f"{place}: {CURE}"
