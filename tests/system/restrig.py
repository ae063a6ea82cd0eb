"""Containers whose init leaves two behind, and who is in their cgroups."""

import pathlib

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.api.client import Client
from supervisor.runtime.oci import cgroups
from tests.system import lives
from tests.system.daemonrig import until

LINES = 3
# A child and one of a double fork, who ignore what can be ignored and hold the output open; both write first.
CHILD = "trap '' HUP INT TERM; echo $1; echo $$ >/mnt/.$1; mv /mnt/.$1 /mnt/$1; while :; do sleep 0.1; done"
LEAVES = f"""
sh -c "$CHILD" sh child & (setsid sh -c "$CHILD" sh grandchild &)
until [ -e /mnt/child ] && [ -e /mnt/grandchild ]; do sleep 0.05; done
: >/mnt/up
until [ -e /mnt/end ]; do sleep 0.05; done
seq {LINES}
exit 3
"""
WHOLE = sorted(["child", "grandchild", *map(str, range(1, LINES + 1))])


def members(container: str, pod: str = "") -> tuple[int, ...]:
    return cgroups.pids(f"/exitd/{f'pod-{pod}/' if pod else ''}{container}")


def begun(client: Client, shared: pathlib.Path, **fields: object) -> pb.Container:
    """A container whose init is about to end, and has left two behind."""
    mounts = [pb.Mount(source=str(shared), destination="/mnt")]
    made = lives.up(client, "sh", "-c", LEAVES, env=[f"CHILD={CHILD}"], mounts=mounts, **fields)
    until((shared / "up").exists, "it leaves nobody behind")
    return made


def output(client: Client, container: str) -> list[str]:
    return sorted(b"".join(reply.data for reply in client.logs(pb.LogsRequest(id=container))).decode().split())
