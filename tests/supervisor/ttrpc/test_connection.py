"""The two pure ends, by bytes that other implementations were seen to send and by the table of errors."""

import pytest
from google.protobuf.any_pb2 import Any
from google.protobuf.duration_pb2 import Duration
from google.protobuf.wrappers_pb2 import BytesValue, StringValue
from hypothesis import given
from hypothesis import strategies as st

from protos.ttrpc.v1.ttrpc_pb2 import Request, Response, Status
from supervisor.model.errors import Code
from supervisor.ttrpc import frames
from supervisor.ttrpc.connection import ClientConnection, ServerConnection
from supervisor.ttrpc.faults import CallFailed, Closed
from supervisor.ttrpc.frames import DATA, MAX_DATA, REMOTE_CLOSED, REMOTE_OPEN, REQUEST, RESPONSE, Frame
from supervisor.ttrpc.happenings import Aborted, Failed, Foreign, Opened, Received, Replied, Send, StreamEnded
from supervisor.ttrpc.services import CallKind, Method
from tests.supervisor.ttrpc.rig import (
    PURE,
    SERVICE,
    SHOWN,
    answer_of,
    data_bytes,
    frames_of,
    header,
    kinds_of,
    nothing,
    request_bytes,
    word,
)

CONNECT = bytes.fromhex("00000028 00000001 0100 0a17") + SHOWN.encode() + b"\x12\x07Connect\x1a\x04\x0a\x02c1"
CONNECTED = bytes.fromhex("00000008 00000001 0200 1206 0892 2110 cc21")
NO_METHOD = bytes.fromhex("00000011 00000005 0200 0a0f 080c 120b") + b"method Nope"


def opened(server: ServerConnection, data: bytes) -> Opened:
    (event,) = server.receive(data)
    assert isinstance(event, Opened)
    return event


def refused(server: ServerConnection, data: bytes) -> tuple[int, int]:
    """Stream and code of the server's own answer."""
    (event,) = server.receive(data)
    assert isinstance(event, Send)
    return answer_of(event.data)[:2]


def test_the_golden_request_is_written_and_read() -> None:
    stream, data = ClientConnection().open(f"{SHOWN}/Connect", word("c1"), Duration)
    assert (stream, data) == (1, CONNECT)
    call = opened(ServerConnection(PURE), CONNECT)
    assert (call.stream, call.name, call.request) == (1, f"{SHOWN}/Connect", word("c1"))
    assert (call.timeout_ns, call.metadata) == (0, ())


def test_the_golden_response_is_written_and_read() -> None:
    server, client, pids = ServerConnection(PURE), ClientConnection(), Duration(seconds=4242, nanos=4300)
    server.receive(CONNECT)
    client.open(f"{SHOWN}/Connect", word("c1"), Duration)
    assert server.respond(1, pids) == CONNECTED
    assert client.receive(CONNECTED) == [Replied(1, pids, 0)]


@pytest.mark.parametrize("golden", ["00000000 00000001 0200", "00000002 00000001 0200 0a00"], ids=["Go", "Rust"])
def test_an_empty_success_is_read_in_both_spellings(golden: str) -> None:
    client = ClientConnection()
    client.open(f"{SHOWN}/State", word(""), StringValue)
    assert client.receive(bytes.fromhex(golden)) == [Replied(1, word(""), 0)]


def test_an_empty_success_is_a_frame_without_data() -> None:
    server = ServerConnection(PURE)
    opened(server, request_bytes(3, "UNARY"))
    assert server.respond(3, word("")) == bytes.fromhex("00000000 00000003 0200")


def test_code_0_with_a_message_is_success() -> None:
    client = ClientConnection()
    stream, _ = client.open(f"{SHOWN}/State", word(""), StringValue)
    data = Response(status=Status(message="fine"), payload=word("x").SerializeToString()).SerializeToString()
    assert client.receive(frames.encode(Frame(stream, RESPONSE, 0, data))) == [Replied(stream, word("x"), 0)]


