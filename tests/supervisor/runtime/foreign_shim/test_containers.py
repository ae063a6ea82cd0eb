"""Which pods' own limits are set: those of pods whose containers are where exitd can set any; how a run is watched."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from supervisor.model.errors import ShimFailed
from supervisor.model.values import Container, Phase, Pod, Process
from supervisor.runtime.foreign_shim.containers import ShimV2Containers
from supervisor.runtime.oci import bundle, cgroups
from supervisor.runtime.oci.runplan import Place
from tests.supervisor.fakes import in_loop
from tests.supervisor.happenings import container

HUB: Any = SimpleNamespace(watching={})  # no more of it is reached
LIMITS = ["limit_memory 67108864", "limit_pids 60", "limit_cpu 250"]


@pytest.mark.parametrize(
    ("runtime_type", "limits"),
    [("io.containerd.runc.v2", LIMITS), ("io.containerd.kata.v2", []), ("io.containerd.runsc.v1", [])],
)
@in_loop
async def test_a_pods_limits_are_set_under_runcs_own_shim_and_no_other(
    runtime_type: str, limits: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An earlier exitd has stored them for pods of every kind. Its cgroup has nobody in it elsewhere."""
    pod = Pod(memory_bytes=64 << 20, pids_limit=60, cpu_limit_milli=250)
    born = container(Phase.CREATING)
    pause = replace(born, spec=replace(born.spec, pod=pod, runtime_type=runtime_type))
    done = list[str]()
    for name in ("limit_memory", "limit_pids", "limit_cpu"):
        monkeypatch.setattr(cgroups, name, lambda at, value, of=name: done.append(f"{at} {of} {value}"))

    async def prepared(_: Container) -> bundle.Bundle:
        return bundle.Bundle(str(tmp_path / "none"), "/exitd/c1", {"process": {}})

    place = Place(str(tmp_path), str(tmp_path))
    with pytest.raises(ShimFailed, match="none/config"):  # what comes after the limits
        await ShimV2Containers(place, HUB, prepared).create_container(pause)
    assert done == [f"{bundle.pod_cgroup(pause.id)} {limit}" for limit in limits]


@in_loop
async def test_a_run_is_not_half_watched_where_its_configuration_cannot_be_read_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next attempt finds no watch, and begins one."""

    def refused(*_: object) -> bool:
        raise OSError(24, "Too many open files")

    async def prepared(_: Container) -> bundle.Bundle:
        raise AssertionError("nothing is made here")

    monkeypatch.setattr(bundle, "executes", refused)
    run: Any = SimpleNamespace(key=None, peer=None)
    shims = ShimV2Containers(Place(str(tmp_path), str(tmp_path)), HUB, prepared)
    with pytest.raises(OSError, match="Too many"):  # and not AttributeError: HUB can watch nothing
        shims._watch(container(Phase.CREATED), run, Process(1, 1))
