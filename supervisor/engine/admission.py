"""What a request for a container becomes before it is one: `Admission.admit` is the list of steps.

What a request leaves open and its message alone does not settle is filled in here and nowhere else: by a container's
place in a pod, by the configuration, by its image, by its id. Each step is a pure function of the spec and of what was
looked up for it; looks at files, at the machine and at the image store stand between the steps.

A container keeps its runtime over reloads and restarts of the daemon: what one runtime has made, another could not
start or delete. So path, arguments and cgroup driver go into the stored spec, not only the name. The members of a pod
have the name from their pause container; what it means, the configuration says at their own creation.
"""

import os
import secrets
import stat
from collections.abc import Callable, Iterable
from typing import TypeVar

from shim.frozen import replace
from supervisor.config.settings import LOG_BYTES, CgroupDriver, Config, RuntimeEntry
from supervisor.engine.containers import Containers
from supervisor.engine.idranges import IdRanges
from supervisor.engine.imageservice import ImageService
from supervisor.engine.networkservice import NetworkService
from supervisor.images import merge
from supervisor.model import networks, pods
from supervisor.model.errors import BadRequest, NoSuchContainer, RuntimeMissing, WrongState
from supervisor.model.pods import PodPlace, Role
from supervisor.model.storage import Storage, StorageKind
from supervisor.model.values import Container, LogDriver, LogSpec, OnPauseExit, Phase, Pod, Spec
from supervisor.runtime.foreign_shim import binary
from supervisor.runtime.oci import runtime
from supervisor.system.aside import Aside

T = TypeVar("T")
MOST_AT_ONCE = 32  # directories at which callers have exitd look

# -- which program runs it


POD_LIMITS = ("memory_bytes", "pids_limit", "cpu_limit_milli")
BOOTED_WITH_SYSTEMD = "/run/systemd/system"  # sd_booted(3)


def refuse_unfit(spec: Spec, found: RuntimeEntry) -> None:
    """Raise RuntimeMissing for a task of a runtime that cannot have any, BadRequest for a limit of a pod that cannot be
    set with this runtime."""
    if found.runtime_type and spec.task:
        raise RuntimeMissing(
            f"runtime {found.name} is {found.runtime_type}, a shim of its own: a task of containerd's needs an OCI "
            "runtime such as runc behind exitd's",
            runtime=found.name,
        )
    refuse_other_pods(spec, found.runtime_type)


def refuse_other_pods(spec: Spec, runtime_type: str = "") -> None:
    """Raise BadRequest for a limit of a pod whose containers are in no cgroup of exitd's. `runtime_type`: where it is
    not settled in the spec."""
    limit = next((name for name in POD_LIMITS if spec.pod and getattr(spec.pod, name)), "")
    kind = runtime_type or spec.runtime_type
    if limit and kind and not binary.is_of_runc(kind):
        raise BadRequest(
            f"{limit} of a pod: {kind} runs its containers where exitd has no cgroup around them; limit "
            "the containers instead"
        )


def find_program(found: RuntimeEntry) -> str:
    """Look for a runtime's program: return its absolute path. Raises RuntimeMissing."""
    if found.runtime_type and not found.path:
        return binary.find(found.runtime_type, f"{os.environ.get('PATH', '')}:{runtime.SEARCH_PATH}")
    return runtime.resolve(found.path or found.name)


def with_runtime(spec: Spec, config: Config, program: str, *, systemd: bool) -> Spec:
    """Return the spec with its runtime and its cgroup driver settled."""
    found = config.runtime(spec.runtime)
    return replace(
        spec,
        runtime=spec.runtime or config.default_runtime,
        runtime_path=program,
        runtime_type=found.runtime_type,
        runtime_options=found.options,
        annotation_globs=_globs(spec, found),
        systemd_cgroup=systemd,
    )


def _globs(spec: Spec, found: RuntimeEntry) -> tuple[str, ...]:
    """As CRI has it: a pod's annotations reach its members' configurations too."""
    of_a_pod = found.pod_annotations if spec.pod or spec.sandbox else ()
    return (*of_a_pod, *(found.container_annotations if not spec.pod else ()))


def uses_systemd(driver: CgroupDriver, mark: str = BOOTED_WITH_SYSTEMD) -> bool:
    """Return, for the driver `auto`, whether systemd is this machine's init, as sd_booted(3) finds out."""
    if driver is CgroupDriver.AUTO:
        return os.path.isdir(mark) and not os.path.islink(mark)
    return driver is CgroupDriver.SYSTEMD


def driver_of(pause: Container | None, config: Config) -> bool:
    """Return whether systemd makes its cgroup. A pod's members are with its pause container, whatever the configuration
    has become since: in another driver's tree the pod's limits would not hold for them."""
    return pause.spec.systemd_cgroup if pause is not None else uses_systemd(config.cgroup_driver)


