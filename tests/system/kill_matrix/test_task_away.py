"""A task of a real containerd ends while exitd is away, and its relay, or containerd, is killed in that time, too."""

import contextlib
import os
import signal
from collections.abc import Iterator

import pytest

from protos.exitd.v1.exitd_pb2 import ExitsRequest
from tests.system.containerd.events import Event, Recorder
from tests.system.containerd.history import Who
from tests.system.containerd.server import EXITD, NOTHING, Containerd
from tests.system.containerd.tasks import Pending, Program, Tasks
from tests.system.daemons import Daemon
from tests.system.kill_matrix.calls import halting, is_dead
from tests.system.kill_matrix.table import WORD, Case, cases
from tests.system.processes import killed, state_of, stopped
from tests.system.test_containerd_witness import BEGUN, OVER, Ending, ending, topics
from tests.system.waits import until, wait_readable

CODE = 9
ENDS_WITH = 7  # of `ending`


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
        answers = []
        if case.moment != "after its end":
            answers.append(waiting.call().end)
            events.wait(box.id, "/tasks/exit")
        if case.moment == "after its delete":
            answers.append(clients.begin("delete", Who(box.id)).call().end)
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
    assert end[0] == CODE and all(each == end for each in answers)
    assert {each.fields["exit_status"] for each in over} <= {CODE} and (over or case.victim == "containerd")
    containerd.wanted("container", "rm", box.id)
    containerd.left_is(NOTHING, "fifos")  # ctr leaves those of a task that somebody else deletes


def words_left(daemon: Daemon) -> list[str]:
    """By relays, for an exitd that is away; none that is being written."""
    return [path.name for path in (daemon.state / "shimv2" / "gone").glob("*") if not path.suffix]


@contextlib.contextmanager
def halting_in_its_step(e: Ending, case: Case, relay: int, events: Recorder) -> Iterator[Pending]:
    """exitd is away, and the task ends: for the block its relay halts in that step. What containerd's client then waits
    for."""
    daemon = e.containerd.with_exitd()
    if case.moment == WORD:
        e.goes()
        events.wait(e.box.id, "/tasks/exit")
        with halting(relay, ("rename", 1)) as reached:
            deleting = e.clients.begin("delete", Who(e.box.id))
            until(lambda: words_left(daemon), "the relay leaves no word")
            reached()
            yield deleting
    else:
        with halting(relay, ("sendto", 2)) as reached:  # the first is the answer to the Wait
            e.goes()
            events.wait(e.box.id, "/tasks/exit")
            reached()
            yield e.waiting


def over(events: Recorder, id: str) -> list[Event]:
    return [each for each in events.settled().of(id) if each.topic in OVER]


@pytest.mark.parametrize("case", cases("task, its end while exitd is away, in the relay's steps"), ids=str)
def test_an_end_has_its_code_although_the_relay_that_reports_it_is_killed_over_that(
    containerd: Containerd, case: Case
) -> None:
    """An event may come twice: whether containerd has it is not known then."""
    with containerd.events() as events, ending(containerd, events) as e:
        daemon, (relay,) = containerd.with_exitd(), containerd.shims(e.box.id)
        daemon.kill()
        with halting_in_its_step(e, case, relay, events) as asked:
            os.kill(relay, signal.SIGKILL)
        until(lambda: is_dead(relay), "the relay does not die")
        answer, waited = asked.call(), e.waiting.call().end
        assert waited is not None and waited.code == ENDS_WITH
        assert answer.end == waited or answer.error not in ("", "NO_ANSWER"), answer
        events.wait(e.box.id, "/tasks/delete")
        daemon.start()
        until(lambda: not containerd.left().rows, "exitd has not removed it")
        assert e.ledger() == [(ENDS_WITH, waited.at_ns)]
        found = over(events, e.box.id)
    assert {each.fields["exit_status"] for each in found} == {ENDS_WITH}
    assert all(1 <= topics(found).count(topic) <= 2 for topic in OVER), topics(found)
    containerd.wanted("container", "rm", e.box.id)
    containerd.left_is(NOTHING, "fifos")