def test_the_golden_refusal_of_an_unknown_method() -> None:
    data = Request(service=SHOWN, method="Nope").SerializeToString()
    (event,) = ServerConnection(PURE).receive(frames.encode(Frame(5, REQUEST, 0, data)))
    assert event == Send(NO_METHOD)


def test_a_limit_and_metadata_go_with_the_request() -> None:
    metadata = (("k", "1"), ("k", "2"), ("a", ""))
    _, data = ClientConnection().open(
        f"{SERVICE}/UNARY", word(""), StringValue, timeout_ns=5 * 10**9, metadata=metadata
    )
    assert bytes.fromhex("2080e497d012") in data
    call = opened(ServerConnection(PURE), data)
    assert (call.timeout_ns, call.metadata) == (5 * 10**9, metadata)


def test_the_table_of_refusals() -> None:
    server = ServerConnection(PURE)
    unknown = Request(service="no.Such", method="State").SerializeToString()
    assert refused(server, frames.encode(Frame(1, REQUEST, 0, unknown))) == (1, Code.UNIMPLEMENTED)
    assert refused(server, request_bytes(3, "Nope")) == (3, Code.UNIMPLEMENTED)
    assert refused(server, frames.encode(Frame(5, REQUEST))) == (5, Code.UNIMPLEMENTED)  # an empty request
    assert refused(server, frames.encode(Frame(7, REQUEST, 0, b"\xff"))) == (7, Code.INVALID_ARGUMENT)
    assert refused(server, frames.encode(Frame(9, REQUEST, 0, b"\x0a\x01\xff"))) == (9, Code.INVALID_ARGUMENT)
    assert refused(server, request_bytes(11, "UNARY", b"\xff")) == (11, Code.INTERNAL)
    assert refused(server, request_bytes(12, "UNARY")) == (12, Code.INVALID_ARGUMENT)
    assert refused(server, request_bytes(0, "UNARY")) == (0, Code.INVALID_ARGUMENT)
    too_long = header(MAX_DATA + 1, 13, REQUEST) + bytes(MAX_DATA + 1)
    assert refused(server, too_long) == (13, Code.RESOURCE_EXHAUSTED)
    assert refused(server, data_bytes(15, b"x")) == (15, Code.INVALID_ARGUMENT)
    assert len(server) == 0
    assert opened(server, request_bytes(17, "UNARY")).stream == 17


@pytest.mark.parametrize("number", [1, 3, 5])
def test_a_stream_is_opened_once_and_never_below_an_older_one(number: int) -> None:
    server = ServerConnection(PURE)
    opened(server, request_bytes(5, "UNARY"))
    server.respond(5, word("x"))
    assert refused(server, request_bytes(number, "UNARY")) == (number, Code.INVALID_ARGUMENT)


def test_a_second_request_on_an_open_stream_ends_the_first() -> None:
    server = ServerConnection(PURE)
    opened(server, request_bytes(1, "UNARY"))
    assert kinds_of(server.receive(request_bytes(1, "UNARY"))) == ["Send", "Aborted"]
    assert server.respond(1, word("late")) == b""


def test_flags_of_a_unary_request_are_ignored() -> None:
    assert opened(ServerConnection(PURE), request_bytes(1, "UNARY", flags=0xFF)).request == word("")


@pytest.mark.parametrize("kind", [0, 2, 4, 0x7F])
def test_unknown_types_are_skipped(kind: int) -> None:
    server = ServerConnection(PURE)
    assert server.receive(frames.encode(Frame(1, kind, 0, b"x"))) == []
    assert server.receive(header(MAX_DATA + 1, 1, kind) + bytes(MAX_DATA + 1)) == []


def test_private_frames_come_in_order_with_the_requests() -> None:
    server, private = ServerConnection(PURE), Frame(1, 0x81, 3, b"x")
    data = request_bytes(1, "UNARY") + frames.encode(private) + request_bytes(3, "UNARY")
    first, second, third = server.receive(data)
    assert isinstance(first, Opened) and isinstance(third, Opened)
    assert second == Foreign(private)


