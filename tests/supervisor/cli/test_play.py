"""`exitctl play` over a real channel: what is asked of the daemon in which order, and taken back when it fails."""

import os
import re
import shlex
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path
from string import Template
from types import SimpleNamespace

import pytest

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.cli import playing
from supervisor.cli.manifest.kube import HostPath
from supervisor.model import errors
from tests.supervisor.cli.conftest import Exitctl, Outcome
from tests.supervisor.cli.fake_daemon import FakeDaemon, exit_of
from tests.supervisor.cli.fake_pods import FakePods, failing
from tests.vm import behind

POD = """\
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  restartPolicy: OnFailure
  initContainers:
  - {name: one, image: /}
  - {name: two, image: /}
  containers:
  - {name: a, image: /}
  - {name: b, image: /}
"""
ONE = "apiVersion: v1\nkind: Pod\nmetadata: {name: NAME}\nspec: {containers: [{name: c, image: IMAGE}]}\n"
GOOD = exit_of(kind="exited", code=0)
Play = Callable[..., Outcome]


@pytest.fixture
def pods(daemon: FakeDaemon) -> FakePods:
    made = FakePods(daemon)
    made.ends = {"web-one": [GOOD], "web-two": [GOOD]}
    return made


@pytest.fixture
def play(exitctl: Exitctl, tmp_path: Path) -> Play:
    """With a file of this text."""
    file = tmp_path / "pod.yaml"

    def call(text: str, *words: str) -> Outcome:
        file.write_text(text)
        return exitctl("play", *words, str(file))

    return call


def one(name: str, image: str = "/") -> str:
    return ONE.replace("NAME", name).replace("IMAGE", image)


def test_all_is_created_then_init_containers_run_to_their_end_then_the_others_start(pods: FakePods, play: Play) -> None:
    outcome = play(POD)
    assert pods.done == [
        "run web", "create web-one", "create web-two", "create web-a", "create web-b",
        "start web-one", "start web-two", "start web-a", "start web-b",
    ]  # fmt: skip
    (pod,) = pods.pods.values()
    ids = [member.id for member in pod.members[2:]]
    assert outcome.out.splitlines() == ["Pod:", pod.id, "Containers:", *ids, ""]
    assert (outcome.code, outcome.err) == (0, "")
    assert all(member.spec.sandbox == pod.id for member in pod.members)


