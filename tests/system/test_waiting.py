"""Who waits and who watches: the right answer at the right time, and nothing left of who has gone away."""

import os
import pathlib
import signal
import subprocess
import sys
import threading
from functools import partial

import pytest

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.api.client import Client
from supervisor.model.errors import BadRequest, Compacted, NoSuchContainer, TimedOut
from tests.system import daemons, lives
from tests.system.daemons import Daemon, left, spec, stub, warm_up
from tests.system.lives import ended, events, last_exit, types, word
from tests.system.runtimes import Wrapper
from tests.system.waits import LIMIT_SECONDS, scaled, until

pytestmark = pytest.mark.grpc  # its clients share a connection
ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def waiters(client: Client) -> int:
    return int(client.info().settings["waiters"])


def test_a_thousand_waits_after_the_end_all_give_the_stored_exit(client: Client) -> None:
    container, exit_ = lives.run(client, "sh", "-c", "exit 9")
    for _ in range(scaled(1000)):
        assert last_exit(client, container) == exit_
    assert waiters(client) == 0


def test_each_condition_is_answered_when_it_holds_and_not_before(client: Client) -> None:
    container, first = lives.run(client, "sh", "-c", "exit 9")
    following = client.begin_wait(container, condition="next-exit")
    removed = client.begin_wait(container, condition="removed")
    second = client.begin_wait(container, run=2)
    until(lambda: waiters(client) == 3, "waiters")
    client.start(container)
    assert ended(following.result(LIMIT_SECONDS)).run == ended(second.result(LIMIT_SECONDS)).run == 2
    assert waiters(client) == 1
    assert ended(client.begin_wait(container, run=1).result(LIMIT_SECONDS)) == first
    client.remove(container, force=False)
    assert ended(removed.result(LIMIT_SECONDS)).run == 2
    assert waiters(client) == 0


def test_a_removed_container_is_known_by_its_full_id_and_its_name_is_nobodys(client: Client) -> None:
    container, exit_ = lives.run(client, "sh", "-c", "exit 9", name="gone")
    client.remove(container, force=False)
    for condition in ("exited", "next-exit", "removed"):
        assert client.begin_wait(container, condition=condition).result(LIMIT_SECONDS) == exit_
    for reference in ("gone", container[:12], "0" * 64):
        with pytest.raises(NoSuchContainer):
            client.begin_wait(reference).result(LIMIT_SECONDS)


def test_who_waits_for_a_container_that_is_removed_before_it_ran_is_told_that_there_is_no_exit(client: Client) -> None:
    container = client.create(spec("true")).id
    waiting, removed = client.begin_wait(container), client.begin_wait(container, condition="removed")
    client.remove(container, force=False)
    for one in (waiting, removed):
        exit_ = one.result(LIMIT_SECONDS)  # made and killed before it ran: that is an end too, and no program's
        assert exit_ is not None and word(exit_) == "unknown never-started" and not exit_.HasField("started_at")


def test_a_limit_on_a_wait_ends_the_wait_and_not_the_container(client: Client) -> None:
    container = lives.up(client).id
    with pytest.raises(TimedOut):
        client.begin_wait(container).result(0.1)
    until(lambda: waiters(client) == 0, "the cancelled waiter")
    assert client.inspect(container).phase == pb.PHASE_RUNNING


def test_a_condition_or_a_run_that_cannot_be_is_refused(client: Client) -> None:
    container = lives.up(client).id
    with pytest.raises(BadRequest, match="condition"):
        client.begin_wait(container, condition="sometime").result(LIMIT_SECONDS)
    with pytest.raises(BadRequest, match="run"):
        client.begin_wait(container, run=2**63).result(LIMIT_SECONDS)


