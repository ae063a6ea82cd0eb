"""A container's own bundle below the root directory: its config.json, its root file system, its log.

ROOT/c/ID/bundle/config.json    written once, at the first run; a member's names the namespaces of each run, and that of
                                a container with users of its own where STATE is
ROOT/c/ID/rootfs/               the overlay with its layer, unless the container runs on a bundle
ROOT/c/ID/etc/                  hosts, hostname and resolv.conf, made anew for each run
ROOT/c/ID/shm, volumes/         for a pod: what its members share
ROOT/c/ID/files/, secrets/      what its mounts of files have in them, see `contents.py`
ROOT/c/ID/subpaths/             what it mounts of a path in a volume, see `subpaths.py`
STATE/roots/ID/merged           where the overlay of a container with users of its own is mounted, see `rootfs.py`
ROOT/c/ID/container.log         CRI format, or container-json.log; rotated ones end in .1 (the newest) and on
"""

import json
import os
import re
import resource
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Any, cast

import structlog

from shim.frozen import frozen, replace
from shim.patterns import LatePattern
from supervisor.config.settings import Limits
from supervisor.model import changes, mountflags, networks, pods
from supervisor.model.errors import BadRequest, CannotConfine, ShimFailed
from supervisor.model.idranges import IdRange
from supervisor.model.ownaddress import with_address
from supervisor.model.values import Container, ForeignStreams, LogDriver, Mount, Spec
from supervisor.monitor import probe, rundir
from supervisor.runtime.oci import (
    cgroups,
    command,
    contents,
    delegation,
    liveresources,
    machine,
    namefiles,
    namespaces,
    privileges,
    rootfs,
    scopes,
    slices,
    spec,
    subpaths,
    users,
    volumes,
)
from supervisor.runtime.oci.confine import confine
from supervisor.runtime.oci.seccomp import SeccompMachine
from supervisor.runtime.oci.users import Ids
from supervisor.system import diskuse, regular, removal

CGROUP_PARENT = "/exitd"
SCOPE_NAME = LatePattern(r"exitd-[0-9a-z-]+\.scope")
# What exitd chooses: a container's cgroup by either driver, and a pod's slice.
OURS = LatePattern(r"/exitd/.+|exitd(?:-[0-9a-f]+)?\.slice:exitd:.+|/exitd\.slice/exitd-[0-9a-f]+\.slice", re.DOTALL)
SHM = "shm"
ETC = "etc"
MOST_ETC_BYTES = 1 << 20  # of the machine's own file
MOST_STORED_BYTES = 64 << 20  # a caller's largest one with every character escaped, and what exitd adds
LOG_NAMES: dict[LogDriver | None, str] = {LogDriver.CRI: "container.log", LogDriver.JSON_FILE: "container-json.log"}

# Programs for which crun does other things than execve(2), and the names under which it is installed to do so.
log = structlog.get_logger(__name__)

HANDLERS = ("run.oci.handler", "module.wasm.image/variant")
HANDLING = frozenset({"krun", "crun-krun", "crun-wasm"})


@frozen
class Bundle:
    """What a run needs from its bundle. `document` is its config.json, as far as exitd reads it."""

    path: str
    cgroups_path: str
    document: spec.Document
    own_pids: bool = True  # the kernel ends all other processes when init has ended
    executes: bool = True  # see the function `executes`


def directory_of(root: str, container: str) -> str:
    """Return the container's own directory, which is the same for all of its runs. `root`: exitd's directory of what
    outlives a boot."""
    return f"{root}/c/{container}"


def apart_of(state: str, container: str) -> str:
    """Return where the root of a container with users of its own is mounted, in a directory of all of these."""
    return f"{state}/roots/{container}"


def all_ids(root: str) -> list[str]:
    """Return the ids of all containers that have a directory. Raises OSError."""
    try:
        return os.listdir(f"{root}/c")
    except FileNotFoundError:
        return []


def ids_of(container: str, root: str) -> IdRange | None:
    """Return the range of ids that its config.json gives it; None without one. Raises OSError."""
    try:
        linux = (_read(directory_of(root, container)) or {}).get("linux")
    except NotADirectoryError:  # what another program has left there
        return None
    return spec.ids_in(cast("dict[str, object]", linux)) if isinstance(linux, dict) else None


