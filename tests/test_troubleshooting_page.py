"""docs/troubleshooting.md: the words that it explains are words of the program."""

import ast
import functools
import pathlib
import re

from click.testing import CliRunner

from supervisor.cli.__main__ import exitctl

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "troubleshooting.md").read_text()


def cells(heading: str) -> list[str]:
    """The first cells of the tables with this heading."""
    found: list[str] = []
    for table in re.findall(rf"^\| {heading} \|.*\n\|---.*\n((?:\|.*\n)+)", PAGE, re.MULTILINE):
        found += [row.split(" | ")[0].removeprefix("| ") for row in table.splitlines()]
    return found


@functools.cache
def words_of_the_program() -> str:
    """Every text in its sources, as the compiler has put it together."""
    nodes = (node for path in (ROOT / "supervisor").rglob("*.py") for node in ast.walk(ast.parse(path.read_text())))
    return "\n".join(node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str))


def test_every_error_that_is_explained_is_one_of_the_programs() -> None:
    explained = [word.strip("`") for word in cells("words")]
    assert len(explained) > 15
    assert [word for word in explained if word not in words_of_the_program()] == []


def test_every_line_of_doctor_is_explained_and_no_other() -> None:
    shown = CliRunner().invoke(exitctl, ["doctor"]).output
    lines = {re.split(r" {2,}", line[7:])[0] for line in shown.splitlines()}
    explained = set(re.findall(r"`([^`]+)`", " ".join(cells("line of doctor"))))
    of_programs = {line for line in lines if line.startswith(("exitd-", "seccomp,"))}
    assert len(lines) > 15
    assert lines - of_programs <= explained
    not_here = {"storage", "relay", "relay to exitd", "relay sockets", "mount namespace", "CRI handler"}
    assert explained - lines <= not_here  # without exitd, or without containerd
