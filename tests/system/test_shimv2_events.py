"""exitd hands a relay the events of its tasks, and lets it go when it has brought them."""

import pathlib

import pytest

from protos.containerd import task_pb2 as pb
from tests.system.tasks import LEAVE, Relay, Tasks


@pytest.fixture
def tasks(tasks: Tasks, tmp_path: pathlib.Path) -> Tasks:
    """Their relay brings events, to a containerd that is not there."""
    tasks.relay.courier, tasks.relay.address = True, str(tmp_path / "nobody")
    tasks.relay.connect()
    return tasks


def leaves(relay: Relay, stream: int) -> bool:
    relay.answer(stream)
    return relay.flags[stream] == LEAVE


def one(relay: Relay, before: int) -> int:
    """The next event, brought."""
    number = relay.next_event()
    assert number > before
    relay.told(number)
    return number


def test_a_relay_leaves_when_it_has_brought_the_last_event_and_not_before(tasks: Tasks) -> None:
    r = tasks.relay
    r.create("box", tasks.bundle("box", "/bin/true"))
    r.start("box")
    r.wait("box")
    r.delete("box")
    number = 0
    for _ in range(3):
        number = one(r, number)
    last = r.next_event()
    shutdown = r.begin("Shutdown", pb.ShutdownRequest(id="box"))
    assert not r.is_answered(shutdown, 0.2)
    r.told(last)
    assert leaves(r, shutdown)


def test_a_relay_whose_events_nobody_takes_stays(tasks: Tasks) -> None:
    r = tasks.relay
    r.create("box", tasks.bundle("box", "/bin/true"))
    r.delete("box")
    assert not leaves(r, r.begin("Shutdown", pb.ShutdownRequest(id="box")))
    one(r, one(r, one(r, 0)))  # create, exit (it was killed before it was started), delete
    assert leaves(r, r.begin("Shutdown", pb.ShutdownRequest(id="box")))


def test_an_event_whose_answer_did_not_reach_exitd_is_handed_over_again_by_the_next(tasks: Tasks) -> None:
    r = tasks.relay
    r.create("box", tasks.bundle("box", "/bin/true"))
    first = r.next_event()
    for _ in range(2):
        tasks.restart()
        assert r.next_event() == first
    r.told(first)
    r.start("box")
    assert one(r, first) > first
