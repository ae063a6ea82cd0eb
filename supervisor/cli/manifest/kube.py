"""Converts Kubernetes manifests to requests: text in, frozen Play out, or BadRequest with every mistake on a line, by
file, line and field. Pure.

Source: core/v1 (types.go) for the meaning; podman-kube-play(1) for the names and habits.
"""

from collections.abc import Callable, Mapping
from functools import partial

from protos.exitd.v1 import exitd_pb2 as pb
from shim.frozen import frozen
from supervisor.cli.manifest import tree
from supervisor.cli.manifest.annotations import annotated
from supervisor.cli.manifest.container import (
    POLICIES,
    Around,
    PodMember,
    cpu_milli,
    member_of,
    memory_bytes,
    pod_seccomp,
)
from supervisor.cli.manifest.fields import Field, Notes, WrongField, flag_of, text_of
from supervisor.cli.manifest.podshape import POD
from supervisor.cli.manifest.rights import fs_group
from supervisor.model.errors import BadRequest
from supervisor.model.pods import FAMILY_KEYS

DEFAULT_GRACE_SECONDS = 30  # Kubernetes' own
NAMESPACE = "default"


@frozen
class HostPath:
    """A path of this machine that must exist, or be made, before its pod; `kind` is Kubernetes' type."""

    path: str
    kind: str
    where: str


@frozen
class PodPlan:
    """One pod: the pause container, then the init containers one after another, then the others."""

    name: str
    namespace: str
    pause: pb.ContainerSpec
    inits: tuple[PodMember, ...]
    members: tuple[PodMember, ...]
    host_paths: tuple[HostPath, ...]


@frozen
class Play:
    """What the files ask for. `warnings` say what will differ from it."""

    pods: tuple[PodPlan, ...]
    warnings: tuple[str, ...] = ()


@frozen
class Machine:
    """What a pod takes from the machine it is played on."""

    new_uid: Callable[[], str]
    read_profile: Callable[[str], str]
    runtime: str


@frozen
class ManifestSource:
    """One file: its name for people, its text, and where its relative paths begin."""

    file: str
    text: str
    directory: str = "/"


def no_profiles(file: str) -> str:
    raise BadRequest(f"{file}: no seccomp profile is read here")


def play(
    sources: tuple[ManifestSource, ...],
    new_uid: Callable[[], str],
    runtime: str = "",
    read_profile: Callable[[str], str] = no_profiles,
) -> Play:
    """Return all pods of all files. `new_uid` returns a new uid for each pod: one in a file belongs to another
    cluster's pod. `read_profile` returns the text of a seccomp profile's file. Raises BadRequest."""
    notes = Notes()
    documents = [(each, source) for source in sources for each in _objects(source, notes)]
    for document, _ in documents:
        if _is_pod(document, notes):
            POD(document, notes)
    notes.settle()
    if not documents:
        raise BadRequest(f"{', '.join(source.file for source in sources)}: no Pod in there")
    pods = tuple(
        _pod(document, source, Machine(new_uid, read_profile, runtime), notes) for document, source in documents
    )
    _check_names(pods, documents, notes)
    notes.settle()
    return Play(pods, tuple(notes.warnings))


def names(sources: tuple[ManifestSource, ...]) -> tuple[tuple[str, str], ...]:
    """Return (namespace, name) of each pod: what `--down` needs, even from files with unsupported fields."""
    notes = Notes()
    found: list[tuple[str, str]] = []
    for source in sources:
        for document in _objects(source, notes):
            if _is_pod(document, notes):
                found += _full_name(document, notes)
    notes.settle()
    return tuple(dict.fromkeys(found))


def _full_name(document: Field, notes: Notes) -> list[tuple[str, str]]:
    try:
        name = document.get("metadata", "name")
        if name is not None:
            return [(text_of(document.get("metadata", "namespace"), NAMESPACE), name.text())]
        document.refuse(notes, "metadata.name is missing")
    except WrongField as error:
        notes.refusals.append(str(error))
    return []


def _objects(source: ManifestSource, notes: Notes) -> list[Field]:
    """Return the documents of a file; a List is replaced by its items."""
    found = []
    is_json = source.file.endswith(".json")
    for node in tree.documents(source.text, source.file, json=is_json):
        document = Field(source.file, "", node)
        try:
            inner = document.get("items") if text_of(document.get("kind")) == "List" else None
            found += list(inner.items()) if inner is not None else [document]
        except WrongField as error:
            notes.refusals.append(str(error))
    return found


def _is_pod(document: Field, notes: Notes) -> bool:
    try:
        kind = document.get("kind")
        word = text_of(kind)
    except WrongField as error:
        notes.refusals.append(str(error))
        return False
    if kind is None:
        document.refuse(notes, "kind is missing; exitd plays Pods")
    elif word != "Pod":
        kind.refuse(notes, f"exitd plays Pods and nothing else, no {word}")
    return word == "Pod"


def _pod(document: Field, source: ManifestSource, machine: Machine, notes: Notes) -> PodPlan:
    spec = document.get("spec")
    assert spec is not None
    paths: list[HostPath] = []
    volumes = _volumes(spec, paths, notes)
    around = _around(document, spec, volumes, machine, source, notes)
    containers, inits = spec.get("containers"), spec.get("initContainers")
    assert containers is not None
    if not containers.items():
        containers.refuse(notes, "a pod needs a container")
    first = tuple(member_of(each, around, notes, init=True) for each in (inits.items() if inits is not None else ()))
    rest = tuple(member_of(each, around, notes) for each in containers.items())
    pause = _pause(spec, around, machine.runtime, notes)
    return PodPlan(around.pod, around.namespace, pause, first, rest, tuple(paths))


