"""linux.resources of an update: each limit, set and cleared, in the words of both cgroup versions."""

import json
import pathlib
from dataclasses import fields

import pytest

from supervisor.model import changes
from supervisor.model.errors import BadRequest
from supervisor.model.limits import Change, ContainerLimits
from supervisor.model.rights import Rights
from supervisor.model.values import Spec
from supervisor.runtime.oci import cgroups, liveresources
from supervisor.runtime.oci.liveresources import LEAVES, LimitMachine, refuse_impossible, resources, split

MIB = 1 << 20
V1 = LimitMachine(swap_limit=True, cpus="0-3", mems="0")
V2 = LimitMachine(cgroup_v2=True, swap_limit=True, cpus="0-3", mems="0")
FREE = Spec(name="free", rights=Rights(pids_limit=0))
SET = Spec(
    name="set",
    memory_bytes=64 * MIB,
    cpu_limit_milli=250,
    limits=ContainerLimits(32 * MIB, None, 512, "1", "0"),
    rights=Rights(pids_limit=9),
)


def test_every_limit_of_a_change_has_its_place() -> None:
    assert {f.name for f in fields(Change)} - {changes.RESTART} == LEAVES.keys()


@pytest.mark.parametrize("machine", [V1, V2])
def test_what_is_set_is_written_as_config_json_has_it(machine: LimitMachine) -> None:
    assert resources(SET, LEAVES, machine) == {
        "memory": {"limit": 64 * MIB, "swap": 64 * MIB, "reservation": 32 * MIB},
        "cpu": {"quota": 25_000, "period": 100_000, "shares": 512, "cpus": "1", "mems": "0"},
        "pids": {"limit": 9},
    }


def test_what_is_cleared_is_written_explicitly() -> None:
    assert resources(FREE, LEAVES, V1) == {
        "memory": {"limit": -1, "swap": -1, "reservation": -1},
        "cpu": {"quota": -1, "period": 100_000, "shares": 1024, "cpus": "0-3", "mems": "0"},
        "pids": {"limit": -1},
    }
    assert resources(FREE, LEAVES, V2) == {
        "memory": {"limit": -1, "swap": -1},
        "cpu": {"quota": -1, "period": 100_000, "cpus": "0-3", "mems": "0"},
        "unified": {"cpu.weight": "100", "memory.low": "0"},
        "pids": {"limit": -1},
    }


def test_what_is_not_to_change_and_what_the_machine_cannot_do_is_left_out() -> None:
    assert resources(SET, (), V1) == {}
    assert resources(FREE, (changes.SWAP, changes.CPUS), LimitMachine()) == {}
    without_pids = LimitMachine(lacking=(("pids", "there is none"),))
    assert resources(FREE, (changes.PIDS, changes.CPU), without_pids).keys() == {"cpu"}


def test_a_bundles_own_limits_hold_where_the_spec_has_none() -> None:
    of_bundle = {"memory": {"limit": 7 * MIB}, "cpu": None, "pids": {"limit": 5}}
    wanted = (changes.MEMORY, changes.CPU, changes.PIDS)
    assert resources(FREE, wanted, V1, of_bundle) == {
        "memory": {"limit": 7 * MIB},
        "cpu": {"quota": -1, "period": 100_000},
        "pids": {"limit": 5},
    }
    assert resources(SET, wanted, V1, of_bundle)["pids"] == {"limit": 9}


def test_a_limit_that_this_machine_cannot_set_is_refused_and_may_be_cleared() -> None:
    lacking = LimitMachine(lacking=(("pids", "no pids here"),))
    with pytest.raises(BadRequest, match="pids_limit: no pids here"):
        refuse_impossible(SET, LEAVES, lacking)
    refuse_impossible(FREE, LEAVES, lacking)
    refuse_impossible(SET, (changes.MEMORY, changes.SWAP), lacking)
    swapping = Spec(name="s", memory_bytes=64 * MIB, limits=ContainerLimits(memory_swap_bytes=-1))
    with pytest.raises(BadRequest, match="memory_swap_bytes"):
        refuse_impossible(swapping, (changes.SWAP,), LimitMachine())
    refuse_impossible(swapping, (changes.SWAP,), V1)


