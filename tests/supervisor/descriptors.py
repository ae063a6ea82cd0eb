"""This process's descriptors, for tests of what opens and closes some, and of what does without."""

import contextlib
import gc
import os
import resource
from collections import Counter
from collections.abc import Iterator


def open_now() -> list[str]:
    """Without those that garbage of earlier tests has held until now."""
    gc.collect()
    return sorted(os.listdir("/proc/self/fd"))


def held_now() -> Counter[str]:
    """What they lead to, each as often as it is held."""
    gc.collect()
    found = Counter[str]()
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):
            found[os.readlink(f"/proc/self/fd/{number}")] += 1
    return found


def opened_since(before: Counter[str]) -> Counter[str]:
    """What is held beyond that. Less is no harm, nor are other numbers: threads that earlier tests have left close and
    exchange theirs when they come to it."""
    return held_now() - before


@contextlib.contextmanager
def only(more: int) -> Iterator[None]:
    """For the length of the block so many more descriptors can be opened; for the next one: EMFILE."""
    gc.collect()
    gc.disable()  # what it closed inside the block would be room
    free = [os.dup(0) for _ in range(more + 1)]
    for fd in free:
        os.close(fd)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(free), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        gc.enable()