# -- where its writable layer is


def with_storage(spec: Spec, config: Config, refusal: str) -> Spec:
    """Return the spec with the place of its writable layer settled. A bundle has none of exitd's. `refusal` says why
    there can be none on disk here; empty if there can.

    Raises WrongState where the caller asks for one on disk all the same: what is to outlive the host must not be in
    memory.
    """
    if spec.bundle:
        return replace(spec, storage=Storage())
    asked = spec.storage
    if asked.kind is None:
        there = StorageKind.TMPFS if refusal else config.storage
        return replace(spec, storage=replace(asked, kind=there))
    if asked.kind is StorageKind.DISK and refusal:
        raise WrongState(f"storage disk: {refusal}")
    return spec


# -- where its log goes
#
# Where a container's log goes: settled when it is made, from the configuration of that moment, and kept with it.


JOURNAL = "/run/systemd/journal/socket"
WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH


def with_log(spec: Spec, config: Config) -> Spec:
    """Return the spec with all of its log settled. Raises BadRequest for a file of a driver that writes none."""
    asked = spec.log
    driver = asked.driver or config.log_driver
    log = LogSpec(driver, asked.path, 0, 0, asked.mode, asked.buffer_bytes)
    if log.to_file:
        max_bytes = _size_of_files(asked, config) if asked.max_bytes is None else asked.max_bytes
        log = replace(log, max_bytes=max_bytes, max_files=asked.max_files or config.log_max_files)
    elif asked.path or asked.max_bytes or asked.max_files:
        raise _bad(asked.path, f"the configuration's log driver {driver} writes no file; choose cri or json-file")
    return replace(spec, log=log)


def _size_of_files(asked: LogSpec, config: Config) -> int:
    """Return the size at which a log is rotated whose caller leaves it open. The default is for exitd's own files. Who
    names a path rotates it, as the kubelet does, unless the configuration has another size."""
    return 0 if asked.path and config.log_max_size == LOG_BYTES else config.log_max_size


def check_log(log: LogSpec) -> None:
    """Look at the place of a log. Raises WrongState for the journal of a host that has none, since all output would be
    lost; BadRequest as `check_path`."""
    if log.driver is LogDriver.JOURNALD and not os.path.exists(JOURNAL):
        raise WrongState(f"log driver journald: there is no journal here, {JOURNAL} is missing; choose another driver")
    check_path(log.path)


def refuse_shared(spec: Spec, others: Iterable[Container]) -> None:
    """Raise WrongState if another container has this log file: two shims would rotate it."""
    for other in others if spec.log.path else ():
        if other.spec.log.path == spec.log.path:
            raise WrongState(f"log path {spec.log.path} is that of {other.spec.name} already", id=other.id)


def check_path(path: str) -> None:
    """Raise BadRequest unless the file is there or can be made in its directory, and only root can put another one
    there."""
    if not path:
        return
    if not path.startswith("/"):
        raise _bad(path, "is relative, and there is no pod with a log directory; write an absolute path")
    directory = os.path.dirname(path)
    try:
        if (real := os.path.realpath(directory, strict=True)) != directory:
            raise _bad(path, f"there is a link in {directory}; write {real}/{os.path.basename(path)}")
        _check_directory(path, directory)
        mode = os.stat(path, follow_symlinks=False).st_mode
    except FileNotFoundError as error:
        if error.filename != path:
            raise _bad(path, f"there is no directory {directory}; make it first") from error
        return
    except OSError as error:
        raise _bad(path, f"{error.filename}: {error.strerror}") from error
    if not stat.S_ISREG(mode):
        what = "a link, and links are not followed" if stat.S_ISLNK(mode) else "no regular file"
        raise _bad(path, f"it is {what}")


def _check_directory(path: str, directory: str) -> None:
    """What belongs to root in a sticky directory on the way, no other user can rename."""
    above = directory
    while True:
        found = os.stat(above, follow_symlinks=False)
        if not stat.S_ISDIR(found.st_mode):
            raise _bad(path, f"{above} is no directory")
        if found.st_uid != os.geteuid() and found.st_uid != 0:
            raise _bad(path, f"{above} does not belong to root")
        sticky = above != directory and found.st_mode & stat.S_ISVTX
        if found.st_mode & WRITABLE_BY_OTHERS and not sticky:
            raise _bad(path, f"others than root can write to {above}")
        if above == "/":
            return
        above = os.path.dirname(above)


def _bad(path: str, why: str) -> BadRequest:
    return BadRequest(f"log path {path}: {why}" if path else f"log: {why}", field="log.path")


