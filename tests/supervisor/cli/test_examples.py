"""The examples that every verb's help ends with."""

import shlex
import subprocess
import sys
from collections.abc import Iterator

import click
import pytest

from supervisor.cli import examples, verbs
from supervisor.cli.__main__ import exitctl as root
from supervisor.cli.app import COMMANDS
from tests.supervisor.cli.conftest import Exitctl

assert isinstance(root, click.Group)
LOOK = "import sys, supervisor.cli.__main__ as m; m.run(['version']); print('supervisor.cli.examples' in sys.modules)"
LINES = [(words, line) for words, rows in examples.EXAMPLES.items() for line, _ in rows]


def verbs_of(group: click.Group, before: str = "") -> Iterator[str]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        yield from verbs_of(command, f"{name} ") if isinstance(command, click.Group) else (before + name,)


def test_every_verb_has_one_to_three_examples_and_nothing_else_has() -> None:
    assert isinstance(root, click.Group)
    assert set(verbs_of(root)) == set(examples.EXAMPLES)
    assert all(1 <= len(rows) <= 3 for rows in examples.EXAMPLES.values())


@pytest.mark.parametrize(("words", "line"), LINES, ids=[line for _, line in LINES])
def test_an_example_can_be_typed_as_it_stands(words: str, line: str) -> None:
    """The command takes all its words: nothing is run."""
    program, *typed = shlex.split(line)
    assert program == "exitctl" and len(line) <= 100
    context = root.make_context("exitctl", [], resilient_parsing=True)
    command: click.Command = root
    for word in words.split():
        assert typed.pop(0) == word and isinstance(command, click.Group)
        found = command.get_command(context, word)
        assert found is not None
        command = found
    context.resilient_parsing = False
    command.make_context(words, typed, parent=context)  # raises UsageError for what it does not take


def test_what_an_example_does_is_one_short_line() -> None:
    for _, what in (row for rows in examples.EXAMPLES.values() for row in rows):
        assert what and len(what) <= 90 and "\n" not in what and not what.endswith(".")


@pytest.mark.parametrize(
    "words",
    [("run", "--help"), ("ps", "-h"), ("image", "ls", "--help"), ("container", "ls", "--help"), ("images", "--help")],
)
def test_help_ends_with_the_examples_under_every_spelling(exitctl: Exitctl, words: tuple[str, ...]) -> None:
    shown = exitctl(*words)
    own = " ".join(words[:-1])
    line, what = examples.EXAMPLES[verbs.SAME.get(own, own)][-1]
    assert shown.code == 0 and "Examples:" in shown.out
    assert shown.out.endswith(f"    # {what}\n    {line}\n")


def test_help_of_a_verb_is_what_its_own_option_shows(exitctl: Exitctl) -> None:
    for words in ("run", "image ls", "play", "container ls"):
        helped, own = exitctl("help", *words.split()), exitctl(*words.split(), "--help")
        assert (helped.code, helped.out) == (0, own.out)


def test_help_alone_lists_every_verb_and_help_of_none_says_so(exitctl: Exitctl) -> None:
    assert exitctl("help").out == exitctl("--help").out
    assert all(f"\n  {name} " in exitctl("help").out for name in COMMANDS)
    for words in (("frob",), ("run", "fast"), ("image", "frob")):
        outcome = exitctl("help", *words)
        assert outcome.code == 125 and f"{' '.join(words)}: there is no such verb" in outcome.err


def test_a_verb_that_runs_loads_no_examples(exitctl: Exitctl) -> None:

    look = (
        "import sys, supervisor.cli.__main__ as m; m.run(['version']); print('supervisor.cli.examples' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines()[-1] == "False"
