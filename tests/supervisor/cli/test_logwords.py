"""--log-driver, --log-opt and --log-mode into one LogSpec."""

import pathlib

import pytest

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.cli.logwords import log_options, log_spec
from supervisor.cli.shape import container_document
from supervisor.model.errors import BadRequest


def test_what_was_not_said_is_left_to_the_daemon() -> None:
    assert log_spec("", (), "") is None
    spec = log_spec("", ("max-size=10m",), "")
    assert spec == pb.LogSpec(max_bytes=10 << 20)
    assert spec is not None
    assert not spec.driver


def test_every_option_arrives_and_a_path_becomes_absolute(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    monkeypatch.chdir(tmp_path)
    options = ("max-size=64k", "max-file=3", "path=sub/../web.log", "max-buffer-size=2m")
    assert log_spec("json-file", options, "non-blocking") == pb.LogSpec(
        driver="json-file",
        path=f"{tmp_path}/web.log",
        max_bytes=64 << 10,
        max_files=3,
        mode="non-blocking",
        buffer_bytes=2 << 20,
    )


def test_inspect_shows_the_options_that_say_something() -> None:
    assert log_options(pb.LogSpec(driver="cri", mode="blocking", max_bytes=0, max_files=5)) == {}
    spec = log_spec("cri", ("max-size=64k", "max-file=3", "path=/a/b", "max-buffer-size=1m"), "non-blocking")
    assert spec is not None
    assert log_options(spec) == {
        "max-size": "65536",
        "max-file": "3",
        "path": "/a/b",
        "max-buffer-size": "1048576",
        "mode": "non-blocking",
    }
    host = container_document(pb.Container(spec=pb.ContainerSpec(log=spec)))["HostConfig"]
    assert isinstance(host, dict)
    assert host["LogConfig"] == {"Type": "cri", "Config": log_options(spec)}


@pytest.mark.parametrize("word", ["0", "-1", "unlimited"])
def test_no_limit_is_said_and_not_left_open(word: str) -> None:
    spec = log_spec("", (f"max-size={word}",), "")
    assert spec is not None
    assert (spec.HasField("max_bytes"), spec.max_bytes) == (True, 0)


@pytest.mark.parametrize(
    ("word", "why"),
    [
        ("max-size", "KEY=VALUE"),
        ("max-size=big", "is no size"),
        ("max-file=0", "number of files"),
        ("max-file=-1", "number of files"),
        ("max-file=two", "number of files"),
        ("path=", "path of a file"),
        ("compress=true", "there is no such option; there are max-size=SIZE"),
    ],
)
def test_what_makes_no_sense_is_refused_in_its_own_words(word: str, why: str) -> None:
    with pytest.raises(BadRequest, match=why):
        log_spec("", (word,), "")
