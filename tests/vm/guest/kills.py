"""Containers killed for memory, one after another or at once, and what exitd reports of each: a line of JSON each.

kills.py RUNTIME VICTIM LIFE COUNT AT_ONCE    VICTIM: init | child; LIFE: short | long
"""

import json
import sys
import time
from collections.abc import Iterator

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.api.answers import Waiting
from supervisor.api.client import Client, ttrpc_beside

SOCKET = "/run/exitd/exitd.sock"
LIMIT_BYTES = 16 << 20
LONG_SECONDS = 3
WAIT_SECONDS = 600.0
SCRIPTS = {"init": "exec tail /dev/zero", "child": "tail /dev/zero; exit 7"}


def script(victim: str, life: str) -> str:
    return f"sleep {LONG_SECONDS if life == 'long' else 0}; {SCRIPTS[victim]}"


def begun(client: Client, runtime: str, words: str) -> tuple[str, Waiting]:
    spec = pb.ContainerSpec(args=["sh", "-c", words], rootfs="/", memory_bytes=LIMIT_BYTES, runtime=runtime)
    container = client.create(spec).id
    waiting = client.begin_wait(container)
    client.start(container)
    return container, waiting


def types(client: Client, container: str) -> list[str]:
    request = pb.EventsRequest(from_seq=0, filters=[f"id={container}"], no_follow=True)
    return [reply.event.type for reply in client.events(request) if reply.HasField("event")]


def ends(client: Client, runtime: str, words: str, count: int, at_once: int) -> Iterator[dict[str, object]]:
    for first in range(0, count, at_once):
        batch = [begun(client, runtime, words) for _ in range(first, min(first + at_once, count))]
        for container, waiting in batch:
            exit_ = waiting.result(WAIT_SECONDS)
            assert exit_ is not None
            told = {"kind": exit_.kind, "code": exit_.code, "signal": exit_.signal, "reason": exit_.reason}
            told |= {"init": exit_.oom.init, "kills": exit_.oom.kills, "source": exit_.source}
            yield told | {"events": types(client, container)}
            client.remove(container, force=True)


def main() -> None:
    runtime, victim, life, count, at_once = sys.argv[1:]
    began = time.monotonic()
    with Client(SOCKET, ttrpc_beside(SOCKET)) as client:
        for end in ends(client, runtime, script(victim, life), int(count), int(at_once)):
            print(json.dumps(end), flush=True)
    print(f"{time.monotonic() - began:.0f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
