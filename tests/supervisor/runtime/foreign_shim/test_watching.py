"""Ends as a scripted shim reports them: each reported once, none made up, whatever the shim answers to Wait."""

import asyncio
import errno
import os
import pathlib
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from supervisor.model.errors import ExitdError, NoSuchContainer, RuntimeFailed, ShimLost
from supervisor.model.values import Exited, Process, Report, RunKey, Signaled, Source, Unknown
from supervisor.monitor import probe
from supervisor.monitor.earlyholds import EarlyHolds
from supervisor.monitor.kernelword import BY_PIDFD, Executions
from supervisor.runtime.foreign_shim import watching
from supervisor.runtime.foreign_shim.connection import ShimState
from supervisor.runtime.foreign_shim.verdict import SHIM_LOST, UNDELETED, Deletion, ShimWord
from supervisor.runtime.foreign_shim.watching import ShimWatching, Watched, process_of
from tests.supervisor.descriptors import held_now, only, opened_since
from tests.supervisor.fakes import in_loop, until

KEY = RunKey("c1", 1)
EXEC = RunKey("c1", 1, "e1")
AT_NS = 5_000
NO_DESCRIPTOR = OSError(errno.EMFILE, "Too many open files")
RUNNING = ShimState("running", 42, 0, 0)
Answer = ShimWord | ExitdError | asyncio.Future[ShimWord]


@dataclass
class Script:
    """A peer whose shim answers each Wait with the next of `answers`, and State with `state`. After the last: never."""

    answers: list[Answer]
    state_is: ShimState | ExitdError = RUNNING
    asked: int = 0
    lost: asyncio.Event = field(default_factory=asyncio.Event)
    is_plain: bool = False
    refused: list[OSError] = field(default_factory=list)  # for want of a descriptor, before a connection
    never: asyncio.Event = field(default_factory=asyncio.Event)

    async def link(self) -> "Script":
        if self.lost.is_set():
            raise ShimLost("gone")
        if self.refused:
            raise self.refused.pop()
        return self

    async def wait(self, id: str, exec_id: str) -> ShimWord:
        self.asked += 1
        if not self.answers:
            await self.never.wait()
        answer = self.answers.pop(0)
        if isinstance(answer, ExitdError):
            raise answer
        return answer if isinstance(answer, ShimWord) else await answer

    async def state(self, id: str, exec_id: str) -> ShimState:
        if isinstance(self.state_is, ExitdError):
            raise self.state_is
        return self.state_is


class Reports(dict[RunKey, Report]):
    """What was reported; a second word on one process is a failure."""

    def __init__(self) -> None:
        super().__init__()
        self.came = asyncio.Event()

    def __call__(self, key: RunKey, report: Report) -> None:
        assert key not in self
        self[key] = report
        self.came.set()

    async def one(self, key: RunKey = KEY) -> Report:
        async with asyncio.timeout(60):
            while key not in self:
                self.came.clear()
                await self.came.wait()
        return self[key]


@contextmanager
def looking(kills: int = 0, early: EarlyHolds | None = None) -> Iterator[tuple[ShimWatching, Reports]]:
    reports, executions = Reports(), Executions(BY_PIDFD)
    found = ShimWatching(reports, lambda key: kills, zombie=True, kernel=BY_PIDFD, executions=executions, early=early)
    try:
        yield found, reports
    finally:
        found.close()


def begun(found: ShimWatching, script: Script, key: RunKey = KEY, init: Process | None = None) -> Watched:
    peer: Any = script
    watched = found.add(key, peer)
    if init is not None:
        found.hold(watched, init)
    found.begin(watched)
    return watched


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "AGAIN_SECONDS", 0.001)
    monkeypatch.setattr(watching, "BLIND_SECONDS", 0.001)


@contextmanager
def ended(*command: str) -> Iterator[Process]:
    """A process that has ended and lies there as a zombie."""
    child = subprocess.Popen(command)
    try:
        found = process_of(child.pid)
        assert found is not None
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        yield found
    finally:
        child.wait()


@contextmanager
def waiting(script: str) -> Iterator[Process]:
    """A process that ends when the test has it end."""
    child = subprocess.Popen(["sh", "-c", script])
    try:
        found = process_of(child.pid)
        assert found is not None
        yield found
    finally:
        child.kill()
        child.wait()


@in_loop
async def test_the_answer_to_wait_is_the_end() -> None:
    with looking(kills=1) as (found, reports):
        begun(found, Script([ShimWord(43, AT_NS)]))
        assert await reports.one() == Report(Exited(43), Source.SHIMV2_WAIT, None, AT_NS, 1, counted=False)


@in_loop
async def test_a_moment_without_descriptors_costs_no_end() -> None:
    """Neither where the shim is asked for it, nor where its cgroup is looked at."""
    full = [NO_DESCRIPTOR] * 3
    reports = Reports()

    def kills(key: RunKey) -> int:
        if full:
            raise full.pop()
        return 2

    found = ShimWatching(reports, kills, zombie=True, kernel=BY_PIDFD, executions=Executions(BY_PIDFD))
    script = Script([ShimWord(43, AT_NS)], refused=[NO_DESCRIPTOR] * 3)
    begun(found, script)
    assert await reports.one() == Report(Exited(43), Source.SHIMV2_WAIT, None, AT_NS, 2, counted=False)
    assert not full and not script.refused
    found.close()


