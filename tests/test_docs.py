"""The documentation speaks of what is there: tests, files, commands, options, numbers."""

import ast
import functools
import pathlib
import re
import shlex

import pytest
from click import Command, Group
from click.testing import CliRunner

from supervisor.__main__ import main as exitd
from supervisor.cli.__main__ import exitctl
from supervisor.model.values import Phase, Source
from supervisor.store.database import DAY_NS, Keep

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
RECORDS = sorted(ROOT.glob("docs/decisions/*.md"))
SECTIONS = ["Context", "Decision", "Consequences", "Rejected"]

LINK = re.compile(r"\[[^\]]+\]\(([^)#\s]+)[^)]*\)")
TEST = re.compile(r"(tests/[\w/]+\.py)(?:::(\w+))?")
PATH = re.compile(r"`((?:supervisor|shim|protos|tests|systemd|docs|bench)/[\w./-]*)`")
PLACE = re.compile(r"`((?:supervisor|shim)/[\w/]+\.py):([\w.]+)`")
BLOCK = re.compile(r"^```\n(.*?)^```$", re.MULTILINE | re.DOTALL)

each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


@functools.cache
def functions_of(path: pathlib.Path) -> frozenset[str]:
    tree = ast.parse(path.read_text())
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def missing_tests(text: str) -> list[str]:
    """Tests that a text names and that do not exist."""
    return [
        f"{file}::{name}" if name else file
        for file, name in TEST.findall(text)
        if not (ROOT / file).is_file() or (name and name not in functions_of(ROOT / file))
    ]


