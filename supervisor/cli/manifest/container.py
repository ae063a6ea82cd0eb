"""Converts one container of a Kubernetes Pod to the request for a member. Pure; the shape is checked before."""

import math
import os.path
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from enum import StrEnum
from fractions import Fraction

from protos.exitd.v1 import exitd_pb2 as pb
from shim.frozen import frozen
from supervisor.api.requests import MAX_CPU_MILLI, MIN_CPU_MILLI, MIN_MEMORY_BYTES
from supervisor.cli.manifest.annotations import AskedPod
from supervisor.cli.manifest.contents import Contents, variable_from, variables_from
from supervisor.cli.manifest.downward import Downward
from supervisor.cli.manifest.expand import expand, names_in
from supervisor.cli.manifest.fields import Field, Notes, flag_of, text_of
from supervisor.cli.manifest.lives import hooks_of, probes_of
from supervisor.cli.manifest.podshape import PROPAGATIONS, amount, signal_number
from supervisor.cli.manifest.ports import PortMapping, mappings_of
from supervisor.cli.manifest.rights import is_privileged, not_root, refuse_contradictions, rights_of
from supervisor.images import reference
from supervisor.model.errors import BadRequest
from supervisor.model.rights import NOT_ROOT
from supervisor.model.values import BUILTIN, OWN_PROFILE, UNCONFINED

MOST_NAME = 63
POLICIES = {"Always": "always", "OnFailure": "on-failure", "Never": "no"}
MOST_MEMORY_BYTES = (1 << 63) - 1


class Pull(StrEnum):
    """When a registry is asked before a container is made."""

    NOTHING = "nothing"
    MISSING = "missing"  # if the store does not have the image
    ALWAYS = "always"


@frozen
class PodMember:
    """A container of a pod as it will be asked for, without the ids of its pod and image."""

    spec: pb.ContainerSpec
    pull: Pull
    where: str  # the place of its name in the file
    places: Mapping[str, str]  # the places of what the daemon may refuse, by the API's field
    sidecar: bool = False  # of initContainers: it goes on, beside the others
    ports: tuple[PortMapping, ...] = ()


@frozen
class VolumeUse:
    """How one container mounts a volume."""

    destination: str
    read_only: bool
    sub_path: Field | None
    propagation: str = ""  # rslave | rshared; empty: what is mounted on one side is not seen on the other
    where: Field | None = None  # of the propagation


Volume = Callable[[VolumeUse, Notes], pb.Mount | None]  # None: it was refused


@frozen
class Around:
    """What a container takes from its pod."""

    pod: str
    namespace: str
    uid: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    security: Field | None
    limits: Mapping[str, Field]  # of memory and cpu, of the whole pod
    asked: AskedPod
    policy: str  # Always | OnFailure | Never
    retries: int | None  # of OnFailure: so often each container is begun again; None: no limit
    grace_seconds: int
    pid: str
    ipc: str  # empty: its own
    host_network: bool
    resolver: pb.ResolverSpec | None
    volumes: Mapping[str, "Volume"]
    contents: Contents
    down: Downward
    directory: str  # where relative paths in the file begin
    read_profile: Callable[[str], str]  # returns the text of a seccomp profile


def member_of(container: Field, around: Around, notes: Notes, *, init: bool = False) -> PodMember:
    """Return the member. What is refused goes to `notes`; the member is then useless."""
    name = container.get("name")
    assert name is not None
    spec = pb.ContainerSpec(
        name=f"{around.pod}-{name.text()}",
        labels=around.labels,
        annotations=around.annotations,
        stop_timeout_seconds=around.grace_seconds,
        pid=around.pid,
        cwd=text_of(container.get("workingDir")),
        tty=flag_of(container.get("tty")),
        stdin=flag_of(container.get("stdin")),
        read_only=flag_of(container.get("securityContext", "readOnlyRootFilesystem")),
        user=_user(container, around, notes),
        rights=rights_of(container.get("securityContext"), around.security),
        restart=_restart(container, around, init=init),
        restart_rules=_rules(container, notes),
        mounts=_mounts(container, around, notes),
        resolver=around.resolver,
        probes=probes_of(container, notes),
        hooks=hooks_of(container, around.grace_seconds, notes),
    )
    if len(spec.name) > MOST_NAME:
        name.refuse(notes, f"the container would be called {spec.name}, which is longer than {MOST_NAME} characters")
    if (stop := container.get("lifecycle", "stopSignal")) is not None:
        spec.stop_signal = str(signal_number(stop))
    _words(container, around, spec, notes)
    _resources(container, around, spec, notes)
    ports = mappings_of(container, notes, host_network=around.host_network)
    _security(container, around, spec, notes)
    root = not_root(container.get("securityContext"), around.security)
    places = {NOT_ROOT: str(root)} if root is not None else {}
    sidecar = init and text_of(container.get("restartPolicy")) == "Always"
    return PodMember(spec, _image(container, around, spec, notes), str(name), places, sidecar, ports)


