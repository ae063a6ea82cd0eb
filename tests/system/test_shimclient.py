"""exitd's client against containerd's own shim for runc: the whole life of tasks, with nothing in between."""

import asyncio
import contextlib
import os
import pathlib
import shutil
from collections.abc import AsyncIterator

from supervisor.shimclient.binary import find
from supervisor.shimclient.link import socket_path
from tests.supervisor.shimclient import rig
from tests.supervisor.shimclient.rig import Place, Task
from tests.system.containerdcensus import below
from tests.system.shimrig import empty_cgroup, end_process, left_of, processes_of, tiny_bundle

RUNC = "io.containerd.runc.v2"
LIFE = ["/tasks/create", "/tasks/start", "/tasks/exit", "/tasks/delete"]
STATES = pathlib.Path("/run/containerd/runc")


@contextlib.asynccontextmanager
async def machine() -> AsyncIterator[Place]:
    """Afterwards there is no process, mount, cgroup, socket or runtime state of the test's."""
    async with rig.place() as place:
        try:
            yield place
            assert left_of(place.base) == []
            assert leftovers(place) == []
        finally:
            clear(place)


def leftovers(place: Place) -> list[str]:
    mounts = pathlib.Path("/proc/self/mountinfo").read_text().splitlines()
    sockets = [socket_path(address.address) for address in place.addresses]
    return [
        *(line for line in mounts if f" {place.base}" in line),
        *map(str, below(f"/{place.base.name}")),
        *(path for path in sockets if os.path.exists(path)),
        *map(str, (STATES / place.namespace).glob("*")),
    ]


def clear(place: Place) -> None:
    for line in processes_of(place.base):
        end_process(int(line.partition(":")[0]))
    empty_cgroup(f"/{place.base.name}")
    shutil.rmtree(STATES / place.namespace, ignore_errors=True)


def runc_task(place: Place, id: str, *args: str) -> Task:
    bundle = tiny_bundle(place.bundle(id), list(args), f"/{place.base.name}/{id}")
    return rig.task(place, find(RUNC, os.environ["PATH"]), id, bundle)


def test_a_task_under_runcs_shim_lives_from_start_to_delete_with_its_true_code() -> None:
    async def all_of_it() -> None:
        async with machine() as place:
            task = await runc_task(place, "c1", "sh", "-c", "exit 7").begun()
            pid = await task.started()
            exit = await task.exit()
            assert exit.number == 7 and exit.at_ns > 0
            deleted = await task.ended()
            assert (deleted.pid, deleted.exit_status, deleted.exited_at_ns) == (pid, 7, exit.at_ns)
            await place.until(lambda: place.topics("c1") == LIFE)

    asyncio.run(all_of_it())