def test_clients_that_go_away_while_they_wait_leave_no_waiter_and_no_descriptor(daemon: Daemon, client: Client) -> None:
    container = lives.up(client).id
    before = left(daemon).descriptors
    program = f"""if True:
        from supervisor.api.client import Client
        from protos.exitd.v1 import exitd_pb2 as pb
        client = Client({str(daemon.state / "exitd.sock")!r})
        waits = [client.begin_wait({container!r}) for _ in range({scaled(1000)})]
        stream = client.events(pb.EventsRequest(from_seq=0))
        next(stream)
        print("waiting", flush=True)
        waits[0].result()
        """
    leaving = [
        subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, cwd=os.getcwd()) for _ in range(3)
    ]
    for process in leaving:
        assert process.stdout is not None and process.stdout.readline() == b"waiting\n"
    until(lambda: waiters(client) == 3 * scaled(1000), "waiters")
    leaving[0].kill()
    leaving[1].kill()
    leaving[2].send_signal(signal.SIGSTOP)
    until(lambda: waiters(client) == scaled(1000), "waiters of the dead")
    leaving[2].kill()
    until(lambda: waiters(client) == 0, "waiters")
    for process in leaving:
        process.communicate()
    until(lambda: left(daemon).descriptors <= before, "descriptors")


def test_what_a_client_began_is_done_to_its_end_after_it_has_gone(
    daemon: Daemon, client: Client, tmp_path: pathlib.Path
) -> None:
    wrapper, came, go = Wrapper.make(tmp_path), tmp_path / "came", tmp_path / "go"
    for verb in ("create", "start", "delete"):
        wrapper.on(verb, f"echo {verb} >>{came}; until [ -e {go} ]; do sleep 0.01; done")
    asked = {
        f"create(spec('sleep', '1000', name='mine', runtime={wrapper.name!r}))": "create",
        "start('mine')": "start",
        "remove('mine', force=True)": "delete",
    }
    phases = (pb.PHASE_CREATED, pb.PHASE_RUNNING, 0)
    for (call, verb), expected in zip(asked.items(), phases, strict=True):
        process = asks(daemon, call)
        until(partial(has, came, verb), verb)
        process.kill()
        process.wait()
        go.touch()
        until(partial(is_in, client, expected), call)
        go.unlink()


def has(path: pathlib.Path, word: str) -> bool:
    return path.exists() and word in path.read_text()


def is_in(client: Client, phase: int) -> bool:
    """0: there is none."""
    found = client.list(all_of_them=True, filters=("name=mine",))
    return (found[0].phase if found else 0) == phase


def asks(daemon: Daemon, call: str) -> "subprocess.Popen[bytes]":
    """A client in a process of its own."""
    program = f"""if True:
        import sys
        sys.path.insert(0, {str(ROOT)!r})
        from tests.system.daemons import spec
        from supervisor.api.client import Client
        Client({str(daemon.state / "exitd.sock")!r}).{call}
        """
    return subprocess.Popen([sys.executable, "-c", program])


def test_a_stop_whose_client_has_gone_goes_on_to_sigkill(daemon: Daemon, client: Client) -> None:
    container = lives.up(client, "sh", "-c", "trap '' TERM; sleep 1000", name="mine").id
    process = asks(daemon, "stop('mine', 1)")
    until(lambda: "stop" in types(client, container), "stop")
    process.kill()
    process.wait()
    exit_ = last_exit(client, container)
    assert (word(exit_), exit_.reason, exit_.by.pid) == ("signaled 9", "stop", process.pid)


def test_a_stopped_subscriber_holds_up_nobody_and_misses_nothing(daemon: Daemon, client: Client) -> None:
    """Fewer events than are kept: it gets every one. (Those it was too late for are reported as lost: test_events.)"""
    first = client.info().seq + 1
    program = f"""if True:
        from supervisor.api.client import Client
        from protos.exitd.v1 import exitd_pb2 as pb
        client = Client({str(daemon.state / "exitd.sock")!r})
        for reply in client.events(pb.EventsRequest(from_seq={first})):
            if reply.HasField("event"):
                print(reply.event.seq, reply.event.type, flush=True)
        """
    slow = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert slow.stdout is not None
    container = client.create(spec("sh", "-c", "exit 1"))
    assert slow.stdout.readline().split() == [str(first), "create"]
    slow.send_signal(signal.SIGSTOP)
    replies = client.events(pb.EventsRequest(from_seq=first))
    quick = (reply.event for reply in replies if reply.HasField("event"))  # bookmarks come between them
    for _ in range(scaled(400)):
        waiting = client.begin_wait(container.id, condition="next-exit")
        client.start(container.id)
        ended(waiting.result(LIMIT_SECONDS))
    expected = [(event.seq, event.type) for event in events(client) if event.seq >= first]
    assert [(event.seq, event.type) for _, event in zip(expected, quick, strict=False)] == expected
    slow.send_signal(signal.SIGCONT)
    seen = [tuple(slow.stdout.readline().split()) for _ in expected[1:]]
    assert seen == [(str(seq), kind) for seq, kind in expected[1:]]
    slow.kill()
    slow.communicate()


