"""The OCI runtime configuration of a container, version 1.0.2: from the caller's request to config.json. Pure.

https://github.com/opencontainers/runtime-spec/blob/v1.0.2/config.md, with runc's mounts and docker's rights.
"""

import json
import os
from collections.abc import Callable, Iterable
from typing import cast

from shim.frozen import frozen
from supervisor.model.errors import BadRequest
from supervisor.model.idranges import IdRange
from supervisor.model.mountflags import ALONE, PROPAGATIONS
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
INIT = "/sbin/exitd-init"  # where exitd's init program is mounted
HARMLESS = ("nosuid", "nodev", "noexec")
RESTRICTED = ("nosuid", "nodev")
TMPFS_MODE = 0o1777
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
    own_profile: str = ""  # AppArmor's, of containers that name none; empty: it is not loaded
    selinux: bool = True
    hidden: tuple[str, ...] = ()  # paths besides those that are always hidden
    devices: tuple[Device, ...] = ()  # for a privileged container
    asked_devices: tuple[tuple[Device, str], ...] = ()  # that the caller named, each with its access


@frozen
class Shared:
    """What a container shares with others: the namespaces that it joins, each with its path; the pod's /dev/shm, unless
    `bound_shm` says that a bind mount there is the caller's choice; the annotations that the runtime gets to see; and
    the files that are made for each run: the place of each in the container, and where it is.
    """

    namespaces: tuple[tuple[str, str], ...] = ()
    shm: str = ""
    bound_shm: bool = False
    annotations: tuple[tuple[str, str], ...] = ()
    files: tuple[tuple[str, str], ...] = ()
    own_network: bool = False  # exitd has made the network namespace of `namespaces` for this container alone

    @property
    def with_others(self) -> dict[str, str]:
        """The namespaces that are not its own."""
        return {kind: path for kind, path in self.namespaces if not (kind == "network" and self.own_network)}


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
        "devices": [*privileges.device_rules(spec.rights), *privileges.device_grants(host.asked_devices)],
        **_memory(spec, host),
        **_cpu(spec, host),
        **privileges.pids(spec.rights, lacking=dict(host.lacking).get("pids", "")),
    }
    joins = dict(shared.namespaces)
    if spec.limits.shm_bytes and (shared.shm or spec.ipc == "host"):
        raise BadRequest("limits.shm_bytes: its /dev/shm is its pod's, or the machine's", field="limits.shm_bytes")
    defaults = _with_shm(
        [_default_mount(*mount, spec=spec) for mount in _mounts_of(spec)], SHM if spec.ipc == "host" else ""
    )
    asked = [_mount(mount) for mount in spec.mounts]
    taken = {os.path.normpath(mount.destination) for mount in spec.mounts}
    files = [
        _mount(Mount(source, place, spec.read_only, options=HARMLESS))
        for place, source in shared.files
        if place not in taken
    ]
    mounts = [*defaults, *files, *asked]  # what is mounted at /etc hides the files
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
            **_mappings(spec.ids),
            **_propagation(spec),
            **_sysctls(spec, host, shared.with_others),
            **_view(spec, host),
        },
    }


def parse_bundle(text: bytes, file: str) -> Document:
    """Parse the config.json of a bundle for a new container. Raises BadRequest, which names the file, and the line if
    it is not JSON."""
    document = parse_stored(text, file)
    try:
        shape.check_depth(document, "the whole")
        if not shape.is_ordinary(document, shape.CONFIG):
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
    if not shape.is_ordinary(path := document["root"]["path"], str) and not shape.trim(path, str):
        raise BadRequest(f"{file}: root.path has a zero byte or a lone surrogate in it", file=file)
    return document


def readable(document: Document) -> Document:
    """Return the document without what parse_bundle would refuse: for reading, not for writing."""
    if not shape.is_ordinary(document, shape.CONFIG):
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
    if spec.limits.oom_score_adj is not None:
        process["oomScoreAdj"] = spec.limits.oom_score_adj
    if spec.security.no_new_privileges is not None:
        process["noNewPrivileges"] = spec.security.no_new_privileges
    process.update(_labels(spec.security, host, own_profile=""))
    _ask_process(process, spec, user)
    _ask_rest(result, spec, host)
    _ask_devices(result, spec, host, shared.with_others)
    _ask_shared(result, shared)
    return result


def join(document: Document, namespaces: dict[str, str]) -> None:
    """Change the paths of the namespaces that it joins already."""
    linux = _section(document, "linux")
    linux["namespaces"] = _with_paths(_objects(linux, "namespaces"), namespaces)


