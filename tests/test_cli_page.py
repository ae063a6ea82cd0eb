"""docs/cli.md, docs/docker-to-exitctl.md and docs/reference.md are what exitctl has and says."""

import re

import click
import manpages

from supervisor.cli import refused, verbs
from supervisor.cli.__main__ import exitctl
from tests.supervisor.cli import clipage, othertools

PAGE = clipage.PAGE.read_text()


def test_the_tables_are_those_of_today() -> None:
    assert clipage.anew(PAGE) == PAGE, "run `python -m tests.supervisor.cli.clipage`"


def test_the_map_from_docker_is_that_of_today_and_has_every_verb() -> None:
    page = clipage.MAP.read_text()
    assert clipage.anew(page, clipage.map_tables) == page, "run `python -m tests.supervisor.cli.clipage`"
    for words in (*verbs.SAME, *(words for words in verbs.REFUSED if " " not in words)):
        assert f"| `{words}` | " in page


def test_the_reference_is_that_of_today() -> None:
    written = manpages.REFERENCE.read_text()
    assert written == manpages.reference(), "run `python -m tests.supervisor.cli.clipage`"


def test_the_reference_has_each_verb_with_each_of_its_options() -> None:
    page = manpages.REFERENCE.read_text()
    found = {part.partition("\n")[0]: part for part in re.split(r"^## ", page, flags=re.MULTILINE)[1:]}
    commands = {ctx.command_path: ctx.command for ctx in manpages.contexts(exitctl)}
    assert found.keys() == commands.keys() and {"exitctl", "exitctl run", "exitctl image ls"} <= found.keys()
    for words, command in commands.items():
        named = [each for each in command.params if isinstance(each, click.Option) and not each.hidden]
        for name in (name for each in named for name in (*each.opts, *each.secondary_opts)):
            assert re.search(rf"^\| `[^`]*{re.escape(name)}[ ,`]", found[words], re.MULTILINE), (words, name)


def test_each_option_and_each_verb_has_a_row() -> None:
    for name in (*refused.OPTIONS, *refused.DIFFERENT):
        assert f"`{name}` | " in PAGE
    for verb in othertools.with_options():
        for name in {name for tool in othertools.of_verb(verb) for name in tool}:
            assert any(
                line.startswith(f"| `{verb}` | " if verb else "|  | ") and f"`{name}` | " in line
                for line in PAGE.splitlines()
            )
    for words in (*verbs.REFUSED, *verbs.SAME):
        assert f"| `{words}` | " in PAGE


def test_a_page_of_yesterday_is_seen_and_only_its_tables_are_written_anew() -> None:
    old = PAGE.replace("| `--rm` | yes | yes | works as there |\n", "")
    assert old != PAGE and clipage.anew(old) == PAGE
    assert clipage.anew(f"# Before\n{PAGE}after\n") == f"# Before\n{PAGE}after\n"


def test_the_examples_print_the_words_of_the_product() -> None:
    assert f"Error: --network-alias: {refused.words_of('run', '--network-alias')}\n" in PAGE
    assert f"Error: checkpoint: {verbs.REFUSED['checkpoint']}\n" in PAGE
