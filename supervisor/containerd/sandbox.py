"""From a CreateSandbox to the configuration of a pod's pause container, and to the files that its members get. Pure.

A sandbox has no image: its process is exitd's own pause program. What CRI would otherwise do around its pause container
is done here: the namespaces, the sysctls, the cgroup; and /etc/hostname, /etc/hosts and /etc/resolv.conf, which CRI
leaves to the shim of such a pod.
"""

import os
from collections.abc import Iterable, Mapping

from google.protobuf.any_pb2 import Any
from google.protobuf.message import DecodeError

from protos.containerd import podsandbox_pb2 as cri
from shim.frozen import frozen
from supervisor.containerd import options
from supervisor.model import pods
from supervisor.model.errors import BadRequest
from supervisor.model.values import Mount, OnPauseExit, Pod
from supervisor.runtime.oci import privileges

CONFIG = "runtime.v1.PodSandboxConfig"
PAUSE = ("/pause",)
MOST_HOSTNAME = 64  # sethostname(2)
MOST_DNS_BYTES = 64 << 10
MOST_TEXT = 253  # of a pod's names, as Kubernetes limits them
NOBODY = 65535  # the user as whom CRI's own pause container runs
FILES = {"hostname": "/etc/hostname", "hosts": "/etc/hosts", "resolv.conf": "/etc/resolv.conf"}
MOUNTS = (  # of the pause container: destination, type, source, options; exitd adds the pod's /dev/shm
    ("/proc", "proc", "proc", "nosuid noexec nodev"),
    ("/dev", "tmpfs", "tmpfs", "nosuid strictatime mode=755 size=65536k"),
)

Document = dict[str, object]


@frozen
class Sandbox:
    """A pod as CRI describes it. `resolv_conf` empty: as the host's. The `own` flags: it has a namespace of its own;
    the network's is at `netns_path` then, or made for it when that is empty."""

    id: str
    netns_path: str = ""
    hostname: str = ""
    cgroup_parent: str = ""
    sysctls: tuple[tuple[str, str], ...] = ()
    resolv_conf: str = ""
    own_network: bool = True
    own_pids: bool = True
    own_ipc: bool = True
    pod: Pod = Pod()
    note: str = ""  # what was not understood, for the log


def parse(id: str, netns_path: str, given: Any | None) -> Sandbox:
    """Parse the options of a CreateSandbox; with options of another kind the sandbox has what a pod has by default.
    Raises BadRequest."""
    kind = options.type_of(given)
    if kind != CONFIG:
        note = f"options of the type {kind[: options.MOST_SHOWN]} mean nothing here" if kind else ""
        return Sandbox(id, _netns(netns_path), id[:12], pod=_pod(cri.PodSandboxMetadata(), id), note=note)
    try:
        config = cri.PodSandboxConfig.FromString(given.value if given is not None else b"")
    except DecodeError as error:
        raise BadRequest(f"{CONFIG} cannot be read: {error}") from error
    namespaces = config.linux.security_context.namespace_options
    if namespaces.HasField("userns_options") and namespaces.userns_options.mode == cri.POD:
        raise BadRequest(
            "a pod with a user namespace of its own: not with the sandboxer shim; give the runtime handler the "
            "sandboxer podsandbox"
        )
    own_network = namespaces.network != cri.NODE
    return Sandbox(
        id=id,
        netns_path=_netns(netns_path) if own_network else "",
        hostname=_hostname(config.hostname or id[:12]) if own_network else "",
        cgroup_parent=_cgroup_parent(config.linux.cgroup_parent),
        sysctls=_sysctls(config.linux.sysctls),
        resolv_conf=_resolv_conf(config.dns_config),
        own_network=own_network,
        own_pids=namespaces.pid != cri.NODE,
        own_ipc=namespaces.ipc != cri.NODE,
        pod=_pod(config.metadata, id),
    )


def document(wanted: Sandbox, pause_root: str) -> Document:
    """Return config.json for the pause container. `pause_root`: the directory with exitd's pause program."""
    return {
        "ociVersion": "1.0.2",
        "process": {
            "user": {"uid": NOBODY, "gid": NOBODY},
            "args": list(PAUSE),
            "env": ["PATH=/"],
            "cwd": "/",
            "capabilities": {},
            "noNewPrivileges": True,
        },
        "root": {"path": pause_root, "readonly": True},
        **({"hostname": wanted.hostname} if wanted.hostname else {}),
        "mounts": [_mount(*each) for each in MOUNTS],
        "annotations": {pods.CRI.type_key: pods.CRI.sandbox_word, pods.CRI.id_key: wanted.id},
        "linux": {
            **({"cgroupsPath": path} if (path := _cgroups_path(wanted)) else {}),
            "namespaces": list(_namespaces(wanted)),
            "resources": {"devices": [{"allow": False, "access": "rwm"}], "cpu": {"shares": 2}},
            **({"sysctl": dict(wanted.sysctls)} if wanted.sysctls else {}),
            "maskedPaths": list(privileges.MASKED_PATHS),
            "readonlyPaths": list(privileges.READONLY_PATHS),
        },
    }