@pytest.mark.parametrize(
    ("given", "kept", "lifted"),
    [
        ({}, {}, ()),
        ({"cpu": {"quota": -1, "period": 5}}, {"cpu": {"period": 5}}, ("cpu",)),
        ({"pids": {"limit": -1}, "memory": {"limit": -1}}, {"pids": {}, "memory": {"limit": -1}}, ("pids",)),
        ({"cpu": {"quota": 5}, "pids": {"limit": 5}}, {"cpu": {"quota": 5}, "pids": {"limit": 5}}, ()),
        ({"cpu": None, "pids": {"limit": "x"}}, {"cpu": None, "pids": {"limit": "x"}}, ()),
    ],
)
def test_what_crun_cannot_clear_is_taken_out_and_named(
    given: dict[str, object], kept: dict[str, object], lifted: tuple[str, ...]
) -> None:
    text, names = split(json.dumps(given))
    assert (json.loads(text), names) == (kept, lifted)


def test_the_words_depend_on_the_cgroup_above(tmp_path: pathlib.Path) -> None:
    v1, v2 = tmp_path / "v1", tmp_path / "v2"
    (v1 / "cpuset/exitd/abc").mkdir(parents=True)
    for path in ("cpuset", "cpuset/exitd"):
        (v1 / path / "cgroup.procs").touch()
    (v1 / "cpuset/exitd/cpuset.cpus").write_text("0-1\n")
    (v1 / "cpuset/exitd/cpuset.mems").write_text("0\n")
    found = liveresources.look("/exitd/abc", str(v1))
    assert (found.cgroup_v2, found.cpus, found.mems) == (False, "0-1", "0")
    (v2 / "exitd/abc").mkdir(parents=True)
    (v2 / "cgroup.controllers").write_text("cpu memory pids\n")
    (v2 / "cgroup.subtree_control").write_text("cpu memory pids\n")
    (v2 / "exitd/cpuset.cpus.effective").write_text("0-7\n")
    found = liveresources.look("/exitd/abc", str(v2))
    assert (found.cgroup_v2, found.cpus, found.mems, found.lacking) == (True, "0-7", "", ())


@pytest.mark.parametrize(
    ("controller", "v2", "file", "text"),
    [
        ("cpu", False, "cpu/exitd/abc/cpu.cfs_quota_us", "-1"),
        ("pids", False, "pids/exitd/abc/pids.max", "max"),
        ("cpu", True, "exitd/abc/cpu.max", "max 100000"),
        ("pids", True, "exitd/abc/pids.max", "max"),
        ("memory", False, "memory/exitd/abc/memory.limit_in_bytes", "-1"),
        ("memory", True, "exitd/abc/memory.max", "max"),
    ],
)
def test_a_limit_is_lifted_in_the_cgroup_itself(
    tmp_path: pathlib.Path, controller: str, v2: bool, file: str, text: str
) -> None:
    (tmp_path / file).parent.mkdir(parents=True)
    (tmp_path / ("cgroup.controllers" if v2 else f"{controller}/cgroup.procs")).touch()
    cgroups.lift("/exitd/abc", controller, str(tmp_path))
    assert (tmp_path / file).read_text() == text


def test_it_is_lifted_in_the_cgroup_that_crun_makes_in_a_scope_as_well_and_in_no_other_below(
    tmp_path: pathlib.Path,
) -> None:
    (tmp_path / "cgroup.controllers").touch()
    for path in ("exitd.slice/exitd-abc.scope/container", "exitd/abc/container"):
        (tmp_path / path).mkdir(parents=True)
    cgroups.lift("exitd.slice:exitd:abc", "pids", str(tmp_path))
    cgroups.lift("/exitd/abc", "pids", str(tmp_path))
    written = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("pids.max"))
    assert written == [
        "exitd.slice/exitd-abc.scope/container/pids.max",
        "exitd.slice/exitd-abc.scope/pids.max",
        "exitd/abc/pids.max",
    ]


def test_swap_never_changes_without_the_memory_that_it_is_counted_with() -> None:
    assert liveresources.with_memory(["memory_swap_bytes", "cpu_shares"]) == (
        "memory_swap_bytes",
        "cpu_shares",
        "memory_bytes",
    )
    for others in (["memory_bytes", "memory_swap_bytes"], ["cpu_shares"], []):
        assert liveresources.with_memory(others) == tuple(others)
