"""The methods of service Exitd about standard streams. Knows nothing of gRPC."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Protocol, TypeVar

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.api import requests
from supervisor.api.values import size_of
from supervisor.model.errors import BadRequest, TimedOut
from supervisor.model.values import By, Container, Counters, Winsize
from supervisor.streams.attach import AttachSession, Dropped, Item, Output, WantedStreams
from supervisor.system.listening import check_room

TAKEN_BYTES = 64 * 1024  # of input between two replies that say how much was taken
START_SECONDS = 10.0  # for the first request of an attach or a copy

Opening = TypeVar("Opening", pb.AttachRequest, pb.CopyToRequest)


class Streams(Protocol):
    """What the API asks of the owner of standard streams. An empty `exec_id`: the container itself."""

    async def attach(self, id: str, exec_id: str, wanted: WantedStreams) -> AttachSession:
        """Return the attachment, which is to be entered: it is not attached before that."""

    async def resize(self, id: str, exec_id: str, size: Winsize) -> None: ...
    async def close_stdin(self, id: str, exec_id: str) -> None: ...
    async def reopen_log(self, id: str) -> None: ...
    async def counters(self, container: Container) -> Counters | None:
        """Return the counters of its streams; None when its shim does not answer at once."""


class Left(Exception):
    """The client has detached."""


class StreamServicer:
    """Standard streams. `Attach` gets all its requests."""

    def __init__(self, streams: Streams) -> None:
        self._streams = streams

    async def Attach(self, request: AsyncIterator[pb.AttachRequest], by: By) -> AsyncGenerator[pb.AttachReply, None]:
        start = (await first_of(request)).start
        check_room()
        session = await self._streams.attach(requests.id_of(start.id), _exec_id(start.exec_id), _wanted(start))
        async with session:
            yield pb.AttachReply(started=_started(session))
            feeding = asyncio.create_task(_feed(session, request))
            feeding.add_done_callback(session.input_over)
            try:
                async with aclosing(_replies(session, counted=start.counted and session.stdin)) as replies:
                    async for reply in replies:
                        yield reply
            except Left:
                pass
            finally:
                feeding.cancel()
                await asyncio.wait((feeding,))

    async def ResizePty(self, request: pb.ResizePtyRequest, by: By) -> pb.ResizePtyReply:
        size = size_of(request.size)
        await self._streams.resize(requests.id_of(request.id), _exec_id(request.exec_id), size)
        return pb.ResizePtyReply()

    async def CloseStdin(self, request: pb.CloseStdinRequest, by: By) -> pb.CloseStdinReply:
        await self._streams.close_stdin(requests.id_of(request.id), _exec_id(request.exec_id))
        return pb.CloseStdinReply()

    async def ReopenLog(self, request: pb.ReopenLogRequest, by: By) -> pb.ReopenLogReply:
        await self._streams.reopen_log(requests.id_of(request.id))
        return pb.ReopenLogReply()


def _started(session: AttachSession) -> pb.AttachStarted:
    message = pb.AttachStarted(tty=session.tty, stdin=session.stdin)
    if (begun := session.begun) is not None:
        message.counted = True
        message.stdout_bytes, message.stderr_bytes, message.stdin_bytes = begun.stdout, begun.stderr, begun.stdin
    return message


async def _replies(session: AttachSession, *, counted: bool) -> AsyncGenerator[pb.AttachReply, None]:
    """Yield the output, and, if `counted`, from time to time how much of the input was taken."""
    async with aclosing(session.items()) as items:
        if not counted:
            async for item in items:
                yield _reply(item)
            return
        taken_bytes, item_next, wrote = 0, _next(items), asyncio.ensure_future(session.written(TAKEN_BYTES))
        try:
            while True:
                await asyncio.wait((item_next, wrote), return_when=asyncio.FIRST_COMPLETED)
                if wrote.done():
                    taken_bytes = wrote.result()
                    yield pb.AttachReply(stdin_taken=taken_bytes)
                    wrote = asyncio.ensure_future(session.written(taken_bytes + TAKEN_BYTES))
                if item_next.done():
                    if (newest := item_next.result()) is None:
                        return
                    yield _reply(newest)
                    item_next = _next(items)
        finally:
            for each in (item_next, wrote):
                each.cancel()
            await asyncio.wait((item_next, wrote))


def _next(items: AsyncGenerator[Item, None]) -> "asyncio.Future[Item | None]":
    return asyncio.ensure_future(anext(items, None))


async def first_of(request: AsyncIterator[Opening]) -> Opening:
    """Return the first request of a stream, which has to be its `start`. Raises TimedOut, BadRequest."""
    try:
        async with asyncio.timeout(START_SECONDS):
            first = await anext(request, None)
    except TimeoutError as error:
        raise TimedOut(f"no request came in {START_SECONDS:g} s; the first one must be `start`") from error
    if first is None or first.WhichOneof("item") != "start":
        raise BadRequest("the first request must be `start`", field="start")
    return first


async def _feed(session: AttachSession, request: AsyncIterator[pb.AttachRequest]) -> None:
    """Takes the next request when the last is done with: a container that does not read holds its client up."""
    async for each in request:
        match each.WhichOneof("item"):
            case "stdin":
                await session.write(each.stdin)
            case "resize":
                await session.resize(size_of(each.resize))
            case "close_stdin" if each.close_stdin:
                await session.close_stdin()
            case "detach" if each.detach:
                await session.settle()
                raise Left
            case "start":
                raise BadRequest("`start` stands only in the first request", field="start")
    session.end_input()


def _reply(item: Item) -> pb.AttachReply:
    match item:
        case Output("stdout", data):
            return pb.AttachReply(stdout=data)
        case Output(_, data):
            return pb.AttachReply(stderr=data)
        case Dropped(size_bytes):
            return pb.AttachReply(dropped=size_bytes)


def _wanted(start: pb.AttachStart) -> WantedStreams:
    if not (start.stdin or start.stdout or start.stderr):
        raise BadRequest("stdin, stdout, stderr: none of them is asked for", field="stdout")
    size = size_of(start.size) if start.HasField("size") else None
    return WantedStreams(start.stdin, start.stdout, start.stderr, start.lossless, size)


def _exec_id(text: str) -> str:
    return requests.id_of(text, "exec_id") if text else ""
