"""Manual pages and shell completion of exitctl and exitd, from the commands themselves.

click-man, the library for that, copies texts as they are: a line of ours that begins with a dot, or has a backslash,
would be an order to roff. It also puts every page into section 1.
"""

import os
import pathlib
import re
import sys
from collections.abc import Iterator

import click
from click.shell_completion import get_completion_class

from supervisor import __version__
from supervisor.__main__ import main as exitd
from supervisor.cli import examples
from supervisor.cli.__main__ import exitctl

SHELLS = {
    "bash": "usr/share/bash-completion/completions/exitctl",
    "zsh": "usr/share/zsh/vendor-completions/_exitctl",
    "fish": "usr/share/fish/vendor_completions.d/exitctl.fish",
}
FILES = {
    "exitd": (
        ("/etc/exitd/config.toml", "The configuration, read again at SIGHUP and when it changes."),
        ("/var/lib/exitd", "What outlives a boot: the ledger and event log (exitd.db, exitd.ring), containers' files."),
        ("/run/exitd", "What dies with the host: sockets, and a directory for each run."),
    ),
    "exitctl": (("/run/exitd/exitd.ttrpc, /run/exitd/exitd.sock", "Where exitd answers."),),
}
VARIABLES = {
    "exitd": (("EXITD_STATE", "The state directory, where --state is not given."),),
    "exitctl": (
        ("EXITD_ADDRESS", "The daemon's socket, where --address is not given."),
        ("EXITD_STATE", "The directory of exitd.sock, where neither is given."),
        ("EXITCTL_DEBUG", "Show where an internal error came from."),
    ),
}


def escaped(text: str) -> str:
    """Return the text so that roff prints it and takes nothing of it for an order."""
    text = text.replace("\\", r"\e").replace("-", r"\-")
    return re.sub(r"^([.'])", r"\\&\1", text, flags=re.MULTILINE)


def paragraphs(text: str) -> Iterator[str]:
    """Yield a help text as roff; click's \\b marks a paragraph whose lines stay as they are."""
    for paragraph in text.split("\n\n"):
        kept = paragraph.startswith("\b\n")
        yield ".PP"
        yield from ((".nf", escaped(paragraph[2:]), ".fi") if kept else (escaped(paragraph.strip()),))


def records(heading: str, pairs: Iterator[tuple[str, str]] | tuple[tuple[str, str], ...]) -> Iterator[str]:
    found = list(pairs)
    if found:
        yield f".SH {heading}"
    for name, text in found:
        yield ".TP"
        yield rf"\fB{escaped(name)}\fP"
        yield escaped(text) or r"\&"


def page(ctx: click.Context, section: int, summary: str) -> str:
    """Return the page of one command."""
    command, name = ctx.command, ctx.command_path.replace(" ", "-")
    root = ctx.find_root().command.name or ""
    usage = " ".join(command.collect_usage_pieces(ctx))
    options = (record for each in command.params if (record := each.get_help_record(ctx)))
    lines = [
        f'.TH "{name.upper()}" "{section}" "" "exitd {__version__}" "exitd"',
        ".SH NAME",
        rf"{escaped(name)} \- {escaped(summary)}",
        ".SH SYNOPSIS",
        rf"\fB{escaped(ctx.command_path)}\fP {escaped(usage)}",
        ".SH DESCRIPTION",
        *paragraphs(command.help or ""),
        *records("OPTIONS", options),
        *records("COMMANDS", _commands(ctx)),
        *records("EXAMPLES", examples.of(ctx.command_path.partition(" ")[2])),
    ]
    if ctx.parent is None:
        lines += [*records("FILES", FILES[root]), *records("ENVIRONMENT", VARIABLES[root])]
    others = {"exitctl(1)", "exitd(8)"} - {f"{name}({section})"}
    lines += [".SH SEE ALSO", escaped(", ".join(sorted(others)))]
    return "\n".join(lines) + "\n"


def _commands(ctx: click.Context) -> Iterator[tuple[str, str]]:
    if isinstance(ctx.command, click.Group):
        for name in ctx.command.list_commands(ctx):
            command = ctx.command.get_command(ctx, name)
            assert command is not None
            yield name, command.get_short_help_str(200)


def pages(command: click.Command, section: int, parent: click.Context | None = None) -> Iterator[tuple[str, str]]:
    """Yield file name and text of the command's page and of those of all commands below it."""
    ctx = click.Context(command, info_name=command.name, parent=parent)
    yield f"{ctx.command_path.replace(' ', '-')}.{section}", page(ctx, section, command.get_short_help_str(200))
    if isinstance(command, click.Group):
        for name in command.list_commands(ctx):
            below = command.get_command(ctx, name)
            assert below is not None
            below.name = name
            yield from pages(below, section, ctx)


def completion(shell: str) -> str:
    """Return click's script for exitctl."""
    chosen = get_completion_class(shell)
    assert chosen is not None
    return chosen(exitctl, {}, "exitctl", "_EXITCTL_COMPLETE").source()


def write(root: pathlib.Path) -> None:
    """Write all of it below `root`, at its place in a file system."""
    for command, section in ((exitctl, 1), (exitd, 8)):
        for name, text in pages(command, section):
            _put(root / f"usr/share/man/man{section}" / name, text)
    for shell, place in SHELLS.items():
        _put(root / place, completion(shell))


def _put(path: pathlib.Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    os.chmod(path, 0o644)


if __name__ == "__main__":
    write(pathlib.Path(sys.argv[1]))