def _root_of(wanted: Spec) -> int:
    """Return its root's user and group id on this machine, if that is another than the machine's; else -1."""
    return -1 if wanted.ids is None else wanted.ids.first


def stream_owner(wanted: Spec, foreign: ForeignStreams) -> tuple[int, int]:
    """Return the user and group to whom the pipes of a process in it belong: its root may open /dev/stdout."""
    return (foreign.uid, foreign.gid) if wanted.ids is None else (wanted.ids.first, wanted.ids.first)


def log_path(root: str, container: Container) -> str:
    """Return the path of the current log file; empty if the log driver writes none."""
    log = container.spec.log
    if not log.to_file:
        return ""
    return log.path or f"{directory_of(root, container.id)}/{LOG_NAMES[log.driver]}"


def layer_usage(container: str, root: str, left: diskuse.LookBudget) -> tuple[diskuse.Usage, bool]:
    """Return what the container's writable layer takes, and whether that is memory."""
    directory = f"{directory_of(root, container)}/rootfs"
    scratch = rootfs.scratch_of(directory)
    if os.path.ismount(scratch):
        found = os.statvfs(scratch)
        return diskuse.Usage((found.f_blocks - found.f_bfree) * found.f_frsize), True
    return diskuse.of_tree(rootfs.layer_of(directory), left), False


def own_logs(container: str, root: str) -> list[str]:
    """Return the paths of its log files in its own directory, rotated ones included."""
    directory = directory_of(root, container)
    try:
        names = os.listdir(directory)
    except FileNotFoundError:
        return []
    return [f"{directory}/{name}" for name in names if name.startswith(tuple(LOG_NAMES.values()))]


def named_sources(wanted: Spec) -> list[str]:
    """Return the paths whose mounts' flags `prepare` must be given: those that a caller has named, for a container with
    users of its own. Their file systems may hang."""
    if wanted.ids is None:
        return []
    own = (mount.tmpfs or mount.files or mount.volume or mount.empty_dir or mount.sub_path for mount in wanted.mounts)
    return sorted({mount.source for mount, is_own in zip(wanted.mounts, own, strict=True) if not is_own})


def flags_of(source: str) -> tuple[str, ...]:
    """Return the flags of the mount that this path is on, as far as a bind mount keeps them; none if there is no such
    path, as the runtime will say. Raises ShimFailed."""
    try:
        found = os.statvfs(source).f_flag
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise ShimFailed(f"{source}: {error.strerror}") from error
    return tuple(name for name, flag in mountflags.KEPT.items() if found & flag)


