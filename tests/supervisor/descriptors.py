"""This process's descriptors, for tests of what opens and closes some, and of what does without."""

import contextlib
import gc
import os
import resource
from collections.abc import Iterator


def open_now() -> list[str]:
    """Without those that garbage of earlier tests has held until now."""
    gc.collect()
    return sorted(os.listdir("/proc/self/fd"))


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
