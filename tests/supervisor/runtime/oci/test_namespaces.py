"""Namespaces of a pod: which are joined, and that a descriptor is never a stranger's."""

import os
import subprocess
from dataclasses import replace

import pytest

from shim import native
from supervisor.model.errors import WrongState
from supervisor.model.values import Process, Spec
from supervisor.runtime.oci import namespaces
from tests.supervisor.descriptors import held_now, opened_since

MEMBER = Spec("m", sandbox="p", network="pod")


def test_a_member_joins_network_ipc_and_uts_and_pid_when_asked() -> None:
    assert namespaces.joined(Spec("single")) == ()
    assert namespaces.joined(MEMBER) == ("network", "ipc", "uts")
    assert namespaces.joined(replace(MEMBER, pid="pod")) == ("network", "ipc", "uts", "pid")
    assert namespaces.joined(replace(MEMBER, network="host")) == ("ipc", "uts")
    assert namespaces.joined(replace(MEMBER, ipc="host")) == ("network", "uts")


def test_each_namespace_has_a_place_for_its_link() -> None:
    assert namespaces.links("/r", ("network", "ipc")) == {"network": "/r/ns-net", "ipc": "/r/ns-ipc"}


def test_descriptors_are_those_of_the_process() -> None:
    own = Process(os.getpid(), native.process_stat(os.getpid())[2])
    pidfd = os.pidfd_open(own.pid)
    found = namespaces.open_all(own, pidfd, ("network", "ipc", "uts", "pid"))
    try:
        names = [os.readlink(f"/proc/self/ns/{name}") for name in ("net", "ipc", "uts", "pid")]
        assert [os.readlink(f"/proc/self/fd/{fd}") for fd in found] == names
    finally:
        for fd in (*found, pidfd):
            os.close(fd)


def test_of_a_process_that_has_ended_nothing_is_opened() -> None:
    child = subprocess.Popen(["true"])
    pidfd = os.pidfd_open(child.pid)
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    before = held_now()
    with pytest.raises(WrongState, match="has ended"):
        namespaces.open_all(Process(child.pid, 0), pidfd, ("network", "ipc"))
    child.wait()
    # Its number is this process's now, as far as the path can tell: the descriptor knows better.
    with pytest.raises(WrongState, match="has ended"):
        namespaces.open_all(Process(os.getpid(), 0), pidfd, ("network",))
    assert not opened_since(before)
    os.close(pidfd)