@functools.cache
def defined_in(path: pathlib.Path) -> frozenset[str]:
    """Functions, classes and `Class.method`."""
    classes = [node for node in ast.parse(path.read_text()).body if isinstance(node, ast.ClassDef)]
    methods = {
        f"{each.name}.{node.name}"
        for each in classes
        for node in each.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    return functions_of(path) | {each.name for each in classes} | methods


def missing_places(text: str) -> list[str]:
    """Places in the code, as `FILE:NAME`, that a text names and that do not exist."""
    return [
        f"{file}:{name}"
        for file, name in PLACE.findall(text)
        if not (ROOT / file).is_file() or name not in defined_in(ROOT / file)
    ]


def dead_links(page: pathlib.Path, text: str) -> list[str]:
    found = [link for link in LINK.findall(text) if not re.match(r"[a-z]+://", link)]
    return [link for link in found if not (page.parent / link).exists()]


def commands(text: str) -> list[list[str]]:
    """The lines of a page's code blocks that are commands of ours or make's, as words."""
    lines = [line for block in BLOCK.findall(text) for line in block.splitlines()]
    parts = [part.strip() for line in lines for part in line.split("&&")]
    return [shlex.split(part, comments=True) for part in parts if re.match(r"(exitctl|exitd|make) [a-z-]", part)]


def wrong_words(words: list[str]) -> list[str]:
    """What is no command, no option, no target in a command line."""
    if words[0] == "make":
        targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
        return [word for word in words[1:] if "=" not in word and word not in targets]
    command: Command | None = exitd
    if words[0] == "exitctl":
        assert isinstance(exitctl, Group)
        command = exitctl.get_command(exitctl.make_context("exitctl", [], resilient_parsing=True), words[1])
    if command is None:
        return [words[1]]
    known = {name for parameter in command.params for name in parameter.opts}
    return [word for word in options_of(words[1:]) if word not in known and word != "--help"]


def options_of(words: list[str]) -> list[str]:
    """Up to the container's own command, which begins after the root file system or a separator."""
    end = words.index("--") if "--" in words else len(words)
    kept: list[str] = []
    for word in words[:end]:
        if word in ("sh", "sleep", "true", "&"):
            break
        kept.append(word)
    return [word.split("=")[0] for word in kept if word.startswith("-")]


@each_page
def test_every_test_that_is_named_exists(page: pathlib.Path) -> None:
    assert missing_tests(page.read_text()) == []


@each_page
def test_every_place_in_the_code_that_is_named_exists(page: pathlib.Path) -> None:
    """docs/errnos.md names functions without their classes, and has a test of its own for that."""
    assert page.name == "errnos.md" or missing_places(page.read_text()) == []


@each_page
def test_every_link_leads_somewhere(page: pathlib.Path) -> None:
    assert dead_links(page, page.read_text()) == []


@each_page
def test_every_path_of_the_tree_that_is_named_exists(page: pathlib.Path) -> None:
    """Wildcards are no paths; what pip installs is under share/."""
    assert [path for path in PATH.findall(page.read_text()) if not (ROOT / path).exists()] == []


@each_page
def test_every_command_that_is_shown_can_be_typed(page: pathlib.Path) -> None:
    shown = commands(page.read_text())
    assert [(words, wrong) for words in shown if (wrong := wrong_words(words))] == []


def test_a_planted_lie_is_found() -> None:
    assert missing_tests("`tests/test_docs.py::test_no_such` and `tests/test_docs.py`") == [
        "tests/test_docs.py::test_no_such"
    ]
    assert missing_places("`supervisor/engine/node.py:Node.apply`, `supervisor/engine/node.py:Node.no_such`") == [
        "supervisor/engine/node.py:Node.no_such"
    ]
    assert dead_links(ROOT / "README.md", "[a](docs/nowhere.md) [b](README.md) [c](https://example.org)") == [
        "docs/nowhere.md"
    ]
    assert [wrong_words(words) for words in commands("```\nexitctl frob\nexitctl ps --color\nmake demo\n```")] == [
        ["frob"],
        ["--color"],
        [],
    ]


def test_the_readme_shows_the_commands_of_a_first_hour() -> None:
    text = (ROOT / "README.md").read_text()
    for words in ("make demo", "make test", "exitctl doctor", "$ exitctl run", "$ exitctl wait", "$ exitctl why"):
        assert f"\n{words}" in text


def test_help_lists_every_command_of_exitctl() -> None:
    text = CliRunner().invoke(exitctl, ["--help"]).output
    assert isinstance(exitctl, Group)
    for name in exitctl.list_commands(exitctl.make_context("exitctl", [], resilient_parsing=True)):
        assert re.search(rf"^  {name} ", text, re.MULTILINE)


def test_every_invariant_has_a_test() -> None:
    text = (ROOT / "docs/architecture.md").read_text()
    rows = [row for row in text.split("## Invariants")[1].splitlines() if row.startswith("| ")][1:]
    assert len(rows) > 20
    assert [row for row in rows if not TEST.search(row.split("|")[2])] == []


def test_the_ladder_on_paper_is_the_ladder_in_the_code() -> None:
    text = (ROOT / "docs/architecture.md").read_text()
    assert re.findall(r"^ +\| `([\w-]+)` \|", text, re.MULTILINE) == [source.value for source in Source]


def test_the_decision_records_are_numbered_and_of_one_form() -> None:
    assert [int(path.name[:4]) for path in RECORDS] == list(range(1, len(RECORDS) + 1))
    for path in RECORDS:
        text = path.read_text()
        assert text.startswith(f"# {int(path.name[:4])}. "), path
        assert "\nStatus: " in text, path
        assert re.findall(r"^## (\w+)$", text, re.MULTILINE) == SECTIONS, path


def test_the_decisions_say_the_numbers_and_names_that_hold() -> None:
    texts = {int(path.name[:4]): " ".join(path.read_text().split()) for path in RECORDS}
    keep = Keep()
    kept = f"{keep.events:,} events, at most {keep.events_age_ns // DAY_NS} days old"
    assert kept in texts[12]
    assert f"{keep.exits:,} exits, at most {keep.exits_age_ns // DAY_NS} days old" in texts[12]
    assert f"The phases are {', '.join(Phase)};" in texts[8]
