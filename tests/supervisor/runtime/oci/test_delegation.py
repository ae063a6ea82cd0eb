"""What the machine lets exitd do with cgroups, on made-up trees: each refusal has its reason and its cure."""

import os
import pathlib
import subprocess
import sys

import pytest

from supervisor.runtime.oci import cgroups, delegation
from tests.supervisor.runtime.oci.test_cgroups import put

ALL = "cpuset cpu io memory pids"


@pytest.fixture
def top(tmp_path: pathlib.Path) -> pathlib.Path:
    """The top of a v2 tree."""
    put(tmp_path / "cgroup.controllers", f"{ALL}\n")
    put(tmp_path / "cgroup.subtree_control", "\n")
    put(tmp_path / "cgroup.procs", "1\n2\n")
    return tmp_path


@pytest.fixture
def delegated(top: pathlib.Path) -> pathlib.Path:
    """A cgroup below it, as a cgroup namespace shows it; nobody is in it."""
    put(top / "cgroup.type", "domain\n")
    put(top / "cgroup.procs")
    return top


def test_the_top_hands_down_what_it_has_whoever_is_in_it(top: pathlib.Path) -> None:
    assert delegation.lacking(str(top)) == {}
    assert delegation.unusable(str(top)) is None
    assert delegation.is_whole(str(top))


def test_controllers_that_the_kernel_does_not_offer_are_named_with_the_cure(top: pathlib.Path) -> None:
    put(top / "cgroup.controllers", "cpu\n")
    found = delegation.lacking(str(top))
    assert list(found) == ["memory", "pids"]
    assert str(found["memory"]).startswith(
        "the kernel offers no cgroup controller memory: boot without cgroup_disable="
    )


def test_controllers_that_were_not_delegated_are_named_with_the_cure(delegated: pathlib.Path) -> None:
    put(delegated / "cgroup.controllers", "pids\n")
    found = delegation.lacking(str(delegated))
    assert list(found) == ["memory", "cpu"]
    assert str(found["cpu"]).startswith(
        f"{delegated} has not been delegated the cgroup controller cpu: add it to Delegate="
    )


def test_a_delegated_cgroup_with_processes_in_it_hands_down_what_it_did_before(delegated: pathlib.Path) -> None:
    assert delegation.lacking(str(delegated)) == {} and not delegation.is_whole(str(delegated))
    put(delegated / "cgroup.procs", "17\n")
    found = delegation.lacking(str(delegated))
    assert list(found) == ["memory", "cpu", "pids"]
    why = f"{delegated} hands down no cgroup controllers as long as processes are in it"
    assert set(found.values()) == {delegation.Obstacle(why, delegation.EMPTY)}
    put(delegated / "cgroup.subtree_control", "cpu pids\n")
    assert list(delegation.lacking(str(delegated))) == ["memory"]


def test_of_version_1_what_is_not_mounted_is_lacking(tmp_path: pathlib.Path) -> None:
    for name in ("cpu,cpuacct", "memory", "unified"):
        put(tmp_path / name / "cgroup.procs")
    put(tmp_path / "unified/cgroup.controllers", "pids\n")
    found = delegation.lacking(str(tmp_path))
    assert list(found) == ["pids"] and "is not mounted" in found["pids"].why
    assert cgroups.tops(str(tmp_path)) == [f"{tmp_path}/cpu,cpuacct", f"{tmp_path}/memory"]


def test_without_any_cgroups_the_cure_is_to_mount_them(tmp_path: pathlib.Path) -> None:
    assert str(delegation.unusable(str(tmp_path))).startswith(f"no cgroups under {tmp_path}: mount them")


LOOKS = """
import sys
from supervisor.runtime.oci import delegation
print(delegation.unusable(sys.argv[1]))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts")
def test_a_tree_that_is_mounted_read_only_is_named_with_the_cure(top: pathlib.Path) -> None:
    mounts = 'mount --bind "$1" "$1" && mount -o remount,bind,ro "$1" && exec "$0" -c "$2" "$1"'
    words = ["unshare", "--mount", "sh", "-c", mounts, sys.executable, str(top), LOOKS]
    said = subprocess.run(words, check=True, capture_output=True, text=True, timeout=60).stdout.strip()
    assert said.startswith(f"{top} is mounted read-only, and no container can have a cgroup there: mount -o remount,rw")
