"""Shims begun by the daemon's own hand, through the keeper and without one, with namespaces to join."""

import asyncio
import os
import pathlib
import shutil
import signal
from collections import Counter

import pytest

from shim import launch, plan, programs
from supervisor.model.values import Process, RunKey
from supervisor.monitor import epoll, keeper, rundir
from supervisor.monitor.shims import Shims
from supervisor.monitor.witness import Watch
from tests.system.pods import ALL, SHARED, Pod, namespace, namespace_descriptors
from tests.system.processes import empty_cgroup, open_files
from tests.system.test_shim_streams import senses
from tests.system.waits import LIMIT_SECONDS

KEY = RunKey("member", 1)


def written_plan(pod: Pod, state: pathlib.Path) -> bytes:
    """Of a member that joins what SHARED names."""
    bundle = pod.bundle("member", SHARED, "/bin/sleep", "1000")
    directory = rundir.path_of(str(state), "member", 1)
    runc = (shutil.which("runc") or "runc", "--root", f"{directory}/rt")
    return plan.encode(
        plan.Plan(
            id="member",
            run=1,
            create=(*runc, "create", "--bundle", str(bundle), "--pid-file", f"{directory}/pid", "member"),
            remove=(*runc, "delete", "--force", "member"),
            keeper=f"{state}/{launch.SOCKET_NAME}",
            join=tuple(path for path, _ in pod.links("member", SHARED)),
        )
    )


async def whole_life(pod: Pod, state: pathlib.Path) -> tuple[launch.Created, bool]:
    """Begun, looked at, killed, gone. What the shim said, and whether the keeper was its parent."""
    watcher = epoll.Monitor()
    line = keeper.Keeper(str(state), str(programs.find("exitd-keeper")), lambda: None, may_start=False)
    watch = Watch(KEY, rundir.make(str(state), "member", 1, written_plan(pod, state)), senses(watcher))
    mine = [pod.fds[kind] for kind in SHARED]
    try:
        status = await Shims(watcher, line).begin(watch, LIMIT_SECONDS, adopt=False, joins=mine)
        assert isinstance(status, launch.Created), status
        for kind in ALL:
            own = namespace(status.pid, kind) == os.readlink(f"/proc/self/fd/{pod.fds[kind]}")
            assert own == (kind in SHARED), kind
        assert watch.shim is not None and namespace_descriptors(watch.shim.pid) == []
        watch.init, watch.init_fd = Process(status.pid, status.started), status.pidfd
        signal.pidfd_send_signal(watch.init_fd, signal.SIGKILL)
        async with asyncio.timeout(LIMIT_SECONDS):
            await watch.shim_gone.wait()
        found = rundir.read_record(watch.directory)
        assert found is not None and found.signal == signal.SIGKILL
        return status, line.connected
    finally:
        watch.close()
        line.close()
        watcher.close()


@pytest.mark.parametrize("with_keeper", [True, False])
def test_what_is_to_be_joined_stays_the_callers_and_the_container_is_in_it(pod: Pod, with_keeper: bool) -> None:
    state = pod.keeper.state if with_keeper else pod.node.directory / "nobody"
    state.mkdir(exist_ok=True)
    own = open_files()
    status, connected = asyncio.run(whole_life(pod, state))
    assert (status.keeper_knows, connected) == (with_keeper, with_keeper)
    opened = Counter(open_files().values()) - Counter(own.values())  # as keepers.node counts them, which says why
    assert not opened
    assert namespace_descriptors(pod.keeper.process.pid) == []
    shutil.rmtree(state / "c" / "member")
    pod.keeper.acknowledge("member")
    empty_cgroup(f"{pod.node.cgroup}/member")