def prepare(
    container: Container,
    root: str,
    state: str,
    limits: Limits,
    fill: volumes.Fill = lambda source, into: None,
    kept: Mapping[str, tuple[str, ...]] = MappingProxyType({}),
) -> Bundle:
    """Mount and write what is missing. Repeatable. `fill` gives a new volume what the image has there; `kept` has the
    `flags_of` each of the `named_sources`. Raises BadRequest for what the caller must change, CannotConfine where no
    container can have a cgroup, CommandNotFound and CommandNotExecutable for the command of an init program, ShimFailed
    when the machine does not permit something else."""
    container = with_own_address(container)
    directory = directory_of(root, container.id)
    try:
        if refusal := delegation.unusable():
            raise CannotConfine(str(refusal))
        for path in (os.path.dirname(directory), directory, f"{directory}/bundle"):  # makedirs' mode is the last one's
            os.makedirs(path, mode=0o700, exist_ok=True)
        apart = apart_of(state, container.id)
        merged = "" if container.spec.bundle else rootfs.prepare(container.spec, f"{directory}/rootfs", limits, apart)
        if container.spec.ids is not None:
            cgroups.let_pass(default_cgroup(container))
        if container.spec.pod:
            rootfs.prepare_shm(f"{directory}/{SHM}")
        if _has_files(container.spec):
            _write_files(container, f"{directory}/{ETC}")
        if container.spec.mounts:
            _make_empty_dirs(container, root)
            contents.make(directory, container.spec.mounts, container.spec.ids)
            _make_volumes(container, root, merged, fill)
            subpaths.bind_all(directory, _below_sources(container, root))
        joins = _joins(container, state)
        document = made_with = _read(directory)
        # The numbers of devices, and the address, may be others by now.
        if document is None or container.spec.devices or container.spec.address_mark:
            document = _with_changes(_document(container, merged, root, joins), container)
            _keep_flags(document, container.spec, kept)
            if made_with is not None and not container.spec.security.apparmor:
                spec.keep_profile(document, made_with)
            scopes.annotate(document, or_none=_means_no_limit(container))
            _write(directory, document)
        else:
            # It may have been written for another state directory.
            moved = container.spec.ids is not None and spec.move_root(document, merged)
            is_other = bool(moved or joins or container.spec.mounts or container.changed)
            if is_other:
                spec.join(document, joins)
                spec.restrict(document, *_shared_places(container, root))
                _keep_flags(document, container.spec, kept)
                document = _with_changes(document, container)
            # An earlier exitd wrote no annotations.
            if scopes.annotate(document, or_none=_means_no_limit(container)) or is_other:
                _write(directory, document)
            spec.readable(document)
        if made_with is not None and _loses_profile(document, container.spec):
            log.warning("its AppArmor profile is no longer loaded, it goes without", container=container.id)
            _write(directory, document)
    except OSError as error:
        raise ShimFailed(f"{directory}: {error.strerror or error}") from error
    if container.spec.init and (wanted := command_in(document, container.spec.ids)) is not None:
        command.refuse_missing(wanted)
    path, own_pids = f"{directory}/bundle", spec.has_own_pids(document)
    executed = _executes(document, container.spec)
    return Bundle(path, _cgroup_in(document) or default_cgroup(container), document, own_pids, executed)


def _loses_profile(document: spec.Document, wanted: Spec) -> bool:
    """Take exitd's AppArmor profile away from a process that has it unasked, if it is not loaded any more: no runtime
    would begin it. Return whether it was."""
    is_unasked = not (wanted.bundle or wanted.security.apparmor)
    return is_unasked and not machine.own_profile() and spec.drop_profile(document, machine.OWN_PROFILE)


def _means_no_limit(container: Container) -> bool:
    """Return whether a document without a word of processes is exitd's own word."""
    return not container.spec.bundle or changes.PIDS in container.changed


def _keep_flags(document: spec.Document, wanted: Spec, kept: Mapping[str, tuple[str, ...]]) -> None:
    """Give bind mounts the flags that their sources are mounted with: a container with users of its own may take none
    away. Raises ShimFailed."""
    if wanted.ids is not None:
        spec.keep_flags(document, lambda source: kept[source] if source in kept else flags_of(source))


def with_own_address(container: Container) -> Container:
    """Return the container with the address of its current run wherever its words and files speak of it."""
    if not container.spec.address_mark:
        return container
    return replace(container, spec=with_address(container.spec, container.networks))


def is_adopted(container: Container, root: str) -> bool:
    """Return whether exitd has no config.json of its own for it, and reads its caller's, on a file system that may
    hang."""
    return bool(container.spec.bundle) and not os.path.exists(f"{directory_of(root, container.id)}/bundle/config.json")


def executes(container: Container, root: str) -> bool:
    """Return whether its init becomes the program by execve(2). Some runtimes run the program themselves, a WebAssembly
    module or a virtual machine: then it proves nothing that init has executed nothing. True if the bundle cannot be
    read."""
    return learned(container, root)[1]


def _executes(document: spec.Document, wanted: Spec) -> bool:
    annotations = document.get("annotations")
    handled = isinstance(annotations, dict) and not annotations.keys().isdisjoint(HANDLERS)
    return not handled and os.path.basename(wanted.runtime_path or wanted.runtime) not in HANDLING


def cgroups_path(container: Container, root: str) -> str:
    """Return the container's cgroup from its config.json; the default if there is no file. An adopted container has its
    caller's config.json, which may name no cgroup."""
    return learned(container, root)[0]


