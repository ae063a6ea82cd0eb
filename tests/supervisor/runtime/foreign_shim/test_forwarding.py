import asyncio
import contextlib
import pathlib
import tempfile
from collections.abc import AsyncIterator

import pytest
from google.protobuf.any_pb2 import Any
from google.protobuf.empty_pb2 import Empty
from google.protobuf.timestamp_pb2 import Timestamp
from hypothesis import given
from hypothesis import strategies as st

from protos.containerd import events_pb2 as pb
from protos.containerd.forward_pb2 import Envelope, ForwardRequest
from supervisor.model.errors import CannotStart
from supervisor.runtime.foreign_shim import forwarding
from supervisor.runtime.foreign_shim.forwarding import Forwarding, Happened, unpacked
from supervisor.ttrpc.client import TtrpcClient
from supervisor.ttrpc.faults import CallFailed, Closed

FORWARD = "containerd.services.events.ttrpc.v1.Events/Forward"
EXIT = pb.TaskExit(container_id="c1", id="c1", pid=5, exit_status=7)
AT = Timestamp(seconds=5, nanos=6)


def packed(event: pb.TaskExit, before: str = "") -> Any:
    return Any(type_url=f"{before}containerd.events.TaskExit", value=event.SerializeToString())


def request(event: Any | None) -> ForwardRequest:
    return ForwardRequest(envelope=Envelope(timestamp=AT, namespace="ns", topic="/tasks/exit", event=event))


@contextlib.asynccontextmanager
async def served(heard: list[Happened]) -> AsyncIterator[TtrpcClient]:
    with tempfile.TemporaryDirectory(prefix="exitd-") as directory:
        server = Forwarding(heard.append)
        await server.start(f"{directory}/events")
        client = await TtrpcClient.connect(f"{directory}/events")
        try:
            yield client
        finally:
            client.close()
            await server.stop()
            await server.stop()


def test_an_event_is_reported_and_answered_with_nothing() -> None:
    async def test() -> None:
        heard: list[Happened] = []
        async with served(heard) as client:
            for prefix in ("", "type.googleapis.com/"):
                assert await client.call(FORWARD, request(packed(EXIT, prefix)), Empty, 10) == Empty()
        assert heard == [Happened("ns", "/tasks/exit", EXIT, 5_000_000_006)] * 2

    asyncio.run(test())


def test_what_is_unknown_or_broken_is_answered_and_told_to_nobody() -> None:
    async def test() -> None:
        heard: list[Happened] = []
        async with served(heard) as client:
            for event in (
                None,
                Any(),
                Any(type_url="containerd.events.ContainerCreate", value=b"x"),
                Any(type_url="containerd.events.TaskExit", value=b"\xff"),
            ):
                assert await client.call(FORWARD, request(event), Empty, 10) == Empty()
            assert await client.call(FORWARD, ForwardRequest(), Empty, 10) == Empty()
            with pytest.raises(CallFailed):
                await client.call("containerd.services.events.ttrpc.v1.Events/Publish", Empty(), Empty, 10)
            assert await client.call(FORWARD, request(packed(EXIT)), Empty, 10) == Empty()
        assert len(heard) == 1

    asyncio.run(test())


def test_an_event_without_its_time_has_none() -> None:
    async def test() -> None:
        heard: list[Happened] = []
        async with served(heard) as client:
            for at in (None, Timestamp(seconds=-62135596800)):
                envelope = Envelope(timestamp=at, namespace="ns", topic="/tasks/exit", event=packed(EXIT))
                await client.call(FORWARD, ForwardRequest(envelope=envelope), Empty, 10)
        assert [each.at_ns for each in heard] == [0, 0]

    asyncio.run(test())


def test_strangers_are_not_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forwarding, "_is_us", lambda peer: False)

    async def test() -> None:
        heard: list[Happened] = []
        async with served(heard) as client:
            with pytest.raises(Closed):
                await client.call(FORWARD, request(packed(EXIT)), Empty, 10)
        assert heard == []

    asyncio.run(test())


def test_where_nobody_can_listen_exitd_cannot_start(tmp_path: pathlib.Path) -> None:
    with pytest.raises(CannotStart, match="cannot listen on"):
        asyncio.run(Forwarding(print).start(f"{tmp_path}/none/events"))


@given(st.sampled_from(sorted(forwarding.KNOWN)) | st.text(max_size=20), st.binary())
def test_whatever_is_in_an_event_it_is_one_of_the_known_or_none(name: str, value: bytes) -> None:
    found = unpacked(Any(type_url=name, value=value))
    assert found is None or found.DESCRIPTOR.full_name == name
