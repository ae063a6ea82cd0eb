"""Files of containers over both transports: every byte comes in its order, and a side that stands still is ended."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.api import files
from supervisor.api.client import Client, ttrpc_beside
from supervisor.model.errors import BadRequest, TimedOut
from tests.supervisor.api import rig
from tests.supervisor.api.rig import Rig, run

PARTS = [bytes([number]) * 50_000 for number in range(40)]


def with_client(folder: Path, transport: str, act: Callable[[Client], None]) -> list[tuple[object, ...]]:
    """Do it in a thread, beside a server; return what was asked of the fakes."""
    asked: list[tuple[object, ...]] = []

    async def test(it: Rig) -> None:
        path = it.server.path
        with Client(path, ttrpc_beside(path) if transport == "ttrpc" else None) as client:
            await asyncio.to_thread(act, client)
        asked.extend(it.node.asked)

    run(folder, test)
    return asked


transports = pytest.mark.parametrize("transport", ["ttrpc", "grpc"])


@transports
def test_files_go_out_and_in(tmp_path: Path, transport: str) -> None:
    def act(client: Client) -> None:
        assert client.stat_path("c1", "/a", follow=True).name == "file"
        assert b"".join(client.copy_from("c1", "a", name="x")) == b"ab"
        assert b"".join(client.export("c1")) == b"tar"
        assert [(each.kind, each.path) for each in client.changes("c1")] == [("added", b"/file")]
        assert client.copy_to("c1", "/d", iter(PARTS), keep_owner=True).entries == len(PARTS)

    asked = with_client(tmp_path, transport, act)
    assert ("copy_from", "c1", "/a", False, "x") in asked and ("copy_to", "c1", "/d", True) in asked


@transports
def test_what_the_sender_raises_ends_the_call_and_a_path_that_cannot_be_is_refused(
    tmp_path: Path, transport: str
) -> None:
    def parts() -> Iterator[bytes]:
        yield b"a"
        raise KeyError("mine")

    def act(client: Client) -> None:
        with pytest.raises(KeyError, match="mine"):
            client.copy_to("c1", "/d", parts())
        for path in ("", "a\0b", "x" * 5000):
            with pytest.raises(BadRequest, match="path"):
                client.stat_path("c1", path)
        with pytest.raises(BadRequest, match="name"):
            list(client.copy_from("c1", "/", name="a/b"))

    with_client(tmp_path, transport, act)


def test_a_sender_that_stands_still_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "STALL_SECONDS", 0.05)

    async def test(it: Rig) -> None:
        call = it.exitd.CopyTo()
        await call.write(pb.CopyToRequest(start=pb.CopyToStart(id="c1", directory="/d")))
        assert (await call.read()).started
        error = await rig.refused(call.read())
        assert rig.reason(error).reason == TimedOut.reason and "sent nothing" in (error.details() or "")

    run(tmp_path, test)


def test_a_reader_that_stands_still_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "STALL_SECONDS", 0.05)
    closed = []

    async def parts() -> AsyncIterator[bytes]:
        try:
            while True:
                yield b"x"
        finally:
            closed.append(True)

    async def main() -> None:
        async for _ in files.archive(parts()):
            await asyncio.Event().wait()  # as a write to a client that does not read

    async def test() -> None:
        reading = asyncio.create_task(main())
        done, _ = await asyncio.wait((reading,), timeout=30)
        assert done and reading.cancelled()

    asyncio.run(test())
    assert closed
