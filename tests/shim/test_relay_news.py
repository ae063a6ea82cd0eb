"""What the relay brings containerd of an end while exitd does not: oom, exit, delete, each once, whatever exitd hands
over when it is back."""

import contextlib
import struct
from collections.abc import Iterator
from typing import Any

import pytest
from google.protobuf.any_pb2 import Any as Packed
from google.protobuf.message import Message

from protos.containerd import events_pb2, forward_pb2
from protos.containerd import task_pb2 as pb
from protos.ttrpc.v1.ttrpc_pb2 import Request
from shim._native import ffi, lib
from supervisor.containerd import tasks
from supervisor.containerd.couriers import packed
from supervisor.containerd.publish import FORWARD
from tests.shim.relaysession import Session, sessions
from tests.shim.relaywords import EVENT, RESPONSE, Frame, code_of, decode, encode, failure, of_task, success
from tests.shim.test_relay_witness import AT_NS, begun, created, ended, exec_ends, record, task

AT = tasks.timestamp(AT_NS)
OOM = events_pb2.TaskOOM(container_id="c1")
EXIT = events_pb2.TaskExit(container_id="c1", id="c1", pid=42, exit_status=7, exited_at=AT)
DELETE = events_pb2.TaskDelete(container_id="c1", pid=42, exit_status=7, exited_at=AT)
EXEC_EXIT = events_pb2.TaskExit(container_id="c1", id="e", pid=43, exit_status=1, exited_at=AT)
START = events_pb2.TaskStart(container_id="c1", pid=42)
CREATED = events_pb2.TaskCreate(container_id="c1", pid=42)
TOPICS = {"TaskCreate": "create", "TaskStart": "start", "TaskOOM": "oom", "TaskExit": "exit", "TaskDelete": "delete"}
NAMESPACE = ffi.new("char[]", b"ns")


def forwarded(event: Message) -> forward_pb2.ForwardRequest:
    """As exitd writes it."""
    name = event.DESCRIPTOR.full_name
    return forward_pb2.ForwardRequest(
        envelope=forward_pb2.Envelope(
            timestamp=AT,
            namespace="ns",
            topic=f"/tasks/{TOPICS[event.DESCRIPTOR.name]}",
            event=Packed(type_url=name, value=event.SerializeToString()),
        )
    )


class Chain:
    """A relay with a task, between an exitd and a containerd that takes events."""

    def __init__(self, s: Session, courier: Any) -> None:
        self.s, self.c = s, courier
        s.witness.name_space = NAMESPACE
        courier.witness = s.witness
        s.c.courier = courier
        created(s)
        lib.courier_up(courier)
        self.numbers = 0
        self.streams = -1

    def hand(self, event: Message, number: int = 0) -> list[Message]:
        """exitd hands it over; what containerd gets of it."""
        self.numbers += 1
        data = packed(number or self.numbers, FORWARD, forwarded(event))
        self.s.from_exitd(encode(Frame(0, EVENT, 0, data)))
        return self.got()

    def taken(self, event: Message) -> None:
        """By containerd, and exitd hears of it."""
        assert self.hand(event) == [event]
        assert self.told() == [(self.numbers, 0)]

    def swallowed(self, event: Message) -> None:
        """exitd hears that containerd has it, and it is not sent."""
        assert self.hand(event) == []
        assert self.told() == [(self.numbers, 0)]

    def bring(self, *, is_away: bool = True) -> list[Message]:
        """What containerd gets from the relay."""
        lib.courier_bring(self.c, is_away, self.s.now_ms)
        return self.got()

    def got(self, reply: bytes = success()) -> list[Message]:
        """And it answers, unless the reply is None."""
        buffer = self.c.to_containerd
        if (size := buffer.end - buffer.at) == 0:
            return []
        data = bytes(ffi.buffer(buffer.data + buffer.at, size))
        lib.buffer_take(ffi.addressof(self.c, "to_containerd"), size)
        (frame,), _ = decode(data)
        request = Request.FromString(frame.data)
        assert f"{request.service}/{request.method}" == FORWARD
        envelope = forward_pb2.ForwardRequest.FromString(request.payload).envelope
        name = envelope.event.type_url.rpartition(".")[2]
        event: Message = getattr(events_pb2, name).FromString(envelope.event.value)
        assert forwarded(event) == forward_pb2.ForwardRequest.FromString(request.payload)
        if reply is not None:
            answer = encode(Frame(frame.stream, RESPONSE, 0, reply))
            lib.courier_hear(self.c, ffi.from_buffer(answer), len(answer))
        return [event]

    def told(self) -> list[tuple[int, int]]:
        lib.courier_report(self.c, self.s.c)
        frames = self.s.hear_all()
        return [(struct.unpack_from(">Q", frame.data)[0], code_of(frame.data[8:])) for frame in frames]


@contextlib.contextmanager
def chain() -> Iterator[Chain]:
    with sessions(1) as (one,):
        made = Chain(one, ffi.new("struct courier *"))
        yield made
        lib.courier_down(made.c)


def started(c: Chain) -> None:
    c.taken(CREATED)
    c.taken(START)


def deleted(c: Chain) -> None:
    """By the relay, for containerd."""
    task(c.s).is_noted = 1
    c.s.ask(21, "Delete", of_task("c1"))
    c.s.passes(60_000)
    assert [frame.stream for frame in c.s.take()] == [21]


