"""Converts Kubernetes manifests to requests: text in, frozen Play out, or BadRequest with every mistake on a line, by
file, line and field. Pure.

Source: core/v1 (types.go) for the meaning; podman-kube-play(1) for the names and habits.
"""

import math
from collections.abc import Callable
from functools import partial

from protos.exitd.v1 import exitd_pb2 as pb
from shim.frozen import frozen
from supervisor.api.secrets import check_path
from supervisor.cli.manifest import tree
from supervisor.cli.manifest.annotations import annotated
from supervisor.cli.manifest.container import (
    MOST_NAME,
    POLICIES,
    Around,
    PodMember,
    Volume,
    VolumeUse,
    cpu_milli,
    member_of,
    memory_bytes,
    pod_apparmor,
    pod_seccomp,
)
from supervisor.cli.manifest.contents import CONFIG_MAP, SECRET, Contents, FilesVolume, content_of, files_volume
from supervisor.cli.manifest.downward import Downward, NodeFacts
from supervisor.cli.manifest.fields import Field, Notes, WrongField, flag_of, text_of
from supervisor.cli.manifest.objects import (
    DEPLOYMENT,
    NAMESPACE,
    OF_ONE_POD,
    OF_PODS,
    SHAPES,
    PodSource,
    full_name,
    kind_of_object,
    name_of_pod,
    pods_of,
    volume_of_claim,
)
from supervisor.cli.manifest.podshape import amount
from supervisor.cli.manifest.ports import put_ports, refuse_clashes
from supervisor.cli.manifest.resolving import resolver_of
from supervisor.cli.manifest.rights import fs_group
from supervisor.cli.manifest.sysctls import pod_sysctls
from supervisor.cli.networkwords import NetworkWords, put_networks
from supervisor.model.errors import BadRequest
from supervisor.model.pods import FAMILY_KEYS

DEFAULT_GRACE_SECONDS = 30  # Kubernetes' own
MOST_VOLUME_BYTES = 1 << 50


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
    volumes: tuple[str, ...] = ()  # to be made, unless they are there


@frozen
class Machine:
    """What a pod takes from the machine it is played on. `networks` has the network fields alone; empty: the pod's own
    choice."""

    new_uid: Callable[[], str]
    read_profile: Callable[[str], str]
    runtime: str
    node: NodeFacts
    networks: pb.ContainerSpec


@frozen
class ManifestSource:
    """One file: its name for people, its text, and where its relative paths begin."""

    file: str
    text: str
    directory: str = "/"


NO_FACTS = NodeFacts()


def no_profiles(file: str) -> str:
    raise BadRequest(f"{file}: no seccomp profile is read here")


def play(
    sources: tuple[ManifestSource, ...],
    new_uid: Callable[[], str],
    runtime: str = "",
    read_profile: Callable[[str], str] = no_profiles,
    node: NodeFacts = NO_FACTS,
    network: tuple[str, ...] = (),
) -> Play:
    """Return all pods of all files. `new_uid` returns a new uid for each pod: one in a file belongs to another
    cluster's pod. `read_profile` returns the text of a seccomp profile's file. `network`: the words of --network.
    Raises BadRequest."""
    networks, notes = _networks(network), Notes()
    documents = _known(sources, notes)
    for document, kind, _ in documents:
        SHAPES[kind](document, notes)
    notes.settle()
    contents, claims = _contents(documents, notes), _claims(documents, notes)
    found = [
        pod
        for document, kind, source in documents
        if kind in OF_PODS
        for pod in pods_of(document, kind, source.directory, notes)
    ]
    if not (found or claims or notes.refusals):
        raise BadRequest(f"{', '.join(source.file for source in sources)}: no Pod in there")
    if networks.addresses and len(found) > 1:
        raise BadRequest(f"--network {' '.join(network)}: an address is one pod's, and there are {len(found)}")
    machine = Machine(new_uid, read_profile, runtime, node, networks)
    pods = tuple(_pod(source, contents, machine, notes) for source in found)
    _check_names(pods, found, notes)
    _check_ports(pods, found, notes)
    notes.settle()
    return Play(pods, tuple(dict.fromkeys(notes.warnings)), claims)


