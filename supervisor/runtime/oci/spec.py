"""The OCI runtime configuration of a container, version 1.0.2: from the caller's request to config.json. Pure.

https://github.com/opencontainers/runtime-spec/blob/v1.0.2/config.md, with runc's mounts and docker's rights.
"""

import json
import os
from collections.abc import Iterable
from typing import cast

from shim.frozen import frozen
from supervisor.model.errors import BadRequest
from supervisor.model.rights import NAMES
from supervisor.model.values import UNCONFINED, Mount, Security, Spec
from supervisor.runtime.oci import privileges, shape
from supervisor.runtime.oci.command import DEFAULT_PATH
from supervisor.runtime.oci.privileges import Device
from supervisor.runtime.oci.users import Ids

Document = dict[str, object]

MOUNTS = (  # destination, type, source, options
    ("/proc", "proc", "proc", "nosuid noexec nodev"),
    ("/dev", "tmpfs", "tmpfs", "nosuid strictatime mode=755 size=65536k"),
    ("/dev/pts", "devpts", "devpts", "nosuid noexec newinstance ptmxmode=0666 mode=0620 gid=5"),
    ("/dev/shm", "tmpfs", "shm", "nosuid noexec nodev mode=1777 size=65536k"),
    ("/dev/mqueue", "mqueue", "mqueue", "nosuid noexec nodev"),
    ("/sys", "sysfs", "sysfs", "nosuid noexec nodev ro"),
    ("/sys/fs/cgroup", "cgroup", "cgroup", "nosuid noexec nodev relatime ro"),
)
SHM = "/dev/shm"
RESTRICTED = ("nosuid", "nodev")
CPU_PERIOD_US = 100_000
MIN_SHARES = 2  # the kernel's minimum
DEFAULT_TERM = "xterm"


@frozen
class Host:
    """What a configuration depends on in this machine. `hard_files`: the daemon's own RLIMIT_NOFILE, which limits
    containers'."""

    cgroup_v2: bool = False
    swap_limit: bool = False  # the kernel counts swap: without a swap limit a memory limit is twice as high
    hard_files: int = 4096
    oom_score_adj: int = 0
    lacking: tuple[tuple[str, str], ...] = ()  # controllers by which nothing can be limited, and why
    capabilities: tuple[str, ...] = NAMES  # that the daemon can pass on
    sysctls: tuple[tuple[str, str], ...] = ()  # for a network namespace of its own
    apparmor: bool = True
    selinux: bool = True
    hidden: tuple[str, ...] = ()  # paths besides those that are always hidden
    devices: tuple[Device, ...] = ()  # for a privileged container


@frozen
class Shared:
    """What a container shares with others: the namespaces that it joins, each with its path; the pod's /dev/shm, unless
    `bound_shm` says that a bind mount there is the caller's choice; and the annotations that the runtime gets to see.
    """

    namespaces: tuple[tuple[str, str], ...] = ()
    shm: str = ""
    bound_shm: bool = False
    annotations: tuple[tuple[str, str], ...] = ()


def config(
    spec: Spec,
    container_id: str,
    *,
    rootfs_path: str,
    cgroups_path: str,
    user: Ids,
    shared: Shared = Shared(),
    host: Host = Host(),
) -> Document:
    """Return config.json for a container on a root file system. Raises BadRequest for what no runtime could accept."""
    hostname = spec.hostname or container_id[:12]
    resources: Document = {
        "devices": privileges.device_rules(spec.rights),
        **_memory(spec, host),
        **_cpu(spec, host),
        **privileges.pids(spec.rights, lacking=dict(host.lacking).get("pids", "")),
    }
    joins = dict(shared.namespaces)
    defaults = [_default_mount(*mount, privileged=spec.rights.privileged) for mount in MOUNTS]
    mounts = defaults + [_bind(mount) for mount in spec.mounts]
    return {
        "ociVersion": "1.0.2",
        "process": _process(spec, hostname, user, host),
        "root": {"path": rootfs_path, "readonly": spec.read_only},
        **({} if "uts" in joins else {"hostname": hostname}),
        "mounts": _with_shm(mounts, shared.shm),
        "annotations": dict(shared.annotations),
        "linux": {
            "cgroupsPath": cgroups_path,
            "resources": resources,
            "namespaces": _with_paths([{"type": kind} for kind in _namespaces(spec, host)], joins),
            **({} if "network" in joins or spec.network == "host" else _sysctls(host)),
            **_view(spec, host),
        },
    }


def parse_bundle(text: bytes, file: str) -> Document:
    """Parse the config.json of a bundle for a new container. Raises BadRequest, which names the file, and the line if
    it is not JSON."""
    document = parse_stored(text, file)
    try:
        shape.check_depth(document, "the whole")
        shape.check(document, shape.CONFIG, "")
    except BadRequest as error:
        raise BadRequest(f"{file}: {error}", file=file) from error
    return document


