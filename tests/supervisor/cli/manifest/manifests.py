"""Manifests for tests: the least pod there is, with something put into it."""

import json
from dataclasses import replace
from typing import Any

import pytest

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.cli.manifest import kube
from supervisor.cli.manifest.kube import ManifestSource, Play, PodPlan
from supervisor.model.errors import BadRequest

UID = "11111111-2222-3333-4444-555555555555"


def container(**fields: Any) -> dict[str, Any]:
    return {"name": "app", "image": "/", **fields}


def manifest(metadata: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    spec.setdefault("containers", [container()])
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", **(metadata or {})}, "spec": spec}


def read(*texts: str, runtime: str = "", file: str = "pod.yaml", network: tuple[str, ...] = ()) -> Play:
    sources = tuple(ManifestSource(file, text, "/work") for text in texts)
    return kube.play(sources, lambda: UID, runtime, network=network)


def play(document: dict[str, Any], **how: Any) -> Play:
    """JSON is YAML, too."""
    return read(json.dumps(document), **how)


def elsewhere(found: Play) -> tuple[PodPlan, ...]:
    """Its pods without the places they are from, and without the ports that people may read."""
    return tuple(
        replace(
            plan,
            inits=tuple(replace(member, where="", ports=()) for member in plan.inits),
            members=tuple(replace(member, where="", ports=()) for member in plan.members),
        )
        for plan in found.pods
    )


def pod(document: dict[str, Any]) -> PodPlan:
    """Of a manifest in which all is understood."""
    found = play(document)
    assert found.warnings == ()
    (only,) = found.pods
    return only


def spec_of(**fields: Any) -> pb.ContainerSpec:
    """What a container with these fields is asked for as."""
    return pod(manifest(containers=[container(**fields)])).members[0].spec


def refusal(document: dict[str, Any]) -> str:
    with pytest.raises(BadRequest) as caught:
        play(document)
    return str(caught.value)