def _networks(network: tuple[str, ...]) -> pb.ContainerSpec:
    networks = pb.ContainerSpec()
    put_networks(networks, NetworkWords(network))
    if "pod" in (networks.network, *networks.more_networks):
        raise BadRequest("--network pod: a pod has a network of its own; write a network's name, none or host")
    return networks


def names(sources: tuple[ManifestSource, ...]) -> tuple[tuple[str, str], ...]:
    """Return (namespace, name) of each pod but those of Deployments: what `--down` needs, even from files with
    unsupported fields."""
    return _named(sources, "Pod", *OF_ONE_POD)


def deployments(sources: tuple[ManifestSource, ...]) -> tuple[tuple[str, str], ...]:
    """Return (namespace, name) of each Deployment, as `names` does."""
    return _named(sources, "Deployment")


def _named(sources: tuple[ManifestSource, ...], *wanted: str) -> tuple[tuple[str, str], ...]:
    notes = Notes()
    found: list[tuple[str, str]] = []
    for document, kind, _ in _known(sources, notes):
        if kind in wanted:
            found += ((namespace, name_of_pod(kind, name)) for namespace, name in _full_name(document, notes))
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


def _known(sources: tuple[ManifestSource, ...], notes: Notes) -> list[tuple[Field, str, ManifestSource]]:
    """Return the documents of all files that are played, each with its kind."""
    return [
        (document, kind, source)
        for source in sources
        for document in _objects(source, notes)
        if (kind := kind_of_object(document, notes))
    ]


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


def _contents(documents: list[tuple[Field, str, ManifestSource]], notes: Notes) -> Contents:
    found = {}
    for document, kind, _ in documents:
        if kind in (CONFIG_MAP, SECRET):
            key = (kind, *full_name(document))
            if key in found:
                document.refuse(notes, f"the {kind} {key[2]} is there twice")
            found[key] = content_of(document, notes)
    return Contents(found)


def _claims(documents: list[tuple[Field, str, ManifestSource]], notes: Notes) -> tuple[str, ...]:
    found = []
    for document, kind, _ in documents:
        name = document.get("metadata", "name")
        if kind == "PersistentVolumeClaim" and name is not None:
            found.append(volume_of_claim(full_name(document)[0], name, notes))
    return tuple(dict.fromkeys(found))


def _pod(source: PodSource, contents: Contents, machine: Machine, notes: Notes) -> PodPlan:
    spec, paths = source.spec, list[HostPath]()
    around = _around(source, contents, machine, paths, notes)
    containers, inits = spec.get("containers"), spec.get("initContainers")
    assert containers is not None
    if not containers.items():
        containers.refuse(notes, "a pod needs a container")
    first = tuple(member_of(each, around, notes, init=True) for each in (inits.items() if inits is not None else ()))
    rest = tuple(member_of(each, around, notes) for each in containers.items())
    pause = _pause(source, around, machine, notes)
    for member in (*first, *rest):
        if around.down.address_mark.encode() in member.spec.SerializeToString():
            member.spec.address_mark = around.down.address_mark
    for member in first:
        (pause.pod.sidecars if member.sidecar else pause.pod.inits).append(member.spec.name)
    if not around.host_network:
        put_ports(pause, (port for member in (*first, *rest) for port in member.ports))
    return PodPlan(around.pod, around.namespace, pause, first, rest, tuple(paths))