def test_a_response_carries_the_flags_it_is_given() -> None:
    server, client = ServerConnection(PURE), ClientConnection()
    for fails in (False, True):
        stream, data = client.open(f"{SERVICE}/UNARY", word("x"), StringValue)
        opened(server, data)
        error = CallFailed(Code.NOT_FOUND, "no")
        answer = server.fail(stream, error, 0x60) if fails else server.respond(stream, word("x"), 0x60)
        (frame,) = frames_of(answer)
        assert frame.flags == 0x60
        assert kinds_of(client.receive(answer)) == ["Failed" if fails else "Replied"]


def test_a_response_too_large_for_a_frame_becomes_an_error() -> None:
    server = ServerConnection({SERVICE: {"Blob": Method(StringValue, BytesValue, nothing)}})
    opened(server, request_bytes(1, "Blob"))
    assert answer_of(server.respond(1, BytesValue(value=bytes(MAX_DATA))))[:2] == (1, Code.RESOURCE_EXHAUSTED)
    assert len(server) == 0


def test_an_error_comes_over_with_code_text_and_details() -> None:
    server, client = ServerConnection(PURE), ClientConnection()
    stream, data = client.open(f"{SERVICE}/UNARY", word("x"), StringValue)
    opened(server, data)
    detail = Any(type_url="t/x", value=b"y")
    (event,) = client.receive(server.fail(stream, CallFailed(Code.NOT_FOUND, "no such task", [detail])))
    assert isinstance(event, Failed)
    assert (event.error.code, event.error.text, event.error.details) == (Code.NOT_FOUND, "no such task", (detail,))


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (CallFailed(0, "zero is no error"), 2, "zero is no error"),
        (CallFailed(2**40, "beyond"), 2, "beyond"),
        (CallFailed(77, "not ours"), 77, "not ours"),
        (CallFailed(5, "a name: \udcff"), 5, "a name: \\udcff"),
        (CallFailed(5, "x" * 100_000), 5, "x" * 16_384),
        (CallFailed(5, "big", [Any(value=bytes(MAX_DATA))]), 5, "big"),
    ],
    ids=["zero", "beyond", "foreign", "no UTF-8", "long", "details"],
)
def test_any_error_can_be_reported(error: CallFailed, code: int, text: str) -> None:
    server = ServerConnection(PURE)
    opened(server, request_bytes(1, "UNARY"))
    assert answer_of(server.fail(1, error)) == (1, code, text)


def test_more_calls_than_a_connection_may_have_are_refused() -> None:
    server = ServerConnection(PURE, max_streams=2)
    for stream in (1, 3):
        opened(server, request_bytes(stream, "UNARY"))
    assert refused(server, request_bytes(5, "UNARY")) == (5, Code.RESOURCE_EXHAUSTED)
    server.respond(1, word(""))
    assert opened(server, request_bytes(7, "UNARY")).stream == 7


def test_a_request_too_large_is_refused_by_the_client_itself() -> None:
    client = ClientConnection()
    with pytest.raises(CallFailed) as error:
        client.open(f"{SERVICE}/UNARY", BytesValue(value=bytes(MAX_DATA)), StringValue)
    assert (error.value.code, len(client)) == (Code.RESOURCE_EXHAUSTED, 0)
    assert client.open(f"{SERVICE}/UNARY", word(""), StringValue)[0] == 1


def test_a_response_too_large_fails_its_call_alone() -> None:
    client = ClientConnection()
    for _ in range(2):
        client.open(f"{SERVICE}/UNARY", word(""), StringValue)
    (event,) = client.receive(header(MAX_DATA + 1, 3, RESPONSE) + bytes(MAX_DATA + 1))
    assert isinstance(event, Failed) and (event.stream, event.error.code) == (3, Code.RESOURCE_EXHAUSTED)
    assert client.receive(bytes.fromhex("00000000 00000001 0200")) == [Replied(1, word(""), 0)]


