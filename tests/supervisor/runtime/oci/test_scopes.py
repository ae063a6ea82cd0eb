"""What a scope's unit has of its container's limits; tests/vm/check_limits.py has the real systemd and runtimes."""

import copy
import json
import pathlib
from dataclasses import replace

import pytest

from supervisor.model.errors import RuntimeFailed
from supervisor.model.values import Phase
from supervisor.monitor import rundir
from supervisor.monitor.ownership import Owner
from supervisor.runtime.oci import scopes
from supervisor.runtime.oci.native import NativeContainers
from supervisor.runtime.oci.runplan import Place
from tests.supervisor.fakes import in_loop
from tests.supervisor.happenings import container
from tests.supervisor.runtime.oci.kept import watching
from tests.supervisor.runtime.oci.test_slices import CALLED, asked, failing, words

__all__ = ["asked"]  # a fixture
SCOPE = "exitd.slice:exitd:box"
NO_LIMIT = 2**64 - 1
MIB = 1 << 20
TASKS, SWAP = "org.systemd.property.TasksMax", "org.systemd.property.MemorySwapMax"
EVERY = f"uint64 {NO_LIMIT}"


def document(cgroup: str, **resources: object) -> dict[str, object]:
    return {"linux": {"cgroupsPath": cgroup, "resources": resources}}


@pytest.mark.parametrize(
    ("memory", "swap"),
    [
        ({"limit": 64 * MIB, "swap": 64 * MIB}, "uint64 0"),
        ({"limit": 64 * MIB, "swap": 100 * MIB}, f"uint64 {36 * MIB}"),
        ({"limit": 64 * MIB, "swap": -1}, EVERY),
        ({"limit": -1, "swap": -1}, EVERY),
        ({"limit": 64 * MIB, "swap": 0}, None),
        ({"limit": 0, "swap": 0}, None),
        ({"limit": 64 * MIB}, None),
        ({"reservation": 5}, None),
        ({}, None),
    ],
)
def test_the_unit_has_its_containers_limit_of_swap(memory: dict[str, object], swap: str | None) -> None:
    made = document(SCOPE, memory=memory, pids={"limit": 9})
    assert scopes.annotate(made, or_none=True)
    assert made["annotations"] == {TASKS: "uint64 9", **({SWAP: swap} if swap else {})}
    before = copy.deepcopy(made)
    assert not scopes.annotate(made, or_none=True)
    assert made == before


@pytest.mark.parametrize(
    ("pids", "or_none", "tasks"),
    [
        ({"limit": 9}, False, "uint64 9"),
        ({"limit": -1}, False, EVERY),
        ({"limit": 0}, False, None),
        ({"limit": 0}, True, EVERY),
        ({}, False, None),
        (None, False, None),
        (None, True, EVERY),
    ],
)
def test_and_of_processes_where_a_bundle_says_one(pids: object, or_none: bool, tasks: str | None) -> None:
    """One that says nothing fares as with its runtime alone: the limit is systemd's."""
    made = document(SCOPE, pids=pids)
    assert scopes.annotate(made, or_none=or_none) == (tasks is not None)
    assert made.get("annotations") == ({TASKS: tasks} if tasks else None)


def test_a_callers_own_words_stay() -> None:
    own = {TASKS: "uint64 7", SWAP: "uint64 8", "other": "x"}
    made = {**document(SCOPE, memory={"limit": 5, "swap": 5}), "annotations": dict(own)}
    assert not scopes.annotate(made, or_none=True)
    assert made["annotations"] == own


def test_limits_that_have_been_changed_are_annotated_anew() -> None:
    own = {TASKS: "uint64 7", SWAP: "uint64 0", f"{scopes.ANNOTATION}MemoryMax": "uint64 3", "other": "x"}
    made = {**document(SCOPE, memory={"limit": 5, "swap": 9}, pids={"limit": 8}), "annotations": own}
    scopes.forget(made, [("memory", "swap"), ("memory", "limit"), ("cpu", "period")])
    assert scopes.annotate(made, or_none=False)
    assert made["annotations"] == {TASKS: "uint64 7", SWAP: "uint64 4", "other": "x"}
    scopes.forget(made, [("pids", "limit")])
    assert scopes.annotate(made, or_none=False)
    assert made["annotations"] == {TASKS: "uint64 8", SWAP: "uint64 4", "other": "x"}