def _around(source: PodSource, contents: Contents, machine: Machine, paths: list[HostPath], notes: Notes) -> Around:
    spec = source.spec
    metadata = source.metadata
    labels, annotations = (metadata.get(name) if metadata is not None else None for name in ("labels", "annotations"))
    for key, each in annotations.fields() if annotations is not None else ():
        if key in FAMILY_KEYS:
            each.refuse(notes, "exitd says itself what is a pod and what its member; drop it")
    host_pid, shared_pid = spec.get("hostPID"), spec.get("shareProcessNamespace")
    if flag_of(host_pid) and flag_of(shared_pid):
        assert shared_pid is not None
        shared_pid.refuse(notes, "hostPID and shareProcessNamespace exclude each other")
    grace, uid = spec.get("terminationGracePeriodSeconds"), machine.new_uid()
    of_host, asked = spec.get("hostNetwork"), machine.networks.network
    if flag_of(of_host) and asked not in ("", "host"):
        assert of_host is not None
        of_host.refuse(notes, f"--network {asked} asks for another network; drop one of them")
    down = Downward(
        name=source.name,
        namespace=source.namespace,
        uid=uid,
        labels=labels.pairs() if labels is not None else {},
        annotations=annotations.pairs() if annotations is not None else {},
        containers=_containers(spec),
        node=machine.node,
        host_network=flag_of(of_host) or asked == "host",
        address_mark=f"pod-address-{uid}",
    )
    return Around(
        pod=source.name,
        namespace=source.namespace,
        uid=down.uid,
        labels=down.labels,
        annotations={**down.annotations, **({DEPLOYMENT: source.deployment} if source.deployment else {})},
        security=spec.get("securityContext"),
        limits=_limits(spec),
        asked=annotated(annotations, tuple(down.containers), notes),
        policy=text_of(spec.get("restartPolicy"), "Always"),
        retries=source.retries,
        grace_seconds=grace.integer() if grace is not None else DEFAULT_GRACE_SECONDS,
        pid="host" if flag_of(host_pid) else "pod" if flag_of(shared_pid) else "own",
        ipc="host" if flag_of(spec.get("hostIPC")) else "",
        host_network=down.host_network,
        resolver=resolver_of(spec, notes),
        volumes=_volumes(source, contents, down, paths, notes),
        contents=contents,
        down=down,
        directory=source.file_directory,
        read_profile=machine.read_profile,
    )


def _limits(spec: Field) -> dict[str, Field]:
    """Return the limits of the pod as a whole, by their names."""
    found = {name: spec.get("resources", "limits", name) for name in ("memory", "cpu")}
    return {name: field for name, field in found.items() if field is not None}


def _containers(spec: Field) -> dict[str, Field]:
    lists = (spec.get(name) for name in ("containers", "initContainers"))
    return {text_of(each.get("name")): each for given in lists if given is not None for each in given.items()}


def _pause(source: PodSource, around: Around, machine: Machine, notes: Notes) -> pb.ContainerSpec:
    """Return the pause container, with the pod's policy. It ends with the last member, as with podman."""
    spec, limits = source.spec, around.limits
    seccomp, apparmor = pod_seccomp(around, notes), pod_apparmor(around, notes)
    hostname, deadlines = spec.get("hostname"), (spec.get("activeDeadlineSeconds"), source.deadline)
    pause = pb.ContainerSpec(
        security=pb.SecuritySpec(seccomp=seccomp, apparmor=apparmor) if seccomp or apparmor else None,
        name=around.pod,
        namespace=around.namespace,
        image="pause",
        runtime=machine.runtime or text_of(spec.get("runtimeClassName")),
        hostname=text_of(hostname, around.pod),
        network="host" if around.host_network else "",  # the daemon's default
        restart=POLICIES[around.policy],
        labels=around.labels,
        annotations=around.annotations,
        ipc=around.ipc,
        sysctls=pod_sysctls(around.security, notes, host_network=around.host_network, ipc=around.ipc),
        pod=pb.PodSpec(
            name=around.pod,
            namespace=around.namespace,
            uid=around.uid,
            exit_policy="stop",
            memory_bytes=memory_bytes(limits["memory"], notes) if "memory" in limits else 0,
            cpu_limit_milli=cpu_milli(limits["cpu"], notes) if "cpu" in limits else 0,
            pids_limit=around.asked.pids,
            active_deadline_seconds=min((each.integer() for each in deadlines if each is not None), default=0),
        ),
    )
    pause.MergeFrom(machine.networks)
    return pause


FILES = ("configMap", "secret", "downwardAPI", "projected")
KINDS = ("emptyDir", "hostPath", "persistentVolumeClaim", *FILES)


def _volumes(
    source: PodSource, contents: Contents, down: Downward, paths: list[HostPath], notes: Notes
) -> dict[str, Volume]:
    """Return for each volume a function that makes its mount in a container."""
    given, found = source.spec.get("volumes"), dict[str, Volume]()
    group = fs_group(source.spec.get("securityContext"))
    for each in given.items() if given is not None else ():
        name, kinds = each.get("name"), [kind for kind, part in each.fields() if kind in KINDS]
        assert name is not None
        if name.text() in found:
            name.refuse(notes, f"the volume {name.text()} is there twice")
        if len(kinds) != 1:
            each.refuse(notes, f"a volume is one of {', '.join(KINDS)}")
            continue
        kind = kinds[0]
        part = each.get(kind)
        if kind == "emptyDir":
            found[name.text()] = _empty_dir(name.text(), part, group, notes)
        elif part is None:
            each.refuse(notes, f"{kind} says nothing")
        elif kind == "hostPath":
            path = part.get("path")
            assert path is not None
            paths.append(HostPath(path.text(), text_of(part.get("type")), str(path)))
            found[name.text()] = partial(_host_path, path.text())
        elif kind == "persistentVolumeClaim":
            found[name.text()] = _claim(part, down.namespace, notes)
        else:
            files = files_volume(part, kind, contents, down, group, notes)
            found[name.text()] = partial(_files, files)
    return found


