"""Pods as crictl shows them: the words of its table, its JSON (CRI's PodSandbox and PodSandboxStatus), and exitd's own
part under `info`. Pure."""

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.cli import spoken
from supervisor.cli.shape import Document, container_document, exit_document, time_text

STATES = {"SANDBOX_READY": "Ready", "SANDBOX_NOTREADY": "NotReady"}
ID_WIDTH = 13  # crictl's
HEADINGS = ("POD ID", "CREATED", "STATE", "NAME", "NAMESPACE", "ATTEMPT", "RUNTIME")


def row(pod: pb.Pod, now_ns: int, *, whole: bool) -> list[str]:
    """Return one line of `pods`."""
    return [
        pod.id if whole else pod.id[:ID_WIDTH],
        spoken.ago(pod.pause.created_at, now_ns),
        state_word(pod),
        pod.spec.name,
        pod.spec.namespace,
        str(pod.spec.attempt),
        pod.pause.spec.runtime or "(default)",
    ]


def state_word(pod: pb.Pod) -> str:
    return STATES.get(pod.state, pod.state or "Unknown")


def item(pod: pb.Pod) -> Document:
    """Return one element of `pods -o json`: times are nanoseconds since 1970, as text."""
    return {
        "id": pod.id,
        "metadata": _metadata(pod),
        "state": pod.state,
        "createdAt": str(spoken.nanoseconds(pod.pause.created_at)),
        "labels": _sorted(pod.pause.spec.labels),
        "annotations": _sorted(pod.pause.spec.annotations),
        "runtimeHandler": pod.pause.spec.runtime,
    }


def details(pod: pb.Pod) -> list[tuple[str, str]]:
    """Return what `pods -v` shows, as names and values."""
    spec = pod.pause.spec
    return [
        ("ID", pod.id),
        ("Name", pod.spec.name),
        ("UID", pod.spec.uid),
        ("Namespace", pod.spec.namespace),
        ("Attempt", str(pod.spec.attempt) if pod.spec.attempt else ""),
        ("Status", state_word(pod)),
        ("Created", time_text(pod.pause.created_at)),
        *(("Labels", text) for text in _arrows(spec.labels)),
        *(("Annotations", text) for text in _arrows(spec.annotations)),
        ("Runtime", spec.runtime or "(default)"),
    ]


def status(pod: pb.Pod) -> Document:
    """Return `status` of `inspectp`. Without an address the pod's network is its own loopback, or the machine's."""
    ip, *more = [each.partition("/")[0] for net in pod.pause.networks for each in net.addresses] or [""]
    return {
        "annotations": _sorted(pod.pause.spec.annotations),
        "createdAt": time_text(pod.pause.created_at),
        "id": pod.id,
        "labels": _sorted(pod.pause.spec.labels),
        "linux": {"namespaces": {"options": _options(pod)}},
        "metadata": _metadata(pod),
        "network": {"additionalIps": [{"ip": each} for each in more], "ip": ip},
        "runtimeHandler": pod.pause.spec.runtime,
        "state": pod.state,
    }


def info(pod: pb.Pod) -> Document:
    """Return what CRI has no place for. `exits`: the newest of each member, by creation."""
    return {
        "exitPolicy": pod.spec.exit_policy,
        "onPauseExit": pod.spec.on_pause_exit,
        "memoryLimitInBytes": pod.spec.memory_bytes,
        "pidsLimit": pod.spec.pids_limit,
        "cpuLimitInMillis": pod.spec.cpu_limit_milli,
        "logDirectory": pod.spec.log_directory,
        "pause": container_document(pod.pause),
        "members": [container_document(member) for member in pod.members],
        "exits": [
            {"id": member.id, "name": member.spec.name, **exit_document(member.exit)}
            for member in pod.members
            if member.HasField("exit")
        ],
    }


def _metadata(pod: pb.Pod) -> Document:
    spec = pod.spec
    return {"attempt": spec.attempt, "name": spec.name, "namespace": spec.namespace, "uid": spec.uid}


def _options(pod: pb.Pod) -> Document:
    """CRI's NamespaceOption. Each member chooses its pid namespace: POD if any has chosen it."""
    pid = "NODE" if pod.pause.spec.pid == "host" else "CONTAINER"
    if any(member.spec.pid == "pod" for member in pod.members):
        pid = "POD"
    network = "NODE" if pod.pause.spec.network == "host" else "POD"
    ipc = "NODE" if pod.pause.spec.ipc == "host" else "POD"
    return {"ipc": ipc, "network": network, "pid": pid, "targetId": "", "usernsOptions": None}


def _sorted(pairs: object) -> Document:
    return dict(sorted(dict(pairs).items()))  # type: ignore[call-overload]  # a protobuf map, which has no type


def _arrows(pairs: object) -> list[str]:
    return [f"{key} -> {value}" for key, value in _sorted(pairs).items()]
