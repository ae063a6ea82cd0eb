"""Images as documents: docker's field names for `image inspect` and `history`. Pure."""

import json
from collections.abc import Mapping
from typing import Any

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.cli import parse, spoken
from supervisor.cli.shape import Document
from supervisor.images import reference
from supervisor.model.errors import BadImage, BadRequest

NEVER = "N/A"
PROCESS = ("Hostname", "Domainname", "User", "ExposedPorts", "Env", "Cmd", "Image", "Volumes", "WorkingDir")
MORE = ("Entrypoint", "OnBuild", "Labels", "StopSignal", "Shell", "Healthcheck")


def inspected(reply: pb.InspectImageReply) -> Document:
    """Return what `docker image inspect` shows. Raises BadImage."""
    image, root = reply.image, config_of(reply)
    config = _object(root.get("config"))
    return {
        "Id": image.id,
        "RepoTags": [*image.names],
        "RepoDigests": [f"{repository}@{image.digest}" for repository in _repositories(image)] if image.digest else [],
        "Comment": _text(root.get("comment")),
        "Created": image.created,
        "Author": _text(root.get("author")),
        "Architecture": _text(root.get("architecture")),
        "Variant": _text(root.get("variant")),
        "Os": _text(root.get("os")),
        "Size": image.size_bytes,
        "Config": {key: config.get(key) for key in (*PROCESS, *MORE) if key in config or key in PROCESS},
        "RootFS": {"Type": "layers", "Layers": [layer.diff_id for layer in reply.layers]},
        "Users": [*image.users],
    }


def history(reply: pb.InspectImageReply, now: int, *, whole: bool) -> list[Document]:
    """Return the steps that made the image, newest first, each with the size of its layer; the lowest layers may have
    no step. Raises BadImage."""
    layers = [layer.size_bytes for layer in reply.layers]
    steps = []
    for found in reversed([_object(each) for each in _list(config_of(reply).get("history"))]):
        size = 0 if found.get("empty_layer") is True or not layers else layers.pop()
        steps.append(_step(found, size, now, whole=whole))
    steps += [_step({}, size, now, whole=whole) for size in reversed(layers)]
    if steps:
        id = reply.image.id
        steps[0]["ID"] = id if whole else id.removeprefix("sha256:")[: spoken.SHORT_ID]
    return steps


def config_of(reply: pb.InspectImageReply) -> Mapping[str, Any]:
    try:
        return _object(json.loads(reply.config))
    except (ValueError, RecursionError) as error:
        raise BadImage(f"the configuration of {reply.image.id} is no JSON: {error}") from error


def labels_of(reply: pb.InspectImageReply) -> dict[str, str]:
    return {key: _text(value) for key, value in _object(_object(config_of(reply).get("config")).get("Labels")).items()}


def created_ns(text: str, now: int) -> int | None:
    """Return None if the image has no time, or an impossible one."""
    try:
        return parse.moment_ns(text, now) if text and not text.startswith("0001-") else None
    except (BadRequest, OverflowError):
        return None


def _step(found: Mapping[str, Any], size: int, now: int, *, whole: bool) -> Document:
    created = _text(found.get("created"))
    when = created_ns(created, now)
    by = _text(found.get("created_by"))
    return {
        "ID": "<missing>",
        "CreatedAt": created,
        "CreatedSince": NEVER if when is None else f"{spoken.span(now - when)} ago",
        "CreatedBy": by if whole or len(by) <= 45 else f"{by[:44]}…",
        "Size": spoken.size(size),
        "SizeBytes": size,
        "Comment": _text(found.get("comment")),
    }


def _repositories(image: pb.Image) -> list[str]:
    names = (reference.as_name(text) for text in image.names)
    return sorted({name.repository for name in names if name is not None})


def _object(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
