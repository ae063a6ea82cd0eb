"""The clocks that exitd reads, behind one interface, so that rules about time can be tested with a made-up time."""

import time
from functools import cached_property
from pathlib import Path
from typing import Protocol

from supervisor.model.values import BootTime

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class Clock(Protocol):
    """Wall time is for people and may jump; timers use boot time, which also runs during suspend."""

    def now_ns(self) -> int:
        """CLOCK_REALTIME, nanoseconds since 1970."""

    def boottime_ns(self) -> int:
        """CLOCK_BOOTTIME, nanoseconds since the host booted."""

    def boot_id(self) -> str:
        """The id that differs for each boot of the host (random(4))."""


class SystemClock:
    """The clocks of this host."""

    def now_ns(self) -> int:
        return time.time_ns()

    def boottime_ns(self) -> int:
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME)

    def boot_id(self) -> str:
        return self._boot_id

    @cached_property
    def _boot_id(self) -> str:
        return BOOT_ID.read_text(encoding="ascii").strip()


def boot_now(clock: Clock) -> BootTime:
    """Return the present time in the form in which restart and retention times are stored."""
    return BootTime(clock.boot_id(), clock.boottime_ns())