def learned(container: Container, root: str) -> tuple[str, bool]:
    """Return `cgroups_path` and `executes` from a single read of the configuration, of which no more is looked at: a
    start reads that of each container."""
    try:
        document = spec.readable(_place_of(_stored(container, root)))
    except (BadRequest, ShimFailed):
        document = {}
    return _cgroup_in(document) or default_cgroup(container), _executes(document, container.spec)


def configuration(container: Container, root: str) -> spec.Document:
    """Return its config.json, or its caller's if it was adopted, without the parts that cannot be read. Raises
    ShimFailed, BadRequest."""
    return spec.readable(_stored(container, root))


def _stored(container: Container, root: str) -> spec.Document:
    """Return what `configuration` does, with the parts that cannot be read. Raises ShimFailed, BadRequest."""
    document = _read(directory_of(root, container.id))
    if document is None and not container.spec.bundle:
        raise ShimFailed(f"{directory_of(root, container.id)}/bundle/config.json is gone")
    if document is None:
        document = spec.parse_stored(*rootfs.read_bundle(container.spec.bundle))
    return document


def _place_of(document: spec.Document) -> spec.Document:
    """Return the parts of a configuration that say in which cgroup its processes are, and what executes them."""
    linux = document.get("linux")
    if isinstance(linux, dict):
        linux = {name: value for name, value in linux.items() if name == "cgroupsPath"}
    parts = {"annotations": document.get("annotations"), "linux": linux}
    return {name: part for name, part in parts.items() if name in document}


def _cgroup_in(document: spec.Document) -> str:
    """Return the cgroup that a configuration names; empty if it names none that exists."""
    path = spec.named_cgroup(document)
    return path if path and _is_possible(path) else ""


def _is_possible(cgroups_path: str) -> bool:
    try:
        cgroups.paths(cgroups_path)
    except ValueError:
        return False
    return True


def remove(container_id: str, root: str, let_go: Callable[[int], None] = os.close) -> None:
    """Remove the container's directory, with all that it has written. Repeatable. `let_go` gets the last reference to
    its overlay, to close it. Raises ShimFailed when a mount cannot be released, or something cannot be removed."""
    directory = directory_of(root, container_id)
    try:
        overlay_fd = rootfs.hold(f"{directory}/rootfs")
        try:
            rootfs.release(f"{directory}/rootfs")
            rootfs.release_shm(f"{directory}/{SHM}")
            contents.release(directory)
            subpaths.release(directory)
            # Only after the mounts are gone: what is removed recursively must be exitd's own.
            if rootfs.mounts_under(directory):
                raise ShimFailed(f"{directory}: something is mounted below it; unmount it and remove again")
            removal.remove_tree(directory)
        finally:
            if overlay_fd >= 0:
                let_go(overlay_fd)
    except OSError as error:
        raise ShimFailed(f"{directory}: {error.strerror or error}") from error


def default_cgroup(container: Container) -> str:
    """A pod has a cgroup around those of its containers, whose limits hold for all of them together. With systemd, it
    is a slice around their scopes."""
    pod = pod_of(container)
    if container.spec.systemd_cgroup:
        return scope(container.id, pod)
    return f"{pod_cgroup(pod)}/{container.id}" if pod else single_cgroup(container.id)


def single_cgroup(container_id: str) -> str:
    """Return the cgroups path of a container outside of pods."""
    return f"{CGROUP_PARENT}/{container_id}"


def scope(container_id: str, pod_id: str = "") -> str:
    """Return the cgroups path of a scope of systemd's, SLICE:PREFIX:NAME, as runc reads it (docs/systemd.md)."""
    return f"{slices.name_of(pod_id) if pod_id else slices.TOP}:exitd:{container_id}"


def is_ours(cgroups_path: str) -> bool:
    """Return whether exitd chose the cgroup, and not a bundle, whose cgroup other processes may share."""
    return OURS.fullmatch(cgroups_path) is not None


def pod_cgroup(pod_id: str) -> str:
    """Return the path of the cgroup around those of a pod's containers."""
    return f"{CGROUP_PARENT}/pod-{pod_id}"


