"""What becomes of docker's and podman's options: there, different, or refused with what to do instead."""

import re
import subprocess
import sys

import click
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from supervisor.cli import refused, verbs
from supervisor.cli.__main__ import exitctl as root
from supervisor.cli.app import OF_A_CONTAINER
from supervisor.cli.run import create, run
from tests.supervisor.cli import clipage, othertools
from tests.supervisor.cli.conftest import Exitctl

DOCKER, PODMAN = othertools.options(othertools.DOCKER), othertools.options(othertools.PODMAN)
ALL = {**PODMAN, **DOCKER}
NAMES = {*ALL, *ALL.values()} - {""}
HERE = {name for each in run.params for name in (*each.opts, *each.secondary_opts)} | {"--help"}
REFUSED = sorted({*refused.OPTIONS, *refused.SHORTS})
OF_VERBS = [(verb, name) for verb, table in refused.OF_VERBS.items() for names in table for name in names.split()]
# A short option that is another one here than with one of the two; docs/cli.md says so.
OTHERWISE = {
    *((verb, "-f") for verb in ("events", "image ls", "network ls", "volume ls")),  # --format, theirs is --filter
    ("logs", "-n"),  # docker's --tail; podman's is --names
    ("pods", "-n"),  # crictl's --last
    ("rm", "-l"),  # podman's --latest; docker's is --link
}
WITHOUT_OPTIONS = {"help", "image exists", "image tag", "image untag", "rename"}  # there
LOOK = "import sys, supervisor.cli.__main__ as m; m.run(sys.argv[1:]); print('supervisor.cli.refused' in sys.modules)"
TYPED = r'[^;,:|)$"]*'  # of a command in the words
TOOLS = re.compile(rf"(?:exitctl|skopeo|lsns|journalctl) {TYPED}")
each_verb = pytest.mark.parametrize("verb", othertools.with_options())
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


def theirs(verb: str) -> dict[str, set[str]]:
    """What each option of either tool, short or long, is the name of."""
    found = dict[str, set[str]]()
    for tool in othertools.of_verb(verb):
        for name, short in tool.items():
            for each in filter(None, (name, short)):
                found.setdefault(each, set()).add(name)
    return found


@each_verb
def test_of_each_verb_every_option_is_there_or_refused_and_never_both(verb: str) -> None:
    here, gone = set(clipage.options_of(verb)), {name for of, name in OF_VERBS if of == verb}
    assert set(theirs(verb)) - here - gone == set()
    assert here & gone == set()
    assert gone - set(theirs(verb)) == set()
    assert set(refused.different(verb)) - (set(theirs(verb)) & here) == set()


@each_verb
def test_a_short_option_of_a_verb_means_the_same_as_there_or_the_page_says_otherwise(verb: str) -> None:
    here, found = clipage.options_of(verb), theirs(verb)
    other = {
        short
        for short in found
        if len(short) == 2 and short in here and any(here.get(name) is not here[short] for name in found[short])
    }
    assert {(verb, short) for short in other} == {(of, short) for of, short in OTHERWISE if of == verb}
    for short in other:
        assert any(f"; {short} is --" in row[-1] or f" {short} is --" in row[-1] for row in clipage.option_rows(verb))


def test_no_verb_is_left_out() -> None:
    known = {verbs.SAME.get(words, words) for words in othertools.verbs() if clipage.is_there(words)}
    verbs_alone = {words for words in known if not isinstance(clipage.command_of(words), click.Group)}
    assert verbs_alone - set(othertools.with_options()) == WITHOUT_OPTIONS | {"run", "create"}
    assert set(refused.OF_VERBS) | set(refused.DIFFERENT_OF) <= set(othertools.with_options())


@pytest.mark.parametrize(("verb", "name"), OF_VERBS)
def test_a_refused_option_of_a_verb_says_what_to_do_instead(exitctl: Exitctl, verb: str, name: str) -> None:
    said = f"Error: {name}: {refused.words_of(verb, name)}"
    for typed in ((name,), (name, "value"), (f"{name}=value",), *([] if verb == "" else [("web", name)])):
        if typed[0] == "web" and not clipage.command_of(verb).allow_interspersed_args:
            continue
        if typed[0] == "web" and verb in ("exec", "top"):
            continue  # what follows the container is the command's
        outcome = exitctl(*verb.split(), *typed)
        assert (outcome.code, outcome.out) == (125 if verb in OF_A_CONTAINER else 2, ""), typed
        assert outcome.err.splitlines()[-1] == said, typed


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("images", "--digests"),
        ("rmi", "--no-prune"),
        ("container rm", "--depend"),
        ("container ls", "--watch"),
        ("container exec", "--privileged"),
        ("pod rm", "--pod-id-file"),
        ("kube play", "--configmap"),
        ("system events", "--no-trunc"),
        ("container run", "--network-alias"),
    ],
)
def test_the_other_tools_words_for_a_verb_are_refused_the_same(exitctl: Exitctl, words: str, name: str) -> None:
    instead = refused.words_of(verbs.SAME[words], name)
    assert instead is not None
    outcome = exitctl(*words.split(), name)
    assert outcome.err.splitlines()[-1] == f"Error: {name}: {instead}"