def restrict(document: Document, *below: str) -> Document:
    """Return the document with mounts from sources `below` made nosuid and nodev: a member that writes there as root
    must not leave files that give root to a user who runs or opens them."""
    for mount in _objects(document, "mounts"):
        if str(mount.get("source", "")).startswith(below):
            kept = [word for word in strings(mount, "options") if word.removeprefix("no") not in ("suid", "dev")]
            mount["options"] = [*dict.fromkeys(kept), *RESTRICTED]
    return document


def keep_flags(document: Document, flags: Callable[[str], tuple[str, ...]]) -> Document:
    """Return the document with these flags of its source for each bind mount, and without their opposites."""
    for mount in _objects(document, "mounts"):
        if _is_bind(mount):
            kept = flags(str(mount.get("source", "")))
            opposites = {"rw" if flag == "ro" else flag.removeprefix("no") for flag in kept}
            mount["options"] = [*(each for each in strings(mount, "options") if each not in {*kept, *opposites}), *kept]
    return document


def limit(document: Document, spec: Spec, leaves: Iterable[tuple[str, str]], host: Host) -> Document:
    """Give the document the spec's own values in these places below linux.resources (section and key), and take away
    what it has there otherwise. Raises BadRequest."""
    lacking = dict(host.lacking).get("pids", "")
    made = {**_memory(spec, host), **_cpu(spec, host), **privileges.pids(spec.rights, lacking=lacking)}
    resources = _section(_section(document, "linux"), "resources")
    for name, key in leaves:
        section, own = _section(resources, name), cast(Document, made.get(name, {}))
        section.pop(key, None)
        section.update({key: own[key]} if key in own else {})
        if not section:
            del resources[name]
    return document


def rootfs_of(document: Document) -> str:
    """Return root.path, where commands and users are looked up."""
    return str(_section(document, "root")["path"])


def move_root(document: Document, path: str) -> bool:
    """Have the document name this root; return whether it has named another."""
    root = _section(document, "root")
    moved = root.get("path") != path
    root["path"] = path
    return moved


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
        source = mount.get("source")
        if isinstance(source, str) and not source.startswith("/") and _is_bind(mount):
            mount["source"] = os.path.join(spec.bundle, source)
    mounts = _with_shm(mounts, SHM if spec.ipc == "host" else "")
    document["mounts"] = mounts + [_mount(mount) for mount in spec.mounts]
    for name, word in _propagation(spec).items():
        linux.setdefault(name, word)
    for kind, part in {**_memory(spec, host), **_cpu(spec, host)}.items():
        _section(_section(linux, "resources"), kind).update(cast(Document, part))
    if spec.rights.pids_limit:
        _section(linux, "resources").update(privileges.pids(spec.rights, lacking=dict(host.lacking).get("pids", "")))
    if spec.hostname:
        document["hostname"] = spec.hostname
    if spec.read_only:
        _section(document, "root")["readonly"] = True
    kinds = {"network": spec.network, "pid": spec.pid, "ipc": spec.ipc}
    of_the_host = [kind for kind, mode in kinds.items() if mode == "host"]
    if of_the_host:
        linux["namespaces"] = [each for each in _objects(linux, "namespaces") if each.get("type") not in of_the_host]


def _ask_devices(document: Document, spec: Spec, host: Host, joins: dict[str, str]) -> None:
    linux = _section(document, "linux")
    if host.asked_devices:
        resources = _section(linux, "resources")
        grants = privileges.device_grants(host.asked_devices)
        resources["devices"] = [*_objects(resources, "devices"), *grants]
        nodes = privileges.device_nodes(_by_path(tuple(device for device, _ in host.asked_devices)))
        linux["devices"] = [*_objects(linux, "devices"), *nodes]
    if spec.sysctls:
        _section(linux, "sysctl").update(_asked_sysctls(spec, joins))


def _ask_shared(document: Document, shared: Shared) -> None:
    if shared.annotations:
        _section(document, "annotations").update(shared.annotations)
    joins = dict(shared.namespaces)
    if joins:
        join(document, joins)
    if "uts" in joins:
        document.pop("hostname", None)
    if shared.shm:
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
        "args": [*((INIT, "--") if spec.init else ()), *spec.secrets.used(spec.args)],
        "env": merge_env(defaults, (*spec.secrets.env, *spec.env)),
        "cwd": _absolute(spec.cwd, "working directory"),
        "capabilities": privileges.capability_sets(spec.rights, user, host.capabilities),
        "rlimits": privileges.rlimits(spec.rights, host.hard_files),
        "noNewPrivileges": _gains_nothing(spec),
        "oomScoreAdj": host.oom_score_adj if spec.limits.oom_score_adj is None else spec.limits.oom_score_adj,
        **_labels(spec.security, host, own_profile="" if spec.rights.privileged else host.own_profile),
    }