def pod_slice(pod_id: str) -> str:
    """Return the cgroups path of the pod's slice: that of its directory, since only scopes have one by their unit."""
    return f"/{slices.TOP}/{slices.name_of(pod_id)}"


def cgroup_around(container: Container) -> str:
    """Return the cgroup around those of a pod's containers, of the pod that this pause container is."""
    return pod_slice(container.id) if container.spec.systemd_cgroup else pod_cgroup(container.id)


def pod_of_slice(cgroups_path: str) -> str:
    """Return the id of the pod whose slice has this path; empty if it is no pod's slice."""
    top, _, name = cgroups_path.rpartition("/")
    return slices.pod_in(name) if top == f"/{slices.TOP}" else ""


def _names_in(cgroups_path: str) -> list[str]:
    return [path.rpartition("/")[2] for path in cgroups.children(cgroups_path)]


def leaked_cgroups(container_id: str) -> tuple[str, ...]:
    """Return the possible cgroups of a container that exitd no longer knows."""
    pods_own = (parent for parent in cgroups.children(CGROUP_PARENT) if "/pod-" in parent)
    in_slices = (scope(container_id, pod) for name in _names_in(f"/{slices.TOP}") if (pod := slices.pod_in(name)))
    return (
        single_cgroup(container_id),
        scope(container_id),
        *(f"{parent}/{container_id}" for parent in pods_own),
        *in_slices,
    )


def all_cgroups() -> tuple[str, ...]:
    """Return every cgroup with a name that exitds give to pods and containers, members of pods first."""
    top = cgroups.children(CGROUP_PARENT)
    members = tuple(member for parent in top if "/pod-" in parent for member in cgroups.children(parent))
    in_slice = _names_in(f"/{slices.TOP}")
    pods_own = [pod for name in in_slice if (pod := slices.pod_in(name))]
    in_pods = [scope(id, pod) for pod in pods_own for id in _ids_of_scopes(_names_in(pod_slice(pod)))]
    own = [scope(id) for id in _ids_of_scopes(in_slice)]
    return (*members, *top, *in_pods, *own, *map(pod_slice, pods_own))


def _ids_of_scopes(names: Iterable[str]) -> list[str]:
    return [name[len("exitd-") : -len(".scope")] for name in names if SCOPE_NAME.fullmatch(name)]


def id_of(cgroups_path: str) -> str:
    """Return the container's id, or the pod's, from a path of `all_cgroups`."""
    return pod_of_slice(cgroups_path) or re.split("[/:]", cgroups_path)[-1].removeprefix("pod-")


def pod_of(container: Container) -> str:
    """Return the id of the container's pod: a pause container's own; empty without a pod."""
    return container.id if container.spec.pod else container.spec.sandbox


def links(container: Container, state: str) -> dict[str, str]:
    """Return the paths at which the container's configuration expects the namespaces that it joins: its shim links them
    there, in the run directory, while the runtime creates the container."""
    path = rundir.path_of(state, container.id, container.run)
    return namespaces.links(path, namespaces.joined(container.spec))


def _joins(container: Container, state: str) -> dict[str, str]:
    """Return the paths of all namespaces that are there before the run: those of its pod, and the network's that exitd
    makes."""
    if not networks.has_own(container.spec.network, container.spec.sandbox):
        return links(container, state)
    path = namespaces.network_of(state, container.id, container.run)
    users = {} if container.spec.ids is None else {"user": namespaces.users_of(path)}
    return {**users, "network": path}


def name_in_network(container: Container, root: str) -> None:
    """Write its files of names anew, now that its addresses are known. Raises ShimFailed."""
    directory = f"{directory_of(root, container.id)}/{ETC}"
    try:
        if _has_files(container.spec):
            _write_files(container, directory)
    except OSError as error:
        raise ShimFailed(f"{directory}: {error.strerror or error}") from error


