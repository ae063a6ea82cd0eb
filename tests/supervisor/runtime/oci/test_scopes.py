"""What a scope's unit has of its container's limits; tests/vm/check_limits.py has the real systemd and runtimes."""

import copy
import pathlib

import pytest

from supervisor.model.errors import RuntimeFailed
from supervisor.runtime.oci import scopes
from tests.supervisor.fakes import in_loop
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
        ({"limit": 64 * MIB}, None),
        ({"reservation": 5}, None),
        ({}, None),
    ],
)
def test_the_unit_has_no_limit_of_processes_but_its_containers_and_its_limit_of_swap(
    memory: dict[str, object], swap: str | None
) -> None:
    made = document(SCOPE, memory=memory, pids={"limit": 9})
    assert scopes.annotate(made, of_bundle=False)
    assert made["annotations"] == {TASKS: EVERY, **({SWAP: swap} if swap else {})}
    before = copy.deepcopy(made)
    assert not scopes.annotate(made, of_bundle=False)
    assert made == before


def test_a_callers_own_words_stay() -> None:
    own = {TASKS: "uint64 7", SWAP: "uint64 8", "other": "x"}
    made = {**document(SCOPE, memory={"limit": 5, "swap": 5}), "annotations": dict(own)}
    assert not scopes.annotate(made, of_bundle=False)
    assert made["annotations"] == own


def test_a_bundle_that_says_nothing_of_processes_fares_as_with_its_runtime_alone() -> None:
    silent, speaking = document(SCOPE, memory={"limit": 5, "swap": 5}), document(SCOPE, pids={"limit": 9})
    assert scopes.annotate(silent, of_bundle=True)
    assert silent["annotations"] == {SWAP: "uint64 0"}
    assert scopes.annotate(speaking, of_bundle=True)
    assert speaking["annotations"] == {TASKS: EVERY}
    nothing = document(SCOPE)
    assert not scopes.annotate(nothing, of_bundle=True)
    assert "annotations" not in nothing


def test_a_limit_that_has_been_changed_is_annotated_anew() -> None:
    made = {**document(SCOPE, memory={"limit": 5, "swap": 9}), "annotations": {TASKS: EVERY, SWAP: "uint64 0"}}
    scopes.forget_swap(made)
    assert scopes.annotate(made, of_bundle=False)
    assert made["annotations"] == {TASKS: EVERY, SWAP: "uint64 4"}


@pytest.mark.parametrize("cgroup", ["/exitd/box", "", None])
def test_what_is_in_no_scope_has_no_annotation(cgroup: object) -> None:
    made: dict[str, object] = {"linux": {"cgroupsPath": cgroup}}
    assert not scopes.annotate(made, of_bundle=False)
    assert "annotations" not in made
    scopes.forget_swap(made)
    assert not scopes.annotate({}, of_bundle=False)


def test_an_update_changes_the_unit_where_its_runtime_does_not() -> None:
    both = {"memory": {"limit": 5, "swap": 5}, "pids": {"limit": -1}, "cpu": {"quota": 5}}
    assert scopes.changed(both, has_inner=False) == {"MemorySwapMax": 0}
    assert scopes.changed(both, has_inner=True) == {"TasksMax": NO_LIMIT, "MemorySwapMax": 0}
    lifted = {"cpu": {"quota": -1, "period": 100_000}}
    assert scopes.changed(lifted, has_inner=True) == {"CPUQuotaPerSecUSec": NO_LIMIT}
    assert scopes.changed(lifted, has_inner=False) == {}


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
