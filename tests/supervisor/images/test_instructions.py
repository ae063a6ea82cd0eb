"""The configuration of an image of a container: what it was started with, and a Dockerfile's instructions on top."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.images import instructions
from supervisor.images.documents import parse_config
from supervisor.images.instructions import CommitWords
from supervisor.model.errors import BadRequest
from supervisor.model.values import Spec

BASE = {
    "os": "linux",
    "architecture": "amd64",
    "config": {"Entrypoint": ["/e"], "Cmd": ["c"], "Env": ["A=1"], "Shell": ["/bin/ash"]},
    "rootfs": {"type": "layers", "diff_ids": ["sha256:" + "0" * 64]},
    "history": [{"created_by": "base"}],
}
DIFF_ID = "sha256:" + "1" * 64


def made(spec: Spec, *changes: str, message: str = "", author: str = "") -> dict[str, Any]:
    words = CommitWords(changes, message, author)
    text = instructions.document(json.dumps(BASE).encode(), spec, words, DIFF_ID, "2026-01-01T00:00:00Z")
    parse_config(text, "it")  # the store reads it
    found: dict[str, Any] = json.loads(text)
    return found


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (("/e", "c"), (["/e"], ["c"])),
        (("/e", "other"), (["/e"], ["other"])),
        (("/e",), (["/e"], None)),
        (("sh", "-c", "x"), (None, ["sh", "-c", "x"])),
    ],
)
def test_the_command_is_what_the_container_was_started_with(args: tuple[str, ...], expected: object) -> None:
    config = made(Spec("web", args, env=("A=1", "B=2", "A=3"), cwd="/w", user="u"))["config"]
    assert (config.get("Entrypoint"), config.get("Cmd")) == expected
    assert (config["Env"], config["WorkingDir"], config["User"]) == (["A=3", "B=2"], "/w", "u")
    assert config["Shell"] == ["/bin/ash"], "what is not known here is kept"


def test_the_layer_is_on_top_and_the_step_is_noted() -> None:
    found = made(Spec("web", ("x",)), message="why", author="me")
    assert found["rootfs"]["diff_ids"] == [*BASE["rootfs"]["diff_ids"], DIFF_ID]  # type: ignore[index]
    assert found["history"][-1]["comment"] == "why" and found["author"] == "me" and len(found["history"]) == 2


@pytest.mark.parametrize(
    ("change", "field", "value"),
    [
        ('CMD ["a", "b"]', "Cmd", ["a", "b"]),
        ("cmd a b", "Cmd", ["/bin/sh", "-c", "a b"]),
        ('ENTRYPOINT ["a"]', "Entrypoint", ["a"]),
        ("ENV B=2 C='x y'", "Env", ["A=1", "B=2", "C=x y"]),
        ("ENV A the rest", "Env", ["A=the rest"]),
        ("LABEL a=1 b=", "Labels", {"a": "1", "b": ""}),
        ("EXPOSE 80 53/udp 8000-8010", "ExposedPorts", {"80/tcp": {}, "53/udp": {}, "8000-8010/tcp": {}}),
        ("VOLUME /a /b", "Volumes", {"/a": {}, "/b": {}}),
        ('VOLUME ["/a b"]', "Volumes", {"/a b": {}}),
        ("WORKDIR /x", "WorkingDir", "/x"),
        ("WORKDIR y", "WorkingDir", "/w/y"),
        ("USER 1:2", "User", "1:2"),
        ("STOPSIGNAL SIGINT", "StopSignal", "SIGINT"),
    ],
)
def test_an_instruction_changes_its_field(change: str, field: str, value: object) -> None:
    assert made(Spec("web", ("/e", "c"), env=("A=1",), cwd="/w"), change)["config"][field] == value


def test_a_new_entrypoint_takes_the_command_away() -> None:
    assert "Cmd" not in made(Spec("web", ("/e", "c")), 'ENTRYPOINT ["a"]')["config"]


@given(
    st.text(max_size=60)
    | st.sampled_from(["CMD", "ENV", "VOLUME", "LABEL"]).flatmap(
        lambda word: st.text(max_size=40).map(lambda text: f"{word} {text}")
    )
)
def test_any_text_is_an_instruction_or_refused_by_name(change: str) -> None:
    try:
        instructions.check((change,))
    except BadRequest as error:
        assert str(error).startswith("change ")
