"""The lines of `live`: what they say of an end, and how they fit a terminal."""

import pytest

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.cli import live

NAMES = pb.Names(namespace="shop", pod="web-0", container="app", image="img:1")
LIMITED = pb.Oom(init=True, kills=1, limit_bytes=64 << 20)


def event(exit_: pb.Exit, **attributes: str) -> pb.Event:
    exit_.at.FromSeconds(1_700_000_000)
    return pb.Event(seq=7, type="exit", exit=exit_, attributes=attributes)


@pytest.mark.parametrize(
    ("exit_", "cells"),
    [
        (
            pb.Exit(names=NAMES, kind="exited", code=3, reason="self", source="pidfd"),
            ["app", "web-0", "shop", "img:1", "3", "self", "pidfd"],
        ),
        (
            pb.Exit(names=NAMES, kind="signaled", signal=9, reason="oom", source="record", oom=LIMITED),
            ["app", "web-0", "shop", "img:1", "137 SIGKILL", "oom at 64 MiB", "record"],
        ),
        (
            pb.Exit(name="a1" * 32, namespace="oci", kind="unknown", cause="watcher-away", source="none"),
            ["a1a1a1a1a1a1", "-", "oci", "-", "unknown", "watcher-away", "none"],
        ),
        (
            pb.Exit(name="x", kind="exited", code=0, reason="unknown", exec_id="e" * 64, unverified="anybody"),
            ["x exec eeeeeeeeeeee", "-", "-", "-", "0", "unverified", "-"],
        ),
        (
            pb.Exit(names=pb.Names(namespace="shop", pod="web-0"), name="id", kind="exited", code=0),
            ["-", "web-0", "shop", "-", "0", "-", "-"],  # a pod's sandbox
        ),
    ],
)
def test_a_line_names_the_container_as_its_engine_does_and_says_how_and_why(exit_: pb.Exit, cells: list[str]) -> None:
    assert live.cells(event(exit_)) == ["2023-11-14T22:13:20Z", *cells]


@pytest.mark.parametrize("columns", [1, 40, 80, 120, 200, 1000])
def test_a_line_fits_its_terminal_from_112_columns_on_and_is_never_cut_elsewhere(columns: int) -> None:
    words = ["x" * 300] * (len(live.HEADINGS) - 1) + ["procevents"]
    text = live.line(words, live.widths(columns, on_terminal=True))
    assert len(text) <= max(columns, 112)
    assert text.endswith("…  procevents")
    assert live.line(words, live.widths(columns, on_terminal=False)) == "  ".join(words)


def test_no_name_controls_the_terminal() -> None:
    words = ["\x1b[2J\n"] * len(live.HEADINGS)
    for on_terminal in (True, False):
        assert live.line(words, live.widths(200, on_terminal=on_terminal)).isprintable()


def test_memory_is_red_a_failure_yellow_and_what_is_not_known_dim() -> None:
    assert live.color_of(pb.Exit(kind="exited", code=0)) == ""
    assert live.color_of(pb.Exit(kind="exited", code=1)) == live.YELLOW
    assert live.color_of(pb.Exit(kind="signaled", signal=15)) == live.YELLOW
    assert live.color_of(pb.Exit(kind="signaled", signal=9, reason="oom")) == live.RED
    assert live.color_of(pb.Exit(kind="unknown")) == live.DIM


def test_a_document_is_a_line_of_the_ledger_with_the_events_number() -> None:
    document = live.document(event(pb.Exit(names=NAMES, kind="exited", code=3), watch="/run/runc"))
    assert (document["Seq"], document["Watch"], document["Image"]) == (7, "/run/runc", "img:1")
