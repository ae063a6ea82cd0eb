"""supervisor/cli/spec.py: options into one ContainerSpec."""

import os

import pytest

from supervisor.cli.spec import Options, container_spec
from supervisor.errors import BadRequest


def test_without_a_root_file_system_the_ways_are_shown() -> None:
    with pytest.raises(BadRequest, match=r"(?s)--rootfs /.*--bundle DIR"):
        container_spec(Options(command=("alpine", "sh")), {})


@pytest.mark.parametrize(
    "options",
    [
        Options(command=("a",), rootfs="/", bundle="/b"),
        Options(rootfs="/"),
        Options(command=("a",), rootfs="/", rm=True, restart="always"),
        Options(command=("a",), rootfs="/", memory="much"),
        Options(command=("a",), rootfs="/", annotation=("x",)),
    ],
)
def test_what_cannot_be_meant_is_refused(options: Options) -> None:
    with pytest.raises(BadRequest):
        container_spec(options, {})


def test_paths_become_absolute_and_a_runtimes_plain_name_stays() -> None:
    spec = container_spec(Options(command=("a",), rootfs="x", runtime="./runc"), {})
    assert (spec.rootfs, spec.runtime) == (os.path.abspath("x"), os.path.abspath("runc"))
    assert container_spec(Options(bundle="/b", runtime="crun"), {}).runtime == "crun"


def test_every_option_reaches_the_daemon() -> None:
    options = Options(
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
        network="host",
        label=("l=1",),
        hostname="h",
        read_only=True,
        volume=("/a:/b:ro",),
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
    assert not container_spec(Options(bundle="/b"), {}).HasField("stop_timeout_seconds")
