"""Containers killed for memory, one after another or at once, and what exitd reports of each: a line of JSON each.

kills.py RUNTIME VICTIM LIFE COUNT AT_ONCE

VICTIM   init | child: the child is killed, and init ends with a code of its own right after
LIFE     short: killed as soon as they run; long: some seconds later, all of a batch at the same moment; away: likewise,
         while exitd is stopped, which is started again when all of them are dead
"""

import json
import os
import pathlib
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.api.answers import Waiting
from supervisor.api.client import Client, ttrpc_beside

SOCKET = "/run/exitd/exitd.sock"
LIMIT_BYTES = 16 << 20
LONG_SECONDS = 3
WAIT_SECONDS = 900.0
SCRIPTS = {"init": "exec tail /dev/zero", "child": "tail /dev/zero; exit 7"}
HELD = "read line </gate/fifo; "


class Gate:
    """A fifo in a directory that the containers have at /gate: each one's init reads a line of it and goes on."""

    def __init__(self, directory: str) -> None:
        self.mount = pb.Mount(source=directory, destination="/gate")
        path = os.path.join(directory, "fifo")
        os.mkfifo(path)
        self._fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)  # both ends: who comes late finds its line

    def open(self, count: int) -> None:
        os.write(self._fd, b"\n" * count)


def connect() -> Client:
    """exitd is there when this returns: systemctl waits for its READY=1."""
    subprocess.run(["systemctl", "start", "exitd.service"], check=True, timeout=WAIT_SECONDS)
    return Client(SOCKET, ttrpc_beside(SOCKET))


def begun(client: Client, gate: Gate, runtime: str, words: str) -> pb.Container:
    spec = pb.ContainerSpec(
        args=["sh", "-c", words], rootfs="/", memory_bytes=LIMIT_BYTES, runtime=runtime, mounts=[gate.mount]
    )
    return client.start(client.create(spec).id)


def types(client: Client, container: str) -> list[str]:
    request = pb.EventsRequest(from_seq=0, filters=[f"id={container}"], no_follow=True)
    return [reply.event.type for reply in client.events(request) if reply.HasField("event")]


def reported(client: Client, container: str, waiting: Waiting) -> dict[str, object]:
    exit_ = waiting.result(WAIT_SECONDS)
    assert exit_ is not None
    said = {"kind": exit_.kind, "code": exit_.code, "signal": exit_.signal, "reason": exit_.reason}
    return said | {"init": exit_.oom.init, "kills": exit_.oom.kills, "events": types(client, container)}


def dead(pidfds: list[int]) -> None:
    for pidfd in pidfds:
        poll = select.poll()
        poll.register(pidfd, select.POLLIN)
        assert poll.poll(WAIT_SECONDS * 1000), "it lives on"
        os.close(pidfd)


def batch(runtime: str, victim: str, life: str, count: int) -> Iterator[dict[str, object]]:
    with tempfile.TemporaryDirectory(prefix="gate-", dir="/run") as directory:
        gate = Gate(directory)
        words = SCRIPTS[victim] if life == "short" else HELD + SCRIPTS[victim]
        with connect() as client:
            made = [begun(client, gate, runtime, words) for _ in range(count)]
            if life == "long":
                time.sleep(LONG_SECONDS)
                gate.open(count)
        if life == "away":
            pidfds = [os.pidfd_open(each.init.pid) for each in made]
            subprocess.run(["systemctl", "stop", "exitd.service"], check=True, timeout=WAIT_SECONDS)
            gate.open(count)
            dead(pidfds)
        with connect() as client:
            for each in made:
                yield reported(client, each.id, client.begin_wait(each.id))
                client.remove(each.id, force=True)


def main() -> None:
    runtime, victim, life, count, at_once = sys.argv[1:]
    began, left = time.monotonic(), int(count)
    while left > 0:
        now = min(left, int(at_once))
        for end in batch(runtime, victim, life, now):
            print(json.dumps(end), flush=True)
        left -= now
    assert not list(pathlib.Path("/sys/fs/cgroup").rglob("exitd-*.scope")), "a scope is left"
    print(f"{time.monotonic() - began:.0f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