def _host(container: Container) -> spec.Host:
    """Return what of the machine its configuration depends on. A caller's bundle says its capabilities, sysctls and
    hidden paths itself."""
    wanted, is_made = container.spec, not container.spec.bundle
    return spec.Host(
        cgroup_v2=cgroups.mode() is cgroups.Mode.V2,
        swap_limit=cgroups.counts_swap(),
        hard_files=resource.getrlimit(resource.RLIMIT_NOFILE)[1],
        oom_score_adj=wanted.task.oom_score_adj if wanted.task is not None else 0,
        lacking=tuple((name, str(refusal)) for name, refusal in delegation.lacking().items()),
        capabilities=machine.capabilities() if is_made else (),
        hidden=machine.throttles() if is_made else (),
        sysctls=machine.sysctls(ids=wanted.ids) if is_made else (),
        apparmor=bool(wanted.security.apparmor) and machine.has_apparmor(),
        own_profile=machine.own_profile() if is_made and not wanted.security.apparmor else "",
        selinux=bool(wanted.security.selinux) and machine.has_selinux(),
        devices=machine.devices() if is_made and wanted.rights.privileged else (),
        asked_devices=machine.asked_devices(wanted.devices),
    )


def _make_empty_dirs(container: Container, root: str) -> None:
    for mount in container.spec.mounts:
        if mount.empty_dir:
            path = empty_dir_of(container, root, mount.empty_dir)
            os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
            # Whatever the umask is: members run as different users. setgid: what is made there gets the group, too.
            mode = 0o777 if mount.group is None else 0o2777
            user, group = contents.owners_of(mount, container.spec.ids).ids
            with suppress(FileExistsError):
                os.mkdir(path)
                os.chown(path, user, group)
                os.chmod(path, mode)
            if mount.tmpfs:
                size = f",size={mount.size_bytes}" if mount.size_bytes else ""
                owners = "".join(f",{key}={id}" for key, id in (("uid", user), ("gid", group)) if id >= 0)
                rootfs.prepare_tmpfs(path, f"mode={mode:o}{owners}{size}")


def _make_volumes(container: Container, root: str, merged: str, fill: volumes.Fill) -> None:
    for mount in container.spec.mounts:
        if mount.volume:
            volumes.make(root, mount.volume, anonymous=mount.anonymous)
            # A directory of this machine is no image: what it has there is not the container's to keep.
            fills = bool(container.spec.layers) and not (mount.no_copy or mount.sub_path)
            image_root = "" if mount.sub_path else merged  # the image has nothing there for the volume as a whole
            owner = _root_of(container.spec)
            volumes.use_first(root, mount.volume, image_root, mount.destination, fill if fills else None, owner)


def empty_dir_of(container: Container, root: str, name: str) -> str:
    """Return where an empty directory of its pod is, or its own."""
    return f"{volumes_of(container, root)}/{name}"


def volumes_of(container: Container, root: str) -> str:
    """Return where the empty directories of its pod are, or its own."""
    return f"{directory_of(root, pod_of(container) or container.id)}/volumes"


def source_of(container: Container, root: str, index: int) -> str:
    """Return what is mounted at the mount of this number, or the volume whose path is; empty for one that has no source
    on the machine."""
    mount = _with_top(container, root, index, container.spec.mounts[index])
    return "" if mount.tmpfs else mount.source


def _with_source(container: Container, root: str, index: int, mount: Mount) -> Mount:
    found = _with_top(container, root, index, mount)
    if not mount.sub_path:
        return found
    return replace(found, source=subpaths.place_of(directory_of(root, container.id), index, mount))


def _below_sources(container: Container, root: str) -> dict[int, tuple[Mount, str]]:
    """Return the mounts of paths in volumes, by their numbers, each with where its volume is."""
    mounts = {index: mount for index, mount in enumerate(container.spec.mounts) if mount.sub_path}
    return {index: (mount, _with_top(container, root, index, mount).source) for index, mount in mounts.items()}


def _shared_places(container: Container, root: str) -> tuple[str, str]:
    """Return the beginnings of the paths of what several users of a pod write to."""
    return f"{volumes_of(container, root)}/", f"{directory_of(root, container.id)}/{subpaths.SHARED}"


