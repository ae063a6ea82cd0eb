"""Prints documents to stdout in the requested format: table, json, jsonl, or a template."""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import click

from shim.frozen import frozen
from supervisor.cli import table
from supervisor.model.errors import BadRequest

if TYPE_CHECKING:
    from supervisor.cli.shape import Document
    from supervisor.cli.template import Template


@frozen
class Format:
    """`kind` is table, json, jsonl or template; `pattern` is set for a template."""

    kind: str
    pattern: "Template | None" = None


def format_of(text: str) -> Format:
    """Parse the word. Raises BadRequest when it is neither a format nor a template."""
    if text in ("table", "json", "jsonl"):
        return Format(text)
    if "{{" in text:
        from supervisor.cli import template

        return Format("template", template.parse(text))
    hint = _about_conditions() if "=" in text else ""
    raise BadRequest(f"--format {text!r} is not known: table, json, jsonl or a template such as '{{{{.ID}}}}'{hint}")


def _about_conditions() -> str:
    """Return what is to be said where -f was meant as docker's --filter; nothing, where neither tool has that."""
    ctx = click.get_current_context()
    if any("--filter" in each.opts for each in ctx.command.params):
        return "; conditions go to --filter"
    from supervisor.cli import refused  # imported on demand: exitctl must start fast

    instead = refused.words_of(ctx.command_path.partition(" ")[2], "--filter")
    return f"; for --filter: {instead}" if instead is not None else ""


def option(default: str, *, short: bool = True) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """`short`: -f is this option, too."""
    text = f"table, json, jsonl or a Go-like template; default {default}."
    names = ("-f", "--format") if short else ("--format",)
    return click.option(*names, "format_", default=default, metavar="FORMAT", help=text)


def show(
    wanted: Format, documents: "Iterable[Document]", headings: Sequence[str], row: "Callable[[Document], list[str]]"
) -> None:
    """Print all documents. `row` makes a table's line of a document."""
    if wanted.kind == "json":
        print(whole(list(documents)))
    elif wanted.kind == "table":
        print(table.columns([headings, *map(row, documents)]), end="")
    elif wanted.pattern is not None and wanted.pattern.is_table:
        lines = [wanted.pattern.heading, *map(wanted.pattern.render, documents)]
        print(table.columns(line.split("\t") for line in lines), end="")
    else:
        for document in documents:
            print(line(wanted, document))


def whole(document: object) -> str:
    """Return JSON for people to read."""
    import json  # a table needs none

    return json.dumps(document, indent=4, ensure_ascii=False)


def line(wanted: Format, document: "Document") -> str:
    """Return one document as one line, for output that comes one by one."""
    if wanted.pattern is not None:
        return wanted.pattern.render(document)
    import json

    return json.dumps(document, separators=(",", ":"), ensure_ascii=False)