def parse_stored(text: bytes, file: str) -> Document:
    """Parse the config.json of an existing container, made by an earlier exitd or by hand. Another version's checks may
    have been weaker, and the container must not be lost for that: read it with `readable`. Raises BadRequest when it is
    no configuration."""
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        raise BadRequest(f"{file}, line {error.lineno}, column {error.colno}: {error.msg}", file=file) from error
    except (ValueError, RecursionError) as error:  # not UTF-8; a number of thousands of digits
        raise BadRequest(f"{file} is not JSON text: {error}", file=file) from error
    if not isinstance(document, dict):
        raise BadRequest(f"{file}: the whole must be one JSON object", file=file)
    for path in ("process", "root"):
        if not isinstance(document.get(path), dict):
            raise BadRequest(f"{file}: {path!r} must be there and be an object", file=file)
    if not isinstance(document["root"].get("path"), str):
        raise BadRequest(f"{file}: root.path must be there and be a string", file=file)
    if not shape.trim(document["root"]["path"], str):
        raise BadRequest(f"{file}: root.path has a zero byte or a lone surrogate in it", file=file)
    return document


def readable(document: Document) -> Document:
    """Return the document without what parse_bundle would refuse: for reading, not for writing."""
    shape.trim(document, shape.CONFIG)
    return document


def adapt_bundle(
    document: Document,
    spec: Spec,
    *,
    cgroups_path: str,
    user: Ids | None = None,
    shared: Shared = Shared(),
    host: Host = Host(),
) -> Document:
    """Return the bundle's configuration, plus what the caller asked for, in a form for another directory.

    `document` comes from parse_bundle and is not changed. Added if absent: cgroupsPath and oomScoreAdj (it would be
    inherited, and the parents are protected from the OOM killer). `user` is what `spec.user` was resolved to. The
    caller decides whether there is a terminal. Relative paths become absolute, from `spec.bundle`. Raises BadRequest.
    """
    result: Document = json.loads(json.dumps(document))  # takes a fifth of the time of copy.deepcopy
    process, root, linux = (_section(result, key) for key in ("process", "root", "linux"))
    root["path"] = os.path.join(spec.bundle, str(root["path"]))
    linux["cgroupsPath"] = linux.get("cgroupsPath") or cgroups_path
    process["terminal"] = spec.tty
    if not spec.tty:
        process.pop("consoleSize", None)
    process.setdefault("oomScoreAdj", host.oom_score_adj)
    if spec.security.no_new_privileges is not None:
        process["noNewPrivileges"] = spec.security.no_new_privileges
    process.update(_labels(spec.security, host))
    _ask_process(process, spec, user)
    _ask_rest(result, spec, host)
    _ask_shared(result, shared)
    return result


def join(document: Document, namespaces: dict[str, str]) -> None:
    """Change the paths of the namespaces that it joins already."""
    linux = _section(document, "linux")
    linux["namespaces"] = _with_paths(_objects(linux, "namespaces"), namespaces)


def restrict(document: Document, below: str) -> Document:
    """Return the document with mounts from sources `below` made nosuid and nodev: a member that writes there as root
    must not leave files that give root to a user who runs or opens them."""
    for mount in _objects(document, "mounts"):
        if str(mount.get("source", "")).startswith(below):
            mount["options"] = list(dict.fromkeys([*strings(mount, "options"), *RESTRICTED]))
    return document


def rootfs_of(document: Document) -> str:
    """Return root.path, where commands and users are looked up."""
    return str(_section(document, "root")["path"])


def cgroups_path_of(document: Document) -> str:
    """Return linux.cgroupsPath: exitd's own choice unless a bundle names one."""
    return str(_section(document, "linux")["cgroupsPath"])


def named_cgroup(document: Document) -> str:
    """Return linux.cgroupsPath; empty if the document names none."""
    linux = document.get("linux")
    path = linux.get("cgroupsPath") if isinstance(linux, dict) else None
    return path if isinstance(path, str) else ""


def has_own_pids(document: Document) -> bool:
    """Return whether it has its own pid namespace, so that the kernel ends all its processes with its init."""
    found = [each for each in _objects(_section(document, "linux"), "namespaces") if each.get("type") == "pid"]
    return any(not each.get("path") for each in found)


