"""Which containers and events a caller wants to see: key=value words as docker's, parsed once, matched often.

Several values of one key: any of them. Several keys: all of them. Labels: every one of them.

| key | matches |
|---|---|
| id | an id that begins so |
| name | containers: a name with this part; events: exactly this name |
| namespace | exactly |
| status | docker's word (created, running, paused, restarting, removing, exited, dead) or exitd's own phase |
| health | starting, healthy, unhealthy, or none without a check |
| exited | containers that have ended, and not begun again, with this number: the code, 128 + signal, or 255 |
| ancestor | containers of this image: by its name, with or without the tag, or the beginning of its id |
| before, since | containers made before, or after, the one with this name or id |
| volume | containers that mount this volume or path, or mount something there |
| network | containers with this network mode |
| pod | containers of the pod whose id begins so, its pause container too |
| state | pods: Ready or NotReady |
| label | `label=KEY` or `label=KEY=VALUE` |
| type | events: exactly this type; docker's `container`: any |
| event | events: exactly this type, or docker's or podman's word for it |
| container | events: of the container with exactly this name, or an id that begins so |
| image | events: as ancestor, of their containers |
| watch | events of what this watch has found, by what it was asked for |
"""

from collections.abc import Callable, Collection, Iterable

from shim.frozen import frozen, replace
from supervisor.model.errors import BadRequest
from supervisor.model.values import Container, Event, HealthStatus, Phase, Pod, Spec, fold

CONTAINER_KEYS = (
    *("id", "name", "status", "label", "namespace", "pod", "health"),
    *("exited", "ancestor", "before", "since", "volume", "network"),
)
POD_KEYS = ("id", "name", "namespace", "label", "state")
EVENT_KEYS = ("id", "name", "type", "event", "container", "image", "label", "namespace", "watch")
OF_SPEC = ("image", "label")  # keys that ask of events' containers; events have neither
# docker's and podman's words for types of events; and docker's types of what an event is about.
EVENT_WORDS = {"die": "exit", "died": "exit", "destroy": "remove", "unpause": "resume"}
ABOUT_CONTAINERS = "container"
ABOUT_OTHERS = ("image", "volume", "network", "daemon", "plugin", "builder", "pod", "system", "machine", "secret")

# docker's State.Status. "dead" (a removal that failed half-way) does not exist here and matches nothing.
STATUS_WORDS: dict[Phase, str] = {
    Phase.CREATING: "created",
    Phase.CREATED: "created",
    Phase.STARTING: "created",
    Phase.RUNNING: "running",
    Phase.PAUSED: "paused",
    Phase.EXITED: "exited",
    Phase.RESTARTING: "restarting",
    Phase.REMOVING: "removing",
}
MOST_EXITED = 255
EXITED_NUMBERS = frozenset(map(str, range(MOST_EXITED + 1)))
LEAST_ID = 4  # characters of an image's id: fewer are a name
HEALTHS = (*HealthStatus, "none")
STATUSES = ("created", "running", "paused", "restarting", "removing", "exited", "dead")


@frozen
class Term:
    """One key of a filter, with its alternative values."""

    key: str
    values: tuple[str, ...]


@frozen
class Filter:
    """A parsed filter; one without terms matches everything."""

    terms: tuple[Term, ...] = ()

    @property
    def shows_ended(self) -> bool:
        """Whether what it looks for has ended, so that ended ones are listed without being asked for."""
        return any(term.key in ("status", "exited") for term in self.terms)

    def resolved(self, created_ns: Callable[[str], int]) -> "Filter":
        """Return the filter with the times of the containers that `before` and `since` name. `created_ns` finds one,
        and raises NoSuchContainer."""

        def times(term: Term) -> Term:
            if term.key not in ("before", "since"):
                return term
            return replace(term, values=tuple(str(created_ns(value)) for value in term.values))

        return Filter(tuple(map(times, self.terms)))

    @property
    def asks_of_containers(self) -> bool:
        """Whether events are to be chosen by what their containers are."""
        return any(term.key in OF_SPEC for term in self.terms)

    def for_events(self) -> "tuple[Filter, Filter]":
        """Return what is asked of an event, and what of its container."""
        of_container = [Term("ancestor", t.values) if t.key == "image" else t for t in self.terms if t.key in OF_SPEC]
        return Filter(tuple(t for t in self.terms if t.key not in OF_SPEC)), Filter(tuple(of_container))

    def matches_pod(self, pause: Container, pod: Pod, state: str) -> bool:
        """`name` and `namespace` are the pod's own; `state` is Ready or NotReady, in any case of letters."""
        return all(_pod_matches(term, pause, pod, state) for term in self.terms)

    def matches_container(self, container: Container) -> bool:
        return all(_container_matches(term, container) for term in self.terms)

    def matches_event(self, event: Event) -> bool:
        return all(_event_matches(term, event) for term in self.terms)


