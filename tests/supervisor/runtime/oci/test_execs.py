"""What is made of an exec whose shim was killed before it could name a process to exitd."""

from pathlib import Path

import pytest

from shim import native
from supervisor.model.execs import Exec, ExecPhase, ExecSpec
from supervisor.model.values import Container, Process, RunKey
from supervisor.monitor import rundir
from supervisor.runtime.oci.execs import NativeExecs
from supervisor.runtime.oci.runplan import Place
from tests.supervisor.children import child, name_of
from tests.supervisor.fakes import in_loop
from tests.supervisor.happenings import container
from tests.supervisor.runtime.oci.kept import watching

SIGKILL = 9
CGROUP = "/exitd-test/none"  # with nobody in it: nothing but the keeper's word leads to the process


def abandoned(tmp_path: Path) -> tuple[Container, Exec]:
    """Its directory names no process, and no pid file is in it: its shim had a full file system, or an early end."""
    of = container()
    key = RunKey(of.id, of.run, "e1")
    rundir.make(str(tmp_path), of.id, of.run, b"").close()
    rundir.make_in(rundir.path_of(str(tmp_path), of.id, of.run, key.exec_id), b"").close()
    return of, Exec(key, ExecSpec(("sleep", "1000")), ExecPhase.EXITED, "web", "default", "boot")


@pytest.mark.parametrize("is_its_own", [True, False])
@in_loop
async def test_what_the_keeper_knows_of_an_abandoned_exec_is_ended_and_nobody_who_has_its_number_since(
    tmp_path: Path, is_its_own: bool
) -> None:
    with watching() as (watches, keeper), child() as process:
        of, e = abandoned(tmp_path)
        watches.cgroups[of.id] = CGROUP
        named = name_of(process)
        keeper.keeps(e.key, named if is_its_own else Process(named.pid, named.started_ticks - 1))
        await NativeExecs(Place(str(tmp_path), str(tmp_path)), watches).delete_exec(of, e)
        assert rundir.execs(rundir.path_of(str(tmp_path), of.id, of.run)) == []
        assert await keeper.runs() == []
        if is_its_own:
            assert process.wait(30) == -SIGKILL
        else:
            assert native.process_stat(process.pid)[0] in "SR"
