"""What a process is doing, by pid and start time: a stranger with the pid is not it."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from shim import native
from supervisor.model.values import Process
from supervisor.monitor import procfs
from tests.system.waits import until


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    made = subprocess.Popen(["sleep", "1000"])
    yield made
    made.kill()
    made.wait()


def named(child: subprocess.Popen[bytes]) -> Process:
    return Process(child.pid, native.process_stat(child.pid)[2])


def test_a_stopped_process_is_told_from_one_that_runs(child: subprocess.Popen[bytes]) -> None:
    process = named(child)
    assert not procfs.is_stopped(process)
    child.send_signal(signal.SIGSTOP)
    until(lambda: procfs.is_stopped(process), "not stopped")
    assert not procfs.is_stopped(Process(process.pid, process.started_ticks + 1))


def test_the_dead_and_the_strange_are_ending(child: subprocess.Popen[bytes]) -> None:
    process = named(child)
    assert not procfs.is_ending(process)
    assert procfs.is_ending(Process(process.pid, process.started_ticks + 1))
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert procfs.is_ending(process)
    child.wait()
    assert procfs.is_ending(process)


WITHOUT_ITS_FIRST = """
import ctypes, sys, threading
threading.Thread(target=sys.stdin.read).start()
ctypes.CDLL(None).pthread_exit(None)
"""


def test_a_process_whose_first_thread_has_ended_lives_while_another_does() -> None:
    with subprocess.Popen([sys.executable, "-c", WITHOUT_ITS_FIRST], stdin=subprocess.PIPE) as it:
        process = named(it)
        until(lambda: native.process_stat(it.pid)[0] == "Z", "its first thread has not ended")
        assert not procfs.is_ending(process)
        assert it.stdin is not None
        it.stdin.close()
        os.waitid(os.P_PID, it.pid, os.WEXITED | os.WNOWAIT)
        assert procfs.is_ending(process)


def test_each_thread_says_whether_it_is_dead_or_about_to_be(child: subprocess.Popen[bytes]) -> None:
    (thread,) = procfs.threads(child.pid, 1)
    assert (thread.tid, thread.is_dead, thread.is_ending) == (child.pid, False, False)
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    (thread,) = procfs.threads(child.pid, 1)
    assert thread.is_dead and thread.is_ending
    child.wait()
    assert list(procfs.threads(child.pid, 1)) == []


def test_more_threads_than_may_be_read_are_not_read(child: subprocess.Popen[bytes]) -> None:
    with pytest.raises(OSError, match="too long"):
        list(procfs.threads(child.pid, 0))