def _words(container: Field, around: Around, spec: pb.ContainerSpec, notes: Notes) -> None:
    """Set the variables in order, each of which may use earlier ones; then the command line, which may use all.

    What comes from a Secret, itself or by another variable, goes where no reply shows it.
    """
    variables: dict[str, str] = {}
    secret: set[str] = set()
    sources, env = container.get("envFrom"), container.get("env")
    for each in sources.items() if sources is not None else ():
        for name, found in variables_from(each, around.contents, around.namespace, notes):
            variables[name] = found.value
            (secret.add if found.secret else secret.discard)(name)
    for each in env.items() if env is not None else ():
        name = text_of(each.get("name"))
        is_secret = bool(names_in(text_of(each.get("value"))) & secret)
        value, of_secret = _value(each, container, around, variables, notes)
        if value is not None:
            variables[name] = value
            (secret.add if of_secret or is_secret else secret.discard)(name)
    for name, value in variables.items():
        (spec.secrets.env if name in secret else spec.env).append(f"{name}={value}")
    _command_line(container, spec, variables, secret)


def _command_line(
    container: Field, spec: pb.ContainerSpec, variables: Mapping[str, str], secret: AbstractSet[str]
) -> None:
    """A word with a secret is shown as in the file. So is one that, expanded, would look like such a word: each of the
    words that are shown has one meaning."""
    texts = {field: list(given.texts()) for field in ("command", "args") if (given := container.get(field)) is not None}
    used = {word: expand(word, variables) for words in texts.values() for word in words}
    kept = {word for word in used if names_in(word) & secret}
    while kept and (alike := {word for word in used if word not in kept and used[word] in kept}):
        kept |= alike
    spec.secrets.words.update({word: used[word] for word in kept})
    for field, words in (("command", spec.entrypoint), ("args", spec.args)):
        words.extend(word if word in kept else used[word] for word in texts.get(field, ()))


def _value(
    variable: Field, container: Field, around: Around, variables: Mapping[str, str], notes: Notes
) -> tuple[str | None, bool]:
    """Return the value and whether it is a secret's; None: the variable is not set."""
    source = variable.get("valueFrom")
    if source is None:
        return expand(text_of(variable.get("value")), variables), False
    if variable.get("value") is not None:
        variable.refuse(notes, "value and valueFrom exclude each other")
    named = [name for name, part in source.fields() if part.node.value is not None]
    if len(named) != 1:
        variable.refuse(notes, "valueFrom says nothing" if not named else "valueFrom says more than one thing")
        return "", False
    if (ref := source.get("fieldRef")) is not None:
        return around.down.of_field(ref, notes), False
    if (ref := source.get("resourceFieldRef")) is not None:
        return around.down.of_resource(ref, container, notes), False
    found = variable_from(source, around.contents, around.namespace, notes)
    return (None, False) if found is None else (found.value, found.secret)


def _user(container: Field, around: Around, notes: Notes) -> str:
    """Return uid[:gid]: the container's own, else its pod's; empty: the image's."""
    own, pods = container.get("securityContext"), around.security

    def asked(name: str) -> Field | None:
        return (own.get(name) if own is not None else None) or (pods.get(name) if pods is not None else None)

    user, group, forbidden = asked("runAsUser"), asked("runAsGroup"), not_root(own, pods)
    if forbidden is not None and forbidden.boolean() and user is not None and user.integer() == 0:
        forbidden.refuse(notes, "contradicts runAsUser 0; drop one")
    if user is None:
        if group is not None:
            group.refuse(notes, "needs runAsUser beside it")
        return ""
    return str(user.integer()) if group is None else f"{user.integer()}:{group.integer()}"


