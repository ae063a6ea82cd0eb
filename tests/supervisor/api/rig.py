"""A server on a real unix socket in front of a fake node, and a client on one connection."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from google.rpc import error_details_pb2, status_pb2  # type: ignore[import-untyped]  # ships no py.typed

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.api import health, rpc
from supervisor.api.callers import Callers
from supervisor.api.calls import Methods
from supervisor.api.files import FileServicer
from supervisor.api.server import ApiServer
from supervisor.api.servicers import (
    ChangeServicer,
    ContainerServicer,
    DaemonServicer,
    ImageServicer,
    NetworkServicer,
    PodServicer,
    RecordServicer,
    ShutdownServicer,
    StatsServicer,
    UsageServicer,
    VolumeServicer,
    methods_of,
)
from supervisor.api.streams import StreamServicer
from supervisor.api.watches import WatchServicer
from supervisor.system.inotify import Inotify
from tests.supervisor.api.fake_changes import FakeChanges, FakeStats
from tests.supervisor.api.fake_execs import FakeExecs
from tests.supervisor.api.fake_node import FakeNode
from tests.supervisor.api.fake_shutdown import FakeShutdown
from tests.supervisor.api.fake_stores import FakeFiles, FakeImages, FakeNetworks, FakePods, FakeUsage, FakeVolumes
from tests.supervisor.api.fake_streams import FakeStreams
from tests.supervisor.api.fake_watches import FakeWatches

LIMIT_SECONDS = 60
SPEC = pb.ContainerSpec(name="web", args=["true"], rootfs="/")
LINE = b"2026-11-20T12:00:00.000000001Z stdout F %s\n"


@dataclass
class Rig:
    """A server, its node, and a client's stubs on one connection."""

    server: ApiServer
    callers: Callers
    node: FakeNode
    channel: grpc.aio.Channel
    exitd: Any
    health: Any


def doors_of(node: FakeNode, changes: Inotify) -> Methods:
    pods, streams = FakePods(node), FakeStreams(node)
    return methods_of(
        ContainerServicer(node, pods, FakeExecs(node), streams),
        ChangeServicer(FakeChanges(node)),
        RecordServicer(node, changes),
        DaemonServicer(node.info, node.metrics),
        PodServicer(pods),
        ImageServicer(FakeImages(node)),
        VolumeServicer(FakeVolumes(node)),
        FileServicer(FakeFiles(node)),
        NetworkServicer(FakeNetworks(node)),
        UsageServicer(FakeUsage(node)),
        StatsServicer(FakeStats(node)),
        StreamServicer(streams),
        WatchServicer(FakeWatches(node)),
        ShutdownServicer(FakeShutdown(node)),
    )


@asynccontextmanager
async def serving(folder: Path) -> AsyncIterator[Rig]:
    changes, node = Inotify(), FakeNode()
    changes.start()
    callers = Callers(str(folder / "caller.sock"))
    await callers.start()
    server = ApiServer(str(folder / "exitd.sock"), doors_of(node, changes), callers, str(folder / "exitd.ttrpc"))
    await server.start()
    try:
        async with grpc.aio.insecure_channel(f"unix:{server.path}") as channel:
            stub: Any = rpc.Stub(channel)
            watch: Any = rpc.Stub(channel, health.SERVICE)
            yield Rig(server, callers, node, channel, stub, watch)
    finally:
        await server.stop(1)
        await callers.stop()
        changes.close()


def run(folder: Path, test: Callable[[Rig], Awaitable[None]]) -> None:
    async def main() -> None:
        async with asyncio.timeout(LIMIT_SECONDS), serving(folder) as rig:
            await test(rig)

    asyncio.run(main())


async def refused(call: Awaitable[object]) -> grpc.aio.AioRpcError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value


def reason(error: grpc.aio.AioRpcError) -> error_details_pb2.ErrorInfo:
    (packed,) = (value for key, value in error.trailing_metadata() if key == "grpc-status-details-bin")
    status = status_pb2.Status.FromString(packed)
    assert status.code == error.code().value[0]
    info = error_details_pb2.ErrorInfo()
    assert status.details[0].Unpack(info)
    assert info.domain == "exitd"
    return info


async def created(rig: Rig) -> None:
    await rig.exitd.CreateContainer(pb.CreateContainerRequest(spec=SPEC))


async def first(call: Any) -> object:
    return await call.read()