def _around(
    document: Field,
    spec: Field,
    volumes: Mapping[str, Callable[[str, bool], pb.Mount]],
    machine: Machine,
    source: ManifestSource,
    notes: Notes,
) -> Around:
    metadata = document.get("metadata")
    assert metadata is not None
    labels, annotations = metadata.get("labels"), metadata.get("annotations")
    for key, each in annotations.fields() if annotations is not None else ():
        if key in FAMILY_KEYS:
            each.refuse(notes, "exitd says itself what is a pod and what its member; drop it")
    host_pid, shared_pid = spec.get("hostPID"), spec.get("shareProcessNamespace")
    if flag_of(host_pid) and flag_of(shared_pid):
        assert shared_pid is not None
        shared_pid.refuse(notes, "hostPID and shareProcessNamespace exclude each other")
    grace = spec.get("terminationGracePeriodSeconds")
    return Around(
        pod=text_of(metadata.get("name")),
        namespace=text_of(metadata.get("namespace"), NAMESPACE),
        uid=machine.new_uid(),
        labels=labels.pairs() if labels is not None else {},
        annotations=annotations.pairs() if annotations is not None else {},
        security=spec.get("securityContext"),
        limits=_limits(spec),
        asked=annotated(annotations, _container_names(spec), notes),
        policy=text_of(spec.get("restartPolicy"), "Always"),
        grace_seconds=grace.integer() if grace is not None else DEFAULT_GRACE_SECONDS,
        pid="host" if flag_of(host_pid) else "pod" if flag_of(shared_pid) else "own",
        host_network=flag_of(spec.get("hostNetwork")),
        volumes=volumes,
        directory=source.directory,
        read_profile=machine.read_profile,
    )


def _limits(spec: Field) -> dict[str, Field]:
    """Return the limits of the pod as a whole, by their names."""
    found = {name: spec.get("resources", "limits", name) for name in ("memory", "cpu")}
    return {name: field for name, field in found.items() if field is not None}


def _container_names(spec: Field) -> tuple[str, ...]:
    lists = (spec.get(name) for name in ("containers", "initContainers"))
    return tuple(text_of(each.get("name")) for given in lists if given is not None for each in given.items())


def _pause(spec: Field, around: Around, runtime: str, notes: Notes) -> pb.ContainerSpec:
    """Return the pause container, with the pod's policy. It ends with the last member, as with podman."""
    limits, seccomp = around.limits, pod_seccomp(around, notes)
    return pb.ContainerSpec(
        security=pb.SecuritySpec(seccomp=seccomp) if seccomp else None,
        name=around.pod,
        namespace=around.namespace,
        image="pause",
        runtime=runtime or text_of(spec.get("runtimeClassName")),
        hostname=text_of(spec.get("hostname"), around.pod),
        network="host" if around.host_network else "none",
        restart=POLICIES[around.policy],
        labels=around.labels,
        annotations=around.annotations,
        pod=pb.PodSpec(
            name=around.pod,
            namespace=around.namespace,
            uid=around.uid,
            exit_policy="stop",
            memory_bytes=memory_bytes(limits["memory"], notes) if "memory" in limits else 0,
            cpu_limit_milli=cpu_milli(limits["cpu"], notes) if "cpu" in limits else 0,
            pids_limit=around.asked.pids,
        ),
    )


def _volumes(spec: Field, paths: list[HostPath], notes: Notes) -> dict[str, Callable[[str, bool], pb.Mount]]:
    """Return for each volume a function that makes its mount from the path in the container and whether it is read-only
    there."""
    given = spec.get("volumes")
    found: dict[str, Callable[[str, bool], pb.Mount]] = {}
    for each in given.items() if given is not None else ():
        name, host = each.get("name"), each.get("hostPath")
        assert name is not None
        if name.text() in found:
            name.refuse(notes, f"the volume {name.text()} is there twice")
        if ("emptyDir" in dict(each.fields())) == (host is not None):
            each.refuse(notes, "a volume is either an emptyDir or a hostPath")
        if host is None:
            found[name.text()] = partial(_empty_dir, name.text(), fs_group(spec.get("securityContext")))
            continue
        path = host.get("path")
        assert path is not None
        paths.append(HostPath(path.text(), text_of(host.get("type")), str(path)))
        found[name.text()] = partial(_host_path, path.text())
    return found


def _empty_dir(name: str, group: int | None, destination: str, read_only: bool) -> pb.Mount:
    return pb.Mount(empty_dir=name, destination=destination, read_only=read_only, group=group)


def _host_path(path: str, destination: str, read_only: bool) -> pb.Mount:
    return pb.Mount(source=path, destination=destination, read_only=read_only)


def _check_names(pods: tuple[PodPlan, ...], documents: list[tuple[Field, ManifestSource]], notes: Notes) -> None:
    """Pods and containers share one set of names in each namespace."""
    seen: dict[tuple[str, str], str] = {}
    for pod, (document, _) in zip(pods, documents, strict=True):
        members = ((member.spec.name, member.where) for member in (*pod.inits, *pod.members))
        for name, where in ((pod.name, str(document.get("metadata", "name"))), *members):
            key = (pod.namespace, name)
            if key in seen:
                notes.refusals.append(f"{where}: {name} would be the name of two; the other one is {seen[key]}")
            seen.setdefault(key, where)
