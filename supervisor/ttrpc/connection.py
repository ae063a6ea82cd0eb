"""Both sides of a ttrpc connection as pure state: bytes in, events out; calls in, bytes out. No socket, no clock.

Every open stream gets exactly one final answer. An error in a stream ends that stream, never the connection.
"""

from collections.abc import Iterable

from google.protobuf.any_pb2 import Any
from google.protobuf.message import DecodeError, EncodeError, Message

from protos.ttrpc.v1.ttrpc_pb2 import KeyValue, Request, Response, Status
from shim.frozen import mutable
from supervisor.model.errors import Code
from supervisor.ttrpc import frames
from supervisor.ttrpc.faults import CallFailed, Closed
from supervisor.ttrpc.frames import Decoder, Frame, Oversize
from supervisor.ttrpc.happenings import (
    Aborted,
    ClientEvent,
    Failed,
    Foreign,
    Metadata,
    Opened,
    Received,
    Replied,
    Send,
    ServerEvent,
    StreamEnded,
)
from supervisor.ttrpc.services import CallKind, Method, Services

MAX_STREAMS = 16_384  # concurrent calls on one connection
MAX_TEXT = 16_384  # characters of an error's text
_LAST = frames.REMOTE_CLOSED | frames.NO_DATA


class ServerConnection:
    """The server's side of one connection."""

    def __init__(self, services: Services, max_streams: int = MAX_STREAMS) -> None:
        self._services = services
        self._max_streams = max_streams
        self._decoder = Decoder()
        self._newest = 0
        self._open: dict[int, Method] = {}
        self._receiving: set[int] = set()

    def __len__(self) -> int:
        return len(self._open)

    def is_open(self, stream: int) -> bool:
        return stream in self._open

    @property
    def unfinished(self) -> tuple[int, int]:
        """Return the number of bytes of an incomplete frame, and the frame's number in the connection."""
        return self._decoder.kept_bytes, self._decoder.completed

    def receive(self, data: bytes) -> list[ServerEvent]:
        """Return the events that the bytes cause. Never raises, whatever the bytes are."""
        events: list[ServerEvent] = []
        for item in self._decoder.feed(data):
            if isinstance(item, Oversize):
                events += self._oversize(item)
            elif item.type == frames.REQUEST:
                events += self._request(item)
            elif item.type == frames.DATA:
                events += self._data(item)
            elif item.type >= frames.FIRST_PRIVATE:
                events.append(Foreign(item))
        return events

    def respond(self, stream: int, message: Message, flags: int = 0) -> bytes:
        """Return the response of a unary or client-streaming call; an error instead if it fits into no frame."""
        if (method := self._open.get(stream)) is None:
            return b""
        try:
            payload = _checked(message, method.response_type).SerializeToString()
            data = frames.encode(Frame(stream, frames.RESPONSE, flags, Response(payload=payload).SerializeToString()))
        except EncodeError as error:
            return self.fail(stream, CallFailed(Code.INTERNAL, f"the response does not encode: {error}"), flags)
        except CallFailed as error:
            return self.fail(stream, error, flags)
        self._forget(stream)
        return data

    def send(self, stream: int, message: Message) -> bytes:
        """Return the next message of a stream. Raises CallFailed when it fits into no frame; the stream is still open
        then."""
        if (method := self._open.get(stream)) is None:
            return b""
        return frames.encode(Frame(stream, frames.DATA, 0, _checked(message, method.response_type).SerializeToString()))

    def end(self, stream: int, flags: int = 0) -> bytes:
        """Return the successful end of a stream."""
        return frames.encode(Frame(stream, frames.DATA, _LAST | flags)) if self._forget(stream) else b""

    def fail(self, stream: int, error: CallFailed, flags: int = 0) -> bytes:
        return _failure(stream, error, flags) if self._forget(stream) else b""

    def close(self) -> None:
        """The connection is gone: no stream is open any more."""
        self._open.clear()
        self._receiving.clear()

    def _request(self, frame: Frame) -> list[ServerEvent]:
        stream = frame.stream
        if not self._use(stream):
            return self._refuse(stream, CallFailed(Code.INVALID_ARGUMENT, _wrong_stream(stream, self._newest)))
        try:
            request = Request.FromString(frame.data)
        except DecodeError as error:
            return self._refuse(stream, CallFailed(Code.INVALID_ARGUMENT, f"the request does not decode: {error}"))
        if (methods := self._services.get(service := request.service)) is None:
            return self._refuse(stream, CallFailed(Code.UNIMPLEMENTED, f"service {service}"))
        if (method := methods.get(word := request.method)) is None:
            return self._refuse(stream, CallFailed(Code.UNIMPLEMENTED, f"method {word}"))
        if len(self._open) >= self._max_streams:
            text = f"{self._max_streams} calls are under way on this connection already"
            return self._refuse(stream, CallFailed(Code.RESOURCE_EXHAUSTED, text))
        try:
            # A client that streams may leave out its first message, and then sends it as data.
            streams = method.kind.client_streams
            first = method.request_type.FromString(request.payload) if request.payload or not streams else None
        except DecodeError as error:
            return self._refuse(stream, CallFailed(Code.INTERNAL, f"the payload does not decode: {error}"))
        return self._opened(frame, request, method, first)

    def _opened(self, frame: Frame, request: Request, method: Method, first: Message | None) -> list[ServerEvent]:
        stream = frame.stream
        self._open[stream] = method
        metadata = tuple((each.key, each.value) for each in request.metadata) if request.metadata else ()
        name, timeout_ns = f"{request.service}/{request.method}", request.timeout_nano
        if not method.kind.client_streams:
            return [Opened(stream, name, method, first, timeout_ns, metadata)]
        events: list[ServerEvent] = [Opened(stream, name, method, None, timeout_ns, metadata)]
        if first is not None:
            events.append(Received(stream, first, len(request.payload)))
        if frame.flags & frames.REMOTE_CLOSED:
            events.append(StreamEnded(stream))
        else:
            self._receiving.add(stream)
        return events

    def _data(self, frame: Frame) -> list[ServerEvent]:
        stream, flags = frame.stream, frame.flags
        if stream not in self._receiving:
            if flags & _LAST == _LAST and stream % 2 and stream <= self._newest:
                return []  # both sides ended it at the same time
            text = f"stream {stream} takes no data (any more)"
            return self._refuse(stream, CallFailed(Code.INVALID_ARGUMENT, text))
        events: list[ServerEvent] = []
        if not flags & frames.NO_DATA:
            try:
                message = self._open[stream].request_type.FromString(frame.data)
            except DecodeError as error:
                return self._refuse(stream, CallFailed(Code.INTERNAL, f"a message does not decode: {error}"))
            events.append(Received(stream, message, len(frame.data)))
        if flags & frames.REMOTE_CLOSED:
            self._receiving.discard(stream)
            events.append(StreamEnded(stream))
        return events

    def _oversize(self, item: Oversize) -> list[ServerEvent]:
        if item.type not in (frames.REQUEST, frames.DATA):
            return []
        if item.type == frames.REQUEST:
            self._use(item.stream)
        return self._refuse(item.stream, frames.too_large(item.length))

    def _use(self, stream: int) -> bool:
        """Return whether this stream can be opened. If so, its number is used up, whatever becomes of the call."""
        if not stream % 2 or stream <= self._newest:
            return False
        self._newest = stream
        return True

    def _refuse(self, stream: int, error: CallFailed) -> list[ServerEvent]:
        answer = Send(_failure(stream, error))
        return [answer, Aborted(stream)] if self._forget(stream) else [answer]

    def _forget(self, stream: int) -> bool:
        self._receiving.discard(stream)
        return self._open.pop(stream, None) is not None


