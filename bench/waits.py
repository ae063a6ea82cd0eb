"""The client with many Waits: `python -m bench.waits SOCKET CONTAINER CONNECTIONS COUNT`, a process of its own.

Prints `asked` once every Wait is under way, and at the end one line of JSON with the times of the first and the last
answer (CLOCK_MONOTONIC, which all processes share).
"""

import asyncio
import json
import sys
import time

import grpc.aio

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.api.rpc import Stub

# Without a pool of its own, channels to one address share one connection.
OWN_CONNECTION = (("grpc.use_local_subchannel_pool", 1),)


async def main(socket: str, container: str, connections: int, count: int) -> None:
    channels = [grpc.aio.insecure_channel(f"unix:{socket}", options=OWN_CONNECTION) for _ in range(connections)]
    stubs = [Stub(channel) for channel in channels]
    await asyncio.gather(*(stub.Version(pb.VersionRequest()) for stub in stubs))
    request = pb.WaitRequest(id=container)
    calls = [stubs[i % connections].Wait(request) for i in range(count)]
    times: list[float] = []
    wrong: list[str] = []

    async def one(call: "grpc.aio.UnaryUnaryCall[pb.WaitRequest, pb.WaitReply]") -> None:
        try:
            reply = await call
            times.append(time.monotonic())
            if reply.exit.signal != 9:
                wrong.append(str(reply))
        except grpc.aio.AioRpcError as error:
            wrong.append(error.code().name)

    waiting = [asyncio.ensure_future(one(call)) for call in calls]
    print("asked", flush=True)
    await asyncio.gather(*waiting)
    result = {"answered": len(times), "wrong": wrong[:3], "first": min(times, default=0), "last": max(times, default=0)}
    print(json.dumps(result), flush=True)
    await asyncio.gather(*(channel.close() for channel in channels))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
