"""Pods as annotations describe them: which container is a sandbox, which joins one, and what a runtime gets to see.

Three families of names mean the same: isula's examples, CRI (which Kata reads, too), and iSulad's CRI. A container may
have annotations of several families if they agree.
"""

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from fnmatch import fnmatchcase

from shim.frozen import frozen
from supervisor.model import health, restart
from supervisor.model.errors import BadRequest
from supervisor.model.values import BootTime, Container, ExitPolicy, OnPauseExit, Phase


@frozen
class Family:
    """The keys of one family, and its value for a pause container; a member is `container` in all of them."""

    type_key: str
    id_key: str
    sandbox_word: str


FAMILIES = (
    Family("io.kubernetes.docker.type", "io.kubernetes.sandbox.id", "podsandbox"),
    Family("io.kubernetes.cri.container-type", "io.kubernetes.cri.sandbox-id", "sandbox"),
    Family("cri.isulad.type", "cri.sandbox.id", "podsandbox"),
)
CRI = FAMILIES[1]
MEMBER_WORD = "container"
FAMILY_KEYS = frozenset(key for family in FAMILIES for key in (family.type_key, family.id_key))


class Role(StrEnum):
    """What a container is to a pod."""

    SINGLE = "single"  # its own sandbox, without a pod
    SANDBOX = "sandbox"  # the pause container of a pod
    MEMBER = "member"


@frozen
class PodPlace:
    """A container's place among pods. `sandbox` is a member's pod, as the annotation names it."""

    role: Role
    sandbox: str = ""


def place(annotations: Mapping[str, str]) -> PodPlace:
    """Return the place that the annotations give. Raises BadRequest, naming the keys, for unknown values, for a member
    without a sandbox, and for families that contradict each other."""
    found = [(family, _one(family, annotations)) for family in FAMILIES]
    named = [(family, each) for family, each in found if each is not None]
    if not named:
        return PodPlace(Role.SINGLE)
    first_family, first = named[0]
    for family, each in named[1:]:
        if each != first:
            raise BadRequest(
                f"annotations contradict each other: {first_family.type_key} and {first_family.id_key} say "
                f"{_words(first)}, {family.type_key} and {family.id_key} say {_words(each)}; drop one family"
            )
    return first


def _one(family: Family, annotations: Mapping[str, str]) -> PodPlace | None:
    kind, sandbox = annotations.get(family.type_key), annotations.get(family.id_key, "")
    if kind is None:
        if sandbox:
            raise BadRequest(f"{family.id_key} is set without {family.type_key}; add {family.type_key}={MEMBER_WORD}")
        return None
    if kind == family.sandbox_word:
        return PodPlace(Role.SANDBOX)
    if kind != MEMBER_WORD:
        raise BadRequest(f"{family.type_key}={kind!r}: must be {family.sandbox_word} or {MEMBER_WORD}")
    if not sandbox:
        raise BadRequest(f"{family.type_key}={MEMBER_WORD} needs {family.id_key}=<id of the pod>")
    return PodPlace(Role.MEMBER, sandbox)


def _words(place: PodPlace) -> str:
    return f"member of {place.sandbox}" if place.role is Role.MEMBER else place.role.value


def shown(annotations: Mapping[str, str], allowed: Iterable[str]) -> dict[str, str]:
    """Return the annotations for the runtime's spec: those that a glob of the allow-list matches, and the families'
    keys, which runtimes with their own sandboxes need."""
    globs = tuple(allowed)
    return {
        key: value
        for key, value in annotations.items()
        if key in FAMILY_KEYS or any(fnmatchcase(key, glob) for glob in globs)
    }


def seen_by_runtime(container: Container) -> dict[str, str]:
    """Return the annotations in the container's configuration: those that the runtime's allow-list admits, and its
    place in a pod. A pod made without annotations gets those of CRI, for runtimes with their own sandboxes; a shim v2
    reads no others, so all of its pods get them. The configuration of a task has containerd's own already."""
    spec = container.spec
    if spec.task is not None:
        return {}
    seen = shown(dict(spec.annotations), spec.annotation_globs)
    if not (spec.pod or spec.sandbox) or (FAMILY_KEYS & seen.keys() and not spec.runtime_type):
        return seen
    return {
        **seen,
        CRI.type_key: CRI.sandbox_word if spec.pod else MEMBER_WORD,
        CRI.id_key: spec.sandbox or container.id,
    }


class Duty(StrEnum):
    """What a pod's policies demand for one of its containers."""

    STOP = "stop"  # a member whose sandbox has ended, or the pause container after its last member
    CANCEL = "cancel"  # a member's planned restart: there is nothing to join
    REVIVE = "revive"  # a member of the previous sandbox, which its own policy would have restarted
    REMOVE = "remove"  # an ended member of a pod that is being removed
    DISMISS = "dismiss"  # a sidecar, after the last of those that it served
    EXPIRE = "expire"  # a container that lives or would live on when the pod's time is over
    EVICT = "evict"  # the same, when one of its volumes has outgrown its limit


NO_TIME = BootTime("", 0)
GOES_ON = frozenset({Phase.CREATED, Phase.STARTING, Phase.RUNNING, Phase.PAUSED, Phase.RESTARTING})