@pytest.mark.parametrize("data", [b"\xff", b"\x12\x01\xff"], ids=["response", "payload"])
def test_a_response_that_does_not_decode_fails_its_call(data: bytes) -> None:
    client = ClientConnection()
    client.open(f"{SERVICE}/UNARY", word(""), StringValue)
    (event,) = client.receive(frames.encode(Frame(1, RESPONSE, 0, data)))
    assert isinstance(event, Failed) and event.error.code == Code.INTERNAL


def test_answers_that_nobody_waits_for_are_dropped() -> None:
    client = ClientConnection()
    stream, _ = client.open(f"{SERVICE}/UNARY", word(""), StringValue)
    client.forget(stream)
    for number in (0, 1, 2, 3):
        assert client.receive(frames.encode(Frame(number, RESPONSE))) == []


def test_used_up_streams_are_a_closed_connection() -> None:
    client = ClientConnection()
    client._next = frames.LAST_STREAM
    assert client.open(f"{SERVICE}/UNARY", word(""), StringValue)[0] == frames.LAST_STREAM
    with pytest.raises(Closed):
        client.open(f"{SERVICE}/UNARY", word(""), StringValue)


@given(st.lists(st.binary(max_size=60), max_size=12))
def test_garbage_raises_nothing_at_either_end(pieces: list[bytes]) -> None:
    server, client = ServerConnection(PURE), ClientConnection()
    for kind in CallKind:
        client.open(f"{SERVICE}/{kind.name}", word(""), StringValue, kind)
    for piece in pieces:
        server.receive(piece)
        client.receive(piece)


ANYTHING = st.builds(
    Frame,
    st.integers(0, 12),
    st.sampled_from((REQUEST, RESPONSE, DATA, DATA, 9, 0x80)),
    st.integers(0, 7),
    st.one_of(
        st.binary(max_size=12),
        st.builds(
            lambda kind, payload, ns: Request(
                service=SERVICE, method=kind.name, payload=payload, timeout_nano=ns
            ).SerializeToString(),
            st.sampled_from(CallKind),
            st.binary(max_size=4),
            st.integers(-(2**63), 2**63 - 1),
        ),
    ),
)


@given(st.lists(ANYTHING, max_size=30))
def test_well_framed_nonsense_leaves_every_stream_open_or_answered_once(sent: list[Frame]) -> None:
    server, open_streams = ServerConnection(PURE), set[int]()
    for frame in sent:
        for event in server.receive(frames.encode(frame)):
            match event:
                case Opened(stream):
                    assert stream not in open_streams
                    open_streams.add(stream)
                case Aborted(stream):
                    open_streams.remove(stream)
                case Received(stream) | StreamEnded(stream):
                    assert stream in open_streams
                case Send(data):
                    assert answer_of(data)[1] != 0
    assert len(server) == len(open_streams)
    for stream in open_streams:
        assert answer_of(server.fail(stream, CallFailed(Code.ABORTED, "over")))[0] == stream
        assert server.fail(stream, CallFailed(Code.ABORTED, "again")) == b""


@pytest.mark.parametrize(("kind", "flags"), [(CallKind.SERVER, REMOTE_CLOSED), (CallKind.CLIENT, REMOTE_OPEN)])
def test_an_opening_says_whether_more_will_come(kind: CallKind, flags: int) -> None:
    _, data = ClientConnection().open(f"{SERVICE}/{kind.name}", None, StringValue, kind)
    (frame,) = frames_of(data)
    assert (frame.type, frame.flags) == (REQUEST, flags)


def test_the_end_of_a_clients_stream_is_a_frame_without_data() -> None:
    client = ClientConnection()
    stream, _ = client.open(f"{SERVICE}/CLIENT", None, StringValue, CallKind.CLIENT)
    assert client.end(stream) == bytes.fromhex("00000000 00000001 0305")
    assert client.end(stream) == b""
    with pytest.raises(CallFailed) as error:
        client.send(stream, word("x"))
    assert error.value.code == Code.FAILED_PRECONDITION


def test_data_is_the_bare_message() -> None:
    client = ClientConnection()
    stream, _ = client.open(f"{SERVICE}/BIDI", None, StringValue, CallKind.BIDI)
    assert client.send(stream, word("x")) == data_bytes(stream, b"\x0a\x01x")
