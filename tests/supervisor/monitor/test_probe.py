"""supervisor/monitor/probe.py: which sources of evidence hold here, tried on real children."""

import errno
import os
import subprocess
from pathlib import Path

import pytest

from supervisor.model.values import Source
from supervisor.monitor import probe

MOUNTINFO = """22 1 8:1 / / rw - ext4 /dev/root rw
23 22 0:5 / /run rw,nosuid - tmpfs tmpfs rw
24 23 0:6 / /run/lo\\040ck rw - ramfs none rw
"""


def test_every_source_that_can_be_tried_has_a_result_with_words(tmp_path: Path) -> None:
    found = probe.evidence(str(tmp_path))
    assert list(found) == [Source.RECORD, Source.FIFO, Source.KEEPER, Source.ZOMBIE, Source.PIDFD, Source.PROCEVENTS]
    assert all(result.detail for result in found.values())
    assert all(result.works or result.cure for result in found.values())


def test_what_was_tried_at_the_start_is_not_tried_again(tmp_path: Path) -> None:
    tried = {source: probe.Capability(True, f"{source} was tried") for source in (Source.ZOMBIE, Source.PIDFD)}
    found = probe.evidence(str(tmp_path), tried)
    assert {source: found[source] for source in tried} == tried and len(found) == 6


def test_without_a_child_neither_source_works_and_each_has_its_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*words: object, **more: object) -> None:
        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    monkeypatch.setattr(subprocess, "Popen", refuse)
    found = probe.by_one_child()
    assert list(found) == [Source.ZOMBIE, Source.PIDFD]
    assert not any(each.works for each in found.values()) and all(each.cure for each in found.values())


def test_record_and_fifo_work_in_a_directory_and_leave_nothing_behind(tmp_path: Path) -> None:
    assert probe.record(str(tmp_path)).works
    assert probe.fifo(str(tmp_path)).works
    assert list(tmp_path.iterdir()) == []


def test_a_place_where_nothing_can_be_made_is_reported_with_a_cure(tmp_path: Path) -> None:
    missing = str(tmp_path / "missing")
    for result in (probe.record(missing), probe.fifo(missing)):
        assert not result.works and "state directory" in result.cure


def test_the_zombie_probe_says_43_or_why_not() -> None:
    result = probe.zombie()
    assert result.works == ("reported 43" in result.detail)


def test_a_pidfd_reports_the_status_of_a_reaped_child_or_the_kernel_is_named() -> None:
    result = probe.pidfd()
    assert result.works or os.uname().release in result.detail or "pidfd" in result.detail


def test_the_probes_reap_their_children() -> None:
    me = os.getpid()
    probe.zombie()
    probe.pidfd()
    listed = subprocess.run(["ps", "-o", "stat=", "--ppid", str(me)], capture_output=True, text=True, check=False)
    assert not [line for line in listed.stdout.splitlines() if line.startswith("Z")]


def test_the_nearest_existing_directory_stands_for_one_to_be(tmp_path: Path) -> None:
    assert probe.existing_parent(str(tmp_path / "a" / "b")) == str(tmp_path)
    assert probe.existing_parent(str(tmp_path / ("x" * 400))) == str(tmp_path)


def test_a_cgroup_version_is_known_by_what_is_mounted(tmp_path: Path) -> None:
    assert probe.cgroup_version(str(tmp_path)) == ""
    (tmp_path / "memory").mkdir()
    assert probe.cgroup_version(str(tmp_path)) == "v1"
    (tmp_path / "unified").mkdir()
    (tmp_path / "unified" / "cgroup.controllers").touch()
    assert probe.cgroup_version(str(tmp_path)) == "hybrid"
    (tmp_path / "cgroup.controllers").touch()
    assert probe.cgroup_version(str(tmp_path)) == "v2"


def test_a_file_system_has_mountinfos_name(tmp_path: Path) -> None:
    device = os.stat(tmp_path).st_dev
    line = f"9 1 {os.major(device)}:{os.minor(device)} / {tmp_path} rw - tmpfs tmpfs rw\n"
    assert probe.file_system(str(tmp_path / "."), MOUNTINFO + line) == "tmpfs"
    assert probe.file_system("/proc") == "proc"


def test_kernel_release_is_two_numbers() -> None:
    assert probe.kernel() >= (3, 0)
