"""supervisor/compare/group.py: what the kernel holds for a group, from the files of either version of cgroups."""

import os
import pathlib

import pytest

from supervisor.compare import group
from supervisor.compare.group import ProcessGroup


@pytest.fixture(params=["v1", "v2"])
def version(request: pytest.FixtureRequest, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(group, "V1", str(tmp_path / "v1"))
    monkeypatch.setattr(group, "V2", str(tmp_path / "v2"))
    monkeypatch.setattr(group, "CGROUP", "/test")
    (tmp_path / request.param).mkdir()
    return str(request.param)


def test_kernel_memory_is_in_kib_and_none_where_this_kernel_does_not_count_it(
    version: str, tmp_path: pathlib.Path
) -> None:
    made = ProcessGroup("own")
    directory = tmp_path / version / "test/way-own"
    assert made.kernel_kb() is None
    if version == "v1":
        (directory / "memory.kmem.usage_in_bytes").write_text("3584\n")
    else:
        (directory / "memory.stat").write_text("anon 8192\nfile 0\n")
        assert made.kernel_kb() is None
        (directory / "memory.stat").write_text("anon 8192\nkernel_stack 16384\nkernel 3584\nsock 4096\n")
    assert made.kernel_kb() == 3.5


def test_a_command_begins_in_the_group_whose_name_nobody_else_has(version: str, tmp_path: pathlib.Path) -> None:
    made, directory = ProcessGroup("own"), tmp_path / version / "test/way-own"
    pid = os.spawnvp(os.P_NOWAIT, made.words()[0], [*made.words(), "true"])
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert made.pids() == [pid]
    (directory / "cgroup.procs").write_text("")
    assert made.pids() == []