# -- its place in a pod


NAME_CHARACTERS = 63


def place_of(spec: Spec) -> PodPlace:
    """Return its place in a pod, by the annotations and by the fields that mean the same. Raises BadRequest when they
    contradict each other."""
    annotated = pods.place(dict(spec.annotations))
    if spec.pod and spec.sandbox:
        raise BadRequest("pod, sandbox: a container is a pod's pause container or a member of one, not both")
    asked = PodPlace(Role.SANDBOX) if spec.pod else PodPlace(Role.MEMBER, spec.sandbox) if spec.sandbox else None
    if asked is None or annotated.role is Role.SINGLE:
        return asked or annotated
    if annotated != asked:
        raise BadRequest("the annotations say another place in a pod than the request's own fields; drop one of them")
    return annotated


def placed(spec: Spec, role: Role, pause: Container | None) -> Spec:
    """Return the spec with what follows from its role; `pause` is there for a member. Raises BadRequest for what
    contradicts the role, WrongState for a pod that is not ready."""
    if pause is not None:
        return as_member(spec, pause)
    return as_sandbox(spec) if role is Role.SANDBOX else as_single(spec)


def as_member(spec: Spec, pause: Container) -> Spec:
    """Return the spec of a container that joins this pause container's pod: what all of a pod have in common is the
    pod's."""
    if pause.phase not in (Phase.RUNNING, Phase.PAUSED):
        raise WrongState(
            f"the pod {pause.spec.name} is NotReady: its pause container is {pause.phase.value}; "
            f"exitctl start {pause.id[:12]} makes a new sandbox of it",
            id=pause.id,
        )
    if spec.ipc == "host" and pause.spec.ipc != "host":
        text = f"ipc host: the ipc namespace of a member is its pod's, and {pause.spec.name} has one of its own"
        raise BadRequest(f"{text}; leave it out", field="ipc")
    of_pod = pause.spec.network or networks.NONE
    if spec.network not in ("", networks.POD, of_pod):
        text = f"network {spec.network}: the network of a member is its pod's, and {pause.spec.name} has {of_pod}"
        raise BadRequest(f"{text}; leave it out", field="network")
    if spec.more_networks or spec.wishes:
        raise BadRequest(
            f"more_networks, addresses: those of a pod are its own: make {pause.spec.name} with them",
            field="more_networks" if spec.more_networks else "addresses",
        )
    if spec.ports or spec.publish_all:
        raise BadRequest(
            f"ports: those of a pod are published by the pod: make {pause.spec.name} with them", field="ports"
        )
    most = pause.spec.pod.cpu_limit_milli if pause.spec.pod else 0
    if 0 < most < spec.cpu_limit_milli:
        text = f"cpu_limit_milli {spec.cpu_limit_milli}: the whole pod {pause.spec.name} has {most}; ask for less"
        raise BadRequest(text, field="cpu_limit_milli")
    return replace(
        below(spec, pause.spec.pod.log_directory if pause.spec.pod else ""),
        sandbox=pause.id,
        network=networks.HOST if of_pod == networks.HOST else networks.POD,
        ipc=pause.spec.ipc,
        runtime=spec.runtime or pause.spec.runtime,
        hostname=pause.spec.hostname or pause.id[:12],
        annotations=_with_full_id(spec.annotations, pause.id),
        namespace=pause.spec.namespace,
    )


def below(spec: Spec, log_directory: str) -> Spec:
    """Return the spec with an absolute log path: a member's may be relative to its pod's log directory, as the CRI has
    it."""
    path = spec.log.path
    if not path or path.startswith("/") or not log_directory:
        return spec
    return replace(spec, log=replace(spec.log, path=f"{log_directory.rstrip('/')}/{path}"))


def as_sandbox(spec: Spec) -> Spec:
    """Return the spec of a pause container: with its name where its pod has one."""
    if spec.network == "pod":
        raise BadRequest("network pod: a pause container is its pod's network; choose none, host or a network's name")
    if spec.pid == "pod":
        raise BadRequest("pid pod: a pause container is the first of its pod; its members say --pid pod")
    pod = spec.pod or Pod()
    if spec.auto_remove and pod.on_pause_exit is OnPauseExit.KEEP:
        raise BadRequest("auto_remove, pod.on_pause_exit keep: a pod's members go with it when it is removed; drop one")
    name = spec.name or _name_of(pod)
    return replace(spec, name=name, pod=replace(pod, name=pod.name or spec.name))


def as_single(spec: Spec) -> Spec:
    """Return the spec of a container of no pod."""
    for field, value in (("network", spec.network), ("pid", spec.pid)):
        if value == "pod":
            raise BadRequest(f"{field} pod: the container is no member of a pod", field=field)
    return spec