def _security(container: Field, around: Around, spec: pb.ContainerSpec, notes: Notes) -> None:
    """Without a setting, exitd's defaults apply: its seccomp and AppArmor profiles, and no new privileges."""
    own = container.get("securityContext")
    profile = own.get("seccompProfile") if own is not None else None
    of_pod = "" if is_privileged(own) else pod_seccomp(around, notes)  # Kubernetes: such a container is unconfined
    if seccomp := seccomp_of(profile, around, notes) or of_pod:
        spec.security.seccomp = seccomp
    if apparmor := _apparmor(container, around, notes):
        spec.security.apparmor = apparmor
    refuse_contradictions(own, notes)
    escalation = own.get("allowPrivilegeEscalation") if own is not None else None
    if escalation is not None:
        spec.security.no_new_privileges = not escalation.boolean()


def _apparmor(container: Field, around: Around, notes: Notes) -> str:
    """Return the container's own profile, else its annotation's, else the pod's; empty if none is named."""
    own = container.get("securityContext", "appArmorProfile")
    if own is not None:
        return apparmor_of(own, notes)
    of_pod = "" if is_privileged(container.get("securityContext")) else pod_apparmor(around, notes)
    return around.asked.apparmor.get(text_of(container.get("name")), of_pod)


def pod_apparmor(around: Around, notes: Notes) -> str:
    """Return the pod's profile for all its containers; empty if none is named."""
    return apparmor_of(_of_pod(around, "appArmorProfile"), notes)


def apparmor_of(profile: Field | None, notes: Notes) -> str:
    """Return the API's value; empty if none is named: then there is exitd's where it is loaded."""
    kind, name = _kind_of(profile, notes)
    return name.text() if name is not None else {"RuntimeDefault": OWN_PROFILE, "Unconfined": UNCONFINED}.get(kind, "")


def pod_seccomp(around: Around, notes: Notes) -> str:
    """Return the pod's profile for all its containers; empty if there is none."""
    return seccomp_of(_of_pod(around, "seccompProfile"), around, notes)


def seccomp_of(profile: Field | None, around: Around, notes: Notes) -> str:
    """Return the API's value; empty if there is no profile."""
    kind, file = _kind_of(profile, notes)
    if file is None:
        return {"RuntimeDefault": BUILTIN, "Unconfined": UNCONFINED}.get(kind, "")
    try:
        return around.read_profile(os.path.join(around.directory, file.text()))
    except BadRequest as error:
        file.refuse(notes, str(error))
        return ""


def _of_pod(around: Around, profile: str) -> Field | None:
    return around.security.get(profile) if around.security is not None else None


def _kind_of(profile: Field | None, notes: Notes) -> tuple[str, Field | None]:
    """Return the type of a profile, and the field that names one of type Localhost; nothing if there is no profile, or
    if it is refused."""
    if profile is None:
        return "", None
    kind, local = text_of(profile.get("type")), profile.get("localhostProfile")
    if (kind == "Localhost") != (local is not None):
        profile.refuse(notes, "localhostProfile goes with the type Localhost, and with no other")
        return "", None
    return kind, local


def _restart(container: Field, around: Around, *, init: bool) -> str:
    """An init container that has succeeded is not restarted, whatever the pod's policy is."""
    own = container.get("restartPolicy")
    if own is not None:
        return POLICIES[own.text()]  # Always, of an init container: a sidecar
    word = "OnFailure" if init and around.policy == "Always" else around.policy
    if word != "OnFailure" or around.retries is None:
        return POLICIES[word]
    return f"{POLICIES[word]}:{around.retries}" if around.retries else POLICIES["Never"]


def _rules(container: Field, notes: Notes) -> list[str]:
    """KEP-5307."""
    given = container.get("restartPolicyRules")
    if given is None or not given.items():
        return []
    if container.get("restartPolicy") is None:
        given.refuse(notes, "needs the container's own restartPolicy beside it")
    found = []
    for rule in given.items():
        codes = rule.get("exitCodes")
        assert codes is not None
        values = codes.get("values")
        numbers = [each.integer() for each in values.items()] if values is not None else []
        if not numbers:
            codes.refuse(notes, "values is empty")
        word = "not in" if text_of(codes.get("operator")) == "NotIn" else "in"
        found.append(f"exit {word} {','.join(map(str, numbers))} => restart")
    return found


