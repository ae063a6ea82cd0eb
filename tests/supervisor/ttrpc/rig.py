"""A service with one method of each kind, and a server of it on a socket."""

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from google.protobuf.duration_pb2 import Duration
from google.protobuf.wrappers_pb2 import BytesValue, StringValue

from protos.ttrpc.v1.ttrpc_pb2 import Request, Response
from supervisor.ttrpc import frames
from supervisor.ttrpc.frames import Decoder, Frame, Oversize
from supervisor.ttrpc.happenings import ClientEvent, ServerEvent
from supervisor.ttrpc.server import Call, Server
from supervisor.ttrpc.services import CallKind, Method, Services

SERVICE = "test.v1.Words"
SHOWN = "containerd.task.v2.Task"  # of the golden bytes
LIMIT_SECONDS = 10.0


async def nothing(*_: object) -> Any:
    raise AssertionError("the pure cores call no handler")


def word(text: str) -> StringValue:
    return StringValue(value=text)


def request_bytes(stream: int, method: str, payload: bytes = b"", *, flags: int = 0, timeout_ns: int = 0) -> bytes:
    data = Request(service=SERVICE, method=method, payload=payload, timeout_nano=timeout_ns).SerializeToString()
    return frames.encode(Frame(stream, frames.REQUEST, flags, data))


def data_bytes(stream: int, payload: bytes = b"", flags: int = 0) -> bytes:
    return frames.encode(Frame(stream, frames.DATA, flags, payload))


def frames_of(data: bytes) -> list[Frame]:
    found = Decoder().feed(data)
    assert all(isinstance(item, Frame) for item in found)
    return [item for item in found if isinstance(item, Frame)]


def answer_of(data: bytes) -> tuple[int, int, str]:
    """Stream, code and text of the one response frame in `data`."""
    (frame,) = frames_of(data)
    assert frame.type == frames.RESPONSE
    response = Response.FromString(frame.data)
    return frame.stream, response.status.code, response.status.message


def kinds_of(events: "list[ServerEvent] | list[ClientEvent]") -> list[str]:
    return [type(event).__name__ for event in events]


PURE: Services = {
    SERVICE: {kind.name: Method(StringValue, StringValue, nothing, kind) for kind in CallKind},
    SHOWN: {
        "Connect": Method(StringValue, Duration, nothing),  # a Duration's fields are two numbers, as its answer's are
        "State": Method(StringValue, StringValue, nothing),
    },
}


class Words:
    """Handlers that say what they do, and wait where they are told to."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.cancelled: list[int] = []
        self.go = asyncio.Event()
        self.raises: Exception | None = None
        self.unsent: list[int] = []
        self.flags = 0

    async def echo(self, request: StringValue, call: Call) -> StringValue:
        self.calls.append(call)
        call.flags = self.flags
        if self.raises is not None:
            raise self.raises
        return request

    async def wait(self, request: StringValue, call: Call) -> StringValue:
        self.calls.append(call)
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            assert call.cancelled
            self.cancelled.append(call.stream)
            raise
        return request

    async def blob(self, request: StringValue, call: Call) -> BytesValue:
        self.unsent.append(call.connection.unsent_bytes)
        return BytesValue(value=bytes(int(request.value)))

    async def letters(self, request: StringValue, call: Call) -> AsyncIterator[StringValue]:
        for letter in request.value:
            yield word(letter)
        if self.raises is not None:
            raise self.raises

    async def flood(self, request: StringValue, call: Call) -> AsyncIterator[BytesValue]:
        try:
            while True:
                self.calls.append(call)
                yield BytesValue(value=bytes(int(request.value)))
        finally:
            self.cancelled.append(call.stream)

    async def join(self, requests: AsyncIterator[StringValue], call: Call) -> StringValue:
        return word("".join([each.value async for each in requests]))

    async def upper(self, requests: AsyncIterator[StringValue], call: Call) -> AsyncIterator[StringValue]:
        async for each in requests:
            yield word(each.value.upper())

    async def deaf(self, requests: AsyncIterator[StringValue], call: Call) -> StringValue:
        """Takes nothing of what it is sent until it may."""
        await self.wait(word(""), call)
        return await self.join(requests, call)

    def services(self) -> Services:
        methods = {
            "Echo": Method(StringValue, StringValue, self.echo),
            "Wait": Method(StringValue, StringValue, self.wait),
            "Blob": Method(StringValue, BytesValue, self.blob),
            "Letters": Method(StringValue, StringValue, self.letters, CallKind.SERVER),
            "Flood": Method(StringValue, BytesValue, self.flood, CallKind.SERVER),
            "Join": Method(StringValue, StringValue, self.join, CallKind.CLIENT),
            "Deaf": Method(StringValue, StringValue, self.deaf, CallKind.CLIENT),
            "Upper": Method(StringValue, StringValue, self.upper, CallKind.BIDI),
        }
        return {SERVICE: methods}


@contextlib.asynccontextmanager
async def serving(path: Path, words: Words, **hooks: Any) -> AsyncIterator[Server]:
    server = Server(words.services(), **hooks)
    await server.listen(str(path))
    try:
        yield server
    finally:
        await server.stop(0)


class Raw:
    """A client that knows nothing of ttrpc's rules."""

    def __init__(self, path: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        self.socket.connect(str(path))
        self._decoder = Decoder()
        self._frames: list[Frame | Oversize] = []

    async def send(self, data: bytes) -> None:
        async with asyncio.timeout(LIMIT_SECONDS):
            await asyncio.get_running_loop().sock_sendall(self.socket, data)

    async def frame(self) -> Frame:
        """EOFError when the connection has ended."""
        while not self._frames:
            if not (data := await self.read()):
                raise EOFError
            self._frames += self._decoder.feed(data)
        frame = self._frames.pop(0)
        assert isinstance(frame, Frame)
        return frame

    async def read(self) -> bytes:
        async with asyncio.timeout(LIMIT_SECONDS):
            try:
                return await asyncio.get_running_loop().sock_recv(self.socket, 65_536)
            except ConnectionResetError:
                return b""

    async def answer(self) -> tuple[int, int, str]:
        return answer_of(frames.encode(await self.frame()))

    def close(self) -> None:
        self.socket.close()


def header(length: int, stream: int, kind: int, flags: int = 0) -> bytes:
    return struct.pack(">IIBB", length, stream, kind, flags)
