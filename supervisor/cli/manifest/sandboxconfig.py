"""Converts CRI's PodSandboxConfig (runtime/v1/api.proto of 0.36), as `crictl runp` takes it, to a request for a pod.
Pure.

What exitd cannot do is refused if it would limit or isolate, else ignored with a warning. Fields that CRI does not have
are ignored with a warning, too, where crictl is silent; but below `linux`, where limits and isolation are, an unknown
field is refused.
"""

from collections.abc import Callable

from protos.exitd.v1 import exitd_pb2 as pb
from shim.frozen import frozen
from supervisor.api.requests import MAX_CPU_MILLI, MIN_CPU_MILLI, MIN_MEMORY_BYTES
from supervisor.cli.manifest import tree
from supervisor.cli.manifest.fields import Field, Notes, flag_of, text_of
from supervisor.cli.manifest.marks import MarkedNumber
from supervisor.cli.manifest.podshape import MOST_ID, NO_PROFILE, NO_WINDOWS
from supervisor.cli.manifest.ports import protocol_of, put_ports, sandbox_mappings
from supervisor.cli.manifest.shape import (
    Check,
    Object,
    boolean,
    each,
    ignored,
    items,
    matching,
    pairs,
    quiet,
    read,
    refused,
    text,
    unless,
    within,
)
from supervisor.cli.manifest.sysctls import sandbox_sysctls
from supervisor.model.errors import BadRequest
from supervisor.model.values import BUILTIN, OWN_PROFILE, UNCONFINED

CPU_PERIOD_US = 100_000
MODES = ("POD", "CONTAINER", "NODE", "TARGET")  # NamespaceMode, by its numbers
NO_STRICT = "the pause program's root has no /etc/group that could be left out; drop it"
_WORD = matching(r"[a-zA-Z0-9][a-zA-Z0-9_.-]{0,252}", "name (letters, digits, _, . and -)")


@frozen
class SandboxConfig:
    """The request, and what will differ from the file."""

    spec: pb.ContainerSpec
    warnings: tuple[str, ...]


def mode(field: Field) -> str:
    """Return a namespace's mode, by its number or its name. Raises WrongField."""
    value = field.node.value
    if isinstance(value, MarkedNumber):
        return MODES[field.integer(0, len(MODES) - 1)]
    if field.text() not in MODES:
        raise field.wrong(f"{field.text()!r} is none of {', '.join(MODES)}")
    return field.text()


def _mode(why: str, *fine: str) -> Check:
    def get(field: Field) -> None:
        if mode(field) not in fine:
            raise field.wrong(f"{mode(field)}: {why}")

    return read(get)


_NAMESPACES = Object(
    {
        "network": _mode("a pod's network is its own (POD) or the machine's (NODE)", "POD", "NODE"),
        "pid": _mode("members say for themselves, with --pid", "POD", "CONTAINER", "NODE"),
        "ipc": _mode("a pod's ipc namespace is its own (POD) or the machine's (NODE)", "POD", "NODE"),
        "target_id": refused("exitd joins no other container's namespaces"),
        "userns_options": Object(
            {
                "mode": _mode("exitd makes no user namespaces", "NODE"),
                "uids": refused("exitd makes no user namespaces"),
                "gids": refused("exitd makes no user namespaces"),
            }
        ),
    }
)
PROFILES = ("RuntimeDefault", "Unconfined", "Localhost")  # SecurityProfile.ProfileType, by its numbers


def profile_type(field: Field) -> str:
    """Return a profile's type, by its number or its name. Raises WrongField."""
    if isinstance(field.node.value, MarkedNumber):
        return PROFILES[field.integer(0, len(PROFILES) - 1)]
    if field.text() not in PROFILES:
        raise field.wrong(f"{field.text()!r} is none of {', '.join(PROFILES)}")
    return field.text()


def _seccomp_type(field: Field) -> None:
    if profile_type(field) == "Localhost":
        raise field.wrong("a pause container has exitd's own profile (RuntimeDefault, 0) or none (Unconfined, 1)")


def _apparmor_type(field: Field) -> None:
    profile_type(field)