def _mounts(container: Field, around: Around, notes: Notes) -> list[pb.Mount]:
    given = container.get("volumeMounts")
    found: dict[str, pb.Mount] = {}
    for each in given.items() if given is not None else ():
        name, path = each.get("name"), each.get("mountPath")
        assert name is not None and path is not None
        volume = around.volumes.get(name.text())
        if volume is None:
            known = ", ".join(around.volumes) or "none"
            name.refuse(notes, f"there is no volume {name.text()!r}; spec.volumes has {known}")
        elif path.text() in found:
            path.refuse(notes, f"{path.text()} is mounted twice")
        else:
            spread = each.get("mountPropagation")
            word = PROPAGATIONS[text_of(spread, "None")]
            if word == "rshared" and spread is not None and not is_privileged(container.get("securityContext")):
                spread.refuse(
                    notes, "mounts on the machine; only a privileged container may: securityContext.privileged"
                )
            use = VolumeUse(path.text(), flag_of(each.get("readOnly")), each.get("subPath"), word, spread)
            if (mount := volume(use, notes)) is not None:
                found[path.text()] = mount
    return list(found.values())


def _resources(container: Field, around: Around, spec: pb.ContainerSpec, notes: Notes) -> None:
    """Without a request, the limit is the request, too, as in Kubernetes. Requests of memory are for schedulers."""
    memory, cpu = container.get("resources", "limits", "memory"), container.get("resources", "limits", "cpu")
    asked = {name: container.get("resources", "requests", name) for name in ("memory", "cpu")}
    for limit, request in ((memory, asked["memory"]), (cpu, asked["cpu"])):
        if limit is not None and request is not None and amount(request) > amount(limit):
            request.refuse(notes, f"more than the limit, which is {_word(limit)}")
    for limit, most in ((memory, around.limits.get("memory")), (cpu, around.limits.get("cpu"))):
        if limit is not None and most is not None and amount(limit) > amount(most) > 0:
            limit.refuse(notes, f"more than the whole pod's limit, which is {_word(most)}")
    if (pids := around.asked.of_containers.get(text_of(container.get("name")))) is not None:
        spec.rights.pids_limit = pids
    if memory is not None:
        spec.memory_bytes = memory_bytes(memory, notes)
    if cpu is not None:
        spec.cpu_limit_milli = cpu_milli(cpu, notes)
    weight = asked["cpu"] or cpu
    if weight is not None and amount(weight):
        spec.cpu_request_milli = min(max(_up(amount(weight) * 1000), MIN_CPU_MILLI), MAX_CPU_MILLI)


def memory_bytes(limit: Field, notes: Notes) -> int:
    """0 is no limit."""
    found = _up(amount(limit))
    if 0 < found < MIN_MEMORY_BYTES:
        hint = "; m means thousandths, M millions" if _word(limit).endswith("m") else ""
        limit.refuse(notes, f"{_word(limit)} is below 4Mi, in which no runtime can make a container{hint}")
    return min(found, MOST_MEMORY_BYTES)


def cpu_milli(limit: Field, notes: Notes) -> int:
    """Return thousandths of a CPU; 0 is no limit."""
    milli = _up(amount(limit) * 1000)
    if milli and not MIN_CPU_MILLI <= milli <= MAX_CPU_MILLI:
        limit.refuse(notes, f"{_word(limit)} is not in the range of {MIN_CPU_MILLI}m (the kernel's least) to 1000")
        return 0
    return milli


def _word(field: Field) -> str:
    value = field.node.value
    return value if isinstance(value, str) else getattr(value, "text", "")


def _up(value: Fraction) -> int:
    return math.ceil(value)


def _image(container: Field, around: Around, spec: pb.ContainerSpec, notes: Notes) -> Pull:
    """Return when to pull. An IMAGE that is not a registry's name is on this machine, and no registry is asked."""
    image = container.get("image")
    assert image is not None
    policy = text_of(container.get("imagePullPolicy"), "IfNotPresent")
    try:
        found = reference.parse(image.text(), around.directory)
    except BadRequest as error:
        image.refuse(notes, str(error))
        return Pull.NOTHING
    if isinstance(found, reference.Registry):
        name = reference.canonical(found.name)
        found = reference.Stored(str(name), name)
    spec.image = str(found)
    if not isinstance(found, reference.Stored) or found.name is None:
        return Pull.NOTHING
    return {"Always": Pull.ALWAYS, "IfNotPresent": Pull.MISSING, "Never": Pull.NOTHING}[policy]
