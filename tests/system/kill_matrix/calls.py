"""exitd killed, or stopped, at one of its system calls, by strace: which calls a life has, and one life for each. And a
C program that halts behind one of its calls."""

import contextlib
import os
import pathlib
import random
import re
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import TypeVar

from tests.system.daemons import Daemon
from tests.system.oracle import Revived
from tests.system.processes import state_of
from tests.system.waits import LIMIT_SECONDS, SCALE, until

SEED = 20_263
# What changes something outside of the process, or reports it to somebody.
CALLS = (
    *("mkdir", "mkdirat", "mknod", "mknodat", "fallocate", "openat", "rename", "unlink", "unlinkat", "rmdir"),
    *("mount", "umount2", "pwrite64", "write", "fdatasync", "fsync", "ftruncate", "flock", "vfork", "clone3"),
    *("sendmsg", "recvmsg", "epoll_ctl", "pidfd_open", "pidfd_send_signal", "kill", "wait4", "waitid", "close"),
)
Call = tuple[str, int]  # a system call, and which one of that name in a thread's life
L = TypeVar("L")


@contextlib.contextmanager
def traced(daemon: Daemon, *options: str) -> Iterator[None]:
    """All threads that exitd has now are traced; none of the children it is going to have. It is up after the block:
    it may have come to a call that kills it when all was over."""
    threads = os.listdir(f"/proc/{daemon.pid}/task")
    words = [word for thread in threads for word in ("-p", thread)]
    tracer = subprocess.Popen(["strace", "-qq", *options, *words], stderr=subprocess.DEVNULL)
    try:
        until(lambda: all(_is_traced(daemon.pid, thread) for thread in threads), "strace does not attach")
        yield
    finally:
        tracer.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):  # told in the moment its own signal kills: it may hang
            tracer.wait(LIMIT_SECONDS / 10)
        tracer.kill()
        tracer.wait(LIMIT_SECONDS)
    # One that sleeps has come past its last stop: what the tracer has sent it has killed exitd, or never will.
    for thread in threads:
        until(partial(_rests, daemon.pid, thread), f"thread {thread} of exitd does not come to rest")
    Revived(daemon).revive()


def _is_traced(pid: int, thread: str) -> bool:
    return "TracerPid:\t0\n" not in _status(pid, thread)


def _rests(pid: int, thread: str) -> bool:
    status = _status(pid, thread)
    return not status or "State:\tS" in status or "State:\tZ" in status


def _status(pid: int, thread: str) -> str:
    """Empty when it has gone."""
    try:
        return pathlib.Path(f"/proc/{pid}/task/{thread}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""


@contextlib.contextmanager
def hit_at(daemon: Daemon, call: Call, signal_name: str = "KILL") -> Iterator[None]:
    """For the block: exitd gets the signal when one of its threads comes to this call."""
    name, number = call
    inject = f"inject={name}:signal={signal_name}:when={number}"
    with traced(daemon, "-o", "/dev/null", "-e", f"trace={name}", "-e", inject):
        yield


@contextlib.contextmanager
def halting(pid: int, call: Call) -> Iterator[Callable[[], None]]:
    """For the block: a program of one thread halts when it has done this call, as they count from now on. What is
    yielded waits until it halts, once the caller has seen what the call does. Behind the block it goes on, unless it
    was killed or stopped meanwhile: who dies in the block is seen dead behind it, when its tracer has gone."""
    name, number = call
    halts = f"inject={name}:delay_exit={int(2 * LIMIT_SECONDS * 1_000_000)}:when={number}"
    command = ["strace", "-qq", "-o", "/dev/null", "-e", f"trace={name}", "-e", halts, "-p", str(pid)]
    tracer = subprocess.Popen(command, stderr=subprocess.DEVNULL)

    def reached() -> None:
        until(lambda: state_of(pid) == "t", f"{pid} does not come to its {name} {number}")

    try:
        until(lambda: _is_traced(pid, str(pid)), "strace does not attach")
        yield reached
    finally:
        tracer.terminate()
        tracer.wait(LIMIT_SECONDS)


def is_dead(pid: int) -> bool:
    """Whoever reaps it may take a moment."""
    return state_of(pid) in ("", "Z")


def calls_of(daemon: Daemon, life: Callable[[], object], calls: tuple[str, ...] = CALLS) -> list[Call]:
    """Every call of one whole life, as strace counts them: by thread."""
    trace = daemon.base / "trace"
    with traced(daemon, "-o", str(trace), "-e", f"trace={','.join(calls)}"):
        life()
    by_thread = Counter(re.findall(r"^(\d+) +(\w+)\(", trace.read_text(), flags=re.M))
    most: dict[str, int] = {}
    for (_, call), count in by_thread.items():
        most[call] = max(most.get(call, 0), count)
    return [(call, number) for call, count in sorted(most.items()) for number in range(1, count + 1)]


def chosen(cases: list[Call], count: int) -> list[Call]:
    """All at full scale; else some of each call, the same every time."""
    if SCALE >= 1:
        return cases
    pick = random.Random(SEED)
    first = [pick.choice([case for case in cases if case[0] == call]) for call in dict(cases)]
    return pick.sample(first, min(count, len(first)))


def killed_at_each(
    daemon: Daemon,
    count: int,
    life: Callable[[], L],
    judge: Callable[[L, str], Counter[str]],
    calls: tuple[str, ...] = CALLS,
    least_deaths: int = 1,
) -> Counter[str]:
    """One life by which the calls are learned, then one for each of those chosen. What was said about all of them.
    So many kills at least must have come before their life was over."""
    said, deaths = Counter[str](), 0
    for call in chosen(calls_of(daemon, life, calls), count):
        before = daemon.pid
        with hit_at(daemon, call):
            lived = life()
        deaths += daemon.pid != before
        said += judge(lived, f"{call[0]} {call[1]}")
    print(deaths, dict(said))
    assert deaths >= least_deaths, f"only {deaths} kills came in time"
    return said