_SECCOMP = Object(
    {"profile_type": read(_seccomp_type), "localhost_ref": quiet},
    required=("profile_type",),
)
_APPARMOR = Object({"profile_type": read(_apparmor_type), "localhost_ref": text}, required=("profile_type",))
_ID = Object({"value": within(0, MOST_ID)}, required=("value",))
_SECURITY = Object(
    {
        "namespace_options": _NAMESPACES,
        "selinux_options": refused(NO_PROFILE),
        "run_as_user": _ID,
        "run_as_group": _ID,
        "readonly_rootfs": boolean,
        "supplemental_groups": items(within(0, MOST_ID)),
        "supplemental_groups_policy": unless(("Merge",), refused(NO_STRICT)),
        "privileged": refused("a pause container needs no rights; members say for themselves, with --privileged"),
        "seccomp": _SECCOMP,
        "apparmor": _APPARMOR,
        "seccomp_profile_path": unless(("unconfined",), refused("it was taken out of CRI; write seccomp")),
    }
)


def _period(field: Field, notes: Notes) -> None:
    """Check for the kernel's range. 0 is CRI's word for a period that is not given."""
    if not field.is_empty:
        within(1000, 1_000_000)(field, notes)


_NO_POD_LIMIT = "a pod as a whole has limits of memory and CPU time alone (memory_limit_in_bytes, cpu_quota)"
_RESOURCES = Object(
    {
        "memory_limit_in_bytes": within(0, (1 << 63) - 1),
        "cpu_period": _period,
        "cpu_quota": within(-1, (1 << 63) - 1),
        "cpu_shares": ignored("a pod as a whole has no weight; its containers may have"),
        "oom_score_adj": refused("exitd's containers are killed for memory in the kernel's own order"),
        "cpuset_cpus": refused(_NO_POD_LIMIT),
        "cpuset_mems": refused(_NO_POD_LIMIT),
        "hugepage_limits": refused(_NO_POD_LIMIT),
        "unified": refused(_NO_POD_LIMIT),
        "memory_swap_limit_in_bytes": refused(_NO_POD_LIMIT),
    }
)
_OVERHEAD = refused("add it to resources: a pod's memory is limited as one")
_LINUX = Object(
    {
        "cgroup_parent": refused("exitd keeps its containers under a cgroup of its own"),
        "security_context": _SECURITY,
        "sysctls": pairs,
        "overhead": _OVERHEAD,
        "resources": _RESOURCES,
    }
)
_METADATA = Object(
    {"name": _WORD, "uid": _WORD, "namespace": _WORD, "attempt": within(0, (1 << 32) - 1)},
    required=("name", "namespace"),
    strict=False,
)
_PORT = Object(
    {
        "protocol": read(protocol_of),
        "container_port": within(0, 65535),
        "host_port": within(0, 65535),
        "host_ip": read(Field.text),
    }
)
_NO_DNS = ignored(
    "each container of a pod has servers of its own: exitctl run --pod POD --dns, --dns-search, --dns-option"
)
_DNS = Object(each("servers searches options", _NO_DNS), strict=False)
CONFIG = Object(
    {
        "metadata": _METADATA,
        "hostname": matching(r"[a-zA-Z0-9](?:[a-zA-Z0-9.-]{0,62}[a-zA-Z0-9])?", "host name (at most 64 characters)"),
        "log_directory": matching(r"/.*", "absolute path"),
        "dns_config": _DNS,
        "port_mappings": items(_PORT),
        "labels": pairs,
        "annotations": pairs,
        "linux": _LINUX,
        "windows": refused(NO_WINDOWS),
    },
    required=("metadata",),
    strict=False,
)


def read_config(text: str, file: str, new_uid: Callable[[], str]) -> SandboxConfig:
    """`new_uid` returns the uid for a pod without one. Raises BadRequest with every mistake."""
    documents = tree.documents(text, file, json=file.endswith(".json"))
    if len(documents) != 1:
        raise BadRequest(f"{file}: holds {len(documents)} documents; it must be one PodSandboxConfig")
    config, notes = Field(file, "", documents[0]), Notes()
    CONFIG(config, notes)
    notes.settle()
    spec = _spec(config, new_uid, notes)
    notes.settle()
    return SandboxConfig(spec, tuple(notes.warnings))