def test_a_list_says_from_where_to_watch_so_that_nothing_is_missed(daemon: Daemon, client: Client) -> None:
    """Whatever happens between the list and the subscription is in one of the two."""
    stop = threading.Event()

    def churn() -> None:
        with daemon.client() as other:
            while not stop.is_set():
                container, _ = lives.run(other, "true")
                other.remove(container, force=False)

    thread = threading.Thread(target=churn)
    thread.start()
    try:
        for _ in range(5):
            with stub(daemon) as api:
                listing = api.List(pb.ListRequest(all=True))
            newest = until(lambda: client.info().seq, "events")
            request = pb.EventsRequest(from_seq=listing.seq, no_follow=True)
            seqs = [reply.event.seq for reply in client.events(request) if reply.HasField("event")]
            assert seqs[: newest - listing.seq + 1] == list(range(listing.seq, newest + 1))
            created = {e.id for e in events(client) if e.type == "create" and e.seq < listing.seq}
            gone = {e.id for e in events(client) if e.type == "remove" and e.seq < listing.seq}
            listed = {c.id for c in listing.containers if c.phase != pb.PHASE_CREATING}
            assert listed >= created - gone and not listed & gone
    finally:
        stop.set()
        thread.join()


def test_a_stream_is_taken_up_again_where_it_broke_off_over_a_daemon_restart() -> None:
    with daemons.daemon() as daemon:
        with daemon.client() as client:
            container, _ = lives.run(client, "true")
            stream = client.events(pb.EventsRequest(from_seq=1))
            seen = [next(stream).event.seq for _ in range(2)]
        daemon.restart()
        with daemon.client() as client:
            client.remove(container, force=False)
            request = pb.EventsRequest(from_seq=seen[-1] + 1, no_follow=True)
            seen += [reply.event.seq for reply in client.events(request) if reply.HasField("event")]
            assert seen == list(range(1, client.info().seq + 1))
            assert types(client, container) == ["create", "start", "exit", "remove"]


def test_events_that_are_no_longer_kept_are_refused_as_compacted_and_ones_of_the_future_as_a_mistake() -> None:
    with daemons.daemon() as daemon:
        with daemon.client() as client:
            for _ in range(3):
                warm_up(client)
        daemon.kill(signal.SIGTERM)
        compact(daemon, keep=4)
        daemon.start()
        with daemon.client() as client:
            newest = client.info().seq
            with pytest.raises(Compacted, match=rf"event 1 .*oldest is {newest - 3}"):
                next(client.events(pb.EventsRequest(from_seq=1)))
            with pytest.raises(BadRequest, match="the newest is"):
                next(client.events(pb.EventsRequest(from_seq=newest + 2)))
            assert [event.seq for event in events(client)] == list(range(newest - 3, newest + 1))


def compact(daemon: Daemon, keep: int) -> None:
    """What the reconcile loop does when the log has grown."""
    program = f"""if True:
        import asyncio, time
        from pathlib import Path
        from supervisor.store.database import Keep, Store
        async def main():
            store = Store(Path({str(daemon.root / "exitd.db")!r}))
            await store.compact(Keep(events={keep}), time.time_ns())
            await store.close()
        asyncio.run(main())
        """
    subprocess.run([sys.executable, "-c", program], check=True, timeout=LIMIT_SECONDS)