@pytest.mark.parametrize("kills", [-1, 0, 3])
def test_oom_exit_and_delete_are_brought_in_this_order_and_each_once(kills: int) -> None:
    with chain() as c:
        started(c)
        c.s.down()
        ended(c.s, record(oom_kills=kills))
        for expected in [OOM, EXIT] if kills > 0 else [EXIT]:
            assert c.bring() == [expected]
        assert c.bring() == []
        deleted(c)
        assert c.bring() == [DELETE]
        assert c.bring() == []


def test_of_an_exec_that_the_relay_has_answered_for_exitd_brings_the_events_and_of_its_task_the_relay() -> None:
    with chain() as c:
        started(c)
        begun(c.s)
        c.s.down()
        exec_ends(c.s)
        assert c.bring() == []
        c.s.up()
        c.s.hear_all()
        c.taken(EXEC_EXIT)
        c.s.down()
        ended(c.s)
        assert c.bring() == [EXIT]


def test_what_exitd_tells_of_it_afterwards_is_told_as_taken_and_not_sent_again() -> None:
    with chain() as c:
        started(c)
        c.s.down()
        ended(c.s, record(oom_kills=1))
        assert [c.bring(), c.bring()] == [[OOM], [EXIT]]
        c.s.up()
        c.s.hear_all()
        for event in (EXEC_EXIT, OOM, EXIT):
            c.swallowed(event)
        c.taken(DELETE)


def test_what_a_silent_exitd_tells_of_a_task_that_the_relay_has_deleted_is_not_sent() -> None:
    with chain() as c:
        started(c)
        ended(c.s)
        c.s.ask(3, "Wait", of_task("c1"))
        c.s.passes(60_000)
        assert [frame.stream for frame in c.s.take()] == [3]
        assert c.bring(is_away=False) == [EXIT]
        deleted(c)
        assert c.bring(is_away=False) == [DELETE]
        lib.news_sweep(c.s.witness)
        c.s.hear_all()
        for event in (EXIT, DELETE):
            c.swallowed(event)


def test_an_exitd_that_is_there_brings_an_end_itself() -> None:
    with chain() as c:
        started(c)
        ended(c.s)
        assert c.bring(is_away=False) == []
        for event in (EXEC_EXIT, OOM, EXIT):
            c.taken(event)
        assert c.bring() == []
        c.taken(DELETE)


def test_an_end_whose_start_containerd_has_not_heard_of_is_exitds() -> None:
    with chain() as c:
        c.taken(CREATED)
        c.s.down()
        ended(c.s)
        assert c.bring() == []


def test_what_containerd_does_not_take_is_tried_again_after_a_while() -> None:
    with chain() as c:
        started(c)
        c.s.down()
        ended(c.s)
        lib.courier_bring(c.c, True, c.s.now_ms)
        assert c.got(failure(14)) == [EXIT]
        assert c.bring() == []
        c.s.passes(lib.BRING_MS)
        assert c.bring() == [EXIT]
        c.s.passes(lib.BRING_MS)
        assert c.bring() == []


def test_an_event_of_exitds_waits_for_one_that_the_relay_is_bringing() -> None:
    with chain() as c:
        started(c)
        c.s.down()
        ended(c.s)
        lib.courier_bring(c.c, True, c.s.now_ms)
        c.s.up()
        c.s.hear_all()
        c.s.from_exitd(encode(Frame(0, EVENT, 0, packed(9, FORWARD, forwarded(EXIT)))))
        assert c.told() == [(9, 8)]
        assert c.got() == [EXIT]
        assert c.told() == []
        c.swallowed(EXIT)


def test_the_next_task_of_that_name_has_all_its_events() -> None:
    with chain() as c:
        started(c)
        c.s.down()
        ended(c.s)
        assert c.bring() == [EXIT]
        deleted(c)
        assert c.bring() == [DELETE]
        created(c.s, stream=31)
        lib.news_sweep(c.s.witness)
        for event in (CREATED, START, EXIT, DELETE):
            c.taken(event)


def test_the_deletion_of_a_task_whose_exit_the_relay_has_brought_is_exitds_to_tell_if_exitd_deletes_it() -> None:
    with chain() as c:
        started(c)
        c.s.down()
        ended(c.s)
        assert c.bring() == [EXIT]
        c.s.up()
        c.s.hear_all()
        c.s.ask(3, "Delete", of_task("c1"))
        c.s.hear_all()
        c.s.answer(3, success(pb.DeleteResponse(pid=42).SerializeToString()))
        lib.news_sweep(c.s.witness)
        c.swallowed(EXIT)  # it comes later than the answer of the Delete
        c.taken(DELETE)
        lib.news_sweep(c.s.witness)
        assert not c.s.witness.first


def test_of_what_is_gone_only_a_bounded_number_is_kept() -> None:
    with chain() as c:
        for n in range(100):
            id, stream = f"t{n}", 1000 + 2 * n + 1
            created(c.s, pb.CreateTaskRequest(id=id, bundle="/b"), stream)
            one = task(c.s, of_task(id))
            one.taken = one.brought = lib.NEWS_START | lib.NEWS_EXIT
            c.s.ask(stream + 10_000, "Delete", of_task(id))
            c.s.hear_all()
            c.s.answer(stream + 10_000, success())
            lib.news_sweep(c.s.witness)
        count, each = 0, c.s.witness.first
        while each:
            count, each = count + 1, each.next
        assert count == 33  # and the one that lives
