"""What a real containerd's clients see of ends while exitd is away, or silent."""

import contextlib
import pathlib
from collections.abc import Iterator
from dataclasses import dataclass

from protos.exitd.v1.exitd_pb2 import ExitsRequest
from tests.system.containerd.events import Event, Recorder
from tests.system.containerd.history import STOPPED, Who
from tests.system.containerd.server import EXITD, Box, Containerd
from tests.system.containerd.tasks import Pending, Tasks
from tests.system.processes import stopped

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


def test_while_exitd_is_away_an_end_is_no_secret_and_is_told_and_stored_once(containerd: Containerd) -> None:
    with containerd.events() as events, ending(containerd, events) as e:
        daemon = containerd.with_exitd()
        daemon.kill()
        e.goes()
        waited = e.waiting.call().end
        assert waited is not None and waited.code == 7
        state = e.clients.begin("state", Who(e.box.id)).call()
        assert (state.status, state.pid, state.end, e.box.state) == (STOPPED, e.init, waited, "STOPPED")
        daemon.start()
        told = events.wait(e.box.id, "/tasks/exit")[-1]
        assert (told.fields["exit_status"], told.fields["pid"]) == (7, e.init)
        assert e.clients.begin("wait", Who(e.box.id)).call().end == waited
        assert e.ledger() == [(7, waited.at_ns)]
        e.box.end()
        assert topics(events.settled().wait(e.box.id, "/tasks/delete")) == [*BEGUN, *OVER]
    containerd.left_is()


def test_an_exitd_that_is_stopped_keeps_no_end_secret(containerd: Containerd) -> None:
    with containerd.events() as events, ending(containerd, events) as e:
        with stopped(containerd.with_exitd().pid):
            e.goes()
            waited = e.waiting.call().end
            assert waited is not None and waited.code == 7
        e.box.until("STOPPED")
        e.box.end()
        assert topics(events.settled().wait(e.box.id, "/tasks/delete")) == [*BEGUN, *OVER]
        assert e.ledger() == [(7, waited.at_ns)]
    containerd.left_is()
