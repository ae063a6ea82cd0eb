"""Somebody stands still (SIGSTOP), hangs or is dead while a container ends, starts again or is to be removed: nobody
waits for ever, nothing is touched late, nothing is reported twice."""

import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from supervisor.model.errors import ExitdError
from tests.system import lives, oracle
from tests.system.daemons import Daemon
from tests.system.oracle import Revived, begun, end_and_judge, inspect, shim_of
from tests.system.processes import gone, killed, stopped
from tests.system.runtimes import Gates
from tests.system.waits import LIMIT_SECONDS, until

# Of a command that hangs; an ordinary one, which is not to reach it, may have no processor for a second.
pytestmark = pytest.mark.observed("--runtime-seconds", "3")

FIRST_WAITS = "[ $code -gt 43 ] || read line </mnt/go"


def test_ends_while_the_daemon_stands_still_have_their_codes_and_the_times_at_which_they_happened(
    daemon: Daemon,
) -> None:
    subjects = [begun(daemon, code=code) for code in range(40, 46)]
    shims = [shim_of(daemon, subject) for subject in subjects]
    with stopped(daemon.pid):
        before = time.time_ns()
        for subject in subjects:
            subject.go()
        until(lambda: all(map(gone, shims)), "the shims wait for the daemon")
        after = time.time_ns()
    said = []
    for subject in subjects:
        oracle.over(Revived(daemon), subject)
        said.append(inspect(daemon, subject).exit)
    assert [exit_.code for exit_ in said] == list(range(40, 46))
    assert all(before <= exit_.at.ToNanoseconds() <= after for exit_ in said)
    assert set(end_and_judge(daemon, *subjects)) == {"exited by record"}


def test_a_shim_that_stands_still_does_not_hide_the_code_and_the_policy_goes_on(daemon: Daemon) -> None:
    subject = begun(daemon, FIRST_WAITS, restart="on-failure:1")
    with stopped(shim_of(daemon, subject)):
        subject.go()
        oracle.over(Revived(daemon), subject)
    with daemon.client() as client:
        assert [row.code for row in lives.ledger(client, subject.id)] == [43, 44]
    assert end_and_judge(daemon, subject) == ["exited by record", "exited by zombie"]


def test_a_shim_stopped_between_its_notice_and_its_delete_does_not_touch_the_next_run(
    daemon: Daemon, gates: Gates
) -> None:
    subject = begun(daemon, restart="always", runtime=str(gates.runtime))
    shim = shim_of(daemon, subject)
    gates.close("delete.before")
    subject.go()
    late = gates.reached("delete.before")
    with stopped(shim):
        until(lambda: len(subject.truth()) == 2, "the next run waits for a stopped shim")
        gates.open()
        until(lambda: gone(late) and gone(shim), "the old run's delete is still to come")
    second = inspect(daemon, subject)
    assert second.run == 2 and os.path.exists(f"/proc/{second.init.pid}")
    subject.go()
    until(lambda: len(subject.truth()) == 3, "the second run was not followed by a third")
    with daemon.client() as client:
        assert [row.code for row in lives.ledger(client, subject.id)] == [43, 44]
        client.stop(subject.id, 0)
    assert end_and_judge(daemon, subject) == ["exited by record", "exited by record", "signaled by record"]


def test_beside_a_keeper_that_stands_still_containers_are_made_and_end_and_nothing_is_doubled_later(
    daemon: Daemon,
) -> None:
    before = begun(daemon)
    with stopped(daemon.keeper_pid()):
        began = time.monotonic()
        during = begun(daemon, code=50)
        assert time.monotonic() - began < 8.0
        assert inspect(daemon, during).monitored_by == "shim"
        for subject in (before, during):
            subject.go()
            oracle.over(Revived(daemon), subject)
    after = begun(daemon, code=60)
    after.go()
    assert set(end_and_judge(daemon, before, during, after)) == {"exited by record"}


def test_beside_a_keeper_that_stands_still_several_are_made_at_once(daemon: Daemon) -> None:
    """What has its limit first ends the connection for all, and the keeper is not dead: nobody waits for a word of a
    shim that it has in its queue."""
    before = begun(daemon)
    with stopped(daemon.keeper_pid()), ThreadPoolExecutor(4) as pool:
        subjects = list(pool.map(lambda code: begun(daemon, code=code), range(40, 44)))
    log = daemon.log.read_text()
    assert '"no keeper, spawning the shim directly"' in log and "said nothing" not in log
    for subject in (before, *subjects):
        subject.go()
    assert set(end_and_judge(daemon, before, *subjects)) == {"exited by record"}


def test_after_the_keepers_death_new_containers_have_a_new_keeper_and_old_ones_their_shims(daemon: Daemon) -> None:
    old = begun(daemon)
    first = daemon.keeper_pid()
    with daemon.client() as client:
        until(lambda: client.info().keeper.pid == first, "exitd leaves the keeper alone")
    killed(first)
    new = begun(daemon, code=50)
    assert daemon.keeper_pid() not in (0, first)
    killed(shim_of(daemon, new))
    for subject in (old, new):
        subject.go()
    assert end_and_judge(daemon, old, new) == ["exited by keeper", "exited by record"]


def test_an_init_that_stands_still_is_removed_by_force(daemon: Daemon) -> None:
    subject = begun(daemon)
    os.kill(inspect(daemon, subject).init.pid, signal.SIGSTOP)
    with daemon.client() as client:
        client.remove(subject.id, force=True)
        (row,) = lives.ledger(client, subject.id)
        assert (row.kind, row.signal, row.reason, row.source) == ("signaled", signal.SIGKILL, "kill", "record")
    oracle.nothing_left(daemon)


def test_a_runtime_that_hangs_in_create_is_ended_at_its_limit_and_its_name_is_free(
    daemon: Daemon, gates: Gates
) -> None:
    gates.close("create.before")
    subject = oracle.observed(daemon, oracle.fresh_name(), runtime=str(gates.runtime))
    with daemon.client() as client:
        began = time.monotonic()
        with pytest.raises(ExitdError, match="did not end in 12 s"):
            client.create(subject.spec)
        assert time.monotonic() - began < 24.0
        hung = gates.reached("create.before")
        until(lambda: gone(hung), "the hanging command lives on")
        gates.open()
        subject.id = client.create(subject.spec).id
        client.start(subject.id)
    assert end_and_judge(daemon, subject) == ["exited by record"]


def test_a_runtime_that_hangs_in_start_after_its_work_has_not_failed(daemon: Daemon, gates: Gates) -> None:
    gates.close("start.after")
    subject = oracle.observed(daemon, oracle.fresh_name(), oracle.WHEN_TOLD, runtime=str(gates.runtime))
    with daemon.client() as client:
        subject.id = client.create(subject.spec).id
        client.start(subject.id)
        assert [event.type for event in lives.events(client, subject.id)] == ["create", "start"]
        waiting = client.begin_wait(subject.id)
        subject.go()
        assert lives.ended(waiting.result(LIMIT_SECONDS)).code == 43
    assert end_and_judge(daemon, subject) == ["exited by record"]