def _ask_process(process: Document, spec: Spec, user: Ids | None) -> None:
    if spec.args:
        process["args"] = list(spec.args)
    if not process.get("args"):
        raise BadRequest(f"no command: neither the request nor {spec.bundle}/config.json has one")
    if spec.env:
        process["env"] = merge_env(strings(process, "env"), spec.env)
    if spec.cwd != "/":
        process["cwd"] = _absolute(spec.cwd, "working directory")
    if spec.user and user is not None:
        process["user"] = user_section(user)
    if spec.rights.ulimits:
        process["rlimits"] = privileges.with_rlimits(_objects(process, "rlimits"), spec.rights)


def _ask_rest(document: Document, spec: Spec, host: Host) -> None:
    linux = _section(document, "linux")
    mounts = _objects(document, "mounts")
    for mount in mounts:
        if _is_bind(mount) and isinstance(mount.get("source"), str):
            mount["source"] = os.path.join(spec.bundle, str(mount["source"]))
    document["mounts"] = mounts + [_bind(mount) for mount in spec.mounts]
    if spec.memory_bytes:
        _section(linux, "resources").update(_memory(spec, host))
    if spec.cpu_limit_milli or spec.cpu_request_milli:
        _section(linux, "resources").update(_cpu(spec, host))
    if spec.rights.pids_limit:
        _section(linux, "resources").update(privileges.pids(spec.rights, lacking=dict(host.lacking).get("pids", "")))
    if spec.hostname:
        document["hostname"] = spec.hostname
    if spec.read_only:
        _section(document, "root")["readonly"] = True
    of_the_host = [*(["network"] if spec.network == "host" else []), *(["pid"] if spec.pid == "host" else [])]
    if of_the_host:
        linux["namespaces"] = [each for each in _objects(linux, "namespaces") if each.get("type") not in of_the_host]


def _ask_shared(document: Document, shared: Shared) -> None:
    if shared.annotations:
        _section(document, "annotations").update(shared.annotations)
    joins = dict(shared.namespaces)
    if joins:
        join(document, joins)
    if "uts" in joins:
        document.pop("hostname", None)
    mounts = _objects(document, "mounts")
    is_bound = any(mount.get("destination") == SHM and _is_bind(mount) for mount in mounts)
    document["mounts"] = mounts if is_bound and shared.bound_shm else _with_shm(mounts, shared.shm)


def _with_paths(namespaces: list[Document], joins: dict[str, str]) -> list[Document]:
    """Give the joined namespaces of the list their path, and add those that are joined but not in the list."""
    others = [each for each in namespaces if each.get("type") not in joins]
    return others + [{"type": kind, "path": path} for kind, path in joins.items()]


def _with_shm(mounts: list[Document], shm: str) -> list[Document]:
    """Replace the container's own /dev/shm by the pod's."""
    if not shm:
        return mounts
    shared = {"destination": SHM, "type": "bind", "source": shm, "options": ["rbind", "rprivate", "rw"]}
    kept = [mount for mount in mounts if mount.get("destination") != SHM]
    at = next((i for i, mount in enumerate(mounts) if mount.get("destination") == SHM), len(kept))
    return [*kept[:at], cast(Document, shared), *kept[at:]]


def _process(spec: Spec, hostname: str, user: Ids, host: Host) -> Document:
    if not spec.args:
        raise BadRequest("no command: give at least one argument after the options")
    terminal = (f"TERM={DEFAULT_TERM}",) if spec.tty else ()
    defaults = (f"PATH={DEFAULT_PATH}", f"HOSTNAME={hostname}", f"HOME={user.home}", *terminal)
    return {
        "terminal": spec.tty,
        "user": user_section(user),
        "args": list(spec.args),
        "env": merge_env(defaults, spec.env),
        "cwd": _absolute(spec.cwd, "working directory"),
        "capabilities": privileges.capability_sets(spec.rights, user, host.capabilities),
        "rlimits": privileges.rlimits(spec.rights, host.hard_files),
        "noNewPrivileges": _gains_nothing(spec),
        "oomScoreAdj": host.oom_score_adj,
        **_labels(spec.security, host),
    }


def _labels(security: Security, host: Host) -> Document:
    """Return the labels for AppArmor and SELinux. Raises BadRequest when the kernel lacks them: a runtime would only
    report an errno."""
    unconfined = security.apparmor == UNCONFINED and not host.apparmor
    asked = {"apparmorProfile": "" if unconfined else security.apparmor, "selinuxLabel": security.selinux}
    if asked["apparmorProfile"] and not host.apparmor:
        raise _without("apparmor", security.apparmor, "AppArmor")
    if asked["selinuxLabel"] and not host.selinux:
        raise _without("selinux", security.selinux, "SELinux")
    return {name: value for name, value in asked.items() if value}


def _without(field: str, value: str, what: str) -> BadRequest:
    text = f"security.{field} {value!r}: this machine's kernel has no {what}, or it is off; drop it to run without"
    return BadRequest(text, field=f"security.{field}")


