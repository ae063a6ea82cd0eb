"""Options as docker's users spell them."""

from pathlib import Path

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.cli.run import run
from supervisor.cli.spelling import TRUTH, plain
from supervisor.cli.watch import logs
from tests.supervisor.cli.conftest import Exitctl
from tests.supervisor.cli.fake_daemon import FakeDaemon
from tests.supervisor.cli.test_exec import made_exec

WORDS = ("--rm", "--rm=true", "-it", "-i", "-e", "K=V", "-eK=V", "--env=K=V", "--name", "--", "-", "x", "-x")
VALUE_REFUSED = "Option '--rm' does not take a value."  # click's


def parsed(*words: str) -> tuple[list[str], dict[str, bool]]:
    return plain(run.params, words)


@pytest.mark.parametrize(
    ("typed", "words", "said"),
    [
        ("--rm=true /", "/", {"rm": True}),
        ("--rm=false /", "/", {"rm": False}),
        ("-it=false /", "-i /", {"tty": False}),
        ("-ti=1 --read-only=F x", "-t x", {"interactive": True, "read_only": False}),
        ("-e=K=V /", "-e K=V /", {}),
        ("-ite=K=V /", "-ite K=V /", {}),
        ("-eK=V /", "-e K=V /", {}),
        ("--env=K=V /", "--env K=V /", {}),
        ("-m= /", "-m = /", {}),
        ("--name --rm=true --rm=true", "--name --rm=true", {"rm": True}),
        ("-- --rm=true", "-- --rm=true", {}),
        ("x --rm=true", "x --rm=true", {}),
        ("- --rm=true", "- --rm=true", {}),
        ("--frob=1 x", "--frob=1 x", {}),
        ("-ix", "-ix", {}),
        ("--sig-proxy=false x", "x", {"sig_proxy": False}),
        ("--no-sig-proxy=false x", "--no-sig-proxy=false x", {}),
        ("--name", "--name", {}),
    ],
)
def test_words_become_those_that_click_reads(typed: str, words: str, said: dict[str, bool]) -> None:
    assert parsed(*typed.split()) == (words.split(), said)


@pytest.mark.parametrize(
    ("typed", "words", "said"),
    [
        ("web -n=5", "web -n 5", {}),
        ("web -f=true db --follow=false", "web db", {"follow": False}),
        ("web -- -f=true", "web -- -f=true", {}),
        ("- -n=5 -", "- -n 5 -", {}),
    ],
)
def test_of_most_verbs_options_may_follow_a_word_that_is_none(typed: str, words: str, said: dict[str, bool]) -> None:
    assert plain(logs.params, typed.split(), interspersed=True) == (words.split(), said)


@pytest.mark.parametrize("words", ["stop web -t=5", "stop -t=5 web", "stop --time=5 web"])
def test_every_verb_reads_a_value_behind_an_equals_sign(daemon: FakeDaemon, exitctl: Exitctl, words: str) -> None:
    assert exitctl(*words.split()).code == 0
    assert [(each.id, each.timeout_seconds) for each in daemon.asked_for(pb.StopRequest)] == [("web", 5)]


def test_a_flag_before_the_verb_takes_a_value(daemon: FakeDaemon, exitctl: Exitctl) -> None:
    assert exitctl("--version=true").out.startswith("exitctl, version ")
    assert exitctl("--version=false", "--grpc=false", "stop", "web").code == 0


def test_a_flag_whose_value_no_command_sees_is_given_or_not(daemon: FakeDaemon, exitctl: Exitctl) -> None:
    daemon.answers.ListImages = lambda _: pb.ListImagesReply()
    for word in ("-a", "--all", "--all=true", "-a=false", "-aq=true"):
        assert exitctl("image", "ls", word).code == 0


@pytest.mark.parametrize(("word", "no_follow"), [("--stream=false", True), ("--no-stream", True), ("--stream", False)])
def test_events_end_or_go_on_in_podmans_words(daemon: FakeDaemon, exitctl: Exitctl, word: str, no_follow: bool) -> None:
    assert exitctl("events", word).code == 0
    assert [each.no_follow for each in daemon.asked_for(pb.EventsRequest)] == [no_follow]


