"""What the fake shim sends exitd: events, in order, each until it is answered."""

import asyncio
import os
import time

from google.protobuf.any_pb2 import Any
from google.protobuf.empty_pb2 import Empty
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from protos.containerd.forward_pb2 import Envelope, ForwardRequest
from supervisor.ttrpc.client import TtrpcClient
from supervisor.ttrpc.faults import CallFailed

FORWARD = "containerd.services.events.ttrpc.v1.Events/Forward"
TRIES, PAUSE_SECONDS, CALL_SECONDS = 5, 1.0, 5.0


class Publisher:
    """As containerd's own: what is not taken five times is dropped."""

    def __init__(self, namespace: str) -> None:
        self._namespace = namespace
        self._queue: asyncio.Queue[tuple[str, Message]] = asyncio.Queue()
        self._client: TtrpcClient | None = None
        self._task = asyncio.get_running_loop().create_task(self._run())

    def tell(self, topic: str, event: Message) -> None:
        self._queue.put_nowait((topic, event))

    async def told(self) -> None:
        """All of them."""
        await self._queue.join()

    async def _run(self) -> None:
        while True:
            topic, event = await self._queue.get()
            for _ in range(TRIES):
                try:
                    await self._forward(topic, event)
                    break
                except CallFailed:
                    await asyncio.sleep(PAUSE_SECONDS)
            self._queue.task_done()

    async def _forward(self, topic: str, event: Message) -> None:
        if self._client is None or self._client.is_closed:
            self._client = await TtrpcClient.connect(os.environ["TTRPC_ADDRESS"], seconds=CALL_SECONDS)
        packed = Any(type_url=event.DESCRIPTOR.full_name, value=event.SerializeToString())
        now = stamp(time.time_ns())
        envelope = Envelope(timestamp=now, namespace=self._namespace, topic=topic, event=packed)
        await self._client.call(FORWARD, ForwardRequest(envelope=envelope), Empty, CALL_SECONDS)


def stamp(ns: int) -> Timestamp:
    return Timestamp(seconds=ns // 10**9, nanos=ns % 10**9)
