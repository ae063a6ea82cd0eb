import contextlib
import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.model import foreign
from supervisor.model.foreign import BadState
from supervisor.model.values import By, Exited, Process, Reason, Report, RunKey, Signaled, Source, Unknown
from supervisor.model.watched import FoundProcess, Observed
from supervisor.store import codec

ID = "0123456789abcdef" * 4
OTHER = "f" * 64
INIT = Process(70, 700)
ONE = Observed(INIT, "boot", "web@/run/runc", 3, "web", "oci", "/run/runc", "/web", 5, 64 << 20, 2, 2)
V1 = "9:name=systemd:/{0}/x\n4:memory:/{0}/m\n3:cpu,cpuacct:/{0}/c\n0::/{0}/u\n"


@pytest.mark.parametrize(
    ("text", "cgroup"),
    [
        (V1.format("a"), "/a/m"),
        ("0::/system.slice/docker-x.scope\n", "/system.slice/docker-x.scope"),
        ("5:cpu,memory:/both\n0::/u\n", "/both"),
        ("0::/\n", ""),
        ("4:memory:/\n0::/u\n", ""),
        ("0::/../../elsewhere\n", ""),
        ("0::/gone (deleted)\n", ""),
        ("0::/with:colon\n", "/with:colon"),
        ("", ""),
        ("no cgroups here", ""),
    ],
)
def test_the_cgroup_is_the_one_that_counts_memory_and_is_not_everybodys(text: str, cgroup: str) -> None:
    assert foreign.cgroup_of(text) == cgroup


@pytest.mark.parametrize(
    ("cgroup", "id"),
    [
        (f"/docker/{ID}", ID),
        (f"/system.slice/docker-{ID}.scope", ID),
        (f"/kubepods.slice/kubepods-pod1.slice/cri-containerd-{ID}.scope", ID),
        (f"/machine.slice/libpod-{ID}.scope/container", ID),
        (f"/kubepods/pod{OTHER}/{ID}", ID),
        (f"/x/{ID}0", ""),
        (f"/x/{ID[1:]}", ""),
        ("/user.slice/session-3.scope", ""),
        ("", ""),
    ],
)
def test_a_cgroup_names_its_container_whatever_stands_around_it(cgroup: str, id: str) -> None:
    assert foreign.container_in(cgroup) == id


def test_a_process_is_named_by_its_container_if_it_is_in_one_and_by_its_pid_otherwise() -> None:
    assert foreign.process_found(7, f"/docker/{ID}", "sh") == FoundProcess(f"{ID}@pid", ID[:12], "pid", 7, None, "7")
    assert foreign.process_found(7, "/user", "sh") == FoundProcess("7@pid", "sh", "pid", 7, None, "7")


def test_a_task_is_named_by_its_id_its_namespace_and_its_containerd() -> None:
    found = foreign.task_found("/run/c.sock", "k8s.io", "web", 7)
    assert found == FoundProcess("web@/run/c.sock/k8s.io", "web", "containerd/k8s.io", 7, None, "/run/c.sock")


@pytest.mark.parametrize(
    "state",
    [
        {"id": "web", "init_process_pid": 70, "init_process_start": 700, "config": {}},
        {"pid": 70, "process-start-time": 700, "cgroup-path": "/x"},
    ],
    ids=["runc", "crun"],
)
def test_the_states_of_both_runtimes_name_init_and_its_start(state: dict[str, object]) -> None:
    found = foreign.state_found("/run/x", "web", json.dumps(state))
    assert found == FoundProcess("web@/run/x", "web", "oci", 70, 700, "/run/x")


@pytest.mark.parametrize(
    "text",
    [
        *("", "{", "[]", "7", "null", "{}", '{"pid": 70}', '{"pid": "70", "process-start-time": 7}', "[" * 100_000),
        *('{"pid": 0, "process-start-time": 7}', '{"pid": -1, "process-start-time": 7}'),
        *('{"pid": 70, "process-start-time": -7}', '{"pid": 7.5, "process-start-time": 7}', '{"pid": true}'),
    ],
)
def test_a_state_without_a_process_is_refused(text: str) -> None:
    with pytest.raises(BadState):
        foreign.state_found("/run/x", "web", text)


@given(st.text(max_size=200))
def test_no_text_is_more_than_refused(text: str) -> None:
    foreign.cgroup_of(text)
    foreign.container_in(text)
    with contextlib.suppress(BadState):
        foreign.state_found("/run/x", "web", text)


def report(status: Exited | Signaled | Unknown, source: Source = Source.PIDFD) -> Report:
    return Report(status, source, INIT, 1000)


@pytest.mark.parametrize(
    ("status", "kills", "reason", "init"),
    [
        (Exited(0), 2, Reason.SELF, False),
        (Exited(137), 3, Reason.SELF, False),
        (Signaled(9), 2, Reason.UNKNOWN, False),
        (Signaled(9), 3, Reason.OOM, True),
        (Signaled(15), 3, Reason.UNKNOWN, False),
        (Signaled(11, core=True), 2, Reason.SELF, False),
        (Unknown(foreign.AWAY), 3, Reason.UNKNOWN, False),
    ],
)
def test_an_end_is_its_own_doing_or_for_memory_or_nobody_knows_whose(
    status: Exited | Signaled | Unknown, kills: int, reason: Reason, init: bool
) -> None:
    exit = foreign.exit_of(ONE, report(status), kills)
    assert (exit.key, exit.status, exit.source) == (RunKey("web@/run/runc", 3), status, Source.PIDFD)
    assert (exit.reason, exit.by, exit.decision) == (reason, By(), "")
    assert (exit.oom.init, exit.oom.kills, exit.oom.limit_bytes) == (init, kills - 2, 64 << 20)
    assert (exit.name, exit.namespace, exit.init, exit.at_ns, exit.started_ns) == ("web", "oci", INIT, 1000, 5)


def test_kills_that_were_outlived_did_not_end_it() -> None:
    outlived = replace(ONE, kills_outlived=3)
    assert foreign.exit_of(outlived, report(Signaled(9)), 3).reason is Reason.UNKNOWN
    assert foreign.exit_of(outlived, report(Signaled(9)), 4).reason is Reason.OOM
    assert foreign.exit_of(outlived, report(Signaled(9)), 3).oom.kills == 1


def test_memory_kills_are_told_before_the_exit_unless_they_were_told() -> None:
    exit, reported = foreign.end_of(ONE, report(Signaled(9)), 4, 2000)
    assert [event.type for event in reported] == ["oom", "exit"]
    assert dict(reported[0].attributes) == {"watch": "/run/runc", "run": "3", "kills": "2", "init": "true"}
    assert reported[1].exit == exit
    assert dict(reported[1].attributes) == {"watch": "/run/runc", "run": "3"}
    _, quiet = foreign.end_of(replace(ONE, kills_outlived=4), report(Exited(0)), 4, 2000)
    assert [event.type for event in quiet] == ["exit"]


def test_an_end_was_reported_if_the_newest_exit_is_of_this_very_process_in_this_boot() -> None:
    exit = foreign.exit_of(ONE, report(Exited(0)), 0)
    assert foreign.was_reported(exit, INIT, 999)
    assert not foreign.was_reported(exit, INIT, 1001)
    assert not foreign.was_reported(exit, Process(70, 701), 999)
    assert not foreign.was_reported(None, INIT, 999)


def test_a_row_comes_back_as_it_was() -> None:
    assert codec.decode(Observed, codec.encode(ONE)) == ONE