def files(wanted: Sandbox, host: Mapping[str, str]) -> dict[str, str]:
    """Return the texts of FILES for the pod's members. `host`: the machine's own, by the same names."""
    hostname = f"{wanted.hostname}\n" if wanted.hostname else host["hostname"]
    return {"hostname": hostname, "hosts": host["hosts"], "resolv.conf": wanted.resolv_conf or host["resolv.conf"]}


def mounts_of(member: Document, sources: Mapping[str, str]) -> tuple[Mount, ...]:
    """Return the mounts that a member's configuration lacks. `sources`: the paths of FILES, by their names."""
    has = {os.path.normpath(str(each.get("destination", ""))) for each in _objects(member.get("mounts"))}
    root = member.get("root")
    read_only = isinstance(root, dict) and root.get("readonly") is True
    return tuple(Mount(sources[name], at, read_only) for name, at in FILES.items() if name in sources and at not in has)


def _objects(values: object) -> Iterable[dict[str, object]]:
    return [each for each in values if isinstance(each, dict)] if isinstance(values, list) else []


def _netns(path: str) -> str:
    if path and (not os.path.isabs(path) or "\0" in path or len(os.fsencode(path)) > options.MOST_PATH_BYTES):
        raise BadRequest(f"netns_path {path[: options.MOST_SHOWN]!r} must be an absolute path")
    return path


def _hostname(name: str) -> str:
    if len(name.encode()) > MOST_HOSTNAME or not name.isprintable() or " " in name:
        raise BadRequest(f"hostname {name[: options.MOST_SHOWN]!r} must have at most {MOST_HOSTNAME} bytes, no blanks")
    return name


def _cgroup_parent(path: str) -> str:
    """A slice of systemd's by its bare name, or a path."""
    if not path:
        return ""
    named = os.path.basename(path.rstrip("/"))
    if ".." in path.split("/") or ":" in path or "\0" in path or not named:
        raise BadRequest(f"cgroup_parent {path[: options.MOST_SHOWN]!r} must be a slice, or a path without '..'")
    return named if named.endswith(".slice") else f"/{path.strip('/')}"


def _cgroups_path(wanted: Sandbox) -> str:
    """As CRI names those of its own pause containers. Empty: exitd's choice."""
    if not wanted.cgroup_parent:
        return ""
    if wanted.cgroup_parent.endswith(".slice"):
        return f"{wanted.cgroup_parent}:cri-containerd:{wanted.id}"
    return f"{wanted.cgroup_parent}/{wanted.id}"


def _sysctls(asked: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(asked.items()))


def _resolv_conf(dns: cri.DNSConfig) -> str:
    """resolv.conf(5). Raises BadRequest for a word that would be more than one."""
    words = [*dns.servers, *dns.searches, *dns.options]
    bad = next((word for word in words if not word or not word.isprintable() or set(word) & set(" #;")), None)
    if bad is not None:
        raise BadRequest(f"dns_config: {bad[: options.MOST_SHOWN]!r} is no word of resolv.conf")
    lines = [f"search {' '.join(dns.searches)}"] if dns.searches else []
    lines += [f"nameserver {server}" for server in dns.servers]
    lines += [f"options {' '.join(dns.options)}"] if dns.options else []
    text = "".join(f"{line}\n" for line in lines)
    if len(text) > MOST_DNS_BYTES:
        raise BadRequest(f"dns_config has more than {MOST_DNS_BYTES >> 10} KiB")
    return text


def _pod(said: cri.PodSandboxMetadata, id: str) -> Pod:
    """Members outlive their sandbox until containerd's client stops them: it knows how much time each is to have."""
    for field, text in (("name", said.name), ("namespace", said.namespace), ("uid", said.uid)):
        if len(text) > MOST_TEXT or not (text.isprintable() or not text):
            raise BadRequest(f"metadata.{field} of the pod: {text[: options.MOST_SHOWN]!r} is none")
    return Pod(
        name=said.name or id,
        namespace=said.namespace or "default",
        uid=said.uid,
        attempt=said.attempt,
        on_pause_exit=OnPauseExit.KEEP,
    )


def _namespaces(wanted: Sandbox) -> Iterable[dict[str, str]]:
    yield {"type": "mount"}
    if wanted.own_pids:
        yield {"type": "pid"}
    if wanted.own_ipc:
        yield {"type": "ipc"}
    if wanted.own_network:
        yield {"type": "uts"}
        yield {"type": "network", **({"path": wanted.netns_path} if wanted.netns_path else {})}


def _mount(destination: str, kind: str, source: str, options_: str) -> Document:
    return {"destination": destination, "type": kind, "source": source, "options": options_.split()}
