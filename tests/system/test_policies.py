"""Restart policies and automatic removal on real containers: how often, when, and what ends them."""

import os
import pathlib
import signal
import time
from collections.abc import Iterator
from functools import partial

import pytest

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.api.client import Client
from supervisor.model.errors import BadRequest, NoSuchContainer, WrongState
from tests.system import lives, oracle
from tests.system.daemons import Daemon, spec
from tests.system.lives import backing_off, ended, events, last_exit, ledger, types, word
from tests.system.runtimes import Wrapper
from tests.system.waits import LIMIT_SECONDS, until


@pytest.fixture(autouse=True)
def nothing_stays(daemon: Daemon) -> Iterator[None]:
    yield
    oracle.clear(daemon)


@pytest.fixture
def client(daemon: Daemon) -> Iterator[Client]:
    with daemon.client() as made:
        yield made


def settled(client: Client, container: str) -> pb.Container:
    """Once nothing more is planned for it."""
    until(lambda: client.inspect(container).phase == pb.PHASE_EXITED, "its last end")
    return client.inspect(container)


def runs(client: Client, container: str) -> list[tuple[int, str, str]]:
    return [(e.run, word(e), e.decision) for e in ledger(client, container)]


def test_on_failure_tries_as_often_as_it_was_told(client: Client) -> None:
    container = lives.up(client, "sh", "-c", "exit 3", restart="on-failure:2").id
    assert settled(client, container).restart_count == 2
    expected = [(1, "exited 3", "restart"), (2, "exited 3", "restart"), (3, "exited 3", "ended")]
    assert runs(client, container) == expected
    assert types(client, container) == ["create", *["start", "exit"] * 3]
    starts = [e.time.ToNanoseconds() for e in events(client, container) if e.type == "start"]
    ends = [e.exit.at.ToNanoseconds() for e in events(client, container) if e.type == "exit"]
    pauses = [(after - before) / 1e6 for before, after in zip(ends, starts[1:], strict=False)]
    assert pauses[0] >= 100 and pauses[1] >= 200  # ms: docker's back-off, doubled each time


def test_on_failure_is_content_with_a_0_and_counts_signals_as_failures(client: Client) -> None:
    container = lives.up(client, "true", restart="on-failure").id
    assert settled(client, container).restart_count == 0
    container = lives.up(client, restart="on-failure:1").id
    for run in (1, 2):
        until(partial(is_running, client, container, run), "its run")
        waiting = client.begin_wait(container, run=run)
        signal_init(client, container)
        assert word(ended(waiting.result(LIMIT_SECONDS))) == "signaled 9"
    assert runs(client, container) == [(1, "signaled 9", "restart"), (2, "signaled 9", "ended")]


def is_running(client: Client, container: str, run: int) -> bool:
    found = client.inspect(container)
    return found.run == run and found.phase == pb.PHASE_RUNNING


def signal_init(client: Client, container: str) -> None:
    """From outside, without exitd: nobody has asked it for anything."""
    os.kill(client.inspect(container).init.pid, signal.SIGKILL)


@pytest.mark.parametrize("policy", ["always", "unless-stopped"])
def test_an_endless_policy_restarts_after_a_0_and_ends_with_a_stop(client: Client, policy: str) -> None:
    container = lives.up(client, "true", restart=policy).id
    until(lambda: client.inspect(container).restart_count >= 2, "restarts")
    client.stop(container, 5)
    stopped = settled(client, container)
    assert not stopped.HasField("restart_at")
    assert {(said, decision) for _, said, decision in runs(client, container)[:-1]} == {("exited 0", "restart")}
    with pytest.raises(WrongState):
        client.kill(container, "KILL")


@pytest.mark.parametrize("policy", ["always", "unless-stopped"])
def test_a_container_that_was_stopped_stays_so_over_a_daemon_restart(daemon: Daemon, policy: str) -> None:
    with daemon.client() as client:
        stopped = lives.up(client, restart=policy).id
        client.stop(stopped, 0)
        running = lives.up(client, restart=policy).id
    daemon.restart()
    with daemon.client() as client:
        assert client.inspect(stopped).phase == pb.PHASE_EXITED
        assert client.inspect(running).phase == pb.PHASE_RUNNING
        assert types(client, stopped) == ["create", "start", "stop", "exit"]
        assert types(client, running) == ["create", "start"]


def test_a_stop_during_back_off_cancels_the_restart(client: Client) -> None:
    container = lives.up(client, "false", restart="always").id
    planned = backing_off(client, container, 1.0)
    client.stop(container, 5)
    seen = types(client, container)
    assert seen[-1] == "stop"
    until(lambda: time.time_ns() > planned.restart_at.ToNanoseconds() + 3e8, "the time it was planned for")
    assert types(client, container) == seen
    assert client.inspect(container).phase == pb.PHASE_EXITED
    client.start(container)  # and a start begins anew
    assert client.inspect(container).restart_count == 0


def test_a_daemon_killed_during_back_off_restarts_the_container_at_the_time_that_was_stored(daemon: Daemon) -> None:
    with daemon.client() as client:
        container = lives.up(client, "false", restart="on-failure:9").id
        planned = backing_off(client, container, 6.0)  # more than a restart takes on a busy machine
    daemon.restart()
    with daemon.client() as client:
        again = client.inspect(container)
        at = planned.restart_at.ToNanoseconds()
        assert (again.run, again.restart_count) == (planned.run, planned.restart_count)
        # Both are computed from two clocks, between whose readings a busy machine may do something else.
        until(lambda: abs(client.inspect(container).restart_at.ToNanoseconds() - at) < 50e6, "the time that was stored")
        until(lambda: len(ledger(client, container)) > planned.run, "the next run")
        started = ledger(client, container)[-1].started_at.ToNanoseconds()
        assert (
            at - 50e6 < started < at + 10e9
        )  # that it is not planned anew was looked at above; this is how late it is
        client.stop(container, 0)


