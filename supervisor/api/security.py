"""What holds a container back: message to fact, checked, and back. Pure."""

from protos.exitd.v1 import exitd_pb2 as pb
from shim.patterns import LatePattern
from supervisor.api.values import bad, matching
from supervisor.model.values import BUILTIN, UNCONFINED, Security
from supervisor.runtime.oci import seccompfile

_APPARMOR = LatePattern(r"[^\s\0]{1,255}")
_SELINUX = LatePattern(r"[^\s:]+:[^\s:]+:[^\s:]+(:[^\s]+)?")


def security_of(message: pb.SecuritySpec, *, of_bundle: bool, privileged: bool = False) -> Security:
    """Return the profile that the caller asks for; exitd's own where nothing is said. A bundle says it by itself, and a
    privileged container has none. Raises BadRequest, which names the field."""
    return Security(
        seccomp=_seccomp(message.seccomp) or _default(of_bundle=of_bundle, privileged=privileged),
        no_new_privileges=message.no_new_privileges if message.HasField("no_new_privileges") else None,
        apparmor=matching("security.apparmor", message.apparmor, _APPARMOR, "a profile's name, at most 255 bytes"),
        selinux=matching("security.selinux", message.selinux, _SELINUX, "user:role:type:level"),
    )


def security_message(security: Security) -> pb.SecuritySpec:
    """Return the message of a profile, as `security_of` reads it."""
    message = pb.SecuritySpec(seccomp=security.seccomp, apparmor=security.apparmor, selinux=security.selinux)
    if security.no_new_privileges is not None:
        message.no_new_privileges = security.no_new_privileges
    return message


def _default(*, of_bundle: bool, privileged: bool) -> str:
    if of_bundle:
        return ""
    return UNCONFINED if privileged else BUILTIN


def _seccomp(text: str) -> str:
    if text.startswith("{"):
        return seccompfile.compact(seccompfile.parse(text, "security.seccomp"))
    if text not in ("", BUILTIN, UNCONFINED):
        raise bad("security.seccomp", text, f"{BUILTIN}, {UNCONFINED} or a profile in docker's JSON format")
    return text
