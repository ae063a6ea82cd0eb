"""The client of many ends at once, a process of its own: `python -m bench.storm exitd|containerd SOCKET ID...`.

Prints `asked` once it waits for every end, and at the end one line of JSON: the times of the first and of the last
(CLOCK_MONOTONIC, which all processes share), and its own processor time meanwhile. One connection for all of them, so
that the client is not what takes long: Waits over ttrpc, or one subscription.
"""

import contextlib
import json
import resource
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from bench.figures import EXITD
from bench.peers import Containerd
from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.compare.containerdapi import Api
from supervisor.compare.machine import until, wait_readable
from supervisor.compare.server import NAMESPACE
from supervisor.ttrpc.blocking import CONNECT_SECONDS, READ_BYTES, connected
from supervisor.ttrpc.connection import ClientConnection
from supervisor.ttrpc.happenings import Replied

LOOK_SECONDS = 0.05  # between two looks whether all are reported: what is looked at has its time already


class End(NamedTuple):
    """When it was reported (time.monotonic), and with which signal; 0 where it is not one."""

    at: float
    signal: int


Ends = Mapping[str, End]
Asked = Callable[[], None]


def by_ttrpc(socket: str, ids: Sequence[str], asked: Asked) -> Ends:
    """A Wait for each, all on one connection. ConnectionError: it ended before all were answered."""
    core, ends = ClientConnection(), {}
    with contextlib.closing(connected(socket, CONNECT_SECONDS)) as connection:
        streams = {}
        for id in ids:
            stream, data = core.open("exitd.v1.Exitd/Wait", pb.WaitRequest(id=id), pb.WaitReply)
            streams[stream] = id
            connection.sendall(data)
        asked()
        while len(core):
            wait_readable(connection.fileno(), "the answers to all Waits")
            data = connection.recv(READ_BYTES)
            at = time.monotonic()
            if not data:
                raise ConnectionError(f"{len(core)} Waits have no answer")
            for event in core.receive(data):
                number = event.message.exit.signal if isinstance(event, Replied) else 0  # type: ignore[attr-defined]
                ends[streams[event.stream]] = End(at, number)
    return ends


def by_events(socket: str, ids: Sequence[str], asked: Asked) -> Ends:
    """One subscription to `/tasks/exit`."""
    with contextlib.ExitStack() as steps:
        api = steps.enter_context(contextlib.closing(Api(socket, NAMESPACE, "")))
        exits = steps.enter_context(contextlib.closing(api.exits()))
        asked()
        until(lambda: all(exits.heard(id) is not None for id in ids), "the exits of all", step=LOOK_SECONDS)
        ends = {id: exits.of(id) for id in ids}
    # Where perf_counter is the same clock, as on Linux.
    return {id: End(at, code - 128) for id, (at, code) in ends.items()}


WAYS: Mapping[str, Callable[[str, Sequence[str], Asked], Ends]] = {EXITD: by_ttrpc, Containerd.name: by_events}


def main(way: str, socket: str, *ids: str) -> None:
    begun = 0.0

    def asked() -> None:
        nonlocal begun
        begun = _used_ms()
        print("asked", flush=True)

    ends = WAYS[way](socket, ids, asked)
    times = [end.at for end in ends.values()]
    wrong = [id for id, end in ends.items() if end.signal != signal.SIGKILL]
    result = {"answered": len(ends), "wrong": wrong[:3], "first": min(times), "last": max(times)}
    print(json.dumps({**result, "used_ms": _used_ms() - begun}), flush=True)


def _used_ms() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return (used.ru_utime + used.ru_stime) * 1000


if __name__ == "__main__":
    main(*sys.argv[1:])