@pytest.mark.parametrize("cgroup", ["/exitd/box", "", None])
def test_what_is_in_no_scope_has_no_annotation(cgroup: object) -> None:
    made: dict[str, object] = {"linux": {"cgroupsPath": cgroup}}
    assert not scopes.annotate(made, or_none=True)
    assert "annotations" not in made
    scopes.forget(made, [("memory", "swap")])
    assert not scopes.annotate({}, or_none=True)


def test_an_update_changes_what_a_runtime_may_have_left() -> None:
    both = {"memory": {"limit": 5, "swap": 5}, "pids": {"limit": -1}, "cpu": {"quota": 5}}
    assert scopes.changed(both) == {"TasksMax": NO_LIMIT, "MemorySwapMax": 0}
    assert scopes.changed({"pids": {"limit": 9}}) == {"TasksMax": 9}
    assert scopes.changed({"cpu": {"quota": -1, "period": 100_000}}) == {"CPUQuotaPerSecUSec": NO_LIMIT}
    assert scopes.changed({"cpu": {"shares": 5}}) == {}


@in_loop
async def test_systemd_is_asked_for_the_unit_by_its_name(asked: pathlib.Path) -> None:
    await scopes.limit(SCOPE, {"MemorySwapMax": 0})
    assert words(asked) == [f"{CALLED} SetUnitProperties sba(sv) exitd-box.scope true 1 MemorySwapMax t 0"]
    await scopes.limit(SCOPE, {})
    assert len(words(asked)) == 1


@in_loop
async def test_that_systemd_refuses_it_is_the_updates_failure(asked: pathlib.Path) -> None:
    failing(asked, "SetUnitProperties")
    with pytest.raises(RuntimeFailed, match=r"exitd-box.scope no such limits \(no SetUnitProperties\)"):
        await scopes.limit(SCOPE, {"MemorySwapMax": 0})


def test_what_crun_makes_where_its_killed_container_was_is_removed_and_nothing_else(tmp_path: pathlib.Path) -> None:
    proc, root = tmp_path / "proc", tmp_path / "cgroup"
    places = {1: "/system.slice/exitd.service", 2: "/system.slice/exitd-keeper.service", 3: "/", 4: "/used"}
    for pid, place in places.items():
        (proc / str(pid)).mkdir(parents=True)
        (proc / str(pid) / "cgroup").write_text(f"1:name=x:/container\n0::{place}\n")
        (root / place.lstrip("/") / "container").mkdir(parents=True)
    (root / "used/container/inner").mkdir()
    (root / "cgroup.controllers").touch()
    assert sorted(scopes.remove_misplaced([1, 2, 3, 4, 5], str(root), str(proc))) == [
        f"{root}/system.slice/exitd-keeper.service/container",
        f"{root}/system.slice/exitd.service/container",
    ]
    assert (root / "container").is_dir() and (root / "used/container").is_dir()
    assert scopes.remove_misplaced([1, 2], str(root), str(proc)) == ()


@pytest.mark.parametrize("name", ["runc", "crun"])
@in_loop
async def test_after_the_runtimes_update_the_unit_is_given_what_it_may_lack(
    asked: pathlib.Path, tmp_path: pathlib.Path, name: str
) -> None:
    program = tmp_path / name
    program.write_text(f'#!/bin/sh\necho "$@" >>{asked}\n')
    program.chmod(0o755)
    born = container(Phase.RUNNING)
    made = replace(born, spec=replace(born.spec, runtime_path=str(program), systemd_cgroup=True))
    with watching() as (watches, _):
        watches.cgroups[made.id] = SCOPE
        containers = NativeContainers(Place(str(tmp_path), str(tmp_path)), watches, Owner("0" * 32))
        (directory := pathlib.Path(rundir.path_of(str(tmp_path), made.id, made.run))).mkdir(parents=True)
        await containers.update_container(made, json.dumps({"pids": {"limit": -1}, "cpu": {"shares": 5}}))
        await containers.update_container(made, json.dumps({"cpu": {"shares": 5}}))
    by_runtime, by_systemd, again = words(asked)
    assert by_runtime.endswith(made.id) and str(directory) in by_runtime and again == by_runtime
    assert by_systemd == f"{CALLED} SetUnitProperties sba(sv) exitd-box.scope true 1 TasksMax t {NO_LIMIT}"
