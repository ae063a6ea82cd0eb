"""docker's and podman's verbs, typed after exitctl."""

import re
import subprocess
import sys

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor import __version__
from supervisor.cli import verbs
from supervisor.cli.__main__ import exitctl as root
from supervisor.cli.app import COMMANDS
from tests.supervisor.cli import clipage, othertools
from tests.supervisor.cli.conftest import Exitctl
from tests.supervisor.cli.fake_daemon import FakeDaemon

assert isinstance(root, click.Group)
LOOK = "import sys, supervisor.cli.__main__ as m; m.run(sys.argv[1:]); print('supervisor.cli.verbs' in sys.modules)"


def command(words: str) -> click.Command | None:
    found: click.Command | None = root
    context = click.Context(root)
    for word in words.split():
        assert isinstance(found, click.Group)
        found = found.get_command(context, word)
    return found


def test_every_verb_of_docker_and_podman_is_there_or_refused_and_never_both() -> None:
    known = set(othertools.verbs())
    there = {words for words in known if clipage.is_there(words)}
    assert known - there == set(verbs.REFUSED)
    assert there & set(verbs.REFUSED) == set()
    assert set(verbs.SAME) | set(verbs.GROUPS) <= known


@pytest.mark.parametrize(("words", "same"), verbs.SAME.items())
def test_another_word_is_the_command_itself(words: str, same: str) -> None:
    assert command(words) is command(same) is not None
    assert words not in COMMANDS


@pytest.mark.parametrize("words", verbs.REFUSED)
def test_a_refused_verb_says_what_to_do_instead(exitctl: Exitctl, words: str) -> None:
    outcome = exitctl(*words.split(), "--all", "x")
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.splitlines()[-1] == f"Error: {words}: {verbs.REFUSED[words]}"


@pytest.mark.parametrize(("verb", "words"), verbs.REFUSED.items())
def test_the_words_are_one_line_and_name_commands_that_exist(verb: str, words: str) -> None:
    assert len(words) <= 160 and "\n" not in words and not words.endswith(".")
    for named in re.findall(r"exitctl ((?:image )?[a-z]+)", words):
        assert clipage.is_there(named), named


def test_a_verb_that_nobody_knows_gets_clicks_own_words(exitctl: Exitctl) -> None:
    for words in (("frobnicate",), ("container", "frobnicate"), ("image", "frobnicate")):
        outcome = exitctl(*words)
        assert outcome.code == 2 and "No such command 'frobnicate'" in outcome.err


@pytest.mark.parametrize("words", [("images",), ("image", "list"), ("image", "ls")])
def test_images_are_listed_in_dockers_words(daemon: FakeDaemon, exitctl: Exitctl, words: tuple[str, ...]) -> None:
    daemon.answers.ListImages = lambda _: pb.ListImagesReply(images=[pb.Image(id="sha256:" + "a" * 64)])
    assert exitctl(*words, "-q").out == f"{'a' * 12}\n"


@pytest.mark.parametrize("words", [("container", "ls"), ("container", "ps"), ("ps",)])
def test_containers_are_listed_in_dockers_words(daemon: FakeDaemon, exitctl: Exitctl, words: tuple[str, ...]) -> None:
    outcome = exitctl(*words, "-a", "-q")
    assert outcome.code == 0
    assert daemon.asked_for(pb.ListRequest)[0].all


def test_a_group_lists_its_verbs(exitctl: Exitctl) -> None:
    outcome = exitctl("pod", "--help")
    listed = re.findall(r"^  ([a-z]+) ", outcome.out.partition("Commands:")[2], re.MULTILINE)
    assert listed == [words.removeprefix("pod ") for words in verbs.SAME if words.startswith("pod ")]


def test_help_lists_exitctls_own_verbs_alone(exitctl: Exitctl) -> None:
    listed = re.findall(r"^  ([a-z-]+) ", exitctl("--help").out.partition("Commands:")[2], re.MULTILINE)
    assert listed == list(COMMANDS)


@pytest.mark.parametrize("word", ["--version", "-v"])
def test_the_version_is_printed_without_a_daemon(exitctl: Exitctl, word: str) -> None:
    outcome = exitctl(word)
    assert (outcome.code, outcome.out) == (0, f"exitctl, version {__version__}\n")


@pytest.mark.parametrize(("words", "loaded"), [(("image", "ls", "--help"), False), (("images", "--help"), True)])
def test_the_other_tools_verbs_are_loaded_when_one_was_typed(words: tuple[str, ...], loaded: bool) -> None:
    done = subprocess.run([sys.executable, "-c", LOOK, *words], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.splitlines()[-1] == str(loaded)


def test_completion_refuses_nothing() -> None:
    for words in ("build", "image tag", "container top", "images"):
        with root.make_context("exitctl", words.split(), resilient_parsing=True) as context:
            assert root.resolve_command(context, words.split()[:1])[2] == []


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1), min_size=1, max_size=3))
def test_no_verb_makes_a_traceback(words: list[str]) -> None:
    for group in ([], ["container"], ["image"], ["pod"]):
        with pytest.raises((click.UsageError, click.exceptions.Exit)):
            root.main([*group, "no-" + words[0], *words[1:]], prog_name="exitctl", standalone_mode=False)
