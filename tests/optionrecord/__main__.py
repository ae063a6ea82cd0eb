"""The verdict on a run of the whole suite: every option of exitctl and exitd was parsed in it, or is named here.

What nobody tries dies unnoticed. See sitecustomize.py for how the record is made, and the Makefile for when: `make
unit` and `make check` begin it anew, `make system` adds to it, and the last step of `make test` and `make ci` judges.
"""

import pathlib
import sys
from collections.abc import Iterator

import click
from click import Command, Group

from supervisor.__main__ import main as exitd
from supervisor.cli.__main__ import exitctl


def options(command: Command, place: str) -> Iterator[str]:
    """Each option by its place and longest name, `exitctl image ls --quiet`."""
    for parameter in command.params:
        if isinstance(parameter, click.Option) and parameter.name not in ("help", "version"):
            yield f"{place} {max(parameter.opts, key=len)}"
    if isinstance(command, Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from options(below, f"{place} {name}")


def unparsed(programs: tuple[Command, ...], directory: pathlib.Path) -> list[str]:
    """The options of these programs that are not in the record."""
    parsed = {path.name for path in directory.iterdir()} if directory.is_dir() else set()
    return [each for program in programs for each in options(program, str(program.name)) if each not in parsed]


def main(directory: str) -> int:
    missing = unparsed((exitctl, exitd), pathlib.Path(directory))
    for each in missing:
        print(f"{each}: no test has used it")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