@in_loop
async def test_before_a_lost_shim_is_deleted_the_count_of_its_cgroup_is_read_whenever_that_can_be() -> None:
    full, deleted = [NO_DESCRIPTOR], list[bool]()

    def kills(key: RunKey) -> int:
        if full:
            raise full.pop()
        return 0 if deleted else 2

    async def delete() -> Deletion:
        deleted.append(True)
        return Deletion(ShimWord(9, AT_NS))

    reports = Reports()
    found = ShimWatching(reports, kills, zombie=True, kernel=BY_PIDFD, executions=Executions(BY_PIDFD))
    watched = begun(found, Script([]))
    with pytest.raises(OSError, match="Too many"):
        await found.lose(watched.peer, delete)
    assert not deleted
    await found.lose(watched.peer, delete)
    assert deleted and (await reports.one()).oom_kills == 2
    found.close()


@in_loop
async def test_an_answer_without_a_time_is_no_end_and_wait_is_asked_again() -> None:
    with looking() as (found, reports):
        script = Script([ShimWord(0, 0), ShimWord(0, 0), ShimWord(7, AT_NS)])
        begun(found, script)
        assert (await reports.one()).status == Exited(7)
        assert script.asked == 3


@in_loop
async def test_a_lost_connection_is_no_end() -> None:
    with looking() as (found, reports):
        begun(found, Script([ShimLost("closed"), ShimLost("closed"), ShimWord(7, AT_NS)]))
        assert (await reports.one()).status == Exited(7)


@in_loop
async def test_where_wait_fails_state_may_know() -> None:
    with looking() as (found, reports):
        begun(found, Script([ShimWord(0, 0)], ShimState("stopped", 42, 43, AT_NS)))
        assert (await reports.one()).status == Exited(43)


@in_loop
async def test_a_shim_that_says_again_and_again_that_it_knows_no_such_process_is_believed_and_nothing_made_up() -> None:
    with looking() as (found, reports):
        script = Script([NoSuchContainer("gone")] * 5)
        begun(found, script)
        report = await reports.one()
        assert (report.status, report.source, script.asked) == (Unknown(SHIM_LOST), Source.NONE, 3)


@in_loop
async def test_one_refusal_between_answers_is_forgotten() -> None:
    with looking() as (found, reports):
        no = RuntimeFailed("busy")
        begun(found, Script([no, no, ShimWord(0, 0), no, no, ShimWord(9, AT_NS)]))
        assert (await reports.one()).status == Exited(9)


