"""The methods of service Exitd about files of containers. Knows nothing of gRPC."""

import asyncio
import os
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from typing import Protocol, TypeVar, cast

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.api import replies, requests
from supervisor.api.streams import first_of
from supervisor.api.values import timestamp
from supervisor.images import extract, instructions
from supervisor.images.facts import Image
from supervisor.model.errors import BadRequest, TimedOut
from supervisor.model.files import LayerChange, PathStat
from supervisor.model.values import By
from supervisor.system.conduit import STALL_SECONDS
from supervisor.system.listening import check_room

MOST_PATH_BYTES = 4095  # PATH_MAX without its NUL
PAGE_BYTES = 64 << 10  # of paths in one reply

T = TypeVar("T")


class FileCalls(Protocol):
    """What the API asks of the owner of containers' files. Every method raises named ExitdErrors only."""

    async def stat_path(self, id: str, path: str, follow: bool) -> PathStat: ...
    def copy_from(self, id: str, path: str, follow: bool, name: str) -> AsyncIterator[bytes]:
        """Yield a tar. An async generator function: closed as soon as the peer goes away."""

    async def copy_to(
        self, id: str, directory: str, keep_owner: bool, begun: Callable[[], None], parts: AsyncIterator[bytes]
    ) -> "extract.ExtractedCounts":
        """Put a tar into the directory; `begun` is called when it is there."""

    async def commit(self, id: str, words: "instructions.CommitWords", name: str, pause: bool, by: By) -> Image: ...
    def export(self, id: str) -> AsyncIterator[bytes]:
        """Yield a tar of the root file system, as `copy_from` does."""

    def changes(self, id: str) -> AsyncIterator[LayerChange]:
        """Yield what differs from the image. An async generator function, as `copy_from`."""


class FileServicer:
    """Answers the calls about files. `CopyTo` gets all its requests."""

    def __init__(self, files: FileCalls) -> None:
        self._files = files

    async def StatPath(self, request: pb.StatPathRequest, by: By) -> pb.StatPathReply:
        found = await self._files.stat_path(
            requests.id_of(request.id), path_of("path", request.path), follow=request.follow
        )
        return pb.StatPathReply(
            stat=pb.PathStat(
                name=found.name,
                mode=found.mode,
                size_bytes=found.size_bytes,
                modified_at=timestamp(found.modified_ns),
                link_target=found.target.encode(errors="surrogateescape").decode(errors="replace"),
            )
        )

    async def CopyFrom(self, request: pb.CopyFromRequest, by: By) -> AsyncGenerator[pb.ArchiveReply, None]:
        check_room()
        name = name_of("name", request.name) if request.name else ""
        wanted = self._files.copy_from(requests.id_of(request.id), path_of("path", request.path), request.follow, name)
        async with aclosing(archive(wanted)) as replies:
            async for reply in replies:
                yield reply

    async def CopyTo(self, request: AsyncIterator[pb.CopyToRequest], by: By) -> AsyncGenerator[pb.CopyToReply, None]:
        check_room()
        start = (await first_of(request)).start
        begun = asyncio.Event()
        work = asyncio.ensure_future(
            self._files.copy_to(
                requests.id_of(start.id),
                path_of("directory", start.directory),
                start.keep_owner,
                begun.set,
                _data(request),
            )
        )
        waiting = asyncio.ensure_future(begun.wait())
        try:
            await asyncio.wait((waiting, work), return_when=asyncio.FIRST_COMPLETED)
            if begun.is_set():
                yield pb.CopyToReply(started=True)
            made = await work
            yield pb.CopyToReply(done=pb.CopyDone(entries=made.entries, left_out=made.left_out))
        finally:
            waiting.cancel()
            work.cancel()
            await asyncio.wait((work,))

    async def Export(self, request: pb.ExportRequest, by: By) -> AsyncGenerator[pb.ArchiveReply, None]:
        check_room()
        async with aclosing(archive(self._files.export(requests.id_of(request.id)))) as replies:
            async for reply in replies:
                yield reply

    async def Commit(self, request: pb.CommitRequest, by: By) -> pb.CommitReply:
        requests.refuse_nul(request)
        words = instructions.CommitWords(tuple(request.changes), request.message, request.author)
        id = requests.id_of(request.id)
        made = await self._files.commit(id, words, request.name, not request.no_pause, by)
        return pb.CommitReply(image=replies.image_message(made))

    async def Changes(self, request: pb.ChangesRequest, by: By) -> AsyncGenerator[pb.ChangesReply, None]:
        check_room()
        found = cast("AsyncGenerator[LayerChange, None]", self._files.changes(requests.id_of(request.id)))
        async with aclosing(found), aclosing(watched(_pages(found))) as pages:
            async for page in pages:
                yield page


async def _pages(found: AsyncIterator[LayerChange]) -> AsyncGenerator[pb.ChangesReply, None]:
    page, size = pb.ChangesReply(), 0
    async for each in found:
        page.changes.add(kind=each.kind, path=os.fsencode(each.path))
        size += len(each.path)
        if size >= PAGE_BYTES:
            yield page
            page, size = pb.ChangesReply(), 0
    if size:
        yield page


async def archive(parts: AsyncIterator[bytes]) -> AsyncGenerator[pb.ArchiveReply, None]:
    """Yield a tar's parts as replies, as `watched` does."""
    async with aclosing(watched(cast("AsyncGenerator[bytes, None]", parts))) as taken:
        async for part in taken:
            yield pb.ArchiveReply(data=part)


async def watched(parts: AsyncGenerator[T, None]) -> AsyncGenerator[T, None]:
    """Yield what is yielded, and cancel the call of a client that takes nothing for STALL_SECONDS."""
    task, loop = asyncio.current_task(), asyncio.get_running_loop()
    assert task is not None
    async with aclosing(parts):
        async for part in parts:
            stalled = loop.call_later(STALL_SECONDS, task.cancel)
            try:
                yield part
            finally:
                stalled.cancel()


def path_of(field: str, path: str) -> str:
    """Return an absolute path in a container. Raises BadRequest."""
    if not path or "\0" in path or len(path.encode()) > MOST_PATH_BYTES:
        raise BadRequest(f"{field} {path[:100]!r}: allowed is a path of 1 to {MOST_PATH_BYTES} bytes", field=field)
    return path if path.startswith("/") else f"/{path}"


def name_of(field: str, name: str) -> str:
    """Return one part of a path. Raises BadRequest."""
    if "/" in name or "\0" in name or name == ".." or len(name.encode()) > 255:
        raise BadRequest(f"{field} {name[:100]!r}: allowed is a name without a slash", field=field)
    return name


async def _data(request: AsyncIterator[pb.CopyToRequest]) -> AsyncIterator[bytes]:
    """Yield the tar's parts up to `finished`. Raises TimedOut when the client sends nothing."""
    while True:
        try:
            async with asyncio.timeout(STALL_SECONDS):
                each = await anext(request, None)
        except TimeoutError as error:
            raise TimedOut(f"the client sent nothing for {STALL_SECONDS:g} s, it is given up") from error
        kind = each.WhichOneof("item") if each is not None else ""
        if each is None or kind == "start":
            raise BadRequest("the tar must end by `finished`", field="finished")
        if kind == "finished":
            return
        if each.data:
            yield each.data
