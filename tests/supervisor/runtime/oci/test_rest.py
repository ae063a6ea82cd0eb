"""Which cgroup is to be empty when init has ended: its run directory says so."""

import pathlib
import shutil
import signal

import pytest

from shim import names, native, plan
from supervisor.model.errors import ShimFailed
from supervisor.model.values import Process
from supervisor.monitor import rundir
from supervisor.runtime.oci import rest
from tests.supervisor.children import child

WANTED = plan.Plan(id="box", run=1, create=("/runc",), remove=(), cgroup=("/sys/fs/cgroup/a", "/sys/fs/cgroup/b"))


def test_its_plan_says_it_unless_strangers_have_shared_the_cgroup(tmp_path: pathlib.Path) -> None:
    (tmp_path / names.PLAN).write_bytes(plan.encode(WANTED))
    assert rest.to_end(str(tmp_path), "/none") == WANTED.cgroup
    rest.mark_shared(str(tmp_path))
    rest.mark_shared(str(tmp_path))
    assert rest.to_end(str(tmp_path), "/none") == ()


def test_a_mark_of_an_earlier_version_means_strangers(tmp_path: pathlib.Path) -> None:
    (tmp_path / names.PLAN).write_bytes(plan.encode(WANTED))
    (tmp_path / names.SHARED_CGROUP).touch()
    assert rest.to_end(str(tmp_path), "/none") == ()


def test_another_container_counts_as_long_as_a_run_of_it_may_live(tmp_path: pathlib.Path) -> None:
    own, other = (tmp_path / "c" / id / "1" for id in ("own", "other"))
    for path in (own, other):
        path.mkdir(parents=True)
    (own / names.PLAN).write_bytes(plan.encode(WANTED))
    rest.mark_shared(str(own), "other")
    assert rest.to_end(str(own), str(tmp_path)) == ()  # it is in the making
    with child() as one:
        rundir.leave_created(str(other), Process(one.pid, native.process_stat(one.pid)[2]))
        assert rest.to_end(str(own), str(tmp_path)) == ()
        one.kill()
        one.wait(30)
    assert rest.to_end(str(own), str(tmp_path)) == WANTED.cgroup
    shutil.rmtree(other)
    assert rest.to_end(str(own), str(tmp_path)) == WANTED.cgroup


@pytest.mark.parametrize("text", [None, b"", b"exitd-plan 1"])
def test_where_no_plan_can_be_read_nobody_is_killed(tmp_path: pathlib.Path, text: bytes | None) -> None:
    if text is not None:
        (tmp_path / names.PLAN).write_bytes(text)
    assert rest.to_end(str(tmp_path), "/none") == ()


def test_a_directory_that_is_gone_needs_no_mark_and_one_that_takes_none_is_named(tmp_path: pathlib.Path) -> None:
    rest.mark_shared(str(tmp_path / "gone"))
    (tmp_path / "file").touch()
    with pytest.raises(ShimFailed, match="file/shared-cgroup"):
        rest.mark_shared(str(tmp_path / "file"))


def test_everybody_is_found_below_and_killed(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rest, "LIMIT_MS", 30_000)
    with child() as one, child() as two:
        for place, it in (("a", one), ("b/c", two)):
            (tmp_path / place).mkdir(parents=True)
            (tmp_path / place / "cgroup.procs").write_text(f"0\n{it.pid}\n")
        tops = tuple(str(tmp_path / name) for name in ("a", "b", "none"))
        assert rest.members(tops) == tuple(sorted((one.pid, two.pid)))
        assert rest.end(tops) == ()
        assert {one.wait(30), two.wait(30)} == {-signal.SIGKILL}