EVERYTHING = Filter()


def parse(words: Iterable[str], allowed_keys: Collection[str]) -> Filter:
    """Parse `key=value` words. Raises BadRequest, which names the allowed keys or status words."""
    found: dict[str, list[str]] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if key not in allowed_keys or not equals or not value:
            raise BadRequest(f"filter {word!r} is not KEY=VALUE with a key of {', '.join(allowed_keys)}", filter=word)
        if key == "status" and value not in STATUSES and value not in list(Phase):
            raise BadRequest(f"status {value!r} does not exist; choose one of {', '.join(STATUSES)}", filter=word)
        if key == "health" and value not in HEALTHS:
            raise BadRequest(f"health {value!r} does not exist; choose one of {', '.join(HEALTHS)}", filter=word)
        if key == "exited" and value not in EXITED_NUMBERS:
            raise BadRequest(f"exited {value!r} is no number of an end: 0 to {MOST_EXITED}", filter=word)
        if key == "type" and value in ABOUT_OTHERS:
            instead = "type=container for all of them, or which: event=exit, event=start, event=oom"
            raise BadRequest(f"type {value!r}: the log has events of containers alone; write {instead}", filter=word)
        found.setdefault(key, []).append(value)
    return Filter(tuple(Term(key, tuple(values)) for key, values in found.items()))


def _container_matches(term: Term, container: Container) -> bool:
    spec = container.spec
    match term.key:
        case "id":
            return container.id.startswith(term.values)
        case "name":
            return any(value in spec.name for value in term.values)
        case "namespace":
            return spec.namespace in term.values
        case "status":
            return container.phase.value in term.values or STATUS_WORDS[container.phase] in term.values
        case "health":
            return (container.health or "none") in term.values
        case "label":
            labels = dict(spec.labels)
            return all(_has_label(labels, value) for value in term.values)
        case "exited":
            over = container.phase is Phase.EXITED and container.exit is not None
            return over and container.exit is not None and str(fold(container.exit.status)) in term.values
        case "ancestor":
            return any(_is_image(spec, value) for value in term.values)
        case "before":  # times, since `resolved`
            return any(container.created_ns < int(value) for value in term.values)
        case "since":
            return any(container.created_ns > int(value) for value in term.values)
        case "volume":
            return any({mount.volume, mount.source, mount.destination} & {*term.values} for mount in spec.mounts)
        case "network":
            return bool({*spec.networks} & {*term.values})
        case "pod":
            return (container.id if spec.pod else spec.sandbox or "-").startswith(term.values)
    return False


def _is_image(spec: Spec, wanted: str) -> bool:
    """Return whether this is the container's image: by its whole name, its name without the tag, or its id."""
    id = spec.image_id.removeprefix("sha256:")
    if len(wanted) >= LEAST_ID and id.startswith(wanted.removeprefix("sha256:")):
        return True
    name, colon, tag = spec.image.rpartition(":")
    bare = name if colon and "/" not in tag else spec.image
    return bool(spec.image) and wanted in (spec.image, bare, bare.rpartition("/")[2])


def _pod_matches(term: Term, pause: Container, pod: Pod, state: str) -> bool:
    match term.key:
        case "name":
            return any(value in pod.name for value in term.values)
        case "namespace":
            return pod.namespace in term.values
        case "state":
            return state.lower() in map(str.lower, term.values)
    return _container_matches(term, pause)


def _event_matches(term: Term, event: Event) -> bool:
    match term.key:
        case "id":
            return event.id.startswith(term.values)
        case "name":
            return event.name in term.values
        case "namespace":
            return event.namespace in term.values
        case "type":
            return event.type in term.values or ABOUT_CONTAINERS in term.values
        case "event":
            return any(event.type in (value, EVENT_WORDS.get(value)) for value in term.values)
        case "container":
            return event.name in term.values or event.id.startswith(term.values)
        case "watch":
            return dict(event.attributes).get("watch") in term.values
    return False


def _has_label(labels: dict[str, str], wanted: str) -> bool:
    key, equals, value = wanted.partition("=")
    return key in labels and (not equals or labels[key] == value)
