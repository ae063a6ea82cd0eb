"""Which containers a verb is for: named, the newest, all, by a filter, by a file with an id."""

from pathlib import Path
from typing import Any

import pytest

from protos.exitd.v1 import exitd_pb2 as pb
from tests.supervisor.cli.conftest import Exitctl
from tests.supervisor.cli.fake_daemon import FakeDaemon, nobody
from tests.supervisor.cli.test_exec import made_exec

WANTED: dict[str, tuple[set[str], Any]] = {
    "stop": ({"runs", "paused"}, pb.StopRequest),
    "start": ({"made", "ended"}, pb.StartRequest),
    "restart": ({"runs", "paused", "made", "ended"}, pb.RestartRequest),
    "pause": ({"runs"}, pb.PauseRequest),
    "unpause": ({"paused"}, pb.ResumeRequest),
    "rm": ({"runs", "paused", "made", "ended"}, pb.RemoveRequest),
}
# Of those that one can be chosen for: words besides, and what asks the daemon.
NEWEST: dict[str, tuple[tuple[str, ...], Any]] = {
    **{verb: ((), request) for verb, (_, request) in WANTED.items()},
    "kill": ((), pb.KillRequest),
    "update": (("--cpus", ".5"), pb.UpdateRequest),
    "inspect": ((), pb.InspectRequest),
    "wait": (("--condition", "removed"), pb.WaitRequest),
    "logs": ((), pb.LogsRequest),
    "diff": ((), pb.ChangesRequest),
    "top": ((), pb.PidsRequest),
    "exec": (("-d",), pb.ExecRequest),
    "attach": ((), pb.InspectRequest),
}
WITH_FILES = ("stop", "restart", "pause", "unpause", "rm", "kill")


def one(id: str, phase: pb.Phase, made: int, **fields: Any) -> pb.Container:
    spec = fields.pop("spec", None) or pb.ContainerSpec(name=id)
    found = pb.Container(id=id, spec=spec, phase=phase, run=1, **fields)
    found.created_at.seconds = made
    return found


@pytest.fixture
def several(daemon: FakeDaemon) -> FakeDaemon:
    """What can be chosen from; a pod, its member and a task of containerd's run, too."""
    containers = [
        one("ended", pb.PHASE_EXITED, 3),
        one("runs", pb.PHASE_RUNNING, 9),
        one("made", pb.PHASE_CREATED, 5),
        one("paused", pb.PHASE_PAUSED, 4),
        one("member", pb.PHASE_RUNNING, 7, spec=pb.ContainerSpec(name="member", sandbox="pod")),
        one("pod", pb.PHASE_RUNNING, 10, spec=pb.ContainerSpec(name="pod", pod=pb.PodSpec())),
        one("task", pb.PHASE_RUNNING, 11, of_containerd=True),
    ]
    daemon.answers.List = lambda _: pb.ListReply(containers=containers)
    daemon.answers.Update = lambda _: pb.UpdateReply()
    daemon.answers.Changes = lambda _: iter(())
    daemon.answers.Exec = made_exec
    daemon.started.set()
    return daemon


@pytest.mark.parametrize(("verb", "option"), [(verb, "--all" if verb == "start" else "-a") for verb in WANTED])
def test_all_are_those_that_the_verb_can_change_and_no_pods(
    several: FakeDaemon, exitctl: Exitctl, verb: str, option: str
) -> None:
    wanted, request = WANTED[verb]
    outcome = exitctl(verb, option)
    assert (outcome.code, set(outcome.out.split()), outcome.err) == (0, wanted, "")
    assert {each.id for each in several.asked_for(request)} == wanted
    assert several.asked_for(pb.ListRequest)[0].all


@pytest.mark.parametrize("verb", WANTED)
def test_a_filter_is_the_daemons_to_apply(several: FakeDaemon, exitctl: Exitctl, verb: str) -> None:
    for more in ((), ("--all",)):
        outcome = exitctl(verb, *more, "--filter", "label=a", "--filter", "name=b")
        assert (outcome.code, set(outcome.out.split())) == (0, WANTED[verb][0])
        assert list(several.asked_for(pb.ListRequest)[-1].filters) == ["label=a", "name=b"]


@pytest.mark.parametrize("verb", WANTED)
def test_all_of_none_is_nothing_to_do(daemon: FakeDaemon, exitctl: Exitctl, verb: str) -> None:
    daemon.answers.List = lambda _: pb.ListReply()
    outcome = exitctl(verb, "--all")
    assert (outcome.code, outcome.out, outcome.err) == (0, "", "")


@pytest.mark.parametrize("verb", NEWEST)
def test_the_newest_is_no_pod_and_no_task(several: FakeDaemon, exitctl: Exitctl, verb: str) -> None:
    more, request = NEWEST[verb]
    behind = {"exec": ("true",), "top": ("aux",)}.get(verb, ())
    exitctl(verb, *more, "--latest", *behind)
    asked = several.asked_for(request)
    assert asked and {each.id for each in asked} == {"runs"}


