"""What a shell completes a word of exitctl's to: verbs, and the names of what there is."""

import os
import pathlib
import subprocess
import sys
import time

import pytest

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.cli import complete
from supervisor.model.errors import StoreFailed
from tests.supervisor.cli.conftest import Exitctl
from tests.supervisor.cli.fake_daemon import FakeDaemon, container

EXITCTL = str(pathlib.Path(sys.executable).with_name("exitctl"))
SECONDS = 60.0


def completed(daemon: FakeDaemon | str, *words: str) -> list[str]:
    """The proposals for the last word, as bash gets them from the real command."""
    address = daemon if isinstance(daemon, str) else daemon.path
    environment = {
        **{key: value for key, value in os.environ.items() if not key.startswith("EXITD_")},
        "EXITD_ADDRESS": address,
        "_EXITCTL_COMPLETE": "bash_complete",
        "COMP_WORDS": " ".join(("exitctl", *words)),
        "COMP_CWORD": str(len(words)),
    }
    done = subprocess.run([EXITCTL], env=environment, capture_output=True, text=True, timeout=SECONDS)
    assert done.stderr == ""
    return [line.partition(",")[2] for line in done.stdout.splitlines() if line]


@pytest.fixture
def full(daemon: FakeDaemon) -> FakeDaemon:
    named = [
        container(phase=pb.PHASE_RUNNING, spec=pb.ContainerSpec(name="web")),
        container(phase=pb.PHASE_EXITED, spec=pb.ContainerSpec(name="worker")),
        container(phase=pb.PHASE_RUNNING, spec=pb.ContainerSpec()),
    ]
    daemon.answers.List = lambda _: pb.ListReply(containers=named)
    pods = [pb.Pod(id="d" * 64, spec=pb.PodSpec(name="shop"))]
    daemon.answers.ListPods = lambda _: pb.ListPodsReply(pods=pods)
    images = [pb.Image(id="sha256:" + "a" * 64, names=["docker.io/library/busybox:latest", "tiny:1"])]
    daemon.answers.ListImages = lambda _: pb.ListImagesReply(images=images)
    daemon.answers.ListVolumes = lambda _: pb.ListVolumesReply(volumes=[pb.Volume(name="data")])
    return daemon


def test_words_complete_to_the_names_of_what_there_is(full: FakeDaemon) -> None:
    assert completed(full, "rm", "w") == ["web", "worker"]
    assert completed(full, "rm", "web", "w") == ["worker"]  # not twice
    assert completed(full, "stop", "") == ["c0ffee000000", "web"]  # what has ended cannot be stopped
    assert completed(full, "exec", "-it", "w") == ["web"]
    assert completed(full, "container", "rm", "wo") == ["worker"]
    assert completed(full, "stopp", "") == ["shop"]
    assert completed(full, "image", "rm", "t") == ["tiny:1"]
    assert completed(full, "rmi", "t") == ["tiny:1"]
    assert completed(full, "run", "--rm", "t") == ["tiny:1"]
    assert completed(full, "run", "--rm", "tiny:1", "t") == []  # the container's own words
    assert completed(full, "volume", "rm", "") == ["data"]


def test_verbs_and_options_complete_without_exitd(tmp_path: pathlib.Path) -> None:
    nobody = f"{tmp_path}/exitd.sock"
    assert completed(nobody, "inspec") == ["inspect", "inspectp"]
    assert {"import", "load", "ls", "pull", "rm"} <= {*completed(nobody, "image", "")}
    assert "--restart" in completed(nobody, "run", "--rest")


def test_no_exitd_and_one_that_fails_give_no_names_and_no_words(daemon: FakeDaemon, tmp_path: pathlib.Path) -> None:
    assert completed(f"{tmp_path}/elsewhere/exitd.sock", "rm", "") == []

    def fail(_: pb.ListRequest) -> pb.ListReply:
        raise StoreFailed("the disk is full")

    daemon.answers.List = fail
    assert completed(daemon, "rm", "") == []


def test_an_exitd_that_does_not_answer_is_waited_for_a_moment(daemon: FakeDaemon) -> None:
    daemon.answers.List = lambda _: daemon.killed.wait(SECONDS)  # it is never killed
    began = time.monotonic()
    assert completed(daemon, "rm", "") == []
    assert time.monotonic() - began < SECONDS / 2
    daemon.killed.set()


def test_names_that_a_shell_would_take_apart_are_left_out(daemon: FakeDaemon) -> None:
    odd = [container(spec=pb.ContainerSpec(name=name)) for name in ("a\nb", "a\x1b[2J", "ab")]
    daemon.answers.List = lambda _: pb.ListReply(containers=odd)
    assert completed(daemon, "rm", "a") == ["ab"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_for_each_shell_calls_exitctl(exitctl: Exitctl, shell: str) -> None:
    outcome = exitctl("completion", shell)
    assert outcome.code == 0 and f"_EXITCTL_COMPLETE={shell}_complete" in outcome.out
    assert exitctl("completion", "cmd").code == 2


def test_bash_completes_with_the_script(full: FakeDaemon) -> None:
    script = (
        f'PATH={pathlib.Path(EXITCTL).parent}:$PATH; eval "$(exitctl completion bash)"; '
        "COMP_WORDS=(exitctl rm w) COMP_CWORD=2; _exitctl_completion exitctl w rm; printf '%s\\n' \"${COMPREPLY[@]}\""
    )
    environment = {**os.environ, "EXITD_ADDRESS": full.path}
    done = subprocess.run(["bash", "-c", script], env=environment, capture_output=True, text=True, timeout=SECONDS)
    assert (done.stdout.split(), done.stderr) == (["web", "worker"], "")


def test_every_kind_of_argument_that_names_something_is_known() -> None:
    assert {"ID", "ID...", "POD...", "IMAGE..."} <= set(complete.BY_METAVAR)
