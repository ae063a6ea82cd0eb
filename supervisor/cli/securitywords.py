"""Converts --security-opt, in docker's words, to a SecuritySpec, and back for `inspect`."""

from collections.abc import Iterable

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.model.errors import BadRequest

KNOWN = (
    "seccomp=FILE, seccomp=unconfined, seccomp=builtin, no-new-privileges[=true|false], apparmor=PROFILE, "
    "label=user|role|type|level:VALUE, label=disable"
)
LABEL = {"user": "system_u", "role": "system_r", "type": "container_t", "level": "s0"}  # as docker's begins, too
DISABLE = "disable"
TRUTH = {"": True, "true": True, "false": False}


def security_spec(words: Iterable[str]) -> pb.SecuritySpec | None:
    """Return None if no option was given. Of two for the same thing the later one counts. Raises BadRequest."""
    found = pb.SecuritySpec()
    label: dict[str, str] = {}
    for word in words:
        name, value = _split(word)
        match name:
            case "seccomp" if value:
                found.seccomp = _seccomp(value)
            case "no-new-privileges" if value in TRUTH:
                found.no_new_privileges = TRUTH[value]
            case "apparmor" if value:
                found.apparmor = value
            case "label" if value == DISABLE:
                label.clear()
            case "label":
                label |= _label(word, value)
            case _:
                raise _unknown(word)
    if label:
        found.selinux = ":".join({**LABEL, **label}.values())
    return found if found.ListFields() else None


def security_options(security: pb.SecuritySpec) -> list[str]:
    """Return them as `docker inspect` shows them; a profile as a whole."""
    nothing_new = security.no_new_privileges if security.HasField("no_new_privileges") else True
    user, role, kind, level = [*security.selinux.split(":", 3), "", "", ""][:4]
    parts = {"user": user, "role": role, "type": kind, "level": level}
    return [
        *(["no-new-privileges"] if nothing_new else []),
        *([f"seccomp={security.seccomp}"] if security.seccomp else []),
        *([f"apparmor={security.apparmor}"] if security.apparmor else []),
        *(f"label={name}:{value}" for name, value in parts.items() if value),
    ]


def _split(word: str) -> tuple[str, str]:
    """Split NAME=VALUE; NAME:VALUE is docker's older form."""
    at = min((i for i in (word.find("="), word.find(":")) if i >= 0), default=len(word))
    return word[:at], word[at + 1 :]


def read_profile(file: str) -> str:
    """Return the text of a seccomp profile, checked here, where its lines are known. Raises BadRequest."""
    from supervisor.runtime.oci import seccompfile  # imported on demand: exitctl must start fast

    try:
        with open(file, "rb") as opened:
            data = opened.read(seccompfile.MOST_BYTES + 1)
        return seccompfile.compact(seccompfile.parse(data.decode("utf-8-sig"), file))
    except OSError as error:
        raise BadRequest(f"seccomp profile {file}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise BadRequest(f"{file}: no UTF-8 text; the byte {error.start} is wrong") from error


def _seccomp(value: str) -> str:
    from supervisor.model.values import BUILTIN, UNCONFINED  # with all that a daemon knows of containers

    return value if value in (BUILTIN, UNCONFINED) else read_profile(value)


def _label(word: str, value: str) -> dict[str, str]:
    part, _, content = value.partition(":")
    if part not in LABEL or not content:
        raise _unknown(word)
    return {part: content}


def _unknown(word: str) -> BadRequest:
    return BadRequest(f"--security-opt {word}: known are {KNOWN}")
