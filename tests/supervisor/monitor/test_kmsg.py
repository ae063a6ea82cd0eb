"""The kernel's log as it is read: a pipe that keeps records apart stands in for it."""

import contextlib
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from signal import SIGKILL

import pytest

from supervisor.model.values import Exited, Process, Report, Signaled, Source
from supervisor.monitor import kmsg
from supervisor.monitor.kernellog import KnownKills, MemoryKill
from supervisor.monitor.kmsg import KernelLog
from tests.supervisor.descriptors import held_now, opened_since
from tests.supervisor.fakes import in_loop
from tests.supervisor.monitor.test_kernellog import INNER, chosen, killed, record

INIT = Process(28900, int(time.clock_gettime(time.CLOCK_BOOTTIME) * kmsg.TICKS))
UNCOUNTED = Report(Signaled(SIGKILL), Source.RECORD, INIT, 1, counted=False)


@dataclass
class Kernel:
    """Its log's other end."""

    write_fd: int
    log: KernelLog

    def writes(self, *texts: bytes) -> None:
        for text in texts:
            os.write(self.write_fd, record(text, time.monotonic_ns() // 1000))

    def kills(self, pid: int = INIT.pid) -> None:
        self.writes(b"tail invoked oom-killer", chosen(pid, f"/{INNER}"), killed(pid))


@contextlib.contextmanager
def opened() -> Iterator[Kernel]:
    before = held_now()
    read_fd, write_fd = os.pipe2(os.O_DIRECT | os.O_CLOEXEC | os.O_NONBLOCK)  # room for 16 records
    made = Kernel(write_fd, KernelLog(f"/proc/self/fd/{read_fd}"))
    try:
        yield made
    finally:
        made.log.close()
        made.log.close()
        os.close(read_fd)
        os.close(write_fd)
    assert not opened_since(before)


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Iterator[Kernel]:
    monkeypatch.setattr(kmsg, "FIRST_PID_NAMESPACE", os.stat("/proc/self/ns/pid").st_ino)
    with opened() as made:
        yield made


@in_loop
async def test_a_kill_that_no_counter_has_is_found_in_the_log(kernel: Kernel) -> None:
    kernel.kills()
    assert (await kernel.log.weigh(UNCOUNTED, INNER, KnownKills())).oom_kills == 1


@in_loop
async def test_the_log_is_read_on_and_what_was_read_is_known_still(kernel: Kernel) -> None:
    assert (await kernel.log.weigh(UNCOUNTED, INNER, KnownKills())).oom_kills == 0
    kernel.kills(5)
    kernel.kills(6)
    ended = Report(Exited(7), Source.RECORD, INIT, 1, counted=False)
    for _ in range(2):
        assert (await kernel.log.weigh(ended, INNER, KnownKills())).oom_kills == 2


@in_loop
async def test_a_count_that_leaves_nothing_open_is_not_looked_behind(kernel: Kernel) -> None:
    kernel.kills()
    counted = Report(Exited(0), Source.RECORD, INIT, 1)
    assert await kernel.log.weigh(counted, INNER, KnownKills()) is counted


def test_only_so_many_kills_are_kept(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kmsg, "KILLS_MAX", 3)
    with opened() as few:
        for pid in (16, 17, 18, 19):
            few.kills(pid)
        assert [kill.pid for kill in few.log.read()] == [17, 18, 19]


def test_one_look_ends_however_fast_the_log_grows(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kmsg, "RECORDS_MAX", 4)
    for pid in (5, 6):
        kernel.kills(pid)
    assert [kill.pid for kill in kernel.log.read()] == [5]
    assert [kill.pid for kill in kernel.log.read()] == [5, 6]


@in_loop
async def test_without_a_log_a_report_stays_as_it_is() -> None:
    log = KernelLog("/nowhere/kmsg")
    for _ in range(2):
        assert await log.weigh(UNCOUNTED, INNER, KnownKills()) is not None
        assert log.read() == ()
    log.close()


@in_loop
async def test_in_a_pid_namespace_the_numbers_of_the_log_are_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kmsg, "FIRST_PID_NAMESPACE", 1)
    with opened() as kernel:
        kernel.kills()
        assert (await kernel.log.weigh(UNCOUNTED, INNER, KnownKills())).oom_kills == 0


@in_loop
async def test_what_has_come_since_is_weighed_at_once_as_by_the_thread(kernel: Kernel) -> None:
    before = kernel.log.weigh_at_once(UNCOUNTED, INNER, KnownKills())
    assert before == await kernel.log.weigh(UNCOUNTED, INNER, KnownKills())
    kernel.kills()
    after = kernel.log.weigh_at_once(UNCOUNTED, INNER, KnownKills())
    assert after == await kernel.log.weigh(UNCOUNTED, INNER, KnownKills())
    assert after is not None and after.oom_kills == 1


@in_loop
async def test_a_long_log_is_the_threads_and_so_is_one_that_a_thread_reads(
    kernel: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kmsg, "FEW_RECORDS", 2)
    kernel.kills()  # three records
    assert kernel.log.weigh_at_once(UNCOUNTED, INNER, KnownKills()) is None
    with kernel.log._reading:
        assert kernel.log.weigh_at_once(UNCOUNTED, INNER, KnownKills()) is None
    weighed = kernel.log.weigh_at_once(UNCOUNTED, INNER, KnownKills())
    assert weighed is not None and weighed.oom_kills == 1


def test_the_machines_own_log_is_read_to_its_end() -> None:
    log = KernelLog()
    assert all(isinstance(kill, MemoryKill) for kill in log.read())
    log.close()
