import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from supervisor.model.execs import Exec, ExecSpec
from supervisor.model.values import (
    By,
    Container,
    Event,
    Exit,
    Exited,
    LogDriver,
    LogSpec,
    Oom,
    Phase,
    Process,
    Reason,
    RunKey,
    Signaled,
    Source,
    Spec,
    Unknown,
)
from supervisor.store import codec

EXIT = Exit(RunKey("c1", 3), "web", "default", Exited(43), Source.KEEPER, Reason.SELF, By(), Oom(), 7, None, None)
WEB = Container("c1", Spec(name="web", args=("sh", "-c", "exit 43")), Phase.EXITED, 3, 1, exit=EXIT)
broad = settings(suppress_health_check=[HealthCheck.too_slow], max_examples=60, deadline=None)


LIMITS = st.floats(min_value=0, allow_infinity=False)


@broad
@given(st.builds(Exec, spec=st.builds(ExecSpec, timeout_seconds=LIMITS)))
def test_an_exec_reads_back_as_it_was_written(e: Exec) -> None:
    container, run, exec_id, body = codec.exec_row(e)
    assert RunKey(container, run, exec_id) == e.key
    assert codec.exec_from(body) == e


@broad
@given(st.from_type(Container))
def test_a_container_reads_back_as_it_was_written(container: Container) -> None:
    id, namespace, name, body = codec.container_row(container)
    assert body == codec.container_row(container)[3] == codec.encode(container)
    of_task = "containerd/" if container.spec.task is not None else ""
    assert (id, namespace, name) == (container.id, of_task + container.spec.namespace, container.spec.name)
    assert codec.container_from(body) == container


@broad
@given(st.from_type(Exit))
def test_an_exit_reads_back_as_it_was_written(exit: Exit) -> None:
    container, run, exec_id, at_ns, unknown, body = codec.exit_row(exit)
    assert RunKey(container, run, exec_id) == exit.key
    assert (at_ns, unknown) == (exit.at_ns, isinstance(exit.status, Unknown))
    assert codec.exit_from(body) == exit


@broad
@given(st.from_type(Event), st.integers(1, 2**62))
def test_an_event_reads_back_with_the_number_of_its_row(event: Event, seq: int) -> None:
    time_ns, body = codec.event_row(event)
    assert time_ns == event.time_ns
    assert codec.event_from(seq, body) == replace(event, seq=seq)


def test_arguments_that_are_no_text_survive() -> None:
    raw = b"\xff\xfe caf\xc3\xa9 \x01".decode("utf-8", "surrogateescape")
    container = replace(WEB, spec=replace(WEB.spec, args=(raw,)))
    body = codec.container_row(container)[3]
    assert body.isascii()
    assert codec.container_from(body) == container


def edited(body: str, **changes: Any) -> str:
    return json.dumps({**json.loads(body), **changes})


def test_fields_of_a_newer_exitd_are_skipped_and_missing_ones_take_their_defaults() -> None:
    whole = json.loads(codec.encode(WEB))
    whole["from_the_future"] = {"x": [1]}
    del whole["failures"], whole["clean"], whole["spec"]["mounts"], whole["spec"]["log"]
    assert codec.container_from(json.dumps(whole)) == WEB


def test_an_exit_of_commit_c7542ea_reads_back() -> None:
    """Written out by that version; fields that came later take their defaults."""
    body = (
        '{"key":{"container":"c1","run":1,"exec_id":""},"name":"web","namespace":"default","status":{"kind":"exited",'
        '"code":7},"source":"record","reason":"self","by":{"uid":null,"pid":null,"policy":""},"oom":{"init":false,'
        '"kills":0,"limit_bytes":0},"at_ns":5,"started_ns":4,"init":{"pid":40,"started_ticks":4},"decision":"ended",'
        '"rule":"","at_is_found":false}'
    )
    exit_ = codec.exit_from(body)
    assert (exit_.status, exit_.init, exit_.left_behind) == (Exited(7), Process(40, 4), 0)


def test_words_of_a_newer_exitd_become_the_honest_dont_know_of_their_kind() -> None:
    body = codec.encode(EXIT)
    assert codec.exit_from(edited(body, source="oracle")).source is Source.NONE
    assert codec.exit_from(edited(body, reason="mood")).reason is Reason.UNKNOWN
    spec = json.loads(codec.encode(WEB.spec))
    log = codec.container_from(
        edited(codec.encode(WEB), spec={**spec, "log": {"driver": "syslog", "mode": "tight"}})
    ).spec.log
    assert log == LogSpec(LogDriver.NONE)
    status = codec.exit_from(edited(body, status={"kind": "vanished", "where": 1})).status
    assert status == Unknown("written by a newer exitd as vanished")


@pytest.mark.parametrize("status", [Exited(0), Signaled(11, True), Unknown("host-rebooted"), Unknown("fifo", 137)])
def test_each_kind_of_status_is_told_from_the_others(status: Exited | Signaled | Unknown) -> None:
    assert codec.exit_from(codec.encode(replace(EXIT, status=status))).status == status


@pytest.mark.parametrize(
    "body",
    [
        "",
        "null",
        "[]",
        "{}",
        "{",
        edited(codec.encode(WEB), phase="dreaming"),
        edited(codec.encode(WEB), run="3"),
        edited(codec.encode(WEB), spec=None),
        edited(codec.encode(WEB), init={"pid": 1}),
        edited(codec.encode(WEB), exit=edited(codec.encode(EXIT), status={})),
        "[" * 100_000,
    ],
)
def test_a_row_that_no_exitd_wrote_is_refused_by_name(body: str) -> None:
    with pytest.raises(codec.BadRow, match="Container"):
        codec.container_from(body)
