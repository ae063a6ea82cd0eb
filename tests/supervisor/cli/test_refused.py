"""What becomes of docker's and podman's options of `run`: there, different, or refused with what to do instead."""

import re

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.cli import refused
from supervisor.cli.__main__ import exitctl as root
from supervisor.cli.run import create, run
from tests.supervisor.cli import clipage, othertools
from tests.supervisor.cli.conftest import Exitctl

DOCKER, PODMAN = othertools.options(othertools.DOCKER), othertools.options(othertools.PODMAN)
ALL = {**PODMAN, **DOCKER}
NAMES = {*ALL, *ALL.values()} - {""}
HERE = {name for each in run.params for name in (*each.opts, *each.secondary_opts)} | {"--help"}
REFUSED = sorted({*refused.OPTIONS, *refused.SHORTS})
each_refused = pytest.mark.parametrize("name", REFUSED)


def test_every_option_of_docker_and_podman_is_there_or_refused_and_never_both() -> None:
    assert NAMES - HERE - set(REFUSED) == set()
    assert HERE & set(REFUSED) == set()


def test_a_short_option_means_the_same_as_there() -> None:
    here = clipage.options_of("run")
    shorts = {name: short for name, short in ALL.items() if short and name in here}
    assert len(shorts) > 8
    assert {short for name, short in shorts.items() if here.get(short) is not here[name]} == set()
    assert {short: ALL[name] for short, name in refused.SHORTS.items()} == {short: short for short in refused.SHORTS}


def test_only_what_docker_or_podman_have_is_refused_or_different() -> None:
    assert set(REFUSED) - NAMES == set()
    assert set(refused.DIFFERENT) - (set(ALL) & HERE) == set()


def test_run_and_create_differ_in_what_follows_the_container_alone() -> None:
    only_of_run = {name for each in run.params for name in each.opts} - {n for each in create.params for n in each.opts}
    assert only_of_run == {"-d", "--detach", "--detach-keys", "--sig-proxy", "--reconnect-seconds"}


@each_refused
@pytest.mark.parametrize("command", ["run", "create"])
def test_a_refused_option_says_what_to_do_instead(exitctl: Exitctl, command: str, name: str) -> None:
    outcome = exitctl(command, "--rm", name, "value", "/", "true")
    assert outcome.code == 125
    assert outcome.out == ""
    assert outcome.err.splitlines()[-1] == f"Error: {name}: {refused.words_of('run', name)}"


@each_refused
def test_it_does_so_also_with_a_value_in_the_same_word(exitctl: Exitctl, name: str) -> None:
    for word in (f"{name}=value", f"{name}=", *([f"{name}value", f"-it{name[1]}=a=b"] if len(name) == 2 else [])):
        outcome = exitctl("run", word, "/", "true")
        assert (outcome.code, outcome.err.splitlines()[-1]) == (125, f"Error: {name}: {refused.words_of('run', name)}")


def test_what_nobody_knows_gets_clicks_own_words(exitctl: Exitctl) -> None:
    outcome = exitctl("run", "--frobnicate", "/", "true")
    assert outcome.code == 125
    assert "No such option" in outcome.err and "--frobnicate" in outcome.err


def test_an_option_of_the_containers_own_command_is_not_refused(exitctl: Exitctl) -> None:
    assert "Usage" not in exitctl("create", "--rootfs", "/", "nc", "-p", "80", "--publish").err


@pytest.mark.parametrize(("name", "words"), [*refused.OPTIONS.items(), *refused.DIFFERENT.items()])
def test_the_words_are_one_line_and_name_options_that_exist(name: str, words: str) -> None:
    assert len(words) <= 120 and "\n" not in words and not words.endswith(".")
    theirs = re.sub(r"(?:exitctl [a-z]+|skopeo|env|sh|cat) [^;,:]*", "", words)
    assert {each for each in re.findall(r"(?<![\w-])--?[a-z][a-z-]*", theirs) if each != name} <= HERE


@pytest.mark.parametrize("words", refused.OPTIONS.values())
def test_the_commands_that_the_words_name_exist(words: str) -> None:
    assert [verb for verb in re.findall(r"exitctl ([a-z]+)", words) if not clipage.is_there(verb)] == []


@given(st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1), st.text(max_size=3))
def test_no_option_name_makes_a_traceback(name: str, value: str) -> None:
    for word in (f"--{name}", f"--{name}={value}", f"-{name}"):
        with root.make_context("exitctl", [], resilient_parsing=True) as above:
            try:
                run.make_context("run", [word, "/", "true"], parent=above)
            except click.exceptions.Exit:
                pass  # help was asked for
            except click.UsageError as error:
                assert error.format_message()
