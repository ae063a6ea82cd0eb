"""The tables of docs/cli.md and docs/docker-to-exitctl.md, of what exitctl has and says.
`python -m tests.supervisor.cli.clipage` writes them, and docs/reference.md, which is made as the manual pages are."""

import pathlib
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator

import click

from supervisor.cli import refused, verbs
from supervisor.cli.__main__ import exitctl
from tests.supervisor.cli import othertools

DOCS = pathlib.Path(__file__).resolve().parents[3] / "docs"
PAGE, MAP = DOCS / "cli.md", DOCS / "docker-to-exitctl.md"
SAME = "works as there"
MISSING = "not yet"
BEGIN, END = "<!-- {}: written by python -m tests.supervisor.cli.clipage -->\n", "<!-- end of {} -->\n"


def command_of(verb: str) -> click.Command:
    """Return a command of exitctl by its words; "" is exitctl itself."""
    root = exitctl.make_context("exitctl", [], resilient_parsing=True)
    command: click.Command | None = exitctl
    for word in verb.split():
        assert isinstance(command, click.Group)
        command = command.get_command(root, word)
    assert command is not None, verb
    return command


def options_of(verb: str) -> dict[str, click.Parameter]:
    """Return what each option of a command of exitctl means, by all its names."""
    root, command = exitctl.make_context("exitctl", [], resilient_parsing=True), command_of(verb)
    found = command.get_params(click.Context(command, parent=root, info_name=verb))
    return {name: each for each in found for name in (*each.opts, *each.secondary_opts) if name.startswith("-")}


def becomes_of(verb: str, name: str, short: str, here: dict[str, click.Parameter]) -> str:
    """Return what becomes of docker's or podman's option."""
    if name not in here:
        instead = refused.words_of(verb, name)
        other = f"; {short} is {max(here[short].opts, key=len)}" if short in here else ""
        return MISSING if instead is None else f"refused: {instead}{other}"
    different = refused.different(verb)
    words = [different[each] for each in here[name].opts if each in different]
    if short and here.get(short) is not here[name]:
        words.append(f"{short} is {max(here[short].opts, key=len)}" if short in here else f"no {short}")
    return f"differs: {'; '.join(words)}" if words else SAME


def option_rows(verb: str = "run") -> Iterator[tuple[str, ...]]:
    """Yield a row for each option that docker or podman has with one of exitctl's verbs."""
    here, (docker, podman) = options_of(verb), othertools.of_verb(verb)
    for name in sorted({*docker, *podman}):
        short = docker.get(name) or podman.get(name, "")
        names = f"`{short}`, `{name}`" if short else f"`{name}`"
        yield (
            names,
            *("yes" if name in other else "" for other in (docker, podman)),
            becomes_of(verb, name, short, here),
        )


def rows_by_verb() -> Iterator[tuple[str, ...]]:
    """Yield those of all verbs but run and create."""
    for verb in othertools.with_options():
        for row in option_rows(verb):
            yield f"`{verb}`" if verb else "", *row


def verb_rows() -> Iterator[tuple[str, ...]]:
    """Yield a row for each verb of docker and podman."""
    for words in othertools.verbs():
        if words in verbs.REFUSED:
            yield f"`{words}`", f"refused: {verbs.REFUSED[words]}"
        elif words not in verbs.GROUPS:
            yield f"`{words}`", f"`exitctl {verbs.SAME.get(words, words)}`" if is_there(words) else MISSING


def is_there(words: str) -> bool:
    """Return whether exitctl has this verb, or takes it as another word for one."""
    root = exitctl.make_context("exitctl", [], resilient_parsing=True)
    found: click.Command | None = exitctl
    for word in words.split():
        found = found.get_command(root, word) if isinstance(found, click.Group) else None
    return found is not None


def tables() -> dict[str, str]:
    """Return the tables of docs/cli.md by what they are about."""
    return {
        "options": table(("option", "docker", "podman", "exitctl"), option_rows()),
        "options by verb": table(("verb", "option", "docker", "podman", "exitctl"), rows_by_verb()),
        "verbs": table(("verb", "exitctl"), verb_rows()),
    }


def map_tables() -> dict[str, str]:
    """Return those of docs/docker-to-exitctl.md: the same for hands, sorted by what one has to learn."""
    top = [words for words in othertools.verbs() if " " not in words or not is_there(words.split()[0])]
    there = [words for words in othertools.verbs() if words not in verbs.REFUSED and is_there(words)]
    same = [words for words in there if words not in verbs.SAME and words not in verbs.GROUPS]
    known = [row for row in option_rows() if not row[3].startswith("refused")]
    return {
        "same verbs": listed(same),
        "other words": table(
            ("docker or podman", "exitctl"),
            ((f"`{words}`", f"`exitctl {verbs.SAME[words]}`") for words in there if words in verbs.SAME),
        ),
        "verbs not there": table(
            ("verb", "do instead"), ((f"`{words}`", verbs.REFUSED[words]) for words in top if words in verbs.REFUSED)
        ),
        "same options": ", ".join(row[0].replace(", ", " ") for row in known if row[3] == SAME) + "\n",
        "different options": table(
            ("option", "what is different"),
            ((row[0], row[3].removeprefix("differs: ")) for row in known if row[3] != SAME),
        ),
    }


def listed(words: Iterable[str]) -> str:
    return ", ".join(f"`{each}`" for each in words) + "\n"


def table(headings: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    escaped = ([cell.replace("|", r"\|") for cell in line] for line in (headings, ("---",) * len(headings), *rows))
    return "".join(f"| {' | '.join(line)} |\n" for line in escaped)


def anew(page: str, tables_of: Callable[[], dict[str, str]] = tables) -> str:
    """Return the page with today's tables; everything else of it stays."""
    for name, rows in tables_of().items():
        before, begin, rest = page.partition(BEGIN.format(name))
        _, end, after = rest.partition(END.format(name))
        assert begin and end, name
        page = before + begin + rows + end + after
    return page


if __name__ == "__main__":
    PAGE.write_text(anew(PAGE.read_text()))
    MAP.write_text(anew(MAP.read_text(), map_tables))
    subprocess.run([sys.executable, DOCS.parent / ".ci/manpages.py", "--reference"], check=True)