@mutable
class _Pending:
    kind: CallKind
    response_type: type[Message]
    sending: bool


class ClientConnection:
    """The client's side of one connection."""

    def __init__(self) -> None:
        self._decoder = Decoder()
        self._next = 1
        self._pending: dict[int, _Pending] = {}

    def __len__(self) -> int:
        return len(self._pending)

    def is_open(self, stream: int) -> bool:
        return stream in self._pending

    def open(
        self,
        name: str,
        request: Message | None,
        response_type: type[Message],
        kind: CallKind = CallKind.UNARY,
        timeout_ns: int = 0,
        metadata: Metadata = (),
    ) -> tuple[int, bytes]:
        """Open a stream. Return its number and the bytes that open it, which must be written before those of any later
        one. `name` is service/method; `request` is None if this side streams.

        Raises CallFailed when the request fits into no frame, Closed when the connection has used up its streams.
        """
        if (stream := self._next) > frames.LAST_STREAM:
            raise Closed("the streams of this connection are used up")
        service, _, method = name.partition("/")
        payload = b"" if request is None else request.SerializeToString()
        pairs = [KeyValue(key=key, value=value) for key, value in metadata]
        whole = Request(service=service, method=method, payload=payload, timeout_nano=timeout_ns, metadata=pairs)
        flags = 0
        if kind is not CallKind.UNARY:
            flags = frames.REMOTE_OPEN if kind.client_streams else frames.REMOTE_CLOSED
        data = frames.encode(Frame(stream, frames.REQUEST, flags, whole.SerializeToString()))
        self._next += 2
        self._pending[stream] = _Pending(kind, response_type, sending=kind.client_streams)
        return stream, data

    def send(self, stream: int, message: Message) -> bytes:
        """Return a message of a stream. Raises CallFailed when it fits into no frame, or (FAILED_PRECONDITION) the
        stream has ended."""
        pending = self._pending.get(stream)
        if pending is None or not pending.sending:
            raise CallFailed(Code.FAILED_PRECONDITION, "this call takes no more messages")
        return frames.encode(Frame(stream, frames.DATA, 0, message.SerializeToString()))

    def end(self, stream: int) -> bytes:
        """Return the end of this side's stream; nothing if it has ended already, or the call has."""
        if (pending := self._pending.get(stream)) is None or not pending.sending:
            return b""
        pending.sending = False
        return frames.encode(Frame(stream, frames.DATA, _LAST))

    def forget(self, stream: int) -> None:
        """Drop what comes for this call. The server is not notified, since ttrpc has no message for that."""
        self._pending.pop(stream, None)

    def close(self) -> list[int]:
        """The connection is gone. Return the streams that were open."""
        streams = list(self._pending)
        self._pending.clear()
        return streams

    def receive(self, data: bytes) -> list[ClientEvent]:
        """Return the events that the bytes cause. Never raises. Data for no open call is dropped."""
        events: list[ClientEvent] = []
        for item in self._decoder.feed(data):
            if (pending := self._pending.get(item.stream)) is None:
                continue
            if isinstance(item, Oversize):
                events.append(self._failed(item.stream, frames.too_large(item.length)))
                continue
            try:
                if item.type == frames.RESPONSE:
                    events += self._response(item, pending)
                elif item.type == frames.DATA:
                    events += self._data(item, pending)
            except DecodeError as error:
                text = f"the server's answer does not decode: {error}"
                events.append(self._failed(item.stream, CallFailed(Code.INTERNAL, text)))
        return events

    def _response(self, frame: Frame, pending: _Pending) -> list[ClientEvent]:
        response = Response.FromString(frame.data)
        if code := response.status.code:
            error = CallFailed(_named(code), response.status.message, response.status.details)
            return [self._failed(frame.stream, error)]
        if not pending.kind.server_streams:
            message = pending.response_type.FromString(response.payload)
            self.forget(frame.stream)
            return [Replied(frame.stream, message, frame.flags)]
        events: list[ClientEvent] = []  # some servers end a stream so, with or without a last message
        if payload := response.payload:
            events.append(Received(frame.stream, pending.response_type.FromString(payload), len(payload)))
        self.forget(frame.stream)
        return [*events, StreamEnded(frame.stream)]

    def _data(self, frame: Frame, pending: _Pending) -> list[ClientEvent]:
        if not pending.kind.server_streams:
            text = "the server sent a stream to a call that has one answer"
            return [self._failed(frame.stream, CallFailed(Code.INTERNAL, text))]
        events: list[ClientEvent] = []
        if not frame.flags & frames.NO_DATA:
            message = pending.response_type.FromString(frame.data)
            events.append(Received(frame.stream, message, len(frame.data)))
        if frame.flags & frames.REMOTE_CLOSED:
            self.forget(frame.stream)
            events.append(StreamEnded(frame.stream))
        return events

    def _failed(self, stream: int, error: CallFailed) -> Failed:
        self.forget(stream)
        return Failed(stream, error)