def _name_of(pod: Pod) -> str:
    """As unique as CRI's metadata; empty when that does not fit into a container's name."""
    namespace = "" if pod.namespace == "default" else f"_{pod.namespace}"
    name = f"{pod.name}{namespace}{f'_{pod.attempt}' if pod.attempt else ''}"
    return name if pod.name and len(name) <= NAME_CHARACTERS else ""


def _with_full_id(annotations: tuple[tuple[str, str], ...], id: str) -> tuple[tuple[str, str], ...]:
    """A runtime with sandboxes of its own looks the pod up by this: the beginning of an id would not do."""
    keys = {family.id_key for family in pods.FAMILIES}
    return tuple((key, id if key in keys else value) for key, value in annotations)


def refuse_mixed(spec: Spec, pause: Container | None) -> None:
    """Raise BadRequest for a member with another kind of shim than its pod: the containers of a pod are under shims of
    one kind."""
    if pause is not None and spec.runtime_type != pause.spec.runtime_type:
        raise BadRequest(
            f"runtime {spec.runtime}: the pod {pause.spec.name} is under {pause.spec.runtime}, and all containers "
            "of a pod are under shims of one kind; leave the runtime out, and the pod's is taken"
        )


# -- the whole


def with_name(spec: Spec, container_id: str) -> Spec:
    """Return the spec with a name: the beginning of its id, where it has none."""
    return spec if spec.name else replace(spec, name=container_id[:12])


def with_volumes(spec: Spec, new_name: Callable[[], str]) -> Spec:
    """Return the spec with a name for each of its anonymous volumes."""
    if not spec.mounts:
        return spec
    mounts = (replace(m, volume=new_name()) if m.anonymous and not m.volume else m for m in spec.mounts)
    return replace(spec, mounts=tuple(mounts))


class Admission:
    """Checks a request against what is there, and settles its spec."""

    def __init__(
        self,
        containers: Containers,
        images: ImageService,
        config: Callable[[], Config],
        disk_refusal: str = "",
        networks: NetworkService | None = None,
        ids: IdRanges | None = None,
    ) -> None:
        """`config`: what is in force at this moment. `disk_refusal` says why no writable layer can be on disk here, and
        the cure; empty if they can. `networks`, `ids`: without it no container has one, or user ids of its own."""
        self._containers = containers
        self._images = images
        self._config = config
        self._disk_refusal = disk_refusal
        self._networks, self._ids = networks, ids
        self._logs, self._runtimes = Aside(MOST_AT_ONCE), Aside(MOST_AT_ONCE)  # looks at paths that callers name

    async def admit(self, spec: Spec, container_id: str) -> Spec:
        """Return the spec with nothing left open. Its image is held for the container from here on, until the container
        is discarded; not if this raises.

        Raises BadRequest, NoSuchContainer (of the pod), WrongState, RuntimeMissing, and what the image store raises;
        TimedOut and Busy where the request names a path.
        """
        place = place_of(spec)
        pause = await self._find_pause(place.sandbox) if place.role is Role.MEMBER else None
        spec = await self._in_network(placed(spec, place.role, pause))

        config = self._config()
        entry, systemd = config.runtime(spec.runtime), driver_of(pause, config)
        refuse_unfit(spec, entry)
        program = await self._runtimes.at(spec.runtime, lambda: find_program(entry))
        spec = with_runtime(spec, config, program, systemd=systemd)

        spec = with_storage(with_log(spec, config), config, self._disk_refusal)
        await self._logs.at(spec.log.path, lambda: check_log(spec.log))
        refuse_mixed(spec, pause)
        refuse_shared(spec, self._containers.values())

        image = await self._images.look_up(spec)
        spec = with_volumes(with_name(merge.complete(spec, image), container_id), lambda: secrets.token_hex(16))
        if self._networks is not None:
            spec = self._networks.claim_ports(spec, image.config.exposed if image is not None else (), container_id)
        try:
            if self._ids is not None:
                spec = await self._ids.claim(spec, container_id)
            await self._images.hold(spec, container_id)
        except BaseException:
            for part in (self._networks, self._ids):
                if part is not None:
                    await part.discarded(container_id)
            raise
        return spec

    async def _in_network(self, spec: Spec) -> Spec:
        if spec.sandbox:
            return spec
        return (
            replace(spec, network=spec.network or "none")
            if self._networks is None
            else await self._networks.choice.settled(spec)
        )

    async def _find_pause(self, reference: str) -> Container:
        try:
            return await self._containers.find_pod(reference)
        except NoSuchContainer as error:
            raise NoSuchContainer(f"no pod {reference}; `exitctl pods` lists all", id=reference) from error
