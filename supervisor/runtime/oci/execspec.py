"""The process of an exec in the form of config.json's `process`, from its container's and the caller's request.
Pure."""

import json
from collections.abc import Iterable

from supervisor.model.errors import BadRequest
from supervisor.model.execs import ExecSpec
from supervisor.runtime.oci import spec
from supervisor.runtime.oci.spec import Document
from supervisor.runtime.oci.users import Ids


def process(document: Document, wanted: ExecSpec, user: Ids | None, own_env: Iterable[str] = ()) -> Document:
    """Return the process of an exec.

    `document` is the container's config.json, and is not changed. `user` is what `wanted.user` was resolved to; None:
    the container's user. `own_env` is what the container's caller had set: its HOME is kept for every user. Rights,
    limits and everything else are the container's. Raises BadRequest.
    """
    found = document.get("process")
    if not isinstance(found, dict):
        raise BadRequest("the container's config.json has no process")
    result: Document = json.loads(json.dumps(found))
    home = () if user is None or _names(own_env, "HOME") else (f"HOME={user.home}",)
    env = spec.merge_env(spec.strings(result, "env"), (*home, *wanted.env))
    if wanted.tty and not _names(env, "TERM"):
        env = [*env, "TERM=xterm"]
    result.update(args=list(wanted.args), env=env, terminal=wanted.tty)
    result.pop("consoleSize", None)
    if wanted.tty and wanted.size is not None:
        result["consoleSize"] = {"height": wanted.size.rows, "width": wanted.size.cols}
    if wanted.cwd:
        result["cwd"] = wanted.cwd
    if user is not None:
        result["user"] = spec.user_section(user)
        _give_rights(result, user)
    return result


def whole(wanted: ExecSpec) -> Document:
    """Return the process that a client gave as a whole. `wanted.tty` decides whether it has a terminal. Raises
    BadRequest."""
    result: Document = json.loads(wanted.process)
    result["terminal"] = wanted.tty
    if not wanted.tty:
        result.pop("consoleSize", None)
    return result


def _names(env: Iterable[str], name: str) -> bool:
    return any(line.startswith(f"{name}=") for line in env)


def _give_rights(result: Document, user: Ids) -> None:
    """Root gets what the container may have at all, other users get nothing, as execve(2) would do it."""
    rights = result.get("capabilities")
    if not isinstance(rights, dict):
        return
    bounding = rights.get("bounding") or []
    held = list(bounding) if user.uid == 0 else []
    result["capabilities"] = {"bounding": bounding, "effective": held, "permitted": held}