def test_a_restart_that_fell_due_while_the_daemon_was_away_is_made_once(daemon: Daemon) -> None:
    with daemon.client() as client:
        container = lives.up(client, "sh", "-c", "exit 3", restart="on-failure:9").id
        planned = backing_off(client, container, 1.0)
        daemon.kill()
    until(lambda: time.time_ns() > planned.restart_at.ToNanoseconds() + 1e8, "the time it was planned for")
    daemon.start()
    with daemon.client() as client:
        until(lambda: len(ledger(client, container)) > planned.run, "the next run")
        assert runs(client, container) == [(run, "exited 3", "restart") for run in range(1, planned.run + 2)]
        assert types(client, container) == ["create", *["start", "exit"] * (planned.run + 1)]
        client.remove(container, force=True)


def test_ends_while_the_daemon_is_away_are_all_reported_and_each_policy_is_applied_once(daemon: Daemon) -> None:
    """A file that is there tells the containers to end; each has its own code, every fifth a policy."""
    script = "until [ -e /mnt/go ]; do sleep 0.05; done; exit {}"
    mounts = [pb.Mount(source=str(daemon.base), destination="/mnt", read_only=True)]
    with daemon.client() as client:
        made = {
            lives.up(
                client,
                *("sh", "-c", script.format(code)),
                mounts=mounts,
                restart="on-failure:1" if code % 5 == 0 else "no",
            ).id: code
            for code in range(1, 21)
        }
    daemon.kill()
    (daemon.base / "go").touch()
    daemon.start()
    with daemon.client() as client:
        for container, code in made.items():
            settled(client, container)
            said, number = f"exited {code}", 2 if code % 5 == 0 else 1
            assert [run[:2] for run in runs(client, container)] == [(n, said) for n in range(1, number + 1)]
            assert {e.source for e in ledger(client, container)} == {"record"}


def test_a_container_that_waits_for_its_restart_is_removed_only_by_force(client: Client) -> None:
    container = lives.up(client, "false", restart="always").id
    backing_off(client, container, 1.0)
    with pytest.raises(WrongState, match="is restarting"):
        client.remove(container, force=False)
    client.remove(container, force=True)
    with pytest.raises(NoSuchContainer):
        client.inspect(container)


def test_a_restart_that_cannot_be_made_counts_as_a_failure_of_the_policy(
    client: Client, tmp_path: pathlib.Path
) -> None:
    wrapper = Wrapper.make(tmp_path)
    count = f"echo >>{tmp_path}/count; [ $(wc -l <{tmp_path}/count) = 1 ]"
    wrapper.on("create", f"{count} || {{ echo no luck >&2; exit 1; }}")
    container = lives.up(client, "sh", "-c", "exit 3", runtime=wrapper.name, restart="on-failure:3").id
    final = settled(client, container)
    assert (final.run, final.restart_count) == (4, 3) and "no luck" in final.error
    assert types(client, container) == ["create", "start", "exit", "failed", "failed", "failed"]
    assert runs(client, container) == [(1, "exited 3", "restart")]


def test_automatic_removal_happens_once_and_keeps_the_code(client: Client) -> None:
    container = client.create(spec("sh", "-c", "exit 8", auto_remove=True)).id
    removed = client.begin_wait(container, condition="removed")
    client.start(container)
    assert ended(removed.result(LIMIT_SECONDS)).code == 8
    assert last_exit(client, container).decision == "remove"
    assert types(client, container) == ["create", "start", "exit", "remove"]


def test_automatic_removal_after_a_stop_a_kill_and_in_the_created_state(client: Client) -> None:
    for stop in (True, False):
        container = lives.up(client, auto_remove=True).id
        removed = client.begin_wait(container, condition="removed")
        client.stop(container, 0) if stop else client.kill(container, "KILL")
        assert word(ended(removed.result(LIMIT_SECONDS))) == "signaled 9"
    container = client.create(spec("true", auto_remove=True)).id
    removed = client.begin_wait(container, condition="removed")
    client.kill(container, "KILL")
    assert word(ended(removed.result(LIMIT_SECONDS))) == "unknown never-started"


def test_automatic_removal_is_done_by_the_next_daemon_if_this_one_was_away(daemon: Daemon) -> None:
    with daemon.client() as client:
        container = lives.up(client, auto_remove=True)
    daemon.kill()
    os.kill(container.init.pid, signal.SIGKILL)
    daemon.start()
    with daemon.client() as client:
        until(lambda: not client.list(all_of_them=True), "its removal")
        assert word(last_exit(client, container.id)) == "signaled 9"


@pytest.mark.parametrize("policy", ["sometimes", "on-failure:", "on-failure:-1", "always:3", "on-failure:x"])
def test_a_policy_that_does_not_exist_is_refused(client: Client, policy: str) -> None:
    with pytest.raises(BadRequest):
        client.create(spec("true", restart=policy))
    with pytest.raises(BadRequest, match="automatic removal"):
        client.create(spec("true", restart="always", auto_remove=True))