@in_loop
async def test_an_event_counts_when_wait_stays_silent_and_a_second_one_is_no_news(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("supervisor.runtime.foreign_shim.verdict.EVENT_PATIENCE_SECONDS", 0.01)
    with looking() as (found, reports):
        begun(found, Script([]))
        found.event_came(KEY, ShimWord(43, AT_NS))
        found.event_came(KEY, ShimWord(255, AT_NS))
        assert (await reports.one()) == Report(Exited(43), Source.SHIMV2_EVENT, None, AT_NS, counted=False)
        found.event_came(KEY, ShimWord(255, AT_NS))
    assert len(reports) == 1


@in_loop
async def test_an_event_counts_whatever_pid_it_has_where_none_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("supervisor.runtime.foreign_shim.verdict.EVENT_PATIENCE_SECONDS", 0.01)
    with looking() as (found, reports):
        begun(found, Script([]), init=Process(0, 0))
        found.event_came(KEY, ShimWord(43, AT_NS), 5_000_000)
        assert (await reports.one()).status == Exited(43)


@in_loop
async def test_an_event_of_nobody_is_none() -> None:
    with looking() as (found, reports):
        found.event_came(KEY, ShimWord(43, AT_NS))
    assert not reports


@in_loop
async def test_the_kernel_says_which_kind_of_end_a_number_over_128_is() -> None:
    with ended("sh", "-c", "kill -9 $$") as init, looking() as (found, reports):
        begun(found, Script([ShimWord(137, AT_NS)]), init=init)
        assert (await reports.one()) == Report(Signaled(signal.SIGKILL), Source.SHIMV2_WAIT, init, AT_NS, counted=False)


@in_loop
async def test_a_made_up_number_gives_way_to_what_the_kernel_saw() -> None:
    with ended("sh", "-c", "exit 43") as init, looking() as (found, reports):
        begun(found, Script([ShimWord(255, AT_NS)]), init=init)
        assert (await reports.one()) == Report(Exited(43), Source.PIDFD, init, AT_NS, counted=False)


@in_loop
async def test_of_one_that_was_reaped_before_its_look_up_the_kernels_word_is_had_if_it_was_held_before() -> None:
    async def delete() -> Deletion:
        return Deletion(failed=True)

    early, script = EarlyHolds(BY_PIDFD), Script([])
    with waiting("exec sleep 1000") as init:
        early.hold(KEY.container, init)
        os.kill(init.pid, signal.SIGKILL)
    with looking(early=early) as (found, reports):
        begun(found, script, init=init)
        peer: Any = script
        await found.lose(peer, delete)
        known = (Signaled(signal.SIGKILL), Source.PIDFD)
        unknown = (Unknown(UNDELETED), Source.NONE)
        assert (reports[KEY].status, reports[KEY].source) == (known if probe.pidfd().works else unknown)
        assert reports[KEY].at_is_found
    early.close()


@in_loop
async def test_a_pid_that_several_containers_have_reports_nothing_of_one() -> None:
    other = RunKey("c2", 1)
    with ended("sh", "-c", "exit 43") as init, looking() as (found, reports):
        begun(found, Script([]), key=other, init=init)
        begun(found, Script([ShimWord(255, AT_NS)]), init=init)
        report = await reports.one()
        assert (report.status, report.source) == (Unknown("shim-255", 255), Source.SHIMV2_WAIT)
        assert other not in reports


@in_loop
async def test_of_a_lost_shim_who_had_ended_before_has_his_code_and_the_rest_is_unknown() -> None:
    async def delete() -> Deletion:
        return Deletion(ShimWord(137, AT_NS))

    script = Script([])
    with ended("sh", "-c", "exit 43") as init, looking(kills=2) as (found, reports):
        begun(found, script, init=init)
        begun(found, script, key=EXEC)
        other = RunKey("c2", 1)
        begun(found, script, key=other)
        script.lost.set()
        peer: Any = script
        await found.lose(peer, delete)
        assert (reports[KEY].status, reports[KEY].source) == (Exited(43), Source.PIDFD)
        assert (reports[EXEC].status, reports[EXEC].source) == (Unknown(SHIM_LOST), Source.NONE)
        assert (reports[other].status, reports[other].source) == (Unknown(SHIM_LOST, 137), Source.SHIMV2_DELETE)
        assert {report.oom_kills for report in reports.values()} == {2}


@in_loop
async def test_an_end_is_dated_when_the_kernel_reported_it_and_else_said_to_be_found(tmp_path: pathlib.Path) -> None:
    async def delete() -> Deletion:
        return Deletion(failed=True)

    script, go = Script([]), tmp_path / "go"
    os.mkfifo(go)
    with waiting(f"read x < {go}; exit 43") as init, ended("true") as dead, looking() as (found, reports):
        watched = begun(found, script, init=init)
        begun(found, script, key=RunKey("c2", 1), init=dead)
        go.write_text("go\n")
        await until(lambda: watched.ended_ns > 0)
        later_ns = time.time_ns()
        peer: Any = script
        await found.lose(peer, delete)
        assert (reports[KEY].status, reports[KEY].at_is_found) == (Exited(43), False)
        assert reports[KEY].at_ns == watched.ended_ns <= later_ns
        assert reports[RunKey("c2", 1)].at_is_found


@in_loop
async def test_what_is_killed_past_its_shim_has_ended_by_the_kernels_word() -> None:
    with waiting("exec sleep 1000") as init, looking() as (found, reports):
        watched = begun(found, Script([]), init=init)
        assert found.force(watched, signal.SIGCONT) and not watched.forced
        assert found.force(watched, signal.SIGKILL)
        report = await reports.one()
        assert (report.status, report.source, report.at_is_found) == (Signaled(9), Source.ZOMBIE, False)


@in_loop
async def test_a_pid_that_may_be_others_too_is_not_signalled() -> None:
    with waiting("exec sleep 1000") as init, looking() as (found, _):
        script: Any = Script([])
        watched = found.add(KEY, script)
        found.hold(watched, init, own=False)
        assert not found.force(watched, signal.SIGKILL) and not watched.forced


@in_loop
async def test_a_failed_delete_leaves_no_number_and_is_named() -> None:
    async def delete() -> Deletion:
        return Deletion(failed=True)

    script = Script([])
    with looking() as (found, reports):
        begun(found, script)
        script.lost.set()
        peer: Any = script
        await found.lose(peer, delete)
        assert (reports[KEY].status, reports[KEY].source) == (Unknown(UNDELETED), Source.NONE)


@in_loop
async def test_closing_breaks_off_all_waits_and_leaves_no_descriptor() -> None:
    before = held_now()
    me = process_of(os.getpid())
    with looking() as (found, reports):
        watched = begun(found, Script([]), init=me)
        assert watched.init_fd >= 0
    assert not opened_since(before) and not reports


@in_loop
async def test_a_process_without_room_for_its_pidfd_is_held_when_there_is_some() -> None:
    with waiting("read line") as init, looking() as (found, reports):
        with only(0):
            watched = begun(found, Script([]), init=init)
        assert (watched.init, watched.init_fd, reports) == (init, -1, {})
        await until(lambda: watched.init_fd >= 0)
