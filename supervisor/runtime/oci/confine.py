"""What a container's configuration says of seccomp, once its capabilities are settled. Pure."""

import json
from typing import cast

from supervisor.model.values import BUILTIN, UNCONFINED, Security
from supervisor.runtime.oci import seccomp, seccompfile
from supervisor.runtime.oci.seccomp import Document, SeccompMachine
from supervisor.runtime.oci.spec import strings


def confine(document: Document, security: Security, machine: SeccompMachine) -> Document:
    """Return the configuration with the seccomp filter that was asked for. If none was, it stays as it is.

    `document` is a whole config.json; a profile depends on its bounding set. Raises BadRequest.
    """
    if not security.seccomp:
        return document
    linux = {key: value for key, value in cast(Document, document["linux"]).items() if key != "seccomp"}
    if security.seccomp != UNCONFINED:
        linux["seccomp"] = _filter(security.seccomp, _rights(document), machine)
    return {**document, "linux": linux}


def _filter(asked: str, rights: list[str], machine: SeccompMachine) -> Document:
    if asked == BUILTIN:
        return seccomp.builtin(rights, machine)
    return seccompfile.applied(json.loads(asked), rights, machine)


def _rights(document: Document) -> list[str]:
    process = cast(Document, document["process"])
    capabilities = process.get("capabilities")
    return strings(cast(Document, capabilities), "bounding") if isinstance(capabilities, dict) else []
