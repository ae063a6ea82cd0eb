"""The streaming half of the protocol at the two pure ends."""

import pytest
from google.protobuf.wrappers_pb2 import StringValue

from protos.ttrpc.v1.ttrpc_pb2 import Response, Status
from supervisor.model.errors import Code
from supervisor.ttrpc import frames
from supervisor.ttrpc.connection import ClientConnection, ServerConnection
from supervisor.ttrpc.faults import CallFailed
from supervisor.ttrpc.frames import DATA, MAX_DATA, NO_DATA, REMOTE_CLOSED, REMOTE_OPEN, RESPONSE, Frame
from supervisor.ttrpc.happenings import Failed, Opened, Received, Replied, StreamEnded
from supervisor.ttrpc.services import CallKind
from tests.supervisor.ttrpc.rig import PURE, SERVICE, answer_of, data_bytes, header, kinds_of, request_bytes, word

ONE = word("x").SerializeToString()
END = REMOTE_CLOSED | NO_DATA


def serving(kind: CallKind, payload: bytes = b"", flags: int = REMOTE_OPEN) -> ServerConnection:
    server = ServerConnection(PURE)
    assert isinstance(server.receive(request_bytes(1, kind.name, payload, flags=flags))[0], Opened)
    return server


def calling(kind: CallKind) -> ClientConnection:
    client = ClientConnection()
    client.open(f"{SERVICE}/{kind.name}", None if kind.client_streams else word(""), StringValue, kind)
    return client


def test_the_first_message_of_a_clients_stream_may_come_with_the_opening_or_not() -> None:
    opening = request_bytes(1, "BIDI", ONE, flags=REMOTE_OPEN)
    first, second = ServerConnection(PURE).receive(opening)
    assert isinstance(first, Opened) and first.request is None
    assert second == Received(1, word("x"), len(ONE))
    assert kinds_of(ServerConnection(PURE).receive(request_bytes(1, "BIDI", flags=REMOTE_OPEN))) == ["Opened"]


def test_an_opening_that_ends_the_clients_side_is_its_whole_stream() -> None:
    events = ServerConnection(PURE).receive(request_bytes(1, "CLIENT", ONE, flags=REMOTE_CLOSED))
    assert kinds_of(events) == ["Opened", "Received", "StreamEnded"]


def test_a_data_frame_without_data_is_an_empty_message() -> None:
    assert serving(CallKind.CLIENT).receive(data_bytes(1)) == [Received(1, word(""), 0)]
    assert calling(CallKind.SERVER).receive(data_bytes(1)) == [Received(1, word(""), 0)]


def test_a_clients_stream_ends_with_or_without_a_last_message() -> None:
    assert serving(CallKind.CLIENT).receive(data_bytes(1, b"", END)) == [StreamEnded(1)]
    assert serving(CallKind.CLIENT).receive(data_bytes(1, ONE, REMOTE_CLOSED)) == [
        Received(1, word("x"), 3),
        StreamEnded(1),
    ]


@pytest.mark.parametrize("kind", [CallKind.UNARY, CallKind.SERVER])
def test_data_for_a_call_that_takes_none_ends_it(kind: CallKind) -> None:
    server = serving(kind)
    assert kinds_of(server.receive(data_bytes(1, ONE))) == ["Send", "Aborted"]
    assert len(server) == 0


def test_data_after_the_clients_end_ends_the_call() -> None:
    server = serving(CallKind.BIDI)
    server.receive(data_bytes(1, b"", END))
    assert kinds_of(server.receive(data_bytes(1, ONE))) == ["Send", "Aborted"]


def test_both_ends_may_end_a_stream_at_the_same_time() -> None:
    server = serving(CallKind.BIDI)
    assert server.end(1) == data_bytes(1, b"", END)
    assert server.receive(data_bytes(1, b"", END)) == []
    (event,) = server.receive(data_bytes(1, ONE))
    assert kinds_of([event]) == ["Send"]


def test_a_message_that_does_not_decode_ends_its_stream() -> None:
    server = serving(CallKind.CLIENT)
    assert kinds_of(server.receive(data_bytes(1, b"\xff"))) == ["Send", "Aborted"]
    (event,) = calling(CallKind.SERVER).receive(data_bytes(1, b"\xff"))
    assert isinstance(event, Failed) and event.error.code == Code.INTERNAL


def test_a_message_too_large_ends_its_stream() -> None:
    server = serving(CallKind.CLIENT)
    events = server.receive(header(MAX_DATA + 1, 1, DATA) + bytes(MAX_DATA + 1))
    assert kinds_of(events) == ["Send", "Aborted"]


def test_a_servers_stream_is_data_frames_and_an_end() -> None:
    server, client = serving(CallKind.SERVER, flags=REMOTE_CLOSED), calling(CallKind.SERVER)
    assert server.send(1, word("x")) == data_bytes(1, ONE)
    assert server.end(1, 0x40) == data_bytes(1, b"", END | 0x40)
    assert server.send(1, word("x")) == b""
    assert client.receive(data_bytes(1, ONE) + data_bytes(1, b"", END)) == [Received(1, word("x"), 3), StreamEnded(1)]
    assert len(client) == 0


def test_a_servers_last_message_may_end_its_stream() -> None:
    assert kinds_of(calling(CallKind.SERVER).receive(data_bytes(1, ONE, REMOTE_CLOSED))) == ["Received", "StreamEnded"]


@pytest.mark.parametrize(("payload", "events"), [(b"", ["StreamEnded"]), (ONE, ["Received", "StreamEnded"])])
def test_a_servers_stream_may_end_with_a_response(payload: bytes, events: list[str]) -> None:
    data = Response(payload=payload).SerializeToString()
    assert kinds_of(calling(CallKind.BIDI).receive(frames.encode(Frame(1, RESPONSE, 0, data)))) == events


def test_an_error_ends_a_stream_at_any_moment() -> None:
    client = calling(CallKind.BIDI)
    client.receive(data_bytes(1, ONE))
    data = Response(status=Status(code=5, message="gone")).SerializeToString()
    (event,) = client.receive(frames.encode(Frame(1, RESPONSE, 0, data)))
    assert isinstance(event, Failed) and event.error.code == Code.NOT_FOUND
    with pytest.raises(CallFailed):
        client.send(1, word("x"))
    assert client.end(1) == b""


def test_a_clients_stream_has_one_response() -> None:
    server, client = serving(CallKind.CLIENT), calling(CallKind.CLIENT)
    server.receive(data_bytes(1, ONE) + data_bytes(1, b"", END))
    assert client.receive(server.respond(1, word("xx"))) == [Replied(1, word("xx"), 0)]


@pytest.mark.parametrize("kind", [CallKind.UNARY, CallKind.CLIENT])
def test_a_stream_in_place_of_one_answer_fails_the_call(kind: CallKind) -> None:
    (event,) = calling(kind).receive(data_bytes(1, ONE))
    assert isinstance(event, Failed) and event.error.code == Code.INTERNAL


def test_a_refused_message_of_the_server_leaves_its_stream_open_for_the_error() -> None:
    server = serving(CallKind.SERVER)
    with pytest.raises(CallFailed) as error:
        server.send(1, StringValue(value="x" * (MAX_DATA + 1)))
    assert answer_of(server.fail(1, error.value))[:2] == (1, Code.RESOURCE_EXHAUSTED)
