"""supervisor/cli/spec.py: options into one ContainerSpec."""

import os
import pathlib

import pytest

from supervisor.cli.mountwords import MountWords
from supervisor.cli.networkwords import NetworkWords
from supervisor.cli.spec import RunOptions, container_spec
from supervisor.model.errors import BadRequest


def test_without_an_image_the_ways_are_shown() -> None:
    with pytest.raises(BadRequest, match=r"(?s)pause.*oci:DIR.*docker://NAME.*--rootfs DIR.*--bundle DIR"):
        container_spec(RunOptions(), {})


@pytest.mark.parametrize(
    ("words", "image", "args"),
    [
        (("pause",), "pause", []),
        (("busybox", "sh", "-c", "exit 7"), "busybox", ["sh", "-c", "exit 7"]),
        (("/", "--", "x"), "/", ["--", "x"]),
        (("./root", "a"), "HERE/root", ["a"]),
        (("..",), "ABOVE", []),
        (("oci:layout:1.0", "a"), "oci:HERE/layout:1.0", ["a"]),
        (("docker-archive:x.tar:me/x:2", "a"), "docker-archive:HERE/x.tar:me/x:2", ["a"]),
        (("docker://busybox",), "docker://busybox:latest", []),
    ],
)
def test_the_first_word_is_the_image_with_its_path_made_absolute_and_the_rest_its_command(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path, words: tuple[str, ...], image: str, args: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    spec = container_spec(RunOptions(command=words), {})
    assert spec.image == image.replace("HERE", str(tmp_path)).replace("ABOVE", str(tmp_path.parent))
    assert list(spec.args) == args


@pytest.mark.parametrize(
    ("word", "pull", "image"),
    [
        ("busybox", "", "busybox"),
        ("busybox:1", "always", "docker://busybox:1"),
        ("busybox", "missing", "busybox"),
        ("docker://busybox", "always", "docker://busybox:latest"),
        ("docker://busybox", "never", "busybox:latest"),
        ("busybox", "never", "busybox"),
        ("/", "always", "/"),
        ("pause", "never", "pause"),
    ],
)
def test_a_name_is_a_registrys_or_the_stores_as_pull_says(word: str, pull: str, image: str) -> None:
    assert container_spec(RunOptions(command=(word,), pull=pull), {}).image == image


def test_a_pull_that_nobody_knows_is_refused() -> None:
    with pytest.raises(BadRequest, match="--pull newer: write always, missing or never"):
        container_spec(RunOptions(command=("busybox",), pull="newer"), {})


@pytest.mark.parametrize(("word", "ipc"), [("", ""), ("private", "own"), ("shareable", "own"), ("host", "host")])
def test_an_ipc_namespace_is_its_own_or_the_hosts(word: str, ipc: str) -> None:
    assert container_spec(RunOptions(command=("/", "a"), ipc=word), {}).ipc == ipc


@pytest.mark.parametrize(("word", "words"), [("container:x", "exitctl runp"), ("none", "write private or host")])
def test_an_ipc_that_exitd_does_not_have_is_refused_with_the_way(word: str, words: str) -> None:
    with pytest.raises(BadRequest, match=f"--ipc {word}: .*{words}"):
        container_spec(RunOptions(command=("/", "a"), ipc=word), {})


@pytest.mark.parametrize("root", [{"rootfs": "/"}, {"bundle": "/b"}])
def test_with_a_root_of_ones_own_every_word_is_the_command(root: dict[str, str]) -> None:
    spec = container_spec(RunOptions(command=("pause", "1"), **root), {})  # type: ignore[arg-type]
    assert (spec.image, list(spec.args)) == ("", ["pause", "1"])


def test_a_word_that_is_no_image_is_refused_with_all_the_ways() -> None:
    with pytest.raises(BadRequest, match=r"'Busy Box'.*docker-archive:FILE"):
        container_spec(RunOptions(command=("Busy Box", "sh")), {})


def test_an_entrypoint_may_be_left_to_the_image_given_or_taken_away() -> None:
    asked = [list(container_spec(RunOptions(command=("a",), entrypoint=e), {}).entrypoint) for e in (None, "sh", "")]
    assert asked == [[], ["sh"], [""]]
    assert list(container_spec(RunOptions(rootfs="/", entrypoint="sh"), {}).entrypoint) == ["sh"]


@pytest.mark.parametrize(
    "options",
    [
        RunOptions(command=("a",), rootfs="/", bundle="/b"),
        RunOptions(rootfs="/"),
        RunOptions(command=("a",), rootfs="/", rm=True, restart="always"),
        RunOptions(command=("a",), rootfs="/", memory="much"),
        RunOptions(command=("a",), rootfs="/", annotation=("x",)),
    ],
)
def test_what_cannot_be_meant_is_refused(options: RunOptions) -> None:
    with pytest.raises(BadRequest):
        container_spec(options, {})


def test_paths_become_absolute_and_a_runtimes_plain_name_stays() -> None:
    spec = container_spec(RunOptions(command=("a",), rootfs="x", runtime="./runc"), {})
    assert (spec.rootfs, spec.runtime) == (os.path.abspath("x"), os.path.abspath("runc"))
    assert container_spec(RunOptions(bundle="/b", runtime="crun"), {}).runtime == "crun"


def test_every_option_reaches_the_daemon() -> None:
    options = RunOptions(
        command=("sh", "-c", "exit 7"),
        name="n",
        rm=True,
        rootfs="/",
        env=("A=1", "B"),
        workdir="/w",
        user="1:2",
        memory="64m",
        annotation=("a=b",),
        stop_signal="INT",
        stop_timeout=0,
        networks=NetworkWords(network=("host",)),
        label=("l=1",),
        hostname="h",
        read_only=True,
        mounts=MountWords(volume=("/a:/b:ro",)),
        namespace="ns",
    )
    spec = container_spec(options, {"B": "2"})
    assert list(spec.args) == ["sh", "-c", "exit 7"]
    assert list(spec.env) == ["A=1", "B=2"]
    assert (spec.name, spec.cwd, spec.user, spec.memory_bytes) == ("n", "/w", "1:2", 64 << 20)
    assert (dict(spec.annotations), dict(spec.labels)) == ({"a": "b"}, {"l": "1"})
    assert spec.HasField("stop_timeout_seconds") and spec.stop_timeout_seconds == 0
    assert (spec.stop_signal, spec.network, spec.hostname, spec.namespace) == ("INT", "host", "h", "ns")
    assert spec.auto_remove and spec.read_only and spec.mounts[0].read_only


def test_a_stop_timeout_that_was_not_given_is_absent() -> None:
    assert not container_spec(RunOptions(bundle="/b"), {}).HasField("stop_timeout_seconds")
