"""Kernel parameters of a pod's namespaces: `sysctls` of a Pod and of CRI's PodSandboxConfig. Pure.

Source: core/v1 Sysctl; sysctl(8). They are its pause container's, whose network and ipc namespaces its members have.
"""

from collections.abc import Iterable

from supervisor.api.limits import sysctls_of
from supervisor.cli.manifest.fields import Field, Notes, text_of
from supervisor.model.errors import BadRequest


def pod_sysctls(security: Field | None, notes: Notes, *, host_network: bool, ipc: str) -> dict[str, str]:
    """Return those of a Pod's securityContext; `name` may have slashes for its dots, as sysctl(8) has it."""
    given = security.get("sysctls") if security is not None else None
    items = given.items() if given is not None else ()
    return _checked(((text_of(each.get("name")), each.get("value"), each) for each in items), notes, host_network, ipc)


def sandbox_sysctls(given: Field | None, notes: Notes, *, host_network: bool, ipc: str) -> dict[str, str]:
    """Return those of a PodSandboxConfig, a mapping."""
    fields = given.fields() if given is not None else ()
    return _checked(((name, each, each) for name, each in fields), notes, host_network, ipc)


def _checked(
    given: Iterable[tuple[str, Field | None, Field]], notes: Notes, host_network: bool, ipc: str
) -> dict[str, str]:
    found: dict[str, str] = {}
    for word, value, place in given:
        name = word if "." in word else word.replace("/", ".")
        if name in found:
            place.refuse(notes, f"{name} is there twice")
        try:
            found |= sysctls_of({name: text_of(value)}, network="host" if host_network else "", ipc=ipc)
        except BadRequest as error:
            place.refuse(notes, str(error))
    return found
