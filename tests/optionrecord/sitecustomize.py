"""Records each option that click parses, as an empty file in the directory that OPTIONS_RECORD names.

The Makefile puts this folder on PYTHONPATH, so every Python of a run of the tests imports this module at its start:
pytest's own processes, and exitctl and exitd as they are installed. The programs themselves know nothing of it. What
is not needed before click is imported is not imported here, since most of those processes never import click.
"""

import os
import sys

TYPE_CHECKING = False  # typing's own would be an import
if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

    from click import Command, Context


class Finder:
    """Finds click.core as Python does, and has it record once it is executed."""

    def __init__(self, directory: str) -> None:
        self._directory = directory

    def find_spec(
        self, name: str, path: "Sequence[str] | None" = None, target: "ModuleType | None" = None
    ) -> "ModuleSpec | None":
        if name != "click.core":
            return None
        from importlib.machinery import PathFinder

        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_and_record(module: "ModuleType") -> None:
                execute(module)
                record(module.Command, self._directory)

            spec.loader.exec_module = execute_and_record  # type: ignore[method-assign]
        return spec


def record(command: "type[Command]", directory: str) -> None:
    """Have every command of this class record what it was given, each option once, by its place: `exitctl ps --all`."""
    from contextlib import suppress

    parse = command.parse_args

    def parse_and_record(self: "Command", ctx: "Context", args: list[str]) -> list[str]:
        """What is refused is not recorded: the option has done nothing then."""
        rest = parse(self, ctx, args)
        for parameter in self.params:
            source = ctx.get_parameter_source(parameter.name or "")
            if source is not None and source.name == "COMMANDLINE" and parameter.param_type_name == "option":
                # A process with no right or no descriptor left goes on as it would without a record.
                with suppress(OSError), open(f"{directory}/{place(ctx)} {max(parameter.opts, key=len)}", "a"):
                    pass
        return rest

    command.parse_args = parse_and_record  # type: ignore[method-assign]


def place(ctx: "Context") -> str:
    """`exitctl image ls`. The first word is the command's own: argv[0] is whatever the program was started as."""
    return f"{place(ctx.parent)} {ctx.info_name}" if ctx.parent is not None else str(ctx.command.name)


if __name__ == "sitecustomize" and (named := os.environ.get("OPTIONS_RECORD")):
    sys.meta_path.insert(0, Finder(named))
