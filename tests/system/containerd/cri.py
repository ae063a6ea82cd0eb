"""The runtime service of a containerd, as a kubelet asks it: its messages, and its calls by name."""

from typing import Any

import grpc

from tests.system.containerd.server import EXITD, RUNC
from tests.system.containerd.wiretable import Table
from tests.system.waits import LIMIT_SECONDS, until

WIRE = Table(
    "runtime.v1",
    """
    NamespaceOption: network 1 int32, pid 2 int32, ipc 3 int32
    SandboxSecurity: namespace_options 1 NamespaceOption
    LinuxSandbox: cgroup_parent 1 string, security_context 2 SandboxSecurity
    PodMetadata: name 1 string, uid 2 string, namespace 3 string, attempt 4 uint32
    PodConfig: metadata 1 PodMetadata, hostname 2 string, log_directory 3 string, labels 6 map, linux 8 LinuxSandbox
    ImageSpec: image 1 string
    Metadata: name 1 string, attempt 2 uint32
    KeyValue: key 1 string, value 2 string
    Mount: container_path 1 string, host_path 2 string, readonly 3 bool
    Resources: cpu_period 1 int64, cpu_quota 2 int64, cpu_shares 3 int64, memory_limit_in_bytes 4 int64
    ContainerSecurity: namespace_options 3 NamespaceOption
    LinuxContainer: resources 1 Resources, security_context 2 ContainerSecurity
        Config: metadata 1 Metadata, image 2 ImageSpec, command 3 *string, envs 6 *KeyValue, mounts 7 *Mount,
        labels 9 map, log_path 11 string, stdin 12 bool, tty 14 bool, linux 15 LinuxContainer
    RunPodSandboxRequest: config 1 PodConfig, runtime_handler 2 string
    RunPodSandboxResponse: pod_sandbox_id 1 string
    StopPodSandboxRequest: pod_sandbox_id 1 string
    StopPodSandboxResponse:
    RemovePodSandboxRequest: pod_sandbox_id 1 string
    RemovePodSandboxResponse:
    PodSandboxStatusRequest: pod_sandbox_id 1 string, verbose 2 bool
    Pod: id 1 string, metadata 2 PodMetadata, state 3 int32, created_at 4 int64, runtime_handler 9 string
    PodSandboxStatusResponse: status 1 Pod, info 2 map
    ListPodSandboxRequest:
    ListPodSandboxResponse: items 1 *Pod
    CreateContainerRequest: pod_sandbox_id 1 string, config 2 Config, sandbox_config 3 PodConfig
    CreateContainerResponse: container_id 1 string
    StartContainerRequest: container_id 1 string
    StartContainerResponse:
    StopContainerRequest: container_id 1 string, timeout 2 int64
    StopContainerResponse:
    RemoveContainerRequest: container_id 1 string
    RemoveContainerResponse:
    ListContainersRequest:
    Listed: id 1 string, pod_sandbox_id 2 string, metadata 3 Metadata, state 6 int32
    ListContainersResponse: containers 1 *Listed
    ContainerStatusRequest: container_id 1 string, verbose 2 bool
        Status: id 1 string, metadata 2 Metadata, state 3 int32, created_at 4 int64, started_at 5 int64,
        finished_at 6 int64, exit_code 7 int32, reason 10 string, message 11 string
    ContainerStatusResponse: status 1 Status, info 2 map
    UpdateContainerResourcesRequest: container_id 1 string, linux 2 Resources
    UpdateContainerResourcesResponse:
    ReopenContainerLogRequest: container_id 1 string
    ReopenContainerLogResponse:
    ExecSyncRequest: container_id 1 string, cmd 2 *string, timeout 3 int64
    ExecSyncResponse: stdout 1 bytes, stderr 2 bytes, exit_code 3 int32
    Count: value 1 uint64
    Cpu: timestamp 1 int64, usage_core_nano_seconds 2 Count
        Memory: timestamp 1 int64, working_set_bytes 2 Count, available_bytes 3 Count, usage_bytes 4 Count,
        rss_bytes 5 Count, page_faults 6 Count, major_page_faults 7 Count
    Attributes: id 1 string, metadata 2 Metadata
    Stats: attributes 1 Attributes, cpu 2 Cpu, memory 3 Memory
    ContainerStatsRequest: container_id 1 string
    ContainerStatsResponse: stats 1 Stats
    ListContainerStatsRequest:
    ListContainerStatsResponse: stats 1 *Stats
    Condition: type 1 string, status 2 bool, reason 3 string
    Conditions: conditions 1 *Condition
    StatusRequest: verbose 1 bool
    StatusResponse: status 1 Conditions
    """,
)
POD, CONTAINER, NODE = 0, 1, 2  # whose namespace
NAMESPACES = {"network": NODE, "pid": CONTAINER, "ipc": POD}
STATES = ("created", "running", "exited", "unknown")
HANDLERS = {RUNC: "runc", EXITD: "exitd"}


class Runtime:
    """One connection; to be made anew when containerd was restarted."""

    def __init__(self, address: str) -> None:
        self._channel = grpc.insecure_channel(f"unix:{address}")
        until(self._ready, "the runtime interface is not ready")

    def __call__(self, method: str, seconds: float = LIMIT_SECONDS, **fields: Any) -> Any:
        """grpc.RpcError as it comes."""
        ask, answer = getattr(WIRE, f"{method}Request"), getattr(WIRE, f"{method}Response")
        path = f"/runtime.v1.RuntimeService/{method}"
        call: Any = self._channel.unary_unary(path, ask.SerializeToString, answer.FromString)
        return call(ask(**fields), timeout=seconds)

    def close(self) -> None:
        self._channel.close()

    def _ready(self) -> bool:
        try:
            conditions = {one.type: one.status for one in self("Status").status.conditions}
        except grpc.RpcError as error:  # it is initialized after containerd has begun to listen
            assert error.code() in (grpc.StatusCode.UNKNOWN, grpc.StatusCode.UNAVAILABLE), error
            return False
        return bool(conditions["RuntimeReady"])