@pytest.mark.parametrize(
    ("verb", "words"),
    [
        (verb, words)
        for tables in (refused.OF_VERBS, refused.DIFFERENT_OF)
        for verb, table in tables.items()
        for words in table.values()
    ],
)
def test_the_words_of_a_verb_are_one_line_and_name_options_and_verbs_that_exist(verb: str, words: str) -> None:
    assert len(words) <= 120 and "\n" not in words and not words.endswith(".")
    for line in re.findall(rf"exitctl ({TYPED})", words):
        of, typed = "", line.split()
        while typed and not typed[0].startswith("-") and clipage.is_there(f"{of} {typed[0]}".strip()):
            of = f"{of} {typed.pop(0)}".strip()
        assert of or typed[0].startswith("-"), line
        options = {letter for each in typed for letter in letters(each)}
        assert options - set(clipage.options_of(of)) == set(), line
    bare = re.findall(r"(?<![\w-])--?[a-z][a-z-]*", TOOLS.sub("", words))
    assert set(bare) - set(clipage.options_of(verb)) - {"-n"} == set() or "wait -n" in words


def letters(word: str) -> list[str]:
    """The options in a word: those of `-lq` are two."""
    found = re.fullmatch(r"-([a-zA-Z]+)|(--[a-z-]+)(?:=.*)?", word)
    if found is None:
        return []
    return [f"-{letter}" for letter in found[1]] if found[1] else [found[2]]


@each_verb
def test_no_option_name_makes_a_traceback_at_any_verb(verb: str) -> None:
    command = clipage.command_of(verb)

    @given(st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1), st.text(max_size=3))
    @settings(max_examples=25, deadline=None)
    def type_(name: str, value: str) -> None:
        for word in (f"--{name}", f"--{name}={value}", f"-{name}", f"-{name}={value}"):
            with root.make_context("exitctl", [], resilient_parsing=True) as above:
                above.resilient_parsing = False
                try:
                    command.make_context(verb.split()[-1] if verb else "exitctl", [word, "x"], parent=above)
                except click.exceptions.Exit:
                    pass  # help was asked for
                except click.UsageError as error:
                    assert error.format_message()

    type_()


@pytest.mark.parametrize(("words", "loaded"), [(("ps", "--help"), False), (("ps", "--watch"), True)])
def test_the_other_tools_options_are_loaded_when_one_was_typed(words: tuple[str, ...], loaded: bool) -> None:
    done = subprocess.run([sys.executable, "-c", LOOK, *words], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.splitlines()[-1] == str(loaded)


@pytest.mark.parametrize(
    ("words", "guess"),
    [
        ("volume create --label a=b", "--help"),
        ("logs --color web", "--follow"),
        ("ps --watch", "--last"),
        ("images --digests", "--quiet"),
        ("-D ps", "-h"),
    ],
)
def test_no_other_option_is_guessed(exitctl: Exitctl, words: str, guess: str) -> None:
    last = exitctl(*words.split()).err.splitlines()[-1]
    assert "Did you mean" not in last and "Possible options" not in last and guess not in last


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("images -f dangling=true", f"; for --filter: {refused.words_of('images', '--filter')}\n"),
        ("volume ls -f dangling=true", f"; for --filter: {refused.words_of('volume ls', '--filter')}\n"),
        ("events -f type=exit", "; conditions go to --filter\n"),
        ("inspect -f a=b web", "a template such as '{{.ID}}'\n"),
    ],
)
def test_a_filter_that_was_taken_for_a_format_is_answered(exitctl: Exitctl, words: str, said: str) -> None:
    outcome = exitctl(*words.split())
    assert outcome.code == 2 and "--format '" in outcome.err and outcome.err.endswith(said)