def test_the_first_word_behind_latest_is_the_commands(several: FakeDaemon, exitctl: Exitctl) -> None:
    assert exitctl("exec", "-dl", "ls", "-l", "/").code == 0
    request = several.asked_for(pb.ExecRequest)[0]
    assert (request.id, list(request.spec.args)) == ("runs", ["ls", "-l", "/"])


def test_stats_shows_the_newest(several: FakeDaemon, exitctl: Exitctl) -> None:
    several.answers.Stats = lambda _: pb.StatsReply()
    assert exitctl("stats", "--latest", "--no-stream", "-i", "0.1").code == 0
    assert {tuple(each.ids) for each in several.asked_for(pb.StatsRequest)} == {("runs",)}


@pytest.mark.parametrize("verb", WITH_FILES)
def test_a_file_names_a_container(daemon: FakeDaemon, exitctl: Exitctl, tmp_path: Path, verb: str) -> None:
    (tmp_path / "id").write_text("c0ffee\n")
    outcome = exitctl(verb, "--cidfile", str(tmp_path / "id"), "web")
    assert (outcome.code, outcome.out.split(), outcome.err) == (0, ["web", "c0ffee"], "")


@pytest.mark.parametrize(
    ("content", "said"), [(None, "No such file or directory"), (b"\xff", "this is no text"), (b" \n", "no id in it")]
)
def test_a_file_without_an_id_is_refused(exitctl: Exitctl, tmp_path: Path, content: bytes | None, said: str) -> None:
    if content is not None:
        (tmp_path / "id").write_bytes(content)
    outcome = exitctl("stop", "--cidfile", str(tmp_path / "id"))
    assert (outcome.code, outcome.out) == (2, "") and said in outcome.err


@pytest.mark.parametrize("words", [("-l", "web"), ("-a", "web"), ("-a", "-l"), ("-f", "name=a", "web")])
def test_two_ways_to_choose_are_refused(exitctl: Exitctl, words: tuple[str, ...]) -> None:
    outcome = exitctl("stop", *words)
    assert outcome.code == 2
    assert outcome.err.endswith("or choose them by --latest, --all or --filter: one of these\n")


@pytest.mark.parametrize("verb", ["logs", "attach", "diff"])
def test_one_that_is_named_is_not_the_newest(exitctl: Exitctl, verb: str) -> None:
    outcome = exitctl(verb, "-l", "web")
    assert outcome.code == 2 and outcome.err.endswith("Error: web or --latest: one of these\n")


@pytest.mark.parametrize("verb", [verb for verb in NEWEST if verb != "exec"])
def test_without_any_container_there_is_nothing_to_do(exitctl: Exitctl, verb: str) -> None:
    outcome = exitctl(verb)
    assert outcome.code == 2 and "Missing argument 'ID" in outcome.err


@pytest.mark.parametrize("words", [(), ("web",), ("-l",), ("-i", "web")])
def test_an_exec_needs_a_command(several: FakeDaemon, exitctl: Exitctl, words: tuple[str, ...]) -> None:
    outcome = exitctl("exec", *words)
    assert outcome.code == 125 and "Missing argument" in outcome.err
    assert not several.asked_for(pb.ExecRequest)


def test_of_no_container_none_is_the_newest(daemon: FakeDaemon, exitctl: Exitctl) -> None:
    daemon.answers.List = lambda _: pb.ListReply()
    outcome = exitctl("stop", "-l")
    assert (outcome.code, outcome.err) == (125, "exitctl: there is no container\n")


@pytest.mark.parametrize(("verb", "answer"), [("stop", "Stop"), ("rm", "Remove")])
def test_a_missing_one_can_be_ignored(daemon: FakeDaemon, exitctl: Exitctl, verb: str, answer: str) -> None:
    setattr(daemon.answers, answer, nobody)
    daemon.answers.Inspect = nobody
    assert exitctl(verb, "web").code == 125
    outcome = exitctl(verb, "--ignore", "web")
    assert (outcome.code, outcome.err) == (0, "")


@pytest.mark.parametrize(
    ("words", "signal"),
    [
        ("-9 web", "9"),
        ("web -HUP", "HUP"),
        ("-SIGTERM web", "SIGTERM"),
        ("-RTMIN+3 web", "RTMIN+3"),
        ("-s INT web", "INT"),
        ("-s=INT web", "INT"),
        ("web --signal -9", "-9"),
        ("web", "KILL"),
    ],
)
def test_a_signal_is_read_as_kill_1_reads_it(daemon: FakeDaemon, exitctl: Exitctl, words: str, signal: str) -> None:
    exitctl("kill", *words.split())
    assert [(each.id, each.signal) for each in daemon.asked_for(pb.KillRequest)] == [("web", signal)]


def test_behind_two_dashes_it_is_a_name(daemon: FakeDaemon, exitctl: Exitctl) -> None:
    exitctl("kill", "--", "-9")
    assert [(each.id, each.signal) for each in daemon.asked_for(pb.KillRequest)] == [("-9", "KILL")]