def _spec(config: Field, new_uid: Callable[[], str], notes: Notes) -> pb.ContainerSpec:
    metadata, security = config.get("metadata"), config.get("linux", "security_context")
    assert metadata is not None
    attempt = metadata.get("attempt")
    labels, annotations = config.get("labels"), config.get("annotations")
    network, pid, asked = (_mode_of(security, name) for name in ("network", "pid", "ipc"))
    ipc = "host" if asked == "NODE" else ""
    ports = sandbox_mappings(config.get("port_mappings"), notes, host_network=network == "NODE")
    spec = pb.ContainerSpec(
        image="pause",
        hostname=text_of(config.get("hostname")),
        network="host" if network == "NODE" else "",
        pid="host" if pid == "NODE" else "own",
        user=_user(security, notes),
        rights=_rights(security),
        read_only=flag_of(security.get("readonly_rootfs") if security is not None else None),
        labels=labels.pairs() if labels is not None else {},
        annotations=annotations.pairs() if annotations is not None else {},
        ipc=ipc,
        sysctls=sandbox_sysctls(config.get("linux", "sysctls"), notes, host_network=network == "NODE", ipc=ipc),
        security=_security(security, notes),
        pod=pb.PodSpec(
            name=text_of(metadata.get("name")),
            namespace=text_of(metadata.get("namespace")),
            uid=text_of(metadata.get("uid")) or new_uid(),
            attempt=attempt.integer() if attempt is not None else 0,
            log_directory=text_of(config.get("log_directory")),
            memory_bytes=_memory(config.get("linux", "resources", "memory_limit_in_bytes"), notes),
            cpu_limit_milli=_cpu(config.get("linux", "resources"), notes),
        ),
    )
    put_ports(spec, ports)
    return spec


def _rights(security: Field | None) -> pb.RightsSpec | None:
    groups = security.get("supplemental_groups") if security is not None else None
    return (
        None if groups is None or groups.is_empty else pb.RightsSpec(groups=[each.integer() for each in groups.items()])
    )


def _mode_of(security: Field | None, name: str) -> str:
    field = security.get("namespace_options", name) if security is not None else None
    return mode(field) if field is not None else "POD"


def _security(security: Field | None, notes: Notes) -> pb.SecuritySpec | None:
    asked = security.get("seccomp", "profile_type") if security is not None else None
    older = security.get("seccomp_profile_path") if security is not None else None
    apparmor = _apparmor(security, notes)
    if asked is None and older is None:
        return pb.SecuritySpec(apparmor=apparmor) if apparmor else None
    unconfined = asked is None or profile_type(asked) == "Unconfined"
    return pb.SecuritySpec(seccomp=UNCONFINED if unconfined else BUILTIN, apparmor=apparmor)


def _apparmor(security: Field | None, notes: Notes) -> str:
    """Return the API's value; empty if none is named."""
    asked = security.get("apparmor", "profile_type") if security is not None else None
    if security is None or asked is None:
        return ""
    kind, name = profile_type(asked), text_of(security.get("apparmor", "localhost_ref"))
    if kind != "Localhost":
        return UNCONFINED if kind == "Unconfined" else OWN_PROFILE
    if not name:
        asked.refuse(notes, "Localhost goes with localhost_ref, the name of a loaded profile")
    return name


def _user(security: Field | None, notes: Notes) -> str:
    user = security.get("run_as_user", "value") if security is not None else None
    group = security.get("run_as_group", "value") if security is not None else None
    if user is None:
        if group is not None:
            group.refuse(notes, "needs run_as_user beside it")
        return ""
    return str(user.integer()) if group is None else f"{user.integer()}:{group.integer()}"


def _memory(limit: Field | None, notes: Notes) -> int:
    found = limit.integer() if limit is not None else 0
    if limit is not None and 0 < found < MIN_MEMORY_BYTES:
        limit.refuse(notes, f"{found} is below {MIN_MEMORY_BYTES} (4 MiB), in which no runtime can make a container")
    return found


def _cpu(resources: Field | None, notes: Notes) -> int:
    """Return thousandths of a CPU. A quota of 0 or -1 is no limit; a period of 0 is the kernel's own."""
    quota = resources.get("cpu_quota") if resources is not None else None
    period = resources.get("cpu_period") if resources is not None else None
    if quota is None or quota.integer(-1) <= 0:
        return 0
    period_us = CPU_PERIOD_US if period is None or period.is_empty else period.integer()
    milli = -(-quota.integer() * 1000 // period_us)
    if not MIN_CPU_MILLI <= milli <= MAX_CPU_MILLI:
        quota.refuse(notes, f"{milli} thousandths of a CPU are not in the range of {MIN_CPU_MILLI} to {MAX_CPU_MILLI}")
        return 0
    return milli
