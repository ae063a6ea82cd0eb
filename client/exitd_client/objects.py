"""What exitd has beside containers and their ends, as frozen values: pods, parts of images, files, volumes, networks
that are stuck, watches, and the daemon itself."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any, TypeVar

from google.protobuf.json_format import MessageToDict

from exitd_client import values

V = TypeVar("V")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """A pod: its pause container, whose id is its own, and its members by creation. `spec` is its whole PodSpec as JSON
    has it, under the API's names."""

    id: str
    name: str
    namespace: str
    state: str  # SANDBOX_READY | SANDBOX_NOTREADY
    pause: values.Container
    members: tuple[values.Container, ...]
    spec: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthResult:
    """One probe of a container's health check, and the check's `status` with it."""

    start: datetime | None
    end: datetime | None
    kind: str  # exited | signaled | unknown, as in Exit; of tcp, http and grpc: passed | failed
    code: int | None
    signal: int | None
    cause: str
    timed_out: bool
    output: bytes  # its beginning
    status: str  # starting | healthy | unhealthy


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageLayer:
    """One layer of an image."""

    diff_id: str  # digest of its uncompressed tar
    size_bytes: int  # of that tar


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageDetails:
    """An image, its configuration (JSON, as the OCI image specification has it) and its layers, lowest first."""

    image: values.Image
    config: bytes
    layers: tuple[ImageLayer, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovedImages:
    """Names that went, and ids of images that went with their last name."""

    names: tuple[str, ...]
    ids: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PrunedImages:
    """What went because no container uses it: names, and ids of images that went with their last name."""

    names: tuple[str, ...]
    ids: tuple[str, ...]
    reclaimed_bytes: int  # of layers that no other image has


@dataclass(frozen=True, slots=True, kw_only=True)
class PathStat:
    """A path in a container, as stat(2) has it."""

    name: str  # the last part of the path
    mode: int  # kind and permissions
    size_bytes: int
    modified_at: datetime | None
    link_target: str  # of a symbolic link


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyDone:
    """What a copy into a container has made there."""

    entries: int  # that were made
    left_out: int  # device nodes


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A file that differs from the one in the image."""

    kind: str  # added | changed | deleted
    path: bytes  # absolute, in the container; not always UTF-8


@dataclass(frozen=True, slots=True, kw_only=True)
class Volume:
    """A volume, and who mounts it."""

    name: str
    created_at: datetime | None
    path: str  # on the machine
    containers: tuple[str, ...]  # ids of those that mount it, running or not
    anonymous: bool  # made for one container, without a name of the caller's


@dataclass(frozen=True, slots=True, kw_only=True)
class PortMapping:
    """A port of the machine's that leads to one of the container's. `protocol`: tcp, udp or sctp."""

    container_port: int
    host_port: int
    protocol: str
    host_ip: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StuckAttachment:
    """What plugins could not take down after a run; exitd tries it again and again. Its ports are refused to others."""

    record: str  # ID-RUN, and the id for the plugins
    container: str
    run: int
    networks: tuple[str, ...]
    ports: tuple[PortMapping, ...]
    tries: int  # since this exitd's start
    why: str  # of the last of them


@dataclass(frozen=True, slots=True, kw_only=True)
class PrunedNetworks:
    """`given_up`: rules and addresses that its plugins have left are the administrator's to remove."""

    taken_down: tuple[StuckAttachment, ...]
    given_up: tuple[StuckAttachment, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """A watch over what others run."""

    target: str  # the pid or path it was asked for by, or `node`; which is its name
    kind: str  # pid | containerd | runc-root | node
    since: datetime | None
    processes: int  # watched now
    exits: int  # reported since the daemon's start
    trouble: str  # why not all is seen; empty when all is
    by: values.By | None
    found_by: str  # the watch that found it, and that it ends with; empty: a client named it


@dataclass(frozen=True, slots=True, kw_only=True)
class ShutDown:
    """The containers that were to end with the machine."""

    ended: tuple[str, ...]  # ids
    left: tuple[str, ...]  # which had not ended when the limit had passed


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One value that is in force, and where it comes from."""

    name: str
    value: str
    origin: str  # default | flag | file:line


@dataclass(frozen=True, slots=True, kw_only=True)
class Info:
    """What exitd is, what works on this machine, and what it is configured for."""

    version: str
    root: str
    state: str
    boot_id: str
    default_runtime: str
    cgroup: str  # v1 | hybrid | v2
    evidence: Mapping[str, bool]  # source -> does it work here
    containers: int
    running: int
    pid: int
    keeper: values.Process | None
    pending_commits: int
    seq: int  # of the newest event
    state_file_system: str
    settings: Mapping[str, str]
    configuration: tuple[Setting, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerUsage:
    """What one container occupies on the disk or in memory."""

    id: str
    active: bool  # it is running or paused
    in_memory: bool  # its writable layer is a tmpfs
    layer_bytes: int  # of its writable layer
    complete: bool  # false: there is more
    log_files: int  # in its own directory
    log_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Occupied:
    """What all things of one kind occupy. Not `complete`: there is more."""

    count: int
    active: int  # of these, in use by a container
    bytes: int
    complete: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskUsage:
    """`images`, `layers` and `volumes` are None unless they were asked for."""

    containers: tuple[ContainerUsage, ...]
    images: Occupied | None
    layers: Occupied | None
    volumes: Occupied | None


# The value of each message, read field by field.
OBJECTS: Mapping[str, type[Any]] = {
    "ImageLayer": ImageLayer,
    "InspectImageReply": ImageDetails,
    "RemoveImageReply": RemovedImages,
    "PruneImagesReply": PrunedImages,
    "PathStat": PathStat,
    "CopyDone": CopyDone,
    "Change": Change,
    "Volume": Volume,
    "PortMapping": PortMapping,
    "StuckAttachment": StuckAttachment,
    "PruneNetworksReply": PrunedNetworks,
    "Watch": Watch,
    "ShutDownNodeReply": ShutDown,
    "Setting": Setting,
    "InfoReply": Info,
    "ContainerUsage": ContainerUsage,
    "Occupied": Occupied,
    "DiskUsageReply": DiskUsage,
}
_READERS: Mapping[str, Callable[[Any], Any]] = {
    "Timestamp": values.time_of,
    "Image": values.image_of,
    "Process": values.process_of,
    "By": values.by_of,
}


def read(kind: type[V], found: Any, **more: Any) -> V:
    """Return the value of a message: its fields under the same names, lists as tuples, None for a message or an
    optional number that is absent. `more`: fields that the message has not."""
    names = (field.name for field in fields(kind) if field.name not in more)  # type: ignore[arg-type]
    return kind(**{name: _field(found, name) for name in names}, **more)


def pod_of(found: Any) -> Pod:
    return Pod(
        id=found.id,
        name=found.spec.name,
        namespace=found.spec.namespace,
        state=found.state,
        pause=values.container_of(found.pause),
        members=tuple(map(values.container_of, found.members)),
        spec=MessageToDict(found.spec, preserving_proto_field_name=True),
    )


def _field(found: Any, name: str) -> Any:
    field, value = found.DESCRIPTOR.fields_by_name[name], getattr(found, name)
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        return dict(value)
    if _is_repeated(field):
        return tuple(map(_one, value))
    return None if field.has_presence and not found.HasField(name) else _one(value)


def _is_repeated(field: Any) -> bool:
    """As `is_repeated` of protobuf 6.31, before which there is `label` alone."""
    found = getattr(field, "is_repeated", None)
    return bool(field.label == field.LABEL_REPEATED) if found is None else bool(found)


def _one(value: Any) -> Any:
    if not hasattr(value, "DESCRIPTOR"):
        return value
    name = value.DESCRIPTOR.name
    return _READERS[name](value) if name in _READERS else read(OBJECTS[name], value)
