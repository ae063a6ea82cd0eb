"""Threads that exist before there is work for them: pthread_create(3) fails when no process may be added (EAGAIN).

A ThreadPoolExecutor starts a thread when work arrives and no thread is idle. If that fails, `submit` raises but the
work stays queued: a caller that tries again has it done twice.
"""

import ctypes
import os
import threading
from concurrent.futures import ThreadPoolExecutor

from supervisor.model.errors import CannotStart

BEGIN_SECONDS = 30.0
M_MMAP_THRESHOLD = -3  # malloc.h
LARGE_BYTES = 1 << 20
CURE = "raise TasksMax= of its unit, pids.max of its cgroup, or the limit of processes (ulimit -u)"


def give_back_large() -> None:
    """Have the C library give memory of LARGE_BYTES and more back to the kernel whenever it is freed. By itself it
    raises that limit to what was freed, up to 32 MB, and keeps so much in the heap of each thread that has read a large
    file. Call it before the first thread begins. What MALLOC_MMAP_THRESHOLD_ says goes before. Source: mallopt(3)."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # musl has none, and always does so
    if mallopt is not None and "MALLOC_MMAP_THRESHOLD_" not in os.environ:
        mallopt(M_MMAP_THRESHOLD, LARGE_BYTES)


def usual() -> int:
    """Return the maximum number of threads in asyncio's own pool."""
    return min(32, (os.cpu_count() or 1) + 4)


def pool(threads: int, name: str) -> ThreadPoolExecutor:
    """Return an executor whose threads have all begun, so that no work ever needs a new one. Raises CannotStart when
    there is no room for them."""
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


def check_room(threads: int, what: str) -> None:
    """Raises CannotStart when so many threads cannot begin now. Returns after they have ended."""
    pool(threads, what).shutdown()


def start(thread: threading.Thread) -> None:
    """Start a thread. Raises CannotStart when there is no room for one more."""
    try:
        thread.start()
    except RuntimeError as error:
        raise CannotStart(f"no room for the thread {thread.name}; {CURE}") from error