def _with_top(container: Container, root: str, index: int, mount: Mount) -> Mount:
    if mount.files:
        return replace(mount, source=contents.source_of(directory_of(root, container.id), index, mount))
    if mount.volume:
        return replace(mount, source=volumes.path_of(root, mount.volume))
    if not mount.empty_dir:
        return mount
    # An empty directory in memory is mounted where all members of its pod find it: for each of them it is a directory.
    return replace(mount, source=empty_dir_of(container, root, mount.empty_dir), tmpfs=False)


def _with_sources(container: Container, root: str) -> Spec:
    """Return the spec with the directories of empty_dir mounts and volumes, read-only if the container shares its root
    with others."""
    mounts = tuple(_with_source(container, root, index, mount) for index, mount in enumerate(container.spec.mounts))
    shared = not container.spec.bundle and rootfs.is_shared(container.spec)
    mounts = (*mounts, *_init(container, root))  # in a directory that is mounted at its place, too
    return replace(container.spec, mounts=mounts, read_only=container.spec.read_only or shared)


def _shared(container: Container, root: str, joins: dict[str, str]) -> spec.Shared:
    pod = pod_of(container)
    return spec.Shared(
        tuple(joins.items()),
        f"{directory_of(root, pod)}/{SHM}" if pod and container.spec.ipc != "host" else "",
        container.spec.task is not None,  # of a pod with the host's ipc namespace
        tuple(pods.seen_by_runtime(container).items()),
        _files(container, root),
        networks.has_own(container.spec.network, container.spec.sandbox),
    )


def _with_changes(document: spec.Document, container: Container) -> spec.Document:
    """Return the document with the limits that updates have set: they count more than a bundle's."""
    leaves = [leaf for name in container.changed for leaf in liveresources.LEAVES.get(name, ())]
    scopes.forget(document, leaves)
    return spec.limit(document, container.spec, leaves, _host(container)) if leaves else document


def resources_of(container: Container, root: str) -> dict[str, object]:
    """Return linux.resources of its config.json; empty if that has none, or cannot be read."""
    try:
        linux = configuration(container, root).get("linux")
    except (BadRequest, ShimFailed):
        return {}
    found = linux.get("resources") if isinstance(linux, dict) else None
    return found if isinstance(found, dict) else {}


def _init(container: Container, root: str) -> tuple[Mount, ...]:
    return (Mount(f"{root}/pause/pause", spec.INIT, read_only=True),) if container.spec.init else ()


def _files(container: Container, root: str) -> tuple[tuple[str, str], ...]:
    if not _has_files(container.spec):
        return ()
    return tuple(
        (place, f"{directory_of(root, container.id)}/{ETC}/{name}") for name, place in namefiles.PLACES.items()
    )


def _has_files(wanted: Spec) -> bool:
    """Return whether exitd makes its files of names: a bundle has its own, and in a root that others share there is no
    place to mount them."""
    return not wanted.bundle and not wanted.resolver.of_image and not rootfs.is_shared(wanted)


def _write_files(container: Container, directory: str) -> None:
    """They are new files for each run: the earlier ones may still be mounted or open."""
    wanted = container.spec
    machines = {name: _machines(path) for name, path in namefiles.PLACES.items()}
    hostname = wanted.hostname or container.id[:12]
    os.makedirs(directory, mode=0o700, exist_ok=True)
    made = namefiles.texts(
        wanted.resolver, hostname, machines, of_host=wanted.network == "host", attached=container.networks
    )
    for name, text in made.items():
        with open(f"{directory}/{name}.new", "wb") as file:
            os.fchown(file.fileno(), *[_root_of(wanted)] * 2)
            os.fchmod(file.fileno(), 0o644)
            file.write(text.encode(errors="surrogateescape"))
        os.rename(f"{directory}/{name}.new", f"{directory}/{name}")


def _machines(path: str) -> str:
    """Return the text of the machine's own file; empty if there is none that can be read."""
    try:
        return regular.read(path, most_bytes=MOST_ETC_BYTES).decode(errors="surrogateescape")
    except OSError:
        return ""


