"""Containers without a limit that take the machine's memory, all of it, beside others that take none, and what exitd
reports of each: a line of JSON each, those that ate first, and one of what watched over them at last.

pressure.py RUNTIME EATERS

They go on at one moment, when all of them run. Of the quiet ones each ends with a code of its own after that.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.api.client import Client, ttrpc_beside

SOCKET = "/run/exitd/exitd.sock"
WAIT_SECONDS = 900.0
QUIET = 2
CODE = 7
HELD = "read line </gate/fifo; "
EATS, ENDS = f"{HELD}exec tail /dev/zero", f"{HELD}exit {CODE}"
UNITS = ("exitd.service", "exitd-keeper.service")


class Gate:
    """A fifo in a directory that containers have at /gate: each one's init reads a line of it and goes on."""

    def __init__(self, directory: str) -> None:
        self.mount = pb.Mount(source=directory, destination="/gate")
        path = os.path.join(directory, "fifo")
        os.mkfifo(path)
        self._fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)  # both ends: who comes late finds its line

    def open(self, count: int) -> None:
        os.write(self._fd, b"\n" * count)


def begun(client: Client, gate: Gate, runtime: str, words: str) -> pb.Container:
    spec = pb.ContainerSpec(args=["sh", "-c", words], rootfs="/", runtime=runtime, mounts=[gate.mount])
    return client.start(client.create(spec).id)


def outcome(client: Client, container: str) -> list[object]:
    """Kind, number, reason, whether it hit init, the source, the events, and how often the ledger has it."""
    exit_ = client.begin_wait(container).result(WAIT_SECONDS)
    assert exit_ is not None
    request = pb.EventsRequest(from_seq=0, filters=[f"id={container}"], no_follow=True)
    events = [reply.event.type for reply in client.events(request) if reply.HasField("event")]
    number = exit_.signal if exit_.kind == "signaled" else exit_.code
    rows = len(list(client.exits(pb.ExitsRequest(id=container))))
    return [exit_.kind, number, exit_.reason, exit_.oom.init, exit_.source, events, rows]


def started(pid: int) -> tuple[int, str]:
    """A process that is there, by number and start (proc(5), field 22)."""
    return pid, pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]


def unit(name: str) -> tuple[int, str]:
    show = ["systemctl", "show", "--property", "MainPID", "--value", name]
    return started(int(subprocess.run(show, check=True, timeout=WAIT_SECONDS, stdout=subprocess.PIPE).stdout))


def guards(client: Client, containers: list[pb.Container]) -> list[tuple[int, str]]:
    """exitd, keeper, and the shims of these containers as exitd knows them."""
    return [*map(unit, UNITS), *(started(client.inspect(each.id).shim.pid) for each in containers)]


def score(pid: int) -> int:
    return int(pathlib.Path(f"/proc/{pid}/oom_score_adj").read_text())


def kills() -> int:
    """How often the kernel has killed for memory since the boot."""
    lines = pathlib.Path("/proc/vmstat").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("oom_kill "))


def main() -> None:
    runtime, eaters = sys.argv[1], int(sys.argv[2])
    with (
        tempfile.TemporaryDirectory(prefix="eats-", dir="/run") as eats,
        tempfile.TemporaryDirectory(prefix="ends-", dir="/run") as ends,
        Client(SOCKET, ttrpc_beside(SOCKET)) as client,
    ):
        hungry, later = Gate(eats), Gate(ends)
        quiet = [begun(client, later, runtime, ENDS) for _ in range(QUIET)]
        eating = [begun(client, hungry, runtime, EATS) for _ in range(eaters)]
        before, killed = guards(client, quiet), kills()
        scores = [score(pid) for pid, _ in guards(client, [*quiet, *eating])]
        hungry.open(eaters)
        for each in eating:
            print(json.dumps(outcome(client, each.id)), flush=True)
        killed, are_there = kills() - killed, guards(client, quiet) == before
        later.open(QUIET)
        for each in quiet:
            print(json.dumps(outcome(client, each.id)), flush=True)
        for each in [*quiet, *eating]:
            client.remove(each.id, force=True)
    print(json.dumps({"same": are_there, "kills": killed, "protected": max(scores) < 0}), flush=True)


if __name__ == "__main__":
    main()
