"""What a real containerd's clients see of ends while exitd is away, or silent."""

import contextlib
import pathlib
import time
from collections.abc import Iterator
from dataclasses import dataclass

from protos.exitd.v1.exitd_pb2 import ExitsRequest
from tests.system.containerd.events import Event, Recorder
from tests.system.containerd.history import STOPPED, Who
from tests.system.containerd.server import EXITD, NOTHING, Box, Containerd
from tests.system.containerd.tasks import Pending, Program, Tasks
from tests.system.processes import killed, stopped
from tests.system.waits import until

BEGUN = ["/tasks/create", "/tasks/start"]
OVER = ["/tasks/exit", "/tasks/delete"]


def topics(events: list[Event]) -> list[str]:
    return [event.topic for event in events]


@dataclass
class Ending:
    """A task that ends with 7 when it is told to, and a client that waits for that."""

    containerd: Containerd
    clients: Tasks
    box: Box
    place: pathlib.Path
    init: int
    waiting: Pending

    def goes(self) -> None:
        (self.place / "go").touch()

    def ledger(self) -> list[tuple[int, int]]:
        """Codes and times, of all its ends that exitd knows."""
        with self.containerd.with_exitd().client() as client:
            found = [row for row in client.exits(ExitsRequest()) if row.name == self.box.id]
        return [(row.code, row.at.ToNanoseconds()) for row in found]


@contextlib.contextmanager
def ending(containerd: Containerd, events: Recorder) -> Iterator[Ending]:
    clients, box = Tasks(containerd), containerd.box(EXITD, "away")
    place = containerd.base / f"m-{box.id}"
    place.mkdir()
    mount = ("--mount", f"type=bind,src={place},dst=/mnt,options=rbind")
    box.started(*mount, "--", "sh", "-c", "until [ -e /mnt/go ]; do sleep 0.02; done; exit 7")
    events.wait(box.id, "/tasks/start")
    yield Ending(containerd, clients, box, place, box.pid, clients.begin("wait", Who(box.id)))
    clients.close()


def test_while_exitd_is_away_an_end_is_no_secret_and_is_reported_and_stored_once(containerd: Containerd) -> None:
    with containerd.events() as events, ending(containerd, events) as e:
        daemon = containerd.with_exitd()
        daemon.kill()
        e.goes()
        waited = e.waiting.call().end
        assert waited is not None and waited.code == 7
        state = e.clients.begin("state", Who(e.box.id)).call()
        assert (state.status, state.pid, state.end, e.box.state) == (STOPPED, e.init, waited, "STOPPED")
        told = events.wait(e.box.id, "/tasks/exit")[-1]
        assert (told.fields["exit_status"], told.fields["pid"]) == (7, e.init)
        daemon.start()
        assert e.clients.begin("wait", Who(e.box.id)).call().end == waited  # the relay's answer, whatever exitd knows
        until(e.ledger, "exitd has not stored it")
        e.box.end()
        assert topics(events.settled().wait(e.box.id, "/tasks/delete")) == [*BEGUN, *OVER]
        assert e.ledger() == [(7, waited.at_ns)]
    containerd.left_is()


def test_while_exitd_is_away_a_task_that_has_ended_is_deleted_and_exitd_removes_it_when_it_is_back(
    containerd: Containerd,
) -> None:
    with containerd.events() as events, ending(containerd, events) as e:
        daemon = containerd.with_exitd()
        daemon.kill()
        e.goes()
        waited = e.waiting.call().end
        assert e.clients.begin("kill", Who(e.box.id), signal=9).call().error == "NOT_FOUND"
        began = time.monotonic()
        e.box.task("metrics")
        assert time.monotonic() - began < 2
        deleted = e.clients.begin("delete", Who(e.box.id)).call()
        assert (deleted.end, deleted.pid) == (waited, e.init)
        told = events.wait(e.box.id, "/tasks/delete")
        assert topics(told) == [*BEGUN, *OVER]
        assert (told[-1].fields["exit_status"], told[-1].fields["exited_at"]) == (7, told[-2].fields["exited_at"])
        containerd.wanted("container", "rm", e.box.id)
        daemon.start()
        until(lambda: not containerd.left().rows, "exitd has not removed it")
        assert e.ledger() == [(7, waited.at_ns)]  # type: ignore[union-attr]
        other = containerd.box(EXITD, "other")
        assert other.run("--rm", "--", "true").code == 0
        events.wait(other.id, "/tasks/delete")
        assert topics(events.settled().of(e.box.id)) == [*BEGUN, *OVER]
    containerd.clear()
    containerd.left_is(NOTHING, "fifos")  # ctr leaves those of a task that somebody else deletes


