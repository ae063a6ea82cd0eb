"""Containers that end, start again and are stopped while the machine's clock jumps: a line of JSON for each jump.

clock.py DAYS...

DAYS    by how much the clock is set, each time from where it should be; it is right again at the end
"""

import json
import subprocess
import sys
import time

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.api.answers import Waiting
from supervisor.api.client import Client, ttrpc_beside

SOCKET = "/run/exitd/exitd.sock"
LIMIT_SECONDS = 300.0
GRACE_SECONDS = 2
DAY = 86_400.0


def set_to(days: float, right: float) -> None:
    """`right` is what the clock would show at monotonic 0."""
    time.clock_settime(time.CLOCK_REALTIME, right + time.monotonic() + days * DAY)


def life(client: Client, name: str, script: str, **more: object) -> pb.Container:
    spec = pb.ContainerSpec(name=name, args=["sh", "-c", script], rootfs="/", **more)  # type: ignore[arg-type]
    return client.start(client.create(spec).id)


def ended(waiting: Waiting) -> pb.Exit:
    exit_ = waiting.result(LIMIT_SECONDS)
    assert exit_ is not None
    return exit_


def next_runs(client: Client, container: pb.Container, count: int) -> float:
    """Seconds until so many more runs have begun."""
    began, first = time.monotonic(), client.inspect(container.id).run
    while client.inspect(container.id).run < first + count:
        assert time.monotonic() < began + LIMIT_SECONDS, "it does not start again"
        time.sleep(0.05)
    return time.monotonic() - began


def main() -> None:
    right = time.time() - time.monotonic()
    jumps = [float(word) for word in sys.argv[1:]]
    try:
        with Client(SOCKET, ttrpc_beside(SOCKET)) as client:
            again = life(client, "again", "sleep 0.2; exit 4", restart="always")
            for number, days in enumerate(jumps, 1):
                ends = life(client, f"ends-{number}", f"sleep 2; exit {number}")
                deaf = life(client, f"deaf-{number}", "trap '' TERM; while :; do sleep 0.1; done")
                waiting = client.begin_wait(ends.id)
                set_to(days, right)
                exit_ = ended(waiting)
                began = time.monotonic()
                client.stop(deaf.id, GRACE_SECONDS)
                stopped = ended(client.begin_wait(deaf.id))
                seconds = time.monotonic() - began
                found = {
                    "code": exit_.code,
                    "signal": stopped.signal,
                    "stopped": seconds,
                    "again": next_runs(client, again, 1),
                }
                off = exit_.at.ToNanoseconds() / 1e9 - (right + time.monotonic() + days * DAY)
                print(json.dumps(found | {"days": days, "off": off}), flush=True)
            set_to(0, right)
            subprocess.run(["systemctl", "restart", "exitd.service"], check=True, timeout=LIMIT_SECONDS)
        with Client(SOCKET, ttrpc_beside(SOCKET)) as client:
            ledger = client.exits(pb.ExitsRequest())  # also of checks before this one
            names = [exit_.name for exit_ in ledger if exit_.name.startswith(("ends-", "deaf-"))]
            print(json.dumps({"ledger": sorted(names), "again": next_runs(client, again, 1)}), flush=True)
            client.remove(again.id, force=True)  # the next check ends all that lives
    finally:
        set_to(0, right)


if __name__ == "__main__":
    main()