def keep_profile(document: Document, before: Document) -> None:
    """Give the process the AppArmor profile that it has in the earlier document, or none."""
    process, earlier = _section(document, "process"), before.get("process")
    process.pop("apparmorProfile", None)
    if isinstance(earlier, dict) and "apparmorProfile" in earlier:
        process["apparmorProfile"] = earlier["apparmorProfile"]


def drop_profile(document: Document, name: str) -> bool:
    """Take this AppArmor profile away from the process. Return False if it has another one, or none."""
    process = document.get("process")
    if not isinstance(process, dict) or process.get("apparmorProfile") != name:
        return False
    del process["apparmorProfile"]
    return True


def _labels(security: Security, host: Host, own_profile: str) -> Document:
    """Return the labels for AppArmor and SELinux. Raises BadRequest when the kernel lacks them: a runtime would only
    report an errno."""
    profile = security.apparmor or own_profile
    if profile == UNCONFINED and not host.apparmor:
        profile = ""
    asked = {"apparmorProfile": profile, "selinuxLabel": security.selinux}
    if security.apparmor not in ("", UNCONFINED) and not host.apparmor:
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
    asked = tuple(device for device, _ in host.asked_devices)
    if spec.rights.privileged:
        return {"devices": privileges.device_nodes(_by_path((*host.devices, *asked)))}
    devices: Document = {"devices": privileges.device_nodes(_by_path(asked))} if asked else {}
    masked = [*privileges.MASKED_PATHS, *host.hidden]
    return {**devices, "maskedPaths": masked, "readonlyPaths": list(privileges.READONLY_PATHS)}


def _by_path(devices: tuple[Device, ...]) -> tuple[Device, ...]:
    """Of two at one path the later one counts: a runtime would fail to make the second."""
    return tuple({device.path: device for device in devices}.values())


def _propagation(spec: Spec) -> Document:
    """As docker: a runtime takes the root out of the machine's mount events, runc for what is mounted in the container
    and crun for all of them, unless the root itself is to spread them."""
    words = {word for mount in spec.mounts for word in mount.options}
    if words & {"shared", "rshared"}:
        return {"rootfsPropagation": "shared"}
    return {"rootfsPropagation": "rslave"} if words & {"slave", "rslave"} else {}


def _sysctls(spec: Spec, host: Host, joins: dict[str, str]) -> Document:
    shares_network = "network" in joins or spec.network == "host"
    found = {**({} if shares_network else dict(host.sysctls)), **_asked_sysctls(spec, joins)}
    return {"sysctl": found} if found else {}


def _asked_sysctls(spec: Spec, joins: dict[str, str]) -> dict[str, str]:
    """Raises BadRequest for those of a namespace that a container shares: they would change it for others."""
    for name, _ in spec.sysctls:
        kind = "network" if name.startswith("net.") else "ipc"
        if kind in joins or (kind == "network" and spec.network == "host"):
            raise BadRequest(f"sysctls {name!r}: its {kind} namespace is not its own", field="sysctls")
    return dict(spec.sysctls)


def _namespaces(spec: Spec, host: Host) -> tuple[str, ...]:
    network = () if spec.network == "host" else ("network",)
    pid = () if spec.pid == "host" else ("pid",)
    ipc = () if spec.ipc == "host" else ("ipc",)
    user = () if spec.ids is None else ("user",)
    return (*user, *pid, *ipc, "uts", "mount", *network, *(("cgroup",) if host.cgroup_v2 else ()))


def _mappings(ids: IdRange | None) -> Document:
    """Those of a namespace that is joined, too: runc asks for them."""
    if ids is None:
        return {}
    mapping = [{"containerID": 0, "hostID": ids.first, "size": ids.count}]
    return {"uidMappings": mapping, "gidMappings": mapping}


def ids_in(linux: Document) -> IdRange | None:
    """Return the range of the first of its mappings; None without one that can be."""
    mappings = linux.get("uidMappings")
    first = mappings[0] if isinstance(mappings, list) and mappings else None
    numbers = (first.get("hostID"), first.get("size")) if isinstance(first, dict) else ()
    match numbers:
        case (int(start), int(count)) if start >= 0 and count > 0:
            return IdRange(start, count)
    return None