def user_section(user: Ids) -> Document:
    """The process's own group is among the additional ones, too: otherwise setgid(2) drops it, and with it what it
    forbids."""
    return {"uid": user.uid, "gid": user.gid, "additionalGids": sorted({user.gid, *user.additional_gids})}


def _gains_nothing(spec: Spec) -> bool:
    """Return whether setuid programs must not raise its rights; a privileged container may."""
    asked = spec.security.no_new_privileges
    return not spec.rights.privileged if asked is None else asked


def _view(spec: Spec, host: Host) -> Document:
    """Return which paths of /proc and /sys are hidden or read-only, and which additional devices there are."""
    if spec.rights.privileged:
        return {"devices": privileges.device_nodes(host.devices)}
    masked = [*privileges.MASKED_PATHS, *host.hidden]
    return {"maskedPaths": masked, "readonlyPaths": list(privileges.READONLY_PATHS)}


def _sysctls(host: Host) -> Document:
    return {"sysctl": dict(host.sysctls)} if host.sysctls else {}


def _namespaces(spec: Spec, host: Host) -> tuple[str, ...]:
    network = () if spec.network == "host" else ("network",)
    pid = () if spec.pid == "host" else ("pid",)
    return (*pid, "ipc", "uts", "mount", *network, *(("cgroup",) if host.cgroup_v2 else ()))


def _memory(spec: Spec, host: Host) -> Document:
    if not spec.memory_bytes:
        return {}
    if why := dict(host.lacking).get("memory"):
        raise BadRequest(f"memory_bytes: {why}; or ask for no limit")
    swap = {"swap": spec.memory_bytes} if host.swap_limit else {}  # memory and swap together: no swap at all
    return {"memory": {"limit": spec.memory_bytes, **swap}}


def _cpu(spec: Spec, host: Host) -> Document:
    asked = "cpu_limit_milli" if spec.cpu_limit_milli else "cpu_request_milli" if spec.cpu_request_milli else ""
    if asked and (why := dict(host.lacking).get("cpu")):
        raise BadRequest(f"{asked}: {why}; or ask for none")
    limit = {"quota": spec.cpu_limit_milli * CPU_PERIOD_US // 1000, "period": CPU_PERIOD_US}
    shares = {"shares": max(MIN_SHARES, spec.cpu_request_milli * 1024 // 1000)}  # 1024 for a whole CPU, as in CRI
    cpu = {**(limit if spec.cpu_limit_milli else {}), **(shares if spec.cpu_request_milli else {})}
    return {"cpu": cpu} if cpu else {}


def _default_mount(destination: str, kind: str, source: str, options: str, *, privileged: bool) -> Document:
    """A privileged container can write where others only read."""
    words = [word for word in options.split() if not (privileged and word == "ro")]
    return {"destination": destination, "type": kind, "source": source, "options": words}


def _bind(mount: Mount) -> Document:
    source = _absolute(mount.source, "mount source")
    destination = _absolute(mount.destination, "mount destination")
    options = ["rbind", "rprivate", "ro" if mount.read_only else "rw"]
    return {"destination": destination, "type": "bind", "source": source, "options": options}


def _is_bind(mount: Document) -> bool:
    options = mount.get("options")
    return mount.get("type") == "bind" or (isinstance(options, list) and not {"bind", "rbind"}.isdisjoint(options))


def merge_env(first: Iterable[str], second: Iterable[str]) -> list[str]:
    """Merge: later values win, each name occurs once."""
    merged: dict[str, str] = {}
    for line in (*first, *second):
        name, equals, value = line.partition("=")
        if not name or not equals or "\0" in line:
            raise BadRequest(f"environment entry {line!r} is not of the form NAME=VALUE")
        merged[name] = value
    return [f"{name}={value}" for name, value in merged.items()]


def _absolute(path: str, what: str) -> str:
    if not path.startswith("/"):
        raise BadRequest(f"{what} {path!r} must be an absolute path")
    return path


def _section(document: Document, key: str) -> Document:
    """Return the object under `key`; made if absent."""
    section = document.setdefault(key, {})
    if not isinstance(section, dict):
        raise BadRequest(f"config.json: {key!r} must be an object")
    return cast(Document, section)


def _objects(document: Document, key: str) -> list[Document]:
    values = document.get(key) or []
    if not isinstance(values, list) or not all(isinstance(value, dict) for value in values):
        raise BadRequest(f"config.json: {key!r} must be a list of objects")
    return cast(list[Document], values)


def strings(document: Document, key: str) -> list[str]:
    values = document.get(key) or []
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise BadRequest(f"config.json: {key!r} must be a list of strings")
    return cast(list[str], values)