@pytest.mark.parametrize("case", cases("task, its end while exitd is away, the relay stands still"), ids=str)
def test_an_end_is_reported_once_although_the_relay_stood_still_over_that_until_exitd_was_back(
    containerd: Containerd, case: Case
) -> None:
    with containerd.events() as events, ending(containerd, events) as e:
        daemon, (relay,) = containerd.with_exitd(), containerd.shims(e.box.id)
        daemon.kill()
        with contextlib.ExitStack() as stands:
            with halting_in_its_step(e, case, relay, events) as asked:
                stands.enter_context(stopped(relay))
            until(lambda: state_of(relay) == "T", "the relay goes on")
            daemon.start()
            until(e.ledger, "exitd has not stored it")
        answer, waited = asked.call(), e.waiting.call().end
        assert waited is not None and waited.code == ENDS_WITH and answer.end == waited
        if case.moment != WORD:
            assert e.clients.begin("delete", Who(e.box.id)).call().end == waited
        events.wait(e.box.id, "/tasks/delete")
        until(lambda: not containerd.left().rows, "exitd has not removed it")
        assert topics(events.settled().of(e.box.id)) == [*BEGUN, *OVER]
        assert e.ledger() == [(ENDS_WITH, waited.at_ns)]
    containerd.wanted("container", "rm", e.box.id)
    containerd.left_is(NOTHING, "fifos")


EXEC_CODE = 21


@pytest.mark.parametrize("case", cases("task, its exec's end while exitd is away"), ids=str)
def test_an_execs_end_while_exitd_is_away_has_its_code_although_the_relay_is_killed_then(
    containerd: Containerd, case: Case
) -> None:
    """Of its tasks' execs containerd says no more when it has given them up."""
    daemon, clients = containerd.with_exitd(), Tasks(containerd)
    program = Program.make(containerd, EXITD, "", 1)
    who, exec_ = Who(program.id), Who(program.id, "e")
    with containerd.events() as events, contextlib.closing(clients):
        init = clients.begin("create", who, rootfs=clients.mounts(program.id)).call().pid
        assert clients.begin("start", who).call().pid == init
        program.up()
        assert not clients.begin("exec", exec_, spec=program.exec_spec("e", own=EXEC_CODE)).call().error
        pidfd = os.pidfd_open(clients.begin("start", exec_).call().pid)
        program.up("e")
        waiting = clients.begin("wait", exec_)
        daemon.kill()
        program.go("e")
        assert wait_readable(pidfd)
        os.close(pidfd)
        answers = []
        if case.moment != "after its end":
            answers.append(waiting.call().end)
        if case.moment == "after its delete":
            answers.append(clients.begin("delete exec", exec_).call().end)
        for relay in containerd.shims(program.id):
            killed(relay)
        assert waiting.call().error != "NO_ANSWER"
        events.wait(program.id, "/tasks/delete")
        daemon.start()
        until(lambda: not containerd.left().rows, "exitd has not removed it")
        with daemon.client() as client:
            rows = [row for row in client.exits(ExitsRequest()) if row.name == program.id]
        of_exec = [(row.code, row.at.ToNanoseconds()) for row in rows if row.exec_id]
        of_init = [(row.kind, row.signal) for row in rows if not row.exec_id]
        ends = [each.fields for each in events.settled().of(program.id) if each.topic == "/tasks/exit"]
    assert [code for code, _ in of_exec] == [EXEC_CODE] and all(each == of_exec[0] for each in answers)
    assert of_init == [("signaled", signal.SIGKILL)]  # with its relay its task is given up
    codes = {"e": EXEC_CODE, program.id: 128 + signal.SIGKILL}
    assert all(fields["exit_status"] == codes[fields["id"]] for fields in ends), ends
    assert [fields["id"] for fields in ends].count("e") <= 1
    containerd.wanted("container", "rm", program.id)
    containerd.left_is(NOTHING, "fifos")
