"""supervisor/cli/doctor.py: one line each, with the cure."""

import json
from pathlib import Path

import pytest

from supervisor.cli import doctor
from supervisor.monitor import probe
from supervisor.monitor.probe import Capability
from supervisor.runtime.oci import machine
from tests.supervisor.cli.conftest import Exitctl


def test_doctor_has_a_line_for_each_source_by_its_name(exitctl: Exitctl) -> None:
    outcome = exitctl("doctor")
    for source in ("record", "fifo", "keeper", "zombie", "pidfd"):
        assert f"source {source}" in outcome.out
    assert ("FAIL" in outcome.out) == (outcome.code == 1)


def test_doctor_looks_at_the_state_directory_it_was_told(exitctl: Exitctl, tmp_path: Path) -> None:
    other = tmp_path / "other"
    assert str(other) in exitctl("doctor", "--state", str(other)).out
    assert str(other) not in exitctl("doctor").out


@pytest.mark.parametrize(
    ("kind", "level", "has_cure"),
    [
        ("tmpfs", "ok", False),
        *((kind, "ok", True) for kind in ("ext4", "xfs", "btrfs", "overlay")),
        *((kind, "warn", True) for kind in ("nfs4", "fuse", "ext4x", "")),
    ],
)
def test_a_state_directory_on_a_disk_is_fine_in_memory_is_better_and_elsewhere_is_warned_of(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: str, level: str, has_cure: bool
) -> None:
    monkeypatch.setattr(probe, "file_system", lambda place: kind)
    (found,) = doctor.places(str(tmp_path / "to" / "be" / "made"))
    assert (found.level, found.what, "tmpfs (/run)" in found.cure) == (level, "state directory", has_cure)
    assert found.detail.startswith(f"{tmp_path}/to/be/made on {kind}, ")


def test_what_is_not_ok_has_a_cure(exitctl: Exitctl) -> None:
    findings = json.loads(exitctl("doctor", "--format", "json").out)
    assert {"root", "kernel", "cgroup", "runtime", "fd limit", "overlay"} <= {finding["what"] for finding in findings}
    assert all(finding["cure"] for finding in findings if finding["level"] == "FAIL")


def test_a_missing_cgroup_tree_is_reported_with_its_cure(tmp_path: Path) -> None:
    result = doctor.cgroup(str(tmp_path))
    assert not result.works and "mount" in result.cure


def test_a_cgroup_that_can_be_made_is_writable_and_nothing_stays(tmp_path: Path) -> None:
    (tmp_path / "cgroup.controllers").touch()
    assert doctor.cgroup(str(tmp_path)).detail == "v2, writable"
    assert [path.name for path in tmp_path.iterdir()] == ["cgroup.controllers"]


def test_a_finding_is_one_line_with_its_cure() -> None:
    text = doctor.report([doctor.Finding("FAIL", "root", "uid 7", "run exitd as root")])
    assert text == "FAIL   root   uid 7 -> run exitd as root\n"


def seccomp(directory: Path, words: str, kernel: str = "/proc/self/status") -> Capability:
    program = directory / "runtime"
    program.write_text(f"#!/bin/sh\necho '{words}'\n")
    program.chmod(0o755)
    return doctor.seccomp(str(program), kernel)


def test_a_runtime_or_a_kernel_without_seccomp_is_reported_with_its_cure(tmp_path: Path) -> None:
    assert seccomp(tmp_path, "libseccomp: 2.5.4").works and seccomp(tmp_path, "+CAP +SECCOMP +EBPF").works
    for result in (seccomp(tmp_path, "runc version 1"), seccomp(tmp_path, "libseccomp", "/none")):
        assert not result.works and "seccomp=unconfined" in result.cure
    assert not doctor.seccomp("/none", "/proc/self/status").works


def test_doctor_says_which_way_watch_uses_on_this_kernel(exitctl: Exitctl) -> None:
    works, fails = Capability(True, "yes"), Capability(False, "not here")
    assert doctor.watching(works, fails).detail.startswith("by pidfd")
    assert doctor.watching(fails, works).detail.startswith("by the kernel's process events")
    neither = doctor.watching(fails, fails)
    assert (neither.works, "not here; not here" in neither.detail, "CONFIG_PROC_EVENTS" in neither.cure) == (
        False,
        True,
        True,
    )
    (line,) = [line for line in exitctl("doctor").out.splitlines() if line.split()[1] == "watch"]
    assert line.split()[0] in ("ok", "warn")


@pytest.mark.parametrize(
    ("has", "loaded", "works", "detail"),
    [
        (False, "", True, "the kernel has none, or it is off"),
        (True, "exitd-default", True, "containers have the profile exitd-default, unless they ask for another"),
        (True, "", False, "the profile exitd-default is not loaded: containers have none"),
    ],
)
def test_whether_exitds_apparmor_profile_confines_containers(
    monkeypatch: pytest.MonkeyPatch, has: bool, loaded: str, works: bool, detail: str
) -> None:
    monkeypatch.setattr(machine, "has_apparmor", lambda: has)
    monkeypatch.setattr(machine, "own_profile", lambda: loaded)
    found = doctor.apparmor()
    assert (found.works, found.detail, bool(found.cure)) == (works, detail, not works)
