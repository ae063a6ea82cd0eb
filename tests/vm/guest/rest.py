"""Containers in the machine's pid namespace whose init leaves two behind, and who lives when its end is reported: a
line of JSON each.

rest.py RUNTIME KILLED COUNT

KILLED   nobody | shim | both: who is killed before init ends; both are the shim and the keeper
"""

import json
import os
import pathlib
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.api.client import Client, ttrpc_beside

SOCKET = "/run/exitd/exitd.sock"
LIMIT_SECONDS = 900.0
# One of a double fork, and a child.
LEAVES = "(setsid sleep 100000 &); trap 'exit 7' USR1; while :; do sleep 100000 & wait; done"
LEFT = 2


def until(true: Callable[[], object], what: str) -> None:
    """Looks again and again: none of what is waited for here can be polled."""
    end = time.monotonic() + LIMIT_SECONDS
    while not true():
        assert time.monotonic() < end, what
        time.sleep(0.02)


def scope(pid: int) -> pathlib.Path:
    """Its scope, in the only hierarchy; crun puts the container in a cgroup inside."""
    cgroup = pathlib.Path(f"/proc/{pid}/cgroup").read_text().strip().removeprefix("0::/")
    inner = pathlib.Path("/sys/fs/cgroup", cgroup)
    return next(path for path in (inner, inner.parent) if path.match("exitd-*.scope"))


def members(cgroup: pathlib.Path) -> list[int]:
    return [int(line) for path in cgroup.rglob("cgroup.procs") for line in path.read_text().split()]


def status(pid: int, name: str) -> str:
    lines = pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(line.split()[1] for line in lines if line.startswith(f"{name}:"))


def traps(pid: int) -> bool:
    return bool(int(status(pid, "SigCgt"), 16) >> (signal.SIGUSR1 - 1) & 1)


def kill_witnesses(made: pb.Container, killed: str) -> None:
    if killed == "nobody":
        return
    show = ["systemctl", "show", "--property", "MainPID", "--value", "exitd-keeper.service"]
    keeper = int(subprocess.run(show, check=True, timeout=LIMIT_SECONDS, stdout=subprocess.PIPE).stdout)
    pids = [made.shim.pid, keeper] if killed == "both" else [made.shim.pid]
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    until(lambda: int(status(made.init.pid, "PPid")) not in pids, "it has its old parent")


def lives(pidfd: int) -> bool:
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return not poll.poll(0)


def one(client: Client, runtime: str, killed: str) -> list[object]:
    """Its kind of end, number or cause, source, and how many of those it left live on."""
    made = client.start(
        client.create(pb.ContainerSpec(args=["sh", "-c", LEAVES], rootfs="/", runtime=runtime, pid="host")).id
    )
    init, cgroup = made.init.pid, scope(made.init.pid)
    until(lambda: traps(init) and len(members(cgroup)) == 1 + LEFT, "it leaves nobody behind")
    left = [os.pidfd_open(pid) for pid in members(cgroup) if pid != init]
    waiting = client.begin_wait(made.id)
    kill_witnesses(made, killed)
    os.kill(init, signal.SIGUSR1)
    exit_ = waiting.result(LIMIT_SECONDS)
    alive = sum(map(lives, left))
    assert exit_ is not None
    until(lambda: not cgroup.exists(), "its scope is left")
    for pidfd in left:
        os.close(pidfd)
    client.remove(made.id, force=True)
    shown = {"exited": exit_.code, "signaled": exit_.signal, "unknown": exit_.cause}
    return [exit_.kind, shown[exit_.kind], exit_.source, alive]


def main() -> None:
    runtime, killed, count = sys.argv[1:]
    with Client(SOCKET, ttrpc_beside(SOCKET)) as client:
        for _ in range(int(count)):
            print(json.dumps(one(client, runtime, killed)), flush=True)


if __name__ == "__main__":
    main()
