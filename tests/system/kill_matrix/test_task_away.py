"""A task of a real containerd ends while exitd is away, and its relay, or containerd, is killed in that time, too."""

import os

import pytest

from protos.exitd.v1.exitd_pb2 import ExitsRequest
from tests.system.containerd.history import Who
from tests.system.containerd.server import EXITD, NOTHING, Containerd
from tests.system.containerd.tasks import Tasks
from tests.system.kill_matrix.table import Case, cases
from tests.system.processes import killed
from tests.system.waits import until, wait_readable

CODE = 9


@pytest.mark.parametrize("case", cases("task, its end while exitd is away"), ids=str)
def test_an_end_while_exitd_is_away_has_its_code_whoever_else_is_killed(containerd: Containerd, case: Case) -> None:
    clients, box = Tasks(containerd), containerd.box(EXITD, "away")
    (place := containerd.base / f"m-{box.id}").mkdir()
    mount = ("--mount", f"type=bind,src={place},dst=/mnt,options=rbind")
    box.started(*mount, "--", "sh", "-c", f"until [ -e /mnt/go ]; do sleep 0.02; done; exit {CODE}")
    pidfd, waiting = os.pidfd_open(box.pid), clients.begin("wait", Who(box.id))
    daemon = containerd.with_exitd()
    with containerd.events() as events:
        daemon.kill()
        (place / "go").touch()
        assert wait_readable(pidfd)
        os.close(pidfd)
        told = []
        if case.moment != "after its end":
            told.append(waiting.call().end)
            events.wait(box.id, "/tasks/exit")
        if case.moment == "after its delete":
            told.append(clients.begin("delete", Who(box.id)).call().end)
        if case.victim == "relay":
            for pid in containerd.shims(box.id):
                killed(pid)
        else:
            containerd.kill()
            containerd.start()
        daemon.start()
        clients.close()
        box.until("" if case.moment == "after its delete" or case.victim == "relay" else "STOPPED")
        if box.state:
            assert f"exit code {CODE}" in box.task("rm").err
        until(lambda: not containerd.left().rows, "exitd has not removed it")
        with daemon.client() as client:
            ledger = [(row.code, row.at.ToNanoseconds()) for row in client.exits(ExitsRequest()) if row.name == box.id]
        over = [each for each in events.of(box.id) if each.topic in ("/tasks/exit", "/tasks/delete")]
    (end,) = ledger
    assert end[0] == CODE and all(each == end for each in told)
    assert {each.fields["exit_status"] for each in over} <= {CODE} and (over or case.victim == "containerd")
    containerd.wanted("container", "rm", box.id)
    containerd.left_is(NOTHING, "fifos")  # ctr leaves those of a task that somebody else deletes
