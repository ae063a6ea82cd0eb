"""The count of this process's descriptors, for tests of what opens and closes some."""

import gc
import os


def open_now() -> list[str]:
    """Without those that garbage of earlier tests has held until now."""
    gc.collect()
    return sorted(os.listdir("/proc/self/fd"))
