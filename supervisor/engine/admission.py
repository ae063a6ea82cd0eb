"""What a request for a container becomes before it is one: its runtime, its place in a pod, its image."""

from collections.abc import Callable
from dataclasses import replace

from supervisor.engine import logplaces
from supervisor.engine.imagedesk import ImageDesk
from supervisor.engine.node import Node
from supervisor.model import pods
from supervisor.model.errors import BadRequest, NoSuchContainer, WrongState
from supervisor.model.pods import Place, Role
from supervisor.model.values import Container, OnPauseExit, Phase, Pod, Spec

NAME_CHARACTERS = 63


class Admission:
    """Checks a spec against what is there, and fills in what the caller left open."""

    def __init__(self, node: Node, desk: ImageDesk, settle: Callable[[Spec], Spec]) -> None:
        """`settle` gives a spec its runtime and its log, as the configuration has them at that moment."""
        self._node = node
        self._desk = desk
        self._settle = settle

    async def admit(self, spec: Spec, container_id: str) -> Spec:
        """BadRequest, NoSuchContainer (of the pod), WrongState, and what the image store raises."""
        place, pause = _place(spec), None
        match place.role:
            case Role.MEMBER:
                pause = await self._pod(place.sandbox)
                spec = self._member(spec, pause)
            case Role.SANDBOX:
                spec = _sandbox(spec)
            case Role.SINGLE:
                spec = _single(spec)
        spec = self._settle(spec)
        if pause is not None and spec.runtime_type != pause.spec.runtime_type:
            raise BadRequest(
                f"runtime {spec.runtime}: the pod {pause.spec.name} is under {pause.spec.runtime}, and all containers "
                "of a pod are under shims of one kind; leave the runtime out, and the pod's is taken"
            )
        logplaces.refuse_shared(spec, self._node.containers.values())
        return await self._desk.resolve(spec, container_id)

    async def _pod(self, reference: str) -> Container:
        try:
            return await self._node.get_pod(reference)
        except NoSuchContainer as error:
            raise NoSuchContainer(f"no pod {reference}; `exitctl pods` lists all", id=reference) from error

    def _member(self, spec: Spec, pause: Container) -> Spec:
        if pause.phase not in (Phase.RUNNING, Phase.PAUSED):
            raise WrongState(
                f"the pod {pause.spec.name} is NotReady: its pause container is {pause.phase.value}; "
                f"exitctl start {pause.id[:12]} makes a new sandbox of it",
                id=pause.id,
            )
        of_host = pause.spec.network == "host"
        if spec.network == "host" and not of_host:
            raise BadRequest(f"network host: the network of a member is its pod's, and {pause.spec.name} has its own")
        most = pause.spec.pod.cpu_limit_milli if pause.spec.pod else 0
        if 0 < most < spec.cpu_limit_milli:
            text = f"cpu_limit_milli {spec.cpu_limit_milli}: the whole pod {pause.spec.name} has {most}; ask for less"
            raise BadRequest(text, field="cpu_limit_milli")
        return replace(
            logplaces.below(spec, pause.spec.pod.log_directory if pause.spec.pod else ""),
            sandbox=pause.id,
            network="host" if of_host else "pod",
            runtime=spec.runtime or pause.spec.runtime,
            hostname=pause.spec.hostname or pause.id[:12],
            annotations=_with_full_id(spec.annotations, pause.id),
            namespace=pause.spec.namespace,
        )


def _place(spec: Spec) -> Place:
    """By annotations, and by the fields that mean the same; BadRequest when they contradict each other."""
    told = pods.place(dict(spec.annotations))
    if spec.pod and spec.sandbox:
        raise BadRequest("pod, sandbox: a container is a pod's pause container or a member of one, not both")
    asked = Place(Role.SANDBOX) if spec.pod else Place(Role.MEMBER, spec.sandbox) if spec.sandbox else None
    if asked is None or told.role is Role.SINGLE:
        return asked or told
    if told != asked:
        raise BadRequest("the annotations say another place in a pod than the request's own fields; drop one of them")
    return told


def _sandbox(spec: Spec) -> Spec:
    if spec.network == "pod":
        raise BadRequest("network pod: a pause container is its pod's network; choose none or host")
    if spec.pid == "pod":
        raise BadRequest("pid pod: a pause container is the first of its pod; its members say --pid pod")
    pod = spec.pod or Pod()
    if spec.auto_remove and pod.on_pause_exit is OnPauseExit.KEEP:
        raise BadRequest("auto_remove, pod.on_pause_exit keep: a pod's members go with it when it is removed; drop one")
    name = spec.name or _name_of(pod)
    return replace(spec, network=spec.network or "none", name=name, pod=replace(pod, name=pod.name or spec.name))


def _single(spec: Spec) -> Spec:
    for field, value in (("network", spec.network), ("pid", spec.pid)):
        if value == "pod":
            raise BadRequest(f"{field} pod: the container is no member of a pod", field=field)
    return replace(spec, network=spec.network or "none")


def _name_of(pod: Pod) -> str:
    """As unique as CRI's metadata; empty when that does not fit into a container's name."""
    namespace = "" if pod.namespace == "default" else f"_{pod.namespace}"
    name = f"{pod.name}{namespace}{f'_{pod.attempt}' if pod.attempt else ''}"
    return name if pod.name and len(name) <= NAME_CHARACTERS else ""


def _with_full_id(annotations: tuple[tuple[str, str], ...], id: str) -> tuple[tuple[str, str], ...]:
    """A runtime with sandboxes of its own looks the pod up by this: the beginning of an id would not do."""
    keys = {family.id_key for family in pods.FAMILIES}
    return tuple((key, id if key in keys else value) for key, value in annotations)
