"""Threads that are there before there is work for them: pthread_create(3) fails where no process may be added (EAGAIN).

A ThreadPoolExecutor starts a thread when work comes that no thread waits for. Where that fails, `submit` raises and the
work stays queued all the same: a caller that tries again has it done twice.
"""

import os
import threading
from concurrent.futures import ThreadPoolExecutor

from supervisor.model.errors import CannotStart

BEGIN_SECONDS = 30.0
CURE = "raise TasksMax= of its unit, pids.max of its cgroup, or the limit of processes (ulimit -u)"


def usual() -> int:
    """How many threads asyncio's own pool would have at most."""
    return min(32, (os.cpu_count() or 1) + 4)


def pool(threads: int, name: str) -> ThreadPoolExecutor:
    """An executor whose threads have all begun, so that no work ever needs a new one. CannotStart: there is no room
    for them."""
    executor = ThreadPoolExecutor(threads, name)
    all_there = threading.Barrier(threads + 1)
    try:
        for _ in range(threads):
            executor.submit(all_there.wait)
        all_there.wait(BEGIN_SECONDS)
    except (RuntimeError, threading.BrokenBarrierError) as error:
        all_there.abort()
        executor.shutdown(wait=False, cancel_futures=True)
        raise CannotStart(f"no room for {threads} threads of {name}; {CURE}") from error
    return executor


def start(thread: threading.Thread) -> None:
    """Start it. CannotStart: there is no room for one more thread."""
    try:
        thread.start()
    except RuntimeError as error:
        raise CannotStart(f"no room for the thread {thread.name}; {CURE}") from error
