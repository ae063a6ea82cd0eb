"""The messages are containerd's on the wire: their names, and the bytes that its own programs were seen to send."""

import pytest
from google.protobuf.empty_pb2 import Empty
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from protos.containerd import (
    bootstrap_pb2,
    cgroups1_pb2,
    cgroups2_pb2,
    events_pb2,
    forward_pb2,
    linux_runc_pb2,
    process_pb2,
    runc_pb2,
    runtimeoptions_pb2,
    sandbox_pb2,
    task_pb2,
    types_pb2,
)

NAMES: dict[type[Message], str] = {
    task_pb2.StateRequest: "containerd.task.v2.StateRequest",
    types_pb2.Mount: "containerd.types.Mount",
    types_pb2.RuntimeInfo: "containerd.types.RuntimeInfo",
    process_pb2.ProcessInfo: "containerd.v1.types.ProcessInfo",
    events_pb2.TaskExit: "containerd.events.TaskExit",
    runc_pb2.Options: "containerd.runc.v1.Options",
    runc_pb2.ProcessDetails: "containerd.runc.v1.ProcessDetails",
    linux_runc_pb2.CreateOptions: "containerd.linux.runc.CreateOptions",
    runtimeoptions_pb2.Options: "runtimeoptions.v1.Options",
    cgroups1_pb2.Metrics: "io.containerd.cgroups.v1.Metrics",
    cgroups2_pb2.Metrics: "io.containerd.cgroups.v2.Metrics",
    forward_pb2.ForwardRequest: "containerd.services.events.ttrpc.v1.ForwardRequest",
    bootstrap_pb2.BootstrapParams: "containerd.runtime.bootstrap.v1.BootstrapParams",
    sandbox_pb2.CreateSandboxRequest: "containerd.runtime.sandbox.v1.CreateSandboxRequest",
    Empty: "google.protobuf.Empty",
}
METHODS = (
    *("State", "Create", "Start", "Delete", "Pids", "Pause", "Resume", "Checkpoint", "Kill", "Exec", "ResizePty"),
    *("CloseIO", "Update", "Wait", "Stats", "Connect", "Shutdown"),
)


@pytest.mark.parametrize("message", NAMES)
def test_a_type_url_is_made_of_containerds_own_name(message: type[Message]) -> None:
    assert message.DESCRIPTOR.full_name == NAMES[message]


def test_the_task_service_has_its_seventeen_methods() -> None:
    service = task_pb2.DESCRIPTOR.services_by_name["Task"]
    assert service.full_name == "containerd.task.v2.Task"
    assert tuple(method.name for method in service.methods) == METHODS


def test_the_sandbox_service_has_its_nine_methods() -> None:
    service = sandbox_pb2.DESCRIPTOR.services_by_name["Sandbox"]
    assert service.full_name == "containerd.runtime.sandbox.v1.Sandbox"
    names = ("CreateSandbox", "StartSandbox", "Platform", "StopSandbox", "WaitSandbox", "SandboxStatus")
    more = ("PingSandbox", "ShutdownSandbox", "SandboxMetrics")
    assert tuple(method.name for method in service.methods) == (*names, *more)


def test_connect_is_as_it_was_captured() -> None:
    assert task_pb2.ConnectRequest(id="c1").SerializeToString() == bytes.fromhex("0a02 6331")
    answer = task_pb2.ConnectResponse(shim_pid=4242, task_pid=4300)
    assert answer.SerializeToString() == bytes.fromhex("089221 10cc21")


def test_the_time_of_a_process_that_lives_is_gos_zero() -> None:
    assert Timestamp(seconds=-62135596800).SerializeToString() == bytes.fromhex("08 8092b8c398feffffff01")


def test_a_result_of_bootstrap_begins_as_containerd_reports_it_from_text() -> None:
    result = bootstrap_pb2.BootstrapResult(version=3, address="unix:///a", protocol="ttrpc").SerializeToString()
    assert result == b"\x08\x03\x12\x09unix:///a\x1a\x05ttrpc"


def test_a_socket_directory_that_is_not_given_is_not_an_empty_one() -> None:
    assert not bootstrap_pb2.BootstrapParams().HasField("socket_dir")


@pytest.mark.parametrize(
    ("message", "numbers"),
    [
        (task_pb2.CreateTaskRequest, {"id": 1, "rootfs": 3, "stdin": 5, "checkpoint": 8, "options": 10}),
        (
            sandbox_pb2.CreateSandboxRequest,
            {"sandbox_id": 1, "bundle_path": 2, "rootfs": 3, "options": 4, "netns_path": 5, "annotations": 6},
        ),
        (
            sandbox_pb2.SandboxStatusResponse,
            {"sandbox_id": 1, "pid": 2, "state": 3, "info": 4, "created_at": 5, "exited_at": 6, "extra": 7},
        ),
        (sandbox_pb2.StopSandboxRequest, {"sandbox_id": 1, "timeout_secs": 2}),
        (sandbox_pb2.WaitSandboxResponse, {"exit_status": 1, "exited_at": 2}),
        (task_pb2.StateResponse, {"pid": 3, "status": 4, "exit_status": 9, "exited_at": 10, "exec_id": 11}),
        (events_pb2.TaskDelete, {"pid": 2, "exit_status": 3, "exited_at": 4, "id": 5}),
        (runc_pb2.CheckpointOptions, {"image_path": 8, "work_path": 9}),
        (linux_runc_pb2.CheckpointOptions, {"image_path": 9, "work_path": 8}),
        (linux_runc_pb2.CreateOptions, {"no_new_keyring": 8, "io_uid": 10, "criu_work_path": 12}),
        (runtimeoptions_pb2.Options, {"type_url": 1, "config_path": 2, "config_body": 3}),
        (cgroups1_pb2.MemoryStat, {"hierarchical_memory_limit": 16, "total_inactive_file": 30, "usage": 33}),
        (cgroups1_pb2.Metrics, {"cpu": 3, "memory": 4, "rdma": 6, "cgroup_stats": 8, "memory_oom_control": 9}),
        (cgroups1_pb2.NetworkStat, {"name": 1, "rx_bytes": 2, "tx_dropped": 9}),
        (cgroups2_pb2.Metrics, {"cpu": 2, "memory": 4, "io": 6, "memory_events": 8, "network": 9}),
        (cgroups2_pb2.MemoryStat, {"pgfault": 18, "usage": 32, "usage_limit": 33, "swap_limit": 35, "psi": 38}),
        (cgroups2_pb2.CPUStat, {"usage_usec": 1, "throttled_usec": 6, "psi": 7, "burst_usec": 9}),
    ],
)
def test_a_field_has_containerds_number(message: type[Message], numbers: dict[str, int]) -> None:
    fields = message.DESCRIPTOR.fields_by_name
    assert {name: fields[name].number for name in numbers} == numbers