def _empty_dir(name: str, field: Field | None, group: int | None, notes: Notes) -> Volume:
    """Without `field`: `emptyDir:` with nothing after it, which is one on the disk."""
    in_memory = field is not None and text_of(field.get("medium")) == "Memory"
    limit, size_bytes = field.get("sizeLimit") if field is not None else None, 0
    if limit is not None:
        size_bytes = math.ceil(amount(limit))
        if size_bytes > MOST_VOLUME_BYTES:
            limit.refuse(notes, "is more than any machine has")
    size_bytes = min(size_bytes, MOST_VOLUME_BYTES)

    def mount(use: VolumeUse, notes: Notes) -> pb.Mount | None:
        return pb.Mount(
            empty_dir=name,
            sub_path=_sub_path(use, notes),
            destination=use.destination,
            read_only=use.read_only,
            group=group,
            tmpfs=in_memory,
            size_bytes=size_bytes,
            options=_options(use),
        )

    return mount


def _host_path(path: str, use: VolumeUse, notes: Notes) -> pb.Mount | None:
    return pb.Mount(
        source=path,
        destination=use.destination,
        read_only=use.read_only,
        sub_path=_sub_path(use, notes),
        options=_options(use),
    )


def _claim(part: Field, namespace: str, notes: Notes) -> Volume:
    claim, read_only = part.get("claimName"), flag_of(part.get("readOnly"))
    assert claim is not None
    volume = volume_of_claim(namespace, claim, notes)

    def mount(use: VolumeUse, notes: Notes) -> pb.Mount | None:
        return pb.Mount(
            volume=volume,
            destination=use.destination,
            read_only=use.read_only or read_only,
            sub_path=_sub_path(use, notes),
            options=_options(use),
        )

    return mount


def _files(files: FilesVolume, use: VolumeUse, notes: Notes) -> pb.Mount | None:
    if use.propagation and use.where is not None:
        use.where.refuse(notes, "these files are the container's own, and nothing is mounted below them; drop it")
    return files.mount(use.destination, use.sub_path, notes)


def _options(use: VolumeUse) -> list[str]:
    return [use.propagation] if use.propagation else []


def _sub_path(use: VolumeUse, notes: Notes) -> str:
    """Return the path in the volume; empty for the whole of it."""
    path = "/".join(part for part in text_of(use.sub_path).split("/") if part not in ("", "."))
    if path and use.sub_path is not None:
        try:
            check_path("subPath", path)
        except BadRequest as error:
            use.sub_path.refuse(notes, str(error))
    return path


def _check_names(pods: tuple[PodPlan, ...], sources: list[PodSource], notes: Notes) -> None:
    """Pods and containers share one set of names in each namespace."""
    seen: dict[tuple[str, str], str] = {}
    for pod, source in zip(pods, sources, strict=True):
        if len(pod.name) > MOST_NAME:
            what = f"the pod would be called {pod.name}, which is longer than {MOST_NAME} characters"
            source.where.refuse(notes, what)
        members = ((member.spec.name, member.where) for member in (*pod.inits, *pod.members))
        for name, where in ((pod.name, str(source.where)), *members):
            key = (pod.namespace, name)
            if key in seen:
                notes.refusals.append(f"{where}: {name} would be the name of two; the other one is {seen[key]}")
            seen.setdefault(key, where)


def _check_ports(pods: tuple[PodPlan, ...], sources: list[PodSource], notes: Notes) -> None:
    """No two containers can have the same port of the machine; so it is with the replicas of a Deployment."""
    refuse_clashes(
        (
            (port, source.where)
            for pod, source in zip(pods, sources, strict=True)
            for member in (*pod.inits, *pod.members)
            for port in member.ports
        ),
        notes,
    )
