"""Manual pages and shell completion of exitctl and exitd, and docs/reference.md, from the commands themselves.

    python .ci/manpages.py DIR           pages and completion, at their places below DIR
    python .ci/manpages.py --reference   docs/reference.md

click-man, the library for that, copies texts as they are: a line of ours that begins with a dot, or has a backslash,
would be an order to roff. It also puts every page into section 1.
"""

import os
import pathlib
import re
import sys
from collections.abc import Iterable, Iterator

import click
from click.shell_completion import get_completion_class

from supervisor import __version__
from supervisor.__main__ import main as exitd
from supervisor.cli import examples
from supervisor.cli.__main__ import exitctl

REFERENCE = pathlib.Path(__file__).resolve().parents[1] / "docs/reference.md"
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
REFERENCE_HEAD = """# Every verb and every option of exitctl

This page is what the commands say of themselves, as `exitctl help VERB` and the manual pages do.
`python -m tests.supervisor.cli.clipage` writes it. What becomes of docker's and podman's words is in [cli.md](cli.md),
and sorted for hands in [docker-to-exitctl.md](docker-to-exitctl.md); what a template of `--format` may say is in
[templates.md](templates.md).

Options of exitctl itself stand before the verb, those of a verb behind it.

"""
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


def contexts(command: click.Command, parent: click.Context | None = None) -> Iterator[click.Context]:
    """Yield the command with what stands before it, and so all commands below it."""
    ctx = click.Context(command, info_name=command.name, parent=parent)
    yield ctx
    if isinstance(command, click.Group):
        for name in command.list_commands(ctx):
            below = command.get_command(ctx, name)
            assert below is not None
            below.name = name
            yield from contexts(below, ctx)


def pages(command: click.Command, section: int) -> Iterator[tuple[str, str]]:
    """Yield file name and text of the command's page and of those of all commands below it."""
    for ctx in contexts(command):
        name, summary = ctx.command_path.replace(" ", "-"), ctx.command.get_short_help_str(200)
        yield f"{name}.{section}", page(ctx, section, summary)


# -- docs/reference.md


def reference() -> str:
    """Return the page of all verbs and options of exitctl."""
    return REFERENCE_HEAD + "\n".join(map(_verb, contexts(exitctl)))


def _verb(ctx: click.Context) -> str:
    params = (each for each in ctx.command.params if isinstance(each, click.Option))  # arguments are in its usage
    options = [record for each in params if (record := each.get_help_record(ctx))]
    parts = [
        f"## {ctx.command_path}",
        f"`{ctx.command_path} {' '.join(ctx.command.collect_usage_pieces(ctx))}`",
        *_plain(ctx.command.help or ""),
        *_table("option", options),
        *_table("verb", _commands(ctx), f"#{ctx.command_path.replace(' ', '-')}-{{}}"),
        *_table("example", examples.of(ctx.command_path.partition(" ")[2])),
    ]
    return "\n\n".join(parts) + "\n"


def _plain(text: str) -> Iterator[str]:
    """Yield the paragraphs of a help text as Markdown."""
    for paragraph in filter(None, map(str.strip, text.split("\n\n"))):
        if paragraph.startswith("\b\n"):
            yield f"```text\n{paragraph[2:]}\n```"
        else:
            yield _cell(" ".join(paragraph.split()))


def _table(heading: str, rows: Iterable[tuple[str, str]], link: str = "") -> Iterator[str]:
    lines = [
        f"| {f'[`{name}`]({link.format(name)})' if link else f'`{name}`'} | {_cell(text)} |".replace("\n", " ")
        for name, text in ((name.replace("|", r"\|"), text) for name, text in rows)
    ]
    if lines:
        yield "\n".join((f"| {heading} | does |", "|---|---|", *lines))


def _cell(text: str) -> str:
    """Return the text so that Markdown shows it as it is."""
    return re.sub(r"([|<*\[\]])", r"\\\1", text)


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
    if sys.argv[1] == "--reference":
        REFERENCE.write_text(reference())
    else:
        write(pathlib.Path(sys.argv[1]))
