"""A state directory that is wiped while exitd and its keeper are stopped, and what the next exitd makes of what ran: a
line of JSON each.

lost.py SHIMS COUNT

SHIMS   live | killed
COUNT   of containers that run, half of them runc's and half crun's; another one is created and not started
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

STATE = "/run/exitd"
SOCKET = f"{STATE}/exitd.sock"
UNITS = ("exitd.service", "exitd-keeper.service")
LIMIT_SECONDS = 900.0


def run(*words: str) -> None:
    subprocess.run(words, check=True, timeout=LIMIT_SECONDS)


def until(true: Callable[[], object], what: str) -> None:
    """Looks again and again: none of what is waited for here can be polled."""
    end = time.monotonic() + LIMIT_SECONDS
    while not true():
        assert time.monotonic() < end, what
        time.sleep(0.02)


def has_ended(pidfd: int) -> None:
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    assert poll.poll(LIMIT_SECONDS * 1000), "it lives on"
    os.close(pidfd)


def scopes() -> list[pathlib.Path]:
    return list(pathlib.Path("/sys/fs/cgroup").rglob("exitd-*.scope"))


def begun(count: int) -> list[pb.Container]:
    """They run, but for the last one."""
    with Client(SOCKET, ttrpc_beside(SOCKET)) as client:
        made = [
            client.create(pb.ContainerSpec(args=["sleep", "100000"], rootfs="/", runtime=("runc", "crun")[number % 2]))
            for number in range(count + 1)
        ]
        return [*(client.start(each.id) for each in made[:-1]), client.inspect(made[-1].id)]


def exits(client: Client, container: str) -> list[pb.Exit]:
    return list(client.exits(pb.ExitsRequest(id=container)))


def main() -> None:
    shims, count = sys.argv[1:]
    made = begun(int(count))
    assert len(scopes()) == len(made), scopes()
    pidfds = [os.pidfd_open(pid) for each in made for pid in (each.init.pid, each.shim.pid)]
    run("systemctl", "stop", *UNITS)
    if shims == "killed":
        for each in made:
            os.kill(each.shim.pid, signal.SIGKILL)
    run("find", STATE, "-xdev", "-mindepth", "1", "-delete")
    run("systemctl", "start", *UNITS)
    with Client(SOCKET, ttrpc_beside(SOCKET)) as client:
        for each in made:
            until(lambda: exits(client, each.id), "its end is not recorded")  # noqa: B023
        for pidfd in pidfds:
            has_ended(pidfd)
        until(lambda: not scopes(), "a scope is left")
        for each in made:
            exit_, *more = exits(client, each.id)
            print(json.dumps([exit_.kind, exit_.cause, exit_.source, 1 + len(more)]), flush=True)


if __name__ == "__main__":
    main()
