"""Namespace, pod, container and image of a container, from wherever an engine keeps them. Pure.

Sources: the labels that kubelet gives every container (`io.kubernetes.*`), and the annotations that containerd's CRI
puts into a bundle (`io.kubernetes.cri.*`).
"""

from collections.abc import Mapping

from supervisor.model.values import Container, Exit, Exited, ExitStatus, Names, Signaled, Unknown
from supervisor.model.watched import Observed

MOST_CHARACTERS = 256  # of each name: Kubernetes' own have 253 at most
LABELS = ("io.kubernetes.pod.namespace", "io.kubernetes.pod.name", "io.kubernetes.container.name")
ANNOTATIONS = (
    "io.kubernetes.cri.sandbox-namespace",
    "io.kubernetes.cri.sandbox-name",
    "io.kubernetes.cri.container-name",
)
IMAGE = "io.kubernetes.cri.image-name"
NERDCTL = ("nerdctl/namespace", "nerdctl/name")  # containerd's namespace, and the name that its user has given


def of_labels(labels: Mapping[str, str], image: str = "") -> Names:
    """Return the names in the labels of a container: Kubernetes', else nerdctl's, else only the image's."""
    namespace, pod, container = (clean(labels.get(key, "")) for key in LABELS)
    if not (namespace or pod or container) and (name := labels.get(NERDCTL[1], "")):
        namespace, container = f"containerd/{clean(labels.get(NERDCTL[0], ''))}", clean(name)
    return Names(namespace, pod, container, clean(image))


def of_annotations(annotations: Mapping[str, object]) -> Names:
    """Return the names in the annotations of a bundle, which any program may have written."""
    found = (annotations.get(key, "") for key in (*ANNOTATIONS, IMAGE))
    return Names(*(clean(value) if isinstance(value, str) else "" for value in found))


def of_container(container: Container, pause: Container | None) -> Names:
    """Return the names of one of exitd's own containers. `pause`: the pause container of its pod, or itself; None for a
    container without a pod."""
    spec = container.spec
    if spec.names.namespace:
        return spec.names
    if pause is None or pause.spec.pod is None:
        return Names(clean(spec.namespace), "", clean(spec.name), clean(spec.names.image or spec.image))
    pod = pause.spec.pod
    own = "" if pause.id == container.id else clean(spec.name)
    return Names(clean(pod.namespace), clean(pod.name or pause.spec.name), own, clean(spec.image))


def of_observed(one: Observed) -> Names:
    """Return the names under which the memory kills of a watched process are counted while it lives."""
    return _or_shown(one.names, one.namespace, one.name)


def of_exit(exit: Exit) -> Names:
    """Return the names under which an end is counted: Kubernetes', else those that the ledger shows."""
    return _or_shown(exit.names, exit.namespace, exit.name or exit.key.container)


def _or_shown(names: Names, namespace: str, name: str) -> Names:
    if names.namespace or names.pod or names.container:
        return names
    return Names(clean(namespace), "", clean(name), names.image)


def logged(exit: Exit) -> dict[str, str | int]:
    """Return what a log line says of an end."""
    key, names = exit.key, of_exit(exit)
    said: dict[str, str | int] = {"container": key.container, "run": key.run, **_fields(exit.status)}
    more = {"source": str(exit.source), "reason": str(exit.reason)}
    more |= {"name": names.container, "namespace": names.namespace, "pod": names.pod}
    return {**said, **{word: value for word, value in more.items() if value}}


def _fields(status: ExitStatus) -> dict[str, str | int]:
    match status:
        case Exited(code):
            return {"code": code}
        case Signaled(signal, core):
            return {"signal": signal, "core": True} if core else {"signal": signal}
        case Unknown(cause, number):
            return {"unknown": cause} if number is None else {"unknown": cause, "number": number}


def clean(text: str) -> str:
    """Shorten a name, and replace what no text can hold: half of a surrogate pair."""
    return text[:MOST_CHARACTERS].encode("utf-8", "replace").decode("utf-8")