def duties(pause: Container, members: Sequence[Container], now: BootTime = NO_TIME) -> list[tuple[Duty, Container]]:
    """Return what to do now. The function has no memory: it is called again after every change of the pod, and when its
    deadline has come."""
    assert pause.spec.pod is not None
    if pause.phase is not Phase.REMOVING and (pause.evicted or is_expired(pause, now)):
        return _of_all(Duty.EVICT if pause.evicted else Duty.EXPIRE, pause, members)
    each_duty = [(_duty(pause, member), member) for member in members]
    kept = pause.spec.pod.on_pause_exit is OnPauseExit.KEEP and pause.phase is not Phase.REMOVING
    found = [(d, member) for d, member in each_duty if d is Duty.REVIVE or (d is not None and not kept)]
    found = _in_order(pause, members, found)
    # At least one member of this sandbox: a pod that is started again is not stopped before its members could start.
    here = any(member.sandbox_run == pause.run for member in _after_inits(pause, members))
    all_ended = here and all(member.phase is Phase.EXITED for member in members)
    if not found and (last := _to_dismiss(pause, members)) is not None:
        return [(Duty.DISMISS, last)]
    if not found and all_ended and pause.phase is Phase.RUNNING and pause.spec.pod.exit_policy is ExitPolicy.STOP:
        return [(Duty.STOP, pause)]
    return found


def is_expired(pause: Container, now: BootTime) -> bool:
    """Return whether the pod's time is over."""
    return pause.deadline is not None and pause.deadline.is_over(now)


def _of_all(duty: Duty, pause: Container, members: Sequence[Container]) -> list[tuple[Duty, Container]]:
    """The members first, then the sandbox; and none of them comes back."""
    live = [member for member in members if member.phase in GOES_ON]
    settled = all(member.phase in (Phase.EXITED, Phase.REMOVING) for member in members)
    last = [pause] if settled and pause.phase in GOES_ON else []
    return [(duty, container) for container in live or last]


def sidecars(pause: Container, members: Sequence[Container]) -> list[Container]:
    """Return the members that serve the others, in the order in which they are begun."""
    names = pause.spec.pod.sidecars if pause.spec.pod is not None else ()
    by_name = {member.spec.name: member for member in members}
    return [by_name[name] for name in names if name in by_name]


def stop_order(pause: Container, members: Sequence[Container]) -> list[list[Container]]:
    """Return the members in the order in which they are stopped: all but the sidecars together, then those one by one,
    the last begun first."""
    serving = sidecars(pause, members)
    others = [member for member in members if member not in serving]
    return [others, *([each] for each in reversed(serving))]


def _in_order(
    pause: Container, members: Sequence[Container], found: list[tuple[Duty, Container]]
) -> list[tuple[Duty, Container]]:
    """In a new sandbox, too, a sidecar is begun before those that come after it, and those before the others."""
    serving = sidecars(pause, members)
    if not serving:
        return found
    for index, sidecar in enumerate(serving):
        is_back = sidecar.sandbox_run == pause.run and health.has_started(sidecar)
        if not is_back and (sidecar.phase is not Phase.EXITED or restart.wants_revival(sidecar)):
            waiting = [*serving[index + 1 :], *(member for member in members if member not in serving)]
            return [each for each in found if each[0] is not Duty.REVIVE or each[1] not in waiting]
    return found


def _to_dismiss(pause: Container, members: Sequence[Container]) -> Container | None:
    """Return the sidecar to end now: all others of this sandbox have ended for good. One after another, in reverse."""
    serving = sidecars(pause, members)
    others = [member for member in members if member not in serving]
    here = any(member.sandbox_run == pause.run for member in _after_inits(pause, others))
    if not here or any(member.phase is not Phase.EXITED or _comes_back(pause, member) for member in others):
        return None
    return next((each for each in reversed(serving) if each.phase in GOES_ON), None)


def _after_inits(pause: Container, members: Sequence[Container]) -> list[Container]:
    """Return the members without init containers: those alone do not make a pod, the others are still to come."""
    names = pause.spec.pod.inits if pause.spec.pod is not None else ()
    return [member for member in members if member.spec.name not in names]


def _comes_back(pause: Container, member: Container) -> bool:
    """Return whether a member of an earlier sandbox is to have a run in this one, which may have to wait for others."""
    return 0 < member.sandbox_run < pause.run and restart.wants_revival(member)


def _duty(pause: Container, member: Container) -> Duty | None:
    over = pause.phase in (Phase.EXITED, Phase.RESTARTING, Phase.REMOVING)
    stale = over or 0 < member.sandbox_run < pause.run
    match member.phase:
        case Phase.CREATED | Phase.STARTING | Phase.RUNNING | Phase.PAUSED if stale:
            return Duty.STOP
        case Phase.RESTARTING if over:
            return Duty.CANCEL
        case Phase.EXITED if pause.phase is Phase.REMOVING:
            return Duty.REMOVE
        case Phase.EXITED if pause.phase is Phase.RUNNING and stale and restart.wants_revival(member):
            return Duty.REVIVE
    return None


class PodState(StrEnum):
    """crictl's two words, as tables show them; JSON has SANDBOX_READY and SANDBOX_NOTREADY."""

    READY = "Ready"
    NOT_READY = "NotReady"


def state(pause: Phase) -> PodState:
    """Return the pod's state, which is that of its pause container."""
    return PodState.READY if pause in (Phase.RUNNING, Phase.PAUSED) else PodState.NOT_READY
