"""Facts on the wire: what is not known stays absent."""

from dataclasses import replace
from typing import Any

import pytest
from structlog.testing import capture_logs

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.api import replies, values
from supervisor.model.networks import Attached
from supervisor.model.remembered import MOST_BYTES, Remembered
from supervisor.model.values import (
    By,
    Container,
    Event,
    Exit,
    Exited,
    ExitStatus,
    HealthSpec,
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
from supervisor.model.views import Info, View
from supervisor.store import events
from supervisor.streams import logline

AT_NS = 1_795_176_000_000_000_001


def ended(status: ExitStatus, **fields: Any) -> Exit:
    given: dict[str, Any] = {
        "key": RunKey("c1", 3),
        "name": "web",
        "namespace": "default",
        "status": status,
        "source": Source.RECORD,
        "reason": Reason.SELF,
        "by": By(),
        "oom": Oom(),
        "at_ns": AT_NS,
        "started_ns": None,
        "init": None,
    }
    return Exit(**(given | fields))


def test_a_code_is_set_only_for_an_exit_even_when_it_is_zero() -> None:
    message = replies.exit_message(ended(Exited(0)))
    assert (message.kind, message.code, message.HasField("code")) == ("exited", 0, True)
    assert not message.HasField("signal") and not message.HasField("number")


def test_a_signal_is_set_only_for_a_death_by_signal() -> None:
    message = replies.exit_message(ended(Signaled(11, core=True)))
    assert (message.kind, message.signal, message.core) == ("signaled", 11, True)
    assert not message.HasField("code") and not message.HasField("number")


def test_an_unknown_end_has_a_cause_and_neither_code_nor_signal() -> None:
    message = replies.exit_message(ended(Unknown("monitors-killed"), source=Source.NONE))
    assert (message.kind, message.cause, message.source) == ("unknown", "monitors-killed", "none")
    assert not any(message.HasField(name) for name in ("code", "signal", "number"))


def test_a_number_that_proves_nothing_stands_beside_unknown() -> None:
    message = replies.exit_message(ended(Unknown("ambiguous", 137), source=Source.FIFO))
    assert message.HasField("number") and message.number == 137
    assert not message.HasField("code")


def test_what_was_made_ready_is_what_would_have_been_built_and_of_that_very_exit() -> None:
    ready, other = ended(Exited(0)), ended(Exited(0))
    replies.make_ready(ready)
    assert replies.exit_message(ready) is replies.exit_message(ready)
    assert replies.exit_message(ready) == replies.exit_message(other)
    assert replies.exit_message(other) is not replies.exit_message(ready)


def test_of_what_is_made_ready_the_newest_are_kept() -> None:
    exits = [ended(Exited(code % 256)) for code in range(2 * replies.MOST_READY)]
    for each in exits:
        replies.make_ready(each)
    kept = [each for each in exits if replies.exit_message(each) is replies.exit_message(each)]
    assert kept == exits[-replies.MOST_READY :]


def test_everything_else_of_an_exit_arrives() -> None:
    exit = ended(
        Exited(1),
        key=RunKey("c1", 3, "e1"),
        reason=Reason.STOP,
        by=By(0, 42),
        oom=Oom(True, 2, 64),
        started_ns=5,
        init=Process(7, 99),
        decision="restart",
        rule="exit in 1 => restart",
    )
    assert replies.exit_message(exit) == pb.Exit(
        container_id="c1",
        run=3,
        exec_id="e1",
        kind="exited",
        code=1,
        source="record",
        reason="stop",
        by=pb.By(uid=0, pid=42),
        oom=pb.Oom(init=True, kills=2, limit_bytes=64),
        at=values.timestamp(AT_NS),
        started_at=values.timestamp(5),
        name="web",
        namespace="default",
        decision="restart",
        rule="exit in 1 => restart",
        init=pb.Process(pid=7, started_ticks=99),
    )


def test_a_caller_that_is_not_known_is_not_root() -> None:
    message = replies.exit_message(ended(Exited(0)))
    assert not message.by.HasField("uid") and not message.by.HasField("pid")


@pytest.mark.parametrize("phase", Phase)
def test_every_phase_has_its_word_on_the_wire(phase: Phase) -> None:
    message = replies.container_message(View(Container("c1", Spec("web"), phase, 1, AT_NS)))
    assert pb.Phase.Name(message.phase) == f"PHASE_{phase.name}"


def test_a_container_that_never_ran_has_no_times_but_its_creation() -> None:
    message = replies.container_message(View(Container("c1", Spec("web"), Phase.CREATING, 1, AT_NS)))
    assert {descriptor.name for descriptor, _ in message.ListFields()} == {"id", "spec", "phase", "run", "created_at"}


def test_a_container_and_what_the_daemon_knows_of_it_arrive() -> None:
    container = Container(
        id="c1",
        spec=Spec("web"),
        phase=Phase.RESTARTING,
        run=3,
        created_ns=1,
        init=Process(7, 99),
        shim=Process(8, 98),
        started_ns=2,
        exit=ended(Exited(1)),
        restart_count=2,
        error="caf\udce9",
    )
    view = View(container, True, "keeper", "/l", "/b", "/r", 10)
    assert replies.container_message(view) == pb.Container(
        id="c1",
        spec=replies.spec_message(container.spec),
        phase=pb.PHASE_RESTARTING,
        run=3,
        init=pb.Process(pid=7, started_ticks=99),
        shim=pb.Process(pid=8, started_ticks=98),
        created_at=values.timestamp(1),
        started_at=values.timestamp(2),
        finished_at=values.timestamp(AT_NS),
        exit=replies.exit_message(ended(Exited(1))),
        restart_count=2,
        restart_at=values.timestamp(10),
        recovering=True,
        error="caf?",
        monitored_by="keeper",
        log_path="/l",
        bundle_path="/b",
        run_directory="/r",
    )


def test_an_event_a_bookmark_and_a_loss_are_three_things() -> None:
    event = Event("exit", "c1", "web", "default", 5, ended(Exited(0)), (("signal", "\udcff"),), "p1", 9)
    message = replies.events_message(event).event
    assert (message.seq, message.type, message.pod_id, message.exit.kind) == (9, "exit", "p1", "exited")
    assert dict(message.attributes) == {"signal": "?"}
    assert replies.events_message(events.Bookmark(4)).bookmark == 4
    lost = replies.events_message(events.Lost(2, 3)).lost
    assert (getattr(lost, "from"), lost.to) == (2, 3)


def test_output_of_one_stream_travels_together_and_nothing_is_reordered() -> None:
    items: list[logline.Item] = [
        logline.LogEntry(1, "stdout", b"a\n"),
        logline.Malformed(b"?"),
        logline.LogEntry(2, "stdout", b"b\n"),
        logline.LogEntry(3, "stderr", b"c\n"),
        logline.LogEntry(4, "stdout", b"d"),
    ]
    sent = [(reply.stream, reply.data) for reply in replies.log_messages(items, 100)]
    assert sent == [("stdout", b"a\nb\n"), ("stderr", b"c\n"), ("stdout", b"d")]
    assert [reply.data for reply in replies.log_messages(items, 1)] == [b"a\n", b"b\n", b"c\n", b"d"]


def test_what_the_daemon_says_of_itself_arrives() -> None:
    info = Info("1", "/r", "/s", "boot", "runc", "v2", (("record", True),), 5, 3, 9, Process(4, 2), 1, 77, "tmpfs")
    message = replies.info_message(info)
    assert (message.containers, message.running, message.seq, message.keeper.pid) == (5, 3, 77, 4)
    assert dict(message.evidence) == {"record": True}


@pytest.mark.parametrize(
    "bad",
    [
        {"labels": (("a\ud800", "x"),)},
        {"health": HealthSpec(("x",), retries=2**40)},
        {"health": HealthSpec(("x",), interval_ns=2**70)},
        {"stop_timeout_seconds": 2**40},
    ],
)
def test_a_stored_container_that_no_message_can_hold_is_listed_without_its_details(bad: dict[str, Any]) -> None:
    """An earlier version may have taken it in from an image."""
    stored = Container("c1", Spec(name="web", **bad), Phase.RUNNING, 1, 0)
    message = replies.container_message(View(stored))
    assert (message.id, message.spec.name, message.phase) == ("c1", "web", pb.PHASE_RUNNING)
    assert "cannot be shown" in message.error and message.SerializeToString()


def test_a_list_shows_what_its_containers_are_now_whatever_the_list_before_has_shown() -> None:
    first = Container("c1", Spec(name="web", args=("a",), labels=(("k", "v"),)), Phase.RUNNING, 1, 0)
    large = Container("c2", Spec(name="x" * 2 * MOST_BYTES), Phase.RUNNING, 1, 0)
    bad = Container("c3", Spec(name="bad", stop_timeout_seconds=2**40), Phase.RUNNING, 1, 0)
    renamed = replace(first, phase=Phase.EXITED, spec=replace(first.spec, name="other"))
    for containers in ([first, large, bad], [first, large, bad], [bad, renamed], [], [first]):
        for each in containers:
            shown = replies.container_message(View(each))
            if each is bad:
                assert "cannot be shown" in shown.error
            else:
                assert shown.spec == replies.spec_message(each.spec)


def test_an_exit_or_event_that_no_message_can_hold_is_logged_with_its_row() -> None:
    bad = ended(Exited(2**40), key=RunKey("c1", 3, "e1"))
    with capture_logs() as lines:
        assert replies.exit_message(bad).cause == "row-damaged"
        assert replies.event_message(Event("\ud800", "c1", "web", "default", 5, seq=9)).seq == 9
    exit, event = lines
    assert (exit["container"], exit["run"], exit["exec"], exit["log_level"]) == ("c1", 3, "e1", "error")
    assert exit["why"] and event["why"] and event["seq"] == 9


def test_a_reply_is_the_callers_own_though_its_spec_is_encoded_once() -> None:
    view = View(Container("c1", Spec("web"), Phase.RUNNING, 1, AT_NS))
    replies.container_message(view).spec.name = "other"
    assert replies.container_message(view).spec.name == "web"


@pytest.mark.parametrize(
    ("phase", "networks", "shown"),
    [
        (Phase.CREATING, (), ""),
        (Phase.CREATED, (), "127.0.0.1"),
        (Phase.CREATED, (Attached("n", "eth0", addresses=("10.0.0.7/16",)),), "10.0.0.7"),
        (Phase.EXITED, (Attached("n", "eth0", addresses=("10.0.0.7/16",)),), "10.0.0.7"),
        (Phase.EXITED, (), ""),
        (Phase.RESTARTING, (), ""),
    ],
)
def test_its_own_address_is_that_of_its_run_and_empty_without_one(
    phase: Phase, networks: tuple[Attached, ...], shown: str
) -> None:
    marked = Container("c", Spec("own", env=("ME=MARK",), address_mark="MARK"), phase, 1, AT_NS, networks=networks)
    assert [*replies.container_message(View(marked)).spec.env] == [f"ME={shown}"]


def test_a_spec_with_an_address_put_into_it_pushes_no_other_one_out_of_what_is_remembered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[str] = []

    def make(spec: Spec) -> bytes:
        made.append(spec.name)
        return replies.spec_message(spec).SerializeToString()

    monkeypatch.setattr(replies, "ENCODED_SPECS", Remembered(make, len, 1 << 10))
    plain = View(Container("c1", Spec("web"), Phase.RUNNING, 1, AT_NS))
    marked = View(Container("c2", Spec("own", args=("at-MARK",), address_mark="MARK"), Phase.RUNNING, 1, AT_NS))
    replies.container_message(plain)
    for _ in range(100):
        assert [*replies.container_message(marked).spec.args] == ["at-127.0.0.1"]
    replies.container_message(plain)
    assert made == ["web"]
