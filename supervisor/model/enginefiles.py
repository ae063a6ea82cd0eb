"""What engines have on disk about their containers: names, pods, namespaces and images. Pure.

runc's and crun's state names a container's bundle, whose config.json has the annotations of containerd's CRI and of
CRI-O. podman keeps names in the containers.json of containers/storage, docker in a config.v2.json for each container.
The owner of such a file can write anything into it: it can be wrong about its own containers, and about nothing else.

Sources: the OCI runtime specification (config.md); containers/storage (containers.json); CRI-O's pkg/annotations;
docker's container directory.
"""

import json
import posixpath
from collections.abc import Mapping

from shim.frozen import frozen
from shim.patterns import LatePattern
from supervisor.model import names
from supervisor.model.values import NO_NAMES, Names

MOST_ID = 64  # characters of an id of docker's, podman's and CRI-O's
MOST_ENTRIES = 20_000  # of a containers.json
SHORT = 12
CRIO_LABELS, CRIO_KIND = "io.kubernetes.cri-o.Labels", "io.kubernetes.cri-o.ContainerType"
CRIO_IMAGES = ("io.kubernetes.cri-o.ImageName", "io.kubernetes.cri-o.Image")
PODMAN, DOCKER = "podman", "docker"  # in the place of a namespace, which they do not have
_PODMAN_POD = LatePattern(r"libpod_pod_([0-9a-f]{64})(?:\.slice)?(?=[:/]|$)|^/?libpod_parent/([0-9a-f]{64})/")
_DOCKER_ID = LatePattern(r"[0-9a-f]{64}")


@frozen
class BundleWords:
    """What a bundle's config.json says. `names`: all empty where its annotations have none."""

    names: Names = NO_NAMES
    is_podmans: bool = False
    pod: str = ""  # podman's, by the beginning of its id
    docker: str = ""  # directory of docker's container, which it mounts files of


def bundle_in(state: str) -> str:
    """Return the bundle's directory from the text of runc's state.json or crun's status; empty if there is none."""
    document = _object(state)
    bundle = document.get("bundle", "")
    labels = _mapping(document.get("config")).get("labels")
    for label in labels if isinstance(labels, list) else ():
        if isinstance(label, str) and label.startswith("bundle="):
            bundle = label.removeprefix("bundle=")
    if not isinstance(bundle, str) or not bundle.startswith("/") or not _is_text(bundle):
        return ""
    return bundle if posixpath.normpath(bundle) == bundle else ""


def bundle_words(config: str) -> BundleWords:
    """Return what the text of a bundle's config.json says."""
    document = _object(config)
    annotations = _mapping(document.get("annotations"))
    linux = _mapping(document.get("linux"))
    return BundleWords(
        _crios(annotations) or names.of_annotations(annotations),
        annotations.get("io.container.manager") == "libpod",
        _podmans_pod(linux.get("cgroupsPath")),
        _docker_directory(document.get("mounts")),
    )


def storage_of(bundle: str) -> str:
    """Return the path of podman's containers.json for a bundle STORAGE/overlay-containers/ID/userdata; empty if it is
    none."""
    directory, last = posixpath.split(bundle)
    parent = posixpath.dirname(directory)
    return f"{parent}/containers.json" if last == "userdata" and parent.endswith("-containers") else ""


def podmans(text: str) -> dict[str, Names]:
    """Return the names of each container of a containers.json, by id, without their pods."""
    found: dict[str, Names] = {}
    try:
        entries = json.loads(text)
    except (ValueError, RecursionError):
        return found
    for entry in entries[:MOST_ENTRIES] if isinstance(entries, list) else ():
        each = _mapping(entry)
        id, called = each.get("id"), each.get("names")
        name = called[0] if isinstance(called, list) and called else ""
        metadata = each.get("metadata")
        image = _object(metadata if isinstance(metadata, str) else "").get("image-name")
        if isinstance(id, str) and len(id) <= MOST_ID:
            found[id] = Names(PODMAN, "", _word(name), _word(image))
    return found


def in_pod(found: Names, pod: str) -> Names:
    return Names(found.namespace, pod, found.container, found.image)


def dockers(text: str) -> Names:
    """Return the names in docker's config.v2.json: Kubernetes' if it has made the container, else docker's own; with
    compose, its project in the place of a pod."""
    document = _object(text)
    config = _mapping(document.get("Config"))
    labels = {key: value for key, value in _mapping(config.get("Labels")).items() if isinstance(value, str)}
    image = _word(config.get("Image"))
    known = names.of_labels(labels, image)
    if known.pod:
        return known
    name = _word(document.get("Name")).removeprefix("/")
    if not name and not image:
        return NO_NAMES
    return Names(DOCKER, _word(labels.get("com.docker.compose.project")), name, image)


def docker_config(directory: str, id: str) -> str:
    """Return the path of docker's file for a container; empty if that is no id of docker's."""
    return f"{directory}/{id}/config.v2.json" if _DOCKER_ID.fullmatch(id) else ""


def _crios(annotations: Mapping[str, object]) -> Names | None:
    kind = annotations.get(CRIO_KIND)
    if kind not in ("sandbox", "container"):
        return None
    said = annotations.get(CRIO_LABELS)
    labels = _object(said if isinstance(said, str) else "")
    words = [_word(annotations.get(key)) or _word(labels.get(key)) for key in names.LABELS]
    image = next((word for word in (_word(annotations.get(key)) for key in CRIO_IMAGES) if word), "")
    return Names(words[0], words[1], "" if kind == "sandbox" else words[2], image)


def _podmans_pod(cgroup: object) -> str:
    found = _PODMAN_POD.search(cgroup) if isinstance(cgroup, str) else None
    return (found[1] or found[2])[:SHORT] if found else ""


def _docker_directory(mounts: object) -> str:
    """docker mounts the container's resolv.conf, hostname and hosts from its own directory for it."""
    for mount in mounts if isinstance(mounts, list) else ():
        each = _mapping(mount)
        source = each.get("source")
        if each.get("destination") != "/etc/hostname" or not isinstance(source, str) or not _is_text(source):
            continue
        directory = posixpath.dirname(source)
        parent, id = posixpath.split(directory)
        if posixpath.normpath(source) == source and parent.endswith("/containers") and _DOCKER_ID.fullmatch(id):
            return directory
    return ""


def _object(text: str) -> Mapping[str, object]:
    try:
        return _mapping(json.loads(text)) if text else {}
    except (ValueError, RecursionError):
        return {}


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}


def _word(value: object) -> str:
    return names.clean(value) if isinstance(value, str) else ""


def _is_text(path: str) -> bool:
    """Half of a surrogate pair is in no path."""
    return path.isprintable() and len(path) <= 4096
