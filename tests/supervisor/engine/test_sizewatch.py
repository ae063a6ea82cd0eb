"""Which pods are evicted, and what is kept of those that are not counted as a whole."""

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import pytest

from supervisor.engine.node import Node
from supervisor.engine.sizewatch import SizeWatch
from supervisor.model import lifecycle
from supervisor.model.values import Container, Mount, Phase, Pod, Spec
from supervisor.system import diskuse
from supervisor.system.diskuse import Usage

PAUSE = Container("p", Spec("pod", pod=Pod()), Phase.RUNNING, 1, 0)
MOUNTS = tuple(Mount("", f"/{name}", empty_dir=name, size_bytes=1) for name in ("cache", "tmp"))
MEMBER = Container("m", Spec("m", sandbox="p", mounts=MOUNTS), Phase.RUNNING, 1, 0)


def test_what_is_kept_of_a_pod_goes_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """exitd may run for years, and have very many pods meanwhile."""
    monkeypatch.setattr(diskuse, "of_tree", lambda path, left: Usage(0, complete=False))
    containers = {"p": PAUSE, "m": MEMBER}

    async def looks() -> list[int]:
        watch = SizeWatch(cast(Node, SimpleNamespace(containers=containers)), "/nowhere")
        await watch.look()
        kept = [len(watch._too_many)]
        containers.clear()
        await watch.look()
        return [*kept, len(watch._too_many)]

    assert asyncio.run(looks()) == [2, 0]


def test_a_pod_that_has_outgrown_two_limits_is_evicted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diskuse, "of_tree", lambda path, left: Usage(2))
    applied, containers = [], {"p": PAUSE, "m": MEMBER}

    async def apply(id: str, happening: lifecycle.Overgrown, *, patient: bool) -> None:
        applied.append(happening)
        containers[id] = replace(containers[id], evicted=happening.volume)

    async def look() -> None:
        await SizeWatch(cast(Node, SimpleNamespace(containers=containers, apply=apply)), "/nowhere").look()

    asyncio.run(look())
    assert applied == [lifecycle.Overgrown(1, "cache", 2, 1)]