def test_one_runtime_for_all_pods_is_a_name_or_a_file_that_the_daemon_can_find(
    pods: FakePods, daemon: FakeDaemon, play: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    play(one("a"), "--runtime", "crun")
    play(one("b"), "--runtime", "./mine")
    asked = [request.spec.runtime for request in daemon.asked_for(pb.RunPodRequest)]
    assert asked == ["crun", str(tmp_path / "mine")]


def test_a_single_container_and_several_files_have_podmans_lines(
    pods: FakePods, exitctl: Exitctl, tmp_path: Path
) -> None:
    for name in ("p", "q"):
        (tmp_path / name).write_text(one(name))
    lines = exitctl("play", str(tmp_path / "p"), str(tmp_path / "q")).out.splitlines()
    assert [line for line in lines if not line.endswith("0" * 60)] == ["Pod:", "Container:", ""] * 2
    assert [pod.spec.name for pod in pods.pods.values()] == ["p", "q"]


def test_podmans_older_words_are_taken_unless_there_is_a_file_of_that_name(
    pods: FakePods, exitctl: Exitctl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pod.yaml").write_text(one("a"))
    assert exitctl("play", "kube", "pod.yaml").code == 0
    (tmp_path / "kube").write_text(one("b"))
    assert exitctl("play", "--replace", "kube", "pod.yaml").code == 0
    assert [done for done in pods.done if done.startswith("run")] == ["run a", "run b", "run a"]


def test_an_init_container_that_is_started_again_is_waited_for_until_it_succeeds(pods: FakePods, play: Play) -> None:
    pods.ends["web-one"] = [exit_of(kind="exited", code=3, decision="restart"), exit_of(kind="exited", code=0, run=2)]
    outcome = play(POD)
    assert outcome.code == 0
    assert "init container web-one ended with 3 and is started again" in outcome.err
    assert "start web-b" in pods.done


@pytest.mark.parametrize(
    ("end", "words"),
    [
        (exit_of(kind="exited", code=3), "ended with 3"),
        (exit_of(kind="signaled", signal=9), "ended with 137 SIGKILL"),
        (exit_of(kind="unknown", cause="monitors-killed"), "ended with unknown"),
    ],
)
def test_an_init_container_that_fails_for_good_ends_the_play_with_its_last_words(
    pods: FakePods, play: Play, end: pb.Exit, words: str
) -> None:
    pods.ends["web-one"] = [end]
    outcome = play(POD)
    assert (outcome.code, outcome.out) == (125, "")
    assert f"init container web-one {words}" in outcome.err and "\n  out\n  err" in outcome.err
    assert pods.done[-2:] == ["start web-one", "remove web by force"]
    assert not pods.pods


def test_an_init_container_that_somebody_removes_ends_the_play(pods: FakePods, play: Play) -> None:
    pods.ends["web-one"] = []
    pods.stopped.set()
    outcome = play(POD)
    assert "was removed before it had ended" in outcome.err
    assert not pods.pods


def test_init_containers_have_a_limit_of_time(pods: FakePods, play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one has all the time that a busy machine may need; the second one has a little of it."""

    def monotonic() -> float:
        return time.monotonic() + (59.9 if "start web-two" in pods.done else 0.0)

    monkeypatch.setattr(playing, "time", SimpleNamespace(monotonic=monotonic))
    del pods.ends["web-two"]
    outcome = play(POD, "--init-timeout", "60")
    pods.stopped.set()
    assert outcome.code == 125
    assert "init container web-two had not ended in time; --init-timeout sets the limit" in outcome.err
    assert not pods.pods


@pytest.mark.parametrize("words", ["run web", "create web-one", "create web-b", "start web-one", "start web-b"])
def test_a_play_that_fails_takes_everything_back_that_it_had_made(pods: FakePods, play: Play, words: str) -> None:
    pods.add("other")
    pods.before = failing(words, errors.RuntimeFailed("runc said no"))
    outcome = play(one("first") + "---\n" + POD)
    assert outcome.code == 125
    assert "runc said no" in outcome.err
    assert outcome.out == ""
    assert [pod.spec.name for pod in pods.pods.values()] == ["other"]


def test_a_container_that_cannot_be_created_is_named_with_its_place(pods: FakePods, play: Play) -> None:
    pods.before = failing("create web-b", errors.CommandNotFound("no such command: nope"))
    outcome = play(POD)
    assert outcome.code == 127
    assert "pod.yaml:11:6: spec.containers[1].name: no such command: nope" in outcome.err


def test_a_pod_of_the_same_name_is_left_alone(pods: FakePods, play: Play) -> None:
    there = pods.add("web")
    outcome = play(POD)
    assert (outcome.code, outcome.err) == (125, "exitctl: the name web is taken\n")
    assert list(pods.pods.values()) == [there]


def test_a_pod_whose_answer_was_lost_is_found_by_its_uid_and_removed(pods: FakePods, play: Play) -> None:
    there = pods.add("other")
    pods.after = failing("run web", errors.ShuttingDown("going down"))
    outcome = play(POD)
    assert (outcome.code, outcome.err) == (125, "exitctl: going down\n")
    assert pods.done == ["run web", "remove web by force"]
    assert list(pods.pods.values()) == [there]


def test_what_cannot_be_taken_back_is_reported_with_the_command_that_does(pods: FakePods, play: Play) -> None:
    def before(words: str) -> None:
        if words.startswith(("create", "remove")):
            raise errors.StoreFailed(f"no space left for {words}")

    pods.before = before
    outcome = play(POD)
    (pod,) = pods.pods.values()
    assert "no space left for create web-one" in outcome.err
    assert "the pod web may still be there (no space left for remove web by force)" in outcome.err
    assert f"exitctl rmp -f {pod.id[:12]}" in outcome.err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_while_an_init_container_runs_takes_everything_back(
    pods: FakePods, play: Play, number: signal.Signals
) -> None:
    del pods.ends["web-one"]
    pods.before = lambda words: os.kill(os.getpid(), number) if words == "start web-one" else None
    before = signal.getsignal(number)
    outcome = play(POD)
    pods.stopped.set()
    assert outcome.code == 130
    assert pods.done[-1] == "remove web by force"
    assert not pods.pods
    assert signal.getsignal(number) is before


def test_a_signal_while_something_is_made_waits_until_it_can_be_taken_back(pods: FakePods, play: Play) -> None:
    pods.before = lambda words: os.kill(os.getpid(), signal.SIGINT) if words == "run web" else None
    outcome = play(POD)
    assert outcome.code == 130
    assert pods.done == ["run web", "remove web by force"]


def test_a_second_signal_gives_up_and_prints_what_stays(pods: FakePods, play: Play) -> None:
    pods.before = lambda words: os.kill(os.getpid(), signal.SIGINT) if words in ("run web", REMOVAL) else None
    outcome = play(POD)
    assert outcome.code == 130
    assert "the pod web stays; remove it with: exitctl rmp -f" in outcome.err


REMOVAL = "remove web by force"


def test_down_stops_and_removes_by_name_and_prints_what_is_not_there(pods: FakePods, play: Play) -> None:
    web, other = pods.add("web"), pods.add("other")
    outcome = play(POD + "---\n" + one("gone"), "--down")
    assert outcome.out.splitlines() == ["Pods stopped:", web.id, "Pods removed:", web.id]
    assert (outcome.code, outcome.err) == (0, "exitctl: no pod gone: nothing to take down\n")
    assert list(pods.pods.values()) == [other]


def test_down_does_not_take_the_beginning_of_an_id_for_a_name(pods: FakePods, play: Play) -> None:
    there = pods.add("other")
    assert there.id.startswith("010")
    outcome = play(one("'01'"), "--down")
    assert (outcome.code, list(pods.pods.values())) == (0, [there])


def test_down_works_on_files_that_could_not_be_played(pods: FakePods, play: Play) -> None:
    pods.add("web")
    outcome = play("kind: Pod\nmetadata: {name: web}\nspec: {hostUsers: false}\n", "--down")
    assert (outcome.code, pods.pods) == (0, {})


def test_down_goes_on_after_a_failure_and_says_so(pods: FakePods, play: Play) -> None:
    pods.add("p"), pods.add("q")
    pods.before = failing("remove p by force", errors.TimedOut("it took too long"))
    outcome = play(one("p") + "---\n" + one("q"), "--down")
    assert (outcome.code, outcome.err) == (125, "exitctl: p: it took too long\n")
    assert [pod.spec.name for pod in pods.pods.values()] == ["p"]


def test_replace_takes_down_what_is_there_and_makes_it_anew(pods: FakePods, play: Play) -> None:
    pods.add("web")
    outcome = play(POD, "--replace")
    assert outcome.code == 0
    assert pods.done[:3] == ["stop web", "remove web by force", "run web"]
    assert outcome.out.startswith("Pods stopped:\n")
    assert play(one("new"), "--replace").out.startswith("Pod:\n")


def test_replace_takes_nothing_down_for_a_file_that_is_refused(pods: FakePods, play: Play) -> None:
    pods.add("web")
    outcome = play(POD.replace("OnFailure", "Perhaps"), "--replace")
    assert (outcome.code, pods.done) == (125, [])


def test_wait_prints_every_code_and_name_gives_the_first_failure_and_removes(pods: FakePods, play: Play) -> None:
    pods.ends |= {
        "web-a": [exit_of(kind="unknown", cause="x", name="web-a")],
        "web-b": [exit_of(kind="exited", code=7, name="web-b")],
    }
    outcome = play(POD, "--wait")
    assert outcome.out.splitlines()[-2:] == ["unknown web-a", "7 web-b"]
    assert (outcome.code, pods.pods) == (255, {})


def test_wait_that_is_broken_off_stops_with_grace_and_removes(pods: FakePods, play: Play) -> None:
    pods.before = lambda words: os.kill(os.getpid(), signal.SIGTERM) if words == "start web-b" else None
    outcome = play(POD, "-w")
    assert outcome.code == 130
    assert pods.done[-2:] == ["stop web", "remove web by force"]


def test_warnings_are_reported_and_the_rest_is_played(pods: FakePods, play: Play) -> None:
    outcome = play(POD.replace("  restartPolicy", "  nodeSelector: {a: b}\n  restartPolicy"))
    assert outcome.code == 0
    assert "pod.yaml:5:3: spec.nodeSelector: ignored: this is one machine" in outcome.err


@pytest.mark.parametrize("words", [("--down", "--replace"), ("--down", "--wait")])
def test_down_goes_with_nothing_else(pods: FakePods, play: Play, words: tuple[str, ...]) -> None:
    outcome = play(POD, *words)
    assert (outcome.code, pods.done) == (125, [])


def test_a_file_that_cannot_be_read_is_named(pods: FakePods, exitctl: Exitctl, tmp_path: Path) -> None:
    missing, binary = tmp_path / "none.yaml", tmp_path / "binary"
    binary.write_bytes(b"ab\xff")
    assert f"{missing}: No such file or directory" in exitctl("play", str(missing)).err
    assert f"{binary}: no UTF-8 text; the byte 2 is wrong" in exitctl("play", str(binary)).err
    assert "/dev/zero: more than 16 MiB" in exitctl("play", "/dev/zero").err


STORED = pb.Image(id="sha256:" + "a" * 64, names=["docker.io/library/busybox:latest"])
PULLED = pb.Image(id="sha256:" + "b" * 64)


@pytest.mark.parametrize(
    ("image", "policy", "pulled", "image_id"),
    [
        ("busybox", "IfNotPresent", [], STORED.id),
        ("busybox", "Always", ["docker://busybox"], PULLED.id),
        ("alpine:3", "IfNotPresent", ["docker://alpine:3"], PULLED.id),
        ("alpine:3", "Never", [], ""),
        ("/", "Always", [], ""),
        ("docker-archive:/a.tar", "Never", ["docker-archive:/a.tar"], PULLED.id),
    ],
)
def test_a_pull_policy_says_what_is_asked_of_the_registry(
    daemon: FakeDaemon, pods: FakePods, play: Play, image: str, policy: str, pulled: list[str], image_id: str
) -> None:
    daemon.answers.ListImages = lambda _: pb.ListImagesReply(images=[STORED])
    daemon.answers.PullImage = lambda _: pb.PullImageReply(image=PULLED)
    assert play(one("p", f"'{image}', imagePullPolicy: {policy}")).code == 0
    assert [request.name for request in daemon.asked_for(pb.PullImageRequest)] == pulled
    (pod,) = pods.pods.values()
    assert (pod.members[0].spec.image, pod.members[0].spec.image_id) == (image, image_id)


def test_images_come_before_anything_is_made_and_a_failure_has_its_place(
    daemon: FakeDaemon, pods: FakePods, play: Play
) -> None:
    def refuse(_: pb.PullImageRequest) -> None:
        raise errors.ToolFailed("skopeo: no such host")

    daemon.answers.ListImages = lambda _: pb.ListImagesReply()
    daemon.answers.PullImage = refuse
    outcome = play(one("p", "quay.io/a/b:1"))
    assert (outcome.code, pods.done) == (125, [])
    assert "pod.yaml:4:22: spec.containers[0].name: skopeo: no such host" in outcome.err


def test_an_image_word_for_several_is_refused_before_anything_is_made(
    daemon: FakeDaemon, pods: FakePods, play: Play
) -> None:
    twins = [
        pb.Image(id=f"sha256:{digit * 64}", names=[f"{host}/x/box:1"]) for digit, host in (("a", "b.c"), ("b", "d.e"))
    ]
    daemon.answers.ListImages = lambda _: pb.ListImagesReply(images=twins)
    outcome = play(one("p", "box:1"))
    assert (outcome.code, pods.done) == (125, [])
    assert "may be any of" in outcome.err


def path(tmp_path: Path, name: str, kind: str) -> HostPath:
    return HostPath(str(tmp_path / name), kind, "f:1:1: path")


def test_host_paths_are_made_or_found_as_their_type_says(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "sock"))
    for name, kind in (
        ("file", ""),
        ("file", "File"),
        (".", "Directory"),
        ("sock", "Socket"),
        ("file", "FileOrCreate"),
    ):
        playing.prepare(path(tmp_path, name, kind))
    playing.prepare(path(tmp_path, "new/dir", "DirectoryOrCreate"))
    playing.prepare(path(tmp_path, "new/file", "FileOrCreate"))
    assert (tmp_path / "new/dir").is_dir() and (tmp_path / "new/file").is_file()


@pytest.mark.parametrize(
    ("name", "kind", "why"),
    [
        ("none", "", "No such file"), ("none", "Directory", "No such file"), ("none", "File", "No such file"),
        ("file", "Directory", "is there, and no Directory"), ("file", "DirectoryOrCreate", "File exists"),
        (".", "File", "is there, and no File"), (".", "FileOrCreate", "Is a directory"),
        ("file", "Socket", "is there, and no Socket"), ("no/file", "FileOrCreate", "No such file"),
    ],
)  # fmt: skip
def test_a_host_path_that_is_not_as_its_type_says_is_refused(tmp_path: Path, name: str, kind: str, why: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(errors.BadRequest, match=why):
        playing.prepare(path(tmp_path, name, kind))


def test_a_host_path_that_is_missing_ends_the_play_before_anything_is_made(pods: FakePods, play: Play) -> None:
    outcome = play(one("p").replace("containers", "volumes: [{name: v, hostPath: {path: /no/such}}], containers"))
    assert (outcome.code, pods.done) == (125, [])
    assert "spec.volumes[0].hostPath.path: /no/such: No such file or directory" in outcome.err


@pytest.mark.parametrize("name", behind.WISHES)
def test_what_the_page_beside_podman_calls_refused_is_refused_before_anything_is_made(
    pods: FakePods, exitctl: Exitctl, tmp_path: Path, name: str
) -> None:
    wish = behind.WISHES[name]
    file = tmp_path / f"{name}.yaml"
    file.write_text(wish.text.replace("@SHARED@", str(tmp_path)))
    (asked,) = re.findall(r"\$PLAY ([^;]+)", wish.play)
    outcome = exitctl("play", *shlex.split(Template(asked).substitute(FILE=file, SHARED=tmp_path)))
    assert outcome.code != 0 and wish.refusal in outcome.err, outcome
    assert pods.done == []
