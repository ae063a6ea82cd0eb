"""A container's own bundle below the root directory: its config.json, its root file system, its log.

ROOT/c/ID/bundle/config.json    written once, at the first run
ROOT/c/ID/rootfs/               the overlay, if the container runs on a root directory of the caller's
ROOT/c/ID/container.log         CRI format
"""

import json
import os
import resource
import shutil
from dataclasses import dataclass
from typing import Any, cast

from supervisor.errors import BadRequest, ShimFailed
from supervisor.facts import Container, Spec
from supervisor.oci import cgroups, command, rootfs, spec, users

CGROUP_PARENT = "/exitd"


@dataclass(frozen=True, slots=True)
class Bundle:
    """What a run needs to know of its bundle. `command` is None where the bundle names none."""

    path: str
    cgroups_path: str
    command: command.Command | None


def directory_of(root: str, container: str) -> str:
    return f"{root}/c/{container}"


def log_path(root: str, container: str) -> str:
    return f"{directory_of(root, container)}/container.log"


def prepare(container: Container, root: str) -> Bundle:
    """Mounts and writes what is not there yet. Repeatable. BadRequest for what the caller must change, ShimFailed when
    the machine does not let us."""
    directory = directory_of(root, container.id)
    try:
        os.makedirs(f"{directory}/bundle", mode=0o700, exist_ok=True)
        merged = rootfs.prepare(container.spec, f"{directory}/rootfs") if container.spec.rootfs else ""
        document = _read(directory)
        if document is None:
            document = _document(container, merged)
            _write(directory, document)
    except OSError as error:
        raise ShimFailed(f"{directory}: {error.strerror or error}") from error
    return Bundle(f"{directory}/bundle", spec.cgroups_path_of(document), _command(document))


def cgroups_path(container: Container, root: str) -> str:
    """Where the container's cgroup is, from its config.json; the default when there is none (any more)."""
    document = _read(directory_of(root, container.id))
    return spec.cgroups_path_of(document) if document is not None else default_cgroup(container.id)


def remove(container_id: str, root: str) -> None:
    """Nothing is left of the container's directory. Repeatable. ShimFailed when a mount cannot be released."""
    directory = directory_of(root, container_id)
    try:
        rootfs.release(f"{directory}/rootfs")
        # Only after the mounts are gone: what is removed recursively must be ours alone.
        if rootfs.mounts_under(directory):
            raise ShimFailed(f"{directory}: something is mounted below it; unmount it and remove again")
        shutil.rmtree(directory, ignore_errors=True)
    except OSError as error:
        raise ShimFailed(f"{directory}: {error.strerror or error}") from error


def default_cgroup(container_id: str) -> str:
    return f"{CGROUP_PARENT}/{container_id}"


def _host() -> spec.Host:
    return spec.Host(
        cgroup_v2=cgroups.mode() is cgroups.Mode.V2,
        swap_limit=cgroups.counts_swap(),
        hard_files=resource.getrlimit(resource.RLIMIT_NOFILE)[1],
    )


def _document(container: Container, merged: str) -> spec.Document:
    wanted, path = container.spec, default_cgroup(container.id)
    if merged:
        user = users.resolve(wanted.user, merged)
        return spec.config(wanted, container.id, rootfs_path=merged, cgroups_path=path, user=user, host=_host())
    document = spec.parse_bundle(*rootfs.read_bundle(wanted.bundle))
    bundle_user = users.resolve(wanted.user, _bundle_root(document, wanted)) if wanted.user else None
    return spec.adapt_bundle(document, wanted, cgroups_path=path, user=bundle_user, host=_host())


def _bundle_root(document: spec.Document, wanted: Spec) -> str:
    return os.path.join(wanted.bundle, spec.rootfs_of(document))


def _command(document: spec.Document) -> command.Command | None:
    process: dict[str, Any] = cast("dict[str, Any]", document["process"])
    if not process.get("args"):
        return None
    user = process.get("user", {})
    mounts = cast("list[dict[str, Any]]", document.get("mounts") or [])
    return command.Command(
        spec.rootfs_of(document),
        process["args"][0],
        command.path_of(process.get("env", ())),
        process.get("cwd", "/"),
        users.Ids(user.get("uid", 0), user.get("gid", 0), tuple(user.get("additionalGids", ()))),
        tuple(os.path.normpath(mount["destination"]) for mount in mounts if _is_over(mount)),
    )


def _is_over(mount: dict[str, Any]) -> bool:
    """A bind mount brings files of the caller's; what other mounts bring holds no commands."""
    return bool({"bind", "rbind"} & {*mount.get("options", ())}) and str(mount.get("destination", "")).startswith("/")


def _read(directory: str) -> spec.Document | None:
    path = f"{directory}/bundle/config.json"
    try:
        with open(path, "rb") as file:
            return spec.parse_bundle(file.read(), path)
    except (FileNotFoundError, BadRequest):
        return None


def _write(directory: str, document: spec.Document) -> None:
    path = f"{directory}/bundle/config.json"
    with open(f"{path}.new", "w", encoding="utf-8") as file:
        file.write(json.dumps(document))  # json.dump would do it in Python, piece by piece
    os.rename(f"{path}.new", path)