def _checked(message: Message, wanted: type[Message]) -> Message:
    if not isinstance(message, wanted):
        raise TypeError(f"a handler answered with {type(message).__name__} in place of {wanted.__name__}")
    return message


def _failure(stream: int, error: CallFailed, flags: int = 0) -> bytes:
    """Details that fit into no frame are left out."""
    # A text may contain file names, which need not be UTF-8.
    text = error.text[:MAX_TEXT].encode("utf-8", "backslashreplace").decode()
    # Code 0 would be success.
    status = Status(code=error.code if 0 < error.code < 2**31 else Code.UNKNOWN, message=text)
    data = _status(status, error.details)
    if len(data) > frames.MAX_DATA:
        data = _status(status, ())
    return frames.encode(Frame(stream, frames.RESPONSE, flags, data))


def _status(status: Status, details: Iterable[Any]) -> bytes:
    whole = Status(code=status.code, message=status.message, details=details)
    return Response(status=whole).SerializeToString()


def _named(code: int) -> int:
    return Code(code) if code in Code._value2member_map_ else code


def _wrong_stream(stream: int, newest: int) -> str:
    if not stream % 2:
        return f"stream {stream}: a client's streams have odd numbers"
    return f"stream {stream}: used already, or older than {newest}; numbers grow"