def test_exec_reads_a_value_behind_an_equals_sign_and_leaves_the_commands_words(
    daemon: FakeDaemon, exitctl: Exitctl, tmp_path: Path
) -> None:
    daemon.answers.Exec = made_exec
    (tmp_path / "env").write_text("# of it\nA=1\nB=2\n")
    words = ("-d=true", "-i=false", "-e=B=3", "--env-file", str(tmp_path / "env"), "web", "ls", "--all=true", "-e=x")
    assert exitctl("exec", *words).code == 0
    spec = daemon.asked_for(pb.ExecRequest)[0].spec
    assert (list(spec.args), list(spec.env)) == (["ls", "--all=true", "-e=x"], ["A=1", "B=2", "B=3"])


@pytest.mark.parametrize(
    ("words", "value"),
    [
        (("--rm", "--rm=false"), False),
        (("--rm=false", "--rm"), True),
        (("--rm=true", "--rm=false"), False),
        (("--rm=0", "--rm=T"), True),
    ],
)
def test_of_several_values_the_last_one_holds(
    daemon: FakeDaemon, exitctl: Exitctl, words: tuple[str, ...], value: bool
) -> None:
    assert exitctl("create", *words, "/", "true").code == 0
    assert daemon.asked_for(pb.CreateContainerRequest)[0].spec.auto_remove is value


def test_a_letter_that_is_given_again_counts_as_last() -> None:
    assert parsed("-i=false", "-it", "x") == (["-it", "x"], {})
    assert parsed("--sig-proxy=true", "--no-sig-proxy", "x") == (["--no-sig-proxy", "x"], {})


def test_what_docker_takes_after_an_equals_sign_arrives(daemon: FakeDaemon, exitctl: Exitctl) -> None:
    words = "--read-only=true --tty=false -i=true -e=A=b=c -m=64m -u=1:2 -w=/tmp --net=host"
    assert exitctl("create", *words.split(), "/", "true").code == 0
    spec = daemon.asked_for(pb.CreateContainerRequest)[0].spec
    assert (spec.read_only, spec.tty, spec.stdin, list(spec.env)) == (True, False, True, ["A=b=c"])
    assert (spec.memory_bytes, spec.user, spec.cwd, spec.network) == (64 << 20, "1:2", "/tmp", "host")


def test_a_value_that_is_no_truth_value_is_refused(exitctl: Exitctl) -> None:
    outcome = exitctl("run", "--rm=maybe", "/", "true")
    assert outcome.code == 125
    assert outcome.err.splitlines()[-1] == "Error: --rm=maybe: write --rm, --rm=true or --rm=false"


@given(st.lists(st.sampled_from(WORDS)))
def test_click_reads_the_same_but_for_the_values_of_flags(words: list[str]) -> None:
    typed = reading(words)
    if typed != VALUE_REFUSED:
        assert reading(parsed(*words)[0]) == typed


def reading(words: list[str]) -> object:
    """What click makes of the words, without exitctl's part; the message when it refuses them."""
    command = click.Command("run", params=run.params, context_settings={"allow_interspersed_args": False})
    try:
        return command.make_context("run", list(words)).params
    except click.UsageError as error:
        return error.format_message()


@pytest.mark.parametrize("word", TRUTH)
def test_truth_is_spelled_as_in_go(word: str) -> None:
    assert parsed(f"--rm={word}") == ([], {"rm": TRUTH[word]})


@pytest.mark.parametrize("words", [("run", "-m"), ("create", "--name"), ("exec", "-e"), ("run", "--env", "A=1", "-v")])
def test_an_option_without_its_value_fails_as_every_usage_error_of_the_command(
    exitctl: Exitctl, words: tuple[str, ...]
) -> None:
    outcome = exitctl(*words)
    assert outcome.code == 125 and outcome.err.startswith(f"Usage: exitctl {words[0]} ")
    assert outcome.err.endswith(f"Option '{words[-1]}' requires an argument.\n")


def test_what_changes_nothing_here_is_taken(daemon: FakeDaemon, exitctl: Exitctl) -> None:
    daemon.answers.CreateVolume = lambda request: pb.CreateVolumeReply(volume=pb.Volume(name=request.name))
    daemon.answers.ListVolumes = lambda _: pb.ListVolumesReply(volumes=[pb.Volume(name="data")])
    daemon.answers.RemoveVolume = lambda _: pb.RemoveVolumeReply()
    daemon.answers.ListNetworks = lambda _: pb.ListNetworksReply()
    assert exitctl("volume", "create", "--ignore", "data").out == "data\n"
    assert exitctl("volume", "prune", "--all", "-f").out == "data\n"
    assert exitctl("network", "ls", "--no-trunc", "-q").code == 0