def test_an_end_that_was_reported_while_exitd_was_away_stays_what_it_was_when_the_relay_is_killed(
    containerd: Containerd,
) -> None:
    with containerd.events() as events, ending(containerd, events) as e:
        daemon = containerd.with_exitd()
        daemon.kill()
        e.goes()
        waited = e.waiting.call().end
        events.wait(e.box.id, "/tasks/exit")
        for relay in containerd.shims(e.box.id):
            killed(relay)
        told = events.wait(e.box.id, "/tasks/delete")
        daemon.start()
        until(lambda: not containerd.left().rows, "exitd has not removed it")
        assert waited is not None
        assert e.ledger() == [(7, waited.at_ns)]
    assert {event.fields["exit_status"] for event in told[2:]} == {7}
    containerd.clear()


def test_an_exitd_that_is_stopped_keeps_no_end_secret(containerd: Containerd) -> None:
    with containerd.events() as events, ending(containerd, events) as e:
        with stopped(containerd.with_exitd().pid):
            e.goes()
            waited = e.waiting.call().end
            assert waited is not None and waited.code == 7
            events.wait(e.box.id, "/tasks/exit")
        e.box.until("STOPPED")
        e.box.end()
        assert topics(events.settled().wait(e.box.id, "/tasks/delete")) == [*BEGUN, *OVER]
        assert e.ledger() == [(7, waited.at_ns)]
    containerd.left_is(NOTHING, "fifos")


def test_while_exitd_is_away_an_exec_that_ends_is_answered_for_and_its_name_is_free_when_it_is_back(
    containerd: Containerd,
) -> None:
    daemon, clients = containerd.with_exitd(), Tasks(containerd)
    program = Program.make(containerd, EXITD, "", 1)
    who, exec_ = Who(program.id), Who(program.id, "e")
    with containerd.events() as events, contextlib.closing(clients):
        init = clients.begin("create", who, rootfs=clients.mounts(program.id)).call().pid
        assert clients.begin("start", who).call().pid == init
        program.up()
        assert not clients.begin("exec", exec_, spec=program.exec_spec("e", own=21)).call().error
        pid = clients.begin("start", exec_).call().pid
        program.up("e")
        waiting = clients.begin("wait", exec_)
        events.wait(program.id, "/tasks/exec-started")
        daemon.kill()
        program.go("e")
        waited = waiting.call().end
        assert waited is not None and waited.code == 21
        state = clients.begin("state", exec_).call()
        assert (state.status, state.pid, state.end) == (STOPPED, pid, waited)
        assert clients.begin("kill", exec_, signal=9).call().error == "NOT_FOUND"
        deleted = clients.begin("delete exec", exec_).call()
        assert (deleted.end, deleted.pid) == (waited, pid)
        assert [each.topic for each in events.settled().of(program.id)][-1] == "/tasks/exec-started"
        daemon.start()
        (told,) = [each for each in events.wait(program.id, "/tasks/exit") if each.topic == "/tasks/exit"]
        assert (told.fields["id"], told.fields["exit_status"]) == ("e", 21)
        (program.place / "e.go").unlink()
        (program.place / "e.up").unlink()
        assert not clients.begin("exec", exec_, spec=program.exec_spec("e", own=22)).call().error
        clients.begin("start", exec_).call()
        program.up("e")
        again = clients.begin("wait", exec_)
        program.go("e")
        end = again.call().end
        assert end is not None and end.code == 22
        assert clients.begin("delete exec", exec_).call().end == end
        with daemon.client() as client:
            rows = [row for row in client.exits(ExitsRequest()) if row.name == program.id]
        assert [(row.code, row.at.ToNanoseconds()) for row in rows] == [(21, waited.at_ns), (22, end.at_ns)]
        program.go()
        events.wait(program.id, "/tasks/exit", 3)
        assert clients.begin("delete", who).call().end is not None
        containerd.wanted("container", "rm", program.id)
    containerd.left_is(NOTHING, "fifos")  # of clients that were killed in other tests
