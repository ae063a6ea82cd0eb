"""Images as documents, whatever their configuration says; and which of the unused ones a filter means."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.cli import imageshape, pruning
from supervisor.cli.pruning import PruneFilter
from supervisor.model.errors import BadImage, BadRequest

NOW = 1_800_000_000 * 10**9
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda below: st.lists(below, max_size=3) | st.dictionaries(st.text(max_size=9), below, max_size=3),
)
FIELDS = st.sampled_from(["config", "history", "rootfs", "author", "comment", "os", "created"])


def reply(config: object, *sizes: int) -> pb.InspectImageReply:
    return pb.InspectImageReply(
        image=pb.Image(id="sha256:" + "a" * 64, names=["docker.io/me/web:1", "web:2"], digest="sha256:d"),
        config=json.dumps(config).encode(),
        layers=[pb.ImageLayer(diff_id=f"sha256:{number}", size_bytes=size) for number, size in enumerate(sizes)],
    )


def test_a_step_has_the_size_of_its_layer_from_the_top_on() -> None:
    history = [{"created_by": "a"}, {"created_by": "env", "empty_layer": True}, {"created_by": "b", "comment": "why"}]
    steps = imageshape.history(reply({"history": history}, 1, 2, 3), NOW, whole=False)
    assert [(step["CreatedBy"], step["SizeBytes"]) for step in steps] == [("b", 3), ("env", 0), ("a", 2), ("", 1)]
    assert [step["ID"] for step in steps] == ["a" * 12, "<missing>", "<missing>", "<missing>"]
    assert steps[0]["Comment"] == "why" and steps[0]["CreatedSince"] == "N/A"


def test_an_inspection_has_dockers_names() -> None:
    config = {"architecture": "amd64", "os": "linux", "config": {"Cmd": ["sh"], "Labels": {"a": "1"}}}
    shown = imageshape.inspected(reply(config, 5))
    assert shown["RepoDigests"] == ["docker.io/me/web@sha256:d", "web@sha256:d"]
    assert shown["Config"]["Cmd"] == ["sh"] and shown["Config"]["Env"] is None  # type: ignore[index]
    assert imageshape.labels_of(reply(config)) == {"a": "1"}


@given(st.dictionaries(FIELDS, JSON) | JSON)
def test_any_configuration_is_shown(config: object) -> None:
    found = reply(config, 1, 2)
    assert imageshape.inspected(found)["Id"] and len(imageshape.history(found, NOW, whole=True)) >= 2
    imageshape.labels_of(found)


def test_what_is_no_json_is_refused() -> None:
    with pytest.raises(BadImage, match="no JSON"):
        imageshape.inspected(pb.InspectImageReply(config=b"{"))


@pytest.mark.parametrize(
    ("words", "fits"),
    [
        ((), True),
        (("until=1h",), False),
        (("until=10s",), True),
        (("label=a",), True),
        (("label=a=1",), True),
        (("label=a=2",), False),
        (("label=b",), False),
        (("label!=a",), False),
        (("label!=b", "label=a"), True),
    ],
)
def test_a_filter_means_those_made_before_with_the_labels(words: tuple[str, ...], fits: bool) -> None:
    assert pruning.filter_of(words, NOW).fits(NOW - 60 * 10**9, {"a": "1"}) is fits


def test_what_has_no_time_was_made_before_any() -> None:
    assert PruneFilter(before_ns=0).fits(None, {})


@pytest.mark.parametrize("word", ["x", "until", "until=", "until=never", "label", "name=a", "=a"])
def test_what_is_no_filter_is_refused_by_name(word: str) -> None:
    with pytest.raises(BadRequest):
        pruning.filter_of((word,), NOW)