def _memory(spec: Spec, host: Host) -> Document:
    limits = spec.limits
    asked = "memory_bytes" if spec.memory_bytes else "limits.memory_reservation_bytes"
    if not spec.memory_bytes and not limits.memory_reservation_bytes:
        return {}
    if why := dict(host.lacking).get("memory"):
        raise BadRequest(f"{asked}: {why}; or ask for none")
    swap = spec.memory_bytes if limits.memory_swap_bytes is None else limits.memory_swap_bytes
    if swap != spec.memory_bytes and not host.swap_limit:
        raise BadRequest(
            "limits.memory_swap_bytes: this machine's kernel counts no swap; boot with swapaccount=1, or ask for none",
            field="limits.memory_swap_bytes",
        )
    limit = {"limit": spec.memory_bytes} if spec.memory_bytes else {}
    with_swap = {"swap": swap} if spec.memory_bytes and host.swap_limit else {}  # memory and swap together
    reserved = {"reservation": limits.memory_reservation_bytes} if limits.memory_reservation_bytes else {}
    return {"memory": {**limit, **with_swap, **reserved}}


def _cpu(spec: Spec, host: Host) -> Document:
    limits, shares = spec.limits, shares_of(spec)
    asked = "cpu_limit_milli" if spec.cpu_limit_milli else "cpu_request_milli" if spec.cpu_request_milli else ""
    asked = asked or ("limits.cpu_shares" if shares else "")
    if asked and (why := dict(host.lacking).get("cpu")):
        raise BadRequest(f"{asked}: {why}; or ask for none")
    limit = {"quota": spec.cpu_limit_milli * CPU_PERIOD_US // 1000, "period": CPU_PERIOD_US}
    cpu = {
        **(limit if spec.cpu_limit_milli else {}),
        **({"shares": shares} if shares else {}),
        **({"cpus": limits.cpuset_cpus} if limits.cpuset_cpus else {}),
        **({"mems": limits.cpuset_mems} if limits.cpuset_mems else {}),
    }
    return {"cpu": cpu} if cpu else {}


def shares_of(spec: Spec) -> int:
    """Return 0 if none were asked for: 1024 for a whole CPU, as in CRI, unless they were given as such."""
    if spec.limits.cpu_shares or not spec.cpu_request_milli:
        return spec.limits.cpu_shares
    return max(MIN_SHARES, spec.cpu_request_milli * 1024 // 1000)


def _mounts_of(spec: Spec) -> Iterable[tuple[str, str, str, str]]:
    """A sysfs shows a network namespace, and only who owns that may mount one: with users of its own, and the machine's
    network, a container gets the machine's. There `ro` holds for the topmost mount alone: what the machine has mounted
    below it keeps its flags."""
    if spec.ids is None or spec.network != "host":
        return MOUNTS
    machines = ("/sys", "bind", "/sys", "rbind rprivate nosuid noexec nodev ro")
    return [machines if mount[0] == "/sys" else mount for mount in MOUNTS]


def _default_mount(destination: str, kind: str, source: str, options: str, *, spec: Spec) -> Document:
    """A privileged container can write where others only read."""
    words = [word for word in options.split() if not (spec.rights.privileged and word == "ro")]
    if destination == SHM and spec.limits.shm_bytes:
        words = [*(word for word in words if not word.startswith("size=")), f"size={spec.limits.shm_bytes}"]
    return {"destination": destination, "type": kind, "source": source, "options": words}


def _mount(mount: Mount) -> Document:
    destination, access = _absolute(mount.destination, "mount destination"), "ro" if mount.read_only else "rw"
    if mount.tmpfs:
        size = [f"size={mount.size_bytes}"] if mount.size_bytes else []
        options = [*_safe(mount.options), access, f"mode={TMPFS_MODE if mount.mode is None else mount.mode:o}", *size]
        return {"destination": destination, "type": "tmpfs", "source": "tmpfs", "options": options}
    source = _absolute(mount.source, "mount source")
    kind = [] if ALONE in mount.options else ["rbind"]
    spread = [] if {*PROPAGATIONS} & {*mount.options} else ["rprivate"]
    options = [*kind, *spread, access, *mount.options]
    return {"destination": destination, "type": "bind", "source": source, "options": options}


def _safe(options: tuple[str, ...]) -> list[str]:
    """Return the options of a tmpfs: noexec, nosuid and nodev, unless the opposite was asked for."""
    return [*(f"no{flag}" for flag in ("exec", "suid", "dev") if flag not in options), *options]


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
    return section


def _objects(document: Document, key: str) -> list[Document]:
    values = document.get(key) or []
    if not isinstance(values, list) or not all([isinstance(value, dict) for value in values]):
        raise BadRequest(f"config.json: {key!r} must be a list of objects")
    return values


def strings(document: Document, key: str) -> list[str]:
    """Return a list of texts; empty where there is none. Raises BadRequest for anything else."""
    values = document.get(key) or []
    if not isinstance(values, list) or not all([isinstance(value, str) for value in values]):
        raise BadRequest(f"config.json: {key!r} must be a list of strings")
    return values
