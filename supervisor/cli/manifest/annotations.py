"""Reads what a Pod asks for by annotations: a limit of processes, for which it has no field, and outdated ones. Pure.

container.apparmor.security.beta.kubernetes.io/CONTAINER: runtime/default, unconfined or localhost/PROFILE; the field
appArmorProfile counts before it.

exitd/pids-limit: N             of all containers of the pod together
pids-limit.exitd/CONTAINER: N   of one container, instead of 2048
"""

from collections.abc import Mapping

from shim.frozen import field, frozen
from supervisor.api.rights import MOST_PIDS
from supervisor.cli.manifest.fields import Field, Notes
from supervisor.model.values import OWN_PROFILE, UNCONFINED

POD_PIDS = "exitd/pids-limit"
CONTAINER_PIDS = "pids-limit.exitd/"
OURS = ("exitd/", ".exitd/")
APPARMOR = "container.apparmor.security.beta.kubernetes.io/"
OWN, LOCAL = "runtime/default", "localhost/"
SECCOMP = ("seccomp.security.alpha.kubernetes.io/pod", "container.seccomp.security.alpha.kubernetes.io/")


@frozen
class AskedPod:
    """Limits of processes and threads, of all and of single containers; 0: none. AppArmor profiles of containers."""

    pids: int = 0
    of_containers: Mapping[str, int] = field(default_factory=dict)
    apparmor: Mapping[str, str] = field(default_factory=dict)


def annotated(annotations: Field | None, containers: tuple[str, ...], notes: Notes) -> AskedPod:
    """Return what is asked for. Notes what is refused, and what Kubernetes itself no longer reads."""
    pids, of_containers, apparmor = 0, dict[str, int](), dict[str, str]()
    for key, each in annotations.fields() if annotations is not None else ():
        name = key.removeprefix(CONTAINER_PIDS)
        if key == POD_PIDS:
            pids = _limit(each, notes)
        elif name != key:
            of_containers[_named(name, each, containers, notes)] = _limit(each, notes)
        elif key.startswith(OURS[0]) or OURS[1] in key:
            each.refuse(notes, f"exitd knows {POD_PIDS} and {CONTAINER_PIDS}CONTAINER")
        elif key.startswith(APPARMOR):
            apparmor[_named(key.removeprefix(APPARMOR), each, containers, notes)] = _profile(each, notes)
        elif key.startswith(SECCOMP):
            each.warn(notes, "ignored, as by Kubernetes since 1.27; write securityContext.seccompProfile")
    return AskedPod(pids, of_containers, apparmor)


def _named(name: str, field: Field, containers: tuple[str, ...], notes: Notes) -> str:
    """Return the name, which must be that of a container of the pod's."""
    if name not in containers:
        field.refuse(notes, f"there is no container {name!r}; there are {', '.join(containers)}")
    return name


def _profile(field: Field, notes: Notes) -> str:
    """Return the API's value."""
    text = field.text()
    name = text.removeprefix(LOCAL)
    if text in (OWN, UNCONFINED):
        return OWN_PROFILE if text == OWN else UNCONFINED
    if name == text or not name:
        field.refuse(notes, f"{text!r} is no AppArmor profile; write {OWN}, {UNCONFINED} or {LOCAL}NAME")
    return name


def _limit(field: Field, notes: Notes) -> int:
    text = field.text()
    if text == "-1":
        return 0
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(MOST_PIDS)) and int(text) <= MOST_PIDS):
        field.refuse(notes, f"{text!r} is no number of processes; write 1 to {MOST_PIDS}, or 0 for no limit")
        return 0
    return int(text)
