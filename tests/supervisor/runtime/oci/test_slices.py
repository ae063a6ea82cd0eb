"""A pod's slice, where systemd does not run: a program in busctl's place notes what it is asked. tests/vm has the real
one."""

import pathlib

import pytest

from supervisor.model.errors import ShimFailed
from supervisor.model.values import Pod
from supervisor.runtime.oci import bundle, cgroups, slices
from tests.supervisor.fakes import in_loop

POD = "b" * 64
LIMITS = Pod(memory_bytes=64 << 20, pids_limit=60, cpu_limit_milli=250)
CALLED = "--quiet call -- org.freedesktop.systemd1 /org/freedesktop/systemd1 org.freedesktop.systemd1.Manager"
WANTED = f"3 MemoryMax t {64 << 20} TasksMax t 60 CPUQuotaPerSecUSec t 250000"


def test_a_slices_name_is_its_pods_and_no_other_unit_has_one() -> None:
    assert slices.pod_in(slices.name_of(POD)) == POD
    for name in (f"exitd-{POD}.scope", "exitd.slice", "exitd-.slice", f"exitd-{POD}-a.slice", f"x-{POD}.slice"):
        assert slices.pod_in(name) == ""
    assert cgroups.inside(bundle.scope("c1", POD)) == f"exitd.slice/exitd-{POD}.slice/exitd-c1.scope"
    assert cgroups.inside(bundle.pod_slice(POD)) == f"exitd.slice/exitd-{POD}.slice"
    assert bundle.pod_of_slice(bundle.pod_slice(POD)) == POD == bundle.id_of(bundle.pod_slice(POD))
    assert bundle.pod_of_slice(f"/exitd.slice/more/exitd-{POD}.slice") == ""


def test_the_limits_have_systemds_names_and_units_and_none_is_left_out_as_zero() -> None:
    assert slices.properties(LIMITS) == {"MemoryMax": 64 << 20, "TasksMax": 60, "CPUQuotaPerSecUSec": 250_000}
    assert slices.properties(Pod(pids_limit=9)) == {"TasksMax": 9}
    assert slices.properties(Pod()) == {}


def test_a_limit_that_was_cleared_is_systemds_infinity() -> None:
    names = ("memory_bytes", "pids_limit", "memory_swap_bytes")
    assert slices.explicit(Pod(pids_limit=9, cpu_limit_milli=5), names) == {"MemoryMax": 2**64 - 1, "TasksMax": 9}


@pytest.fixture
def asked(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """A busctl and a systemctl that note their words in this file, and fail in the verbs of the file `fails`."""
    script = f"""#!/bin/sh
        echo "$@" >>{tmp_path}/asked
        for word; do
            grep -qx -e "$word" {tmp_path}/fails && echo "no $word" >&2 && exit 1
        done
        exit 0
        """
    for name in ("busctl", "systemctl"):
        (tmp_path / name).write_text(script)
        (tmp_path / name).chmod(0o755)
    (tmp_path / "fails").touch()
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return tmp_path / "asked"


def words(asked: pathlib.Path) -> list[str]:
    return asked.read_text().splitlines()


def failing(asked: pathlib.Path, *verbs: str) -> None:
    asked.with_name("fails").write_text("".join(f"{verb}\n" for verb in verbs))


@in_loop
async def test_the_slice_is_made_with_its_limits(asked: pathlib.Path) -> None:
    await slices.limit(POD, slices.properties(LIMITS))
    made = f"{CALLED} StartTransientUnit ssa(sv)a(sa(sv)) exitd-{POD}.slice fail {WANTED} 0"
    assert words(asked) == [made]


@in_loop
async def test_one_that_is_there_gets_them_and_where_systemd_refuses_that_too_the_pod_is_refused(
    asked: pathlib.Path,
) -> None:
    failing(asked, "StartTransientUnit")
    await slices.limit(POD, slices.properties(LIMITS))
    altered = f"{CALLED} SetUnitProperties sba(sv) exitd-{POD}.slice true {WANTED}"
    assert words(asked)[1:] == [altered]
    failing(asked, "StartTransientUnit", "SetUnitProperties")
    with pytest.raises(ShimFailed, match=r"no such limits \(no StartTransientUnit; no SetUnitProperties\)"):
        await slices.limit(POD, slices.properties(LIMITS))


@in_loop
async def test_a_slice_is_stopped_and_why_it_was_not_is_said(asked: pathlib.Path) -> None:
    assert await slices.end(POD) == ""
    assert words(asked) == [f"--quiet stop exitd-{POD}.slice"]
    failing(asked, "stop")
    assert await slices.end(POD) == "no stop"