def _document(container: Container, merged: str, root: str, joins: dict[str, str]) -> spec.Document:
    wanted, path = _with_sources(container, root), default_cgroup(container)
    shared, host, below = _shared(container, root, joins), _host(container), _shared_places(container, root)
    if merged:
        user = privileges.user_of(
            wanted.rights, users.resolve(wanted.user, merged, image_groups=wanted.rights.image_groups)
        )
        made = spec.config(
            wanted, container.id, rootfs_path=merged, cgroups_path=path, user=user, shared=shared, host=host
        )
        return confine(spec.restrict(made, *below), wanted.security, _machine())
    document = spec.parse_bundle(*rootfs.read_bundle(wanted.bundle))
    bundle_user = users.resolve(wanted.user, _bundle_root(document, wanted)) if wanted.user else None
    adapted = spec.adapt_bundle(document, wanted, cgroups_path=path, user=bundle_user, shared=shared, host=host)
    if not _is_possible(named := spec.cgroups_path_of(adapted)):
        file = f"{wanted.bundle}/config.json"
        raise BadRequest(f"{file}: linux.cgroupsPath {named!r} must be absolute, or SLICE:PREFIX:NAME for systemd")
    return confine(spec.restrict(adapted, *below), wanted.security, _machine())


def user_of_exec(container: Container, user: str, root: str) -> Ids | None:
    """Return the ids for an exec that names a user of the container's root; None: as the container. It also gets the
    container's groups, and those of the image's that the container may have. Raises BadRequest."""
    if not user:
        return None
    rights, shown = container.spec.rights, f"the container {container.spec.name}"
    return privileges.with_groups(rights, users.resolve(user, root, shown=shown, image_groups=rights.image_groups))


def _machine() -> SeccompMachine:
    return SeccompMachine(os.uname().machine, probe.kernel())


def _bundle_root(document: spec.Document, wanted: Spec) -> str:
    return os.path.join(wanted.bundle, spec.rootfs_of(document))


def command_in(document: spec.Document, ids: IdRange | None) -> command.Command | None:
    """Return what a container with this config.json executes; None if it names nothing. `ids`: those of its users, if
    they are its own."""
    process: dict[str, Any] = cast("dict[str, Any]", document["process"])
    if not process.get("args"):
        return None
    mounts = cast("list[dict[str, Any]]", document.get("mounts") or [])
    over = tuple(os.path.normpath(mount["destination"]) for mount in mounts if _is_over(mount))
    return command_of(process, spec.rootfs_of(document), over, ids)


def command_of(
    process: dict[str, Any], rootfs: str, mounts: tuple[str, ...], ids: IdRange | None = None
) -> command.Command:
    """Return what such a process executes on that root file system."""
    user = process.get("user", {})
    words = process["args"]
    return command.Command(
        rootfs,
        words[2] if words[:2] == [spec.INIT, "--"] and len(words) > 2 else words[0],
        command.path_of(process.get("env", ())),
        process.get("cwd", "/"),
        users.Ids(user.get("uid", 0), user.get("gid", 0), tuple(user.get("additionalGids", ()))),
        mounts,
        ids,
    )


def _is_over(mount: dict[str, Any]) -> bool:
    """A bind mount contains files of the caller's; other mounts contain no commands."""
    return bool({"bind", "rbind"} & {*mount.get("options", ())}) and str(mount.get("destination", "")).startswith("/")


def _read(directory: str) -> spec.Document | None:
    """Return what an exitd has written; None if there is nothing, or no configuration."""
    path = f"{directory}/bundle/config.json"
    try:
        with open(path, "rb") as file:
            text = file.read(MOST_STORED_BYTES + 1)
        return spec.parse_stored(text, path) if len(text) <= MOST_STORED_BYTES else None
    except (FileNotFoundError, BadRequest):
        return None


def _write(directory: str, document: spec.Document) -> None:
    path = f"{directory}/bundle/config.json"
    with open(f"{path}.new", "w", encoding="utf-8", opener=_private) as file:
        file.write(json.dumps(document))  # json.dump would do it in Python, piece by piece
    os.rename(f"{path}.new", path)


def _private(path: str, flags: int) -> int:
    """The environment of a container may contain secrets."""
    return os.open(path, flags | os.O_CLOEXEC, 0o600)
