"""Reports to the service manager that the event loop turns: WatchdogSec= of systemd.service(5).

A thread of its own pings, and only after a turn of the loop. A loop that waits for a flush of the disk does not turn
and is no hang: killing exitd would not make the disk quicker. It is pinged for, and the status line says what it waits
for.
"""

import asyncio
import os
import threading
from collections.abc import Callable, MutableMapping

from supervisor.system import systemd, threads

SHARE = 4  # pings within the time of the manager's limit


def limit_seconds(environment: MutableMapping[str, str] = os.environ) -> float:
    """Return the manager's limit between two pings; 0 if it expects none of this process. The variables are removed:
    they are meant for no child."""
    limit, pid = environment.pop("WATCHDOG_USEC", ""), environment.pop("WATCHDOG_PID", "")
    if not (limit.isascii() and limit.isdigit()) or pid not in ("", str(os.getpid())):
        return 0.0
    return int(limit) / 1e6


class Watchdog:
    """The thread. Made in the loop that it watches."""

    def __init__(
        self,
        seconds: float,
        flushing: Callable[[], float],
        status: Callable[[], str],
        notify: Callable[..., bool] = systemd.notify,
    ) -> None:
        """`seconds`: the manager's limit. `flushing`: how long the loop has been waiting for a flush, in seconds; 0 if
        it is not. `status`: the line for when it no longer does. The first two are called in the thread."""
        self._seconds = seconds
        self._flushing = flushing
        self._status = status
        self._notify = notify
        self._loop = asyncio.get_running_loop()
        self._turned = True  # the loop, since the last ping
        self._is_held_up = False  # the status line says so
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="exitd-watchdog", daemon=True)

    def start(self) -> None:
        """Raises CannotStart."""
        threads.start(self._thread)

    def close(self) -> None:
        """Repeatable, and without effect before `start`."""
        self._ending.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._ending.wait(self._seconds / SHARE):
            self.look()

    def look(self) -> None:
        """Ping if the loop has turned since the last look, or waits for the disk."""
        if self._turned:
            self._turned = False
            self._notify("WATCHDOG=1", *self._no_longer_held_up())
            self._loop.call_soon_threadsafe(self._turn)
        elif (seconds := self._flushing()) > 0:
            self._is_held_up = True
            self._notify("WATCHDOG=1", f"STATUS=waiting for the disk: a flush has taken {seconds:.0f} s so far")

    def _no_longer_held_up(self) -> tuple[str, ...]:
        if not self._is_held_up:
            return ()
        self._is_held_up = False
        return (f"STATUS={self._status()}",)

    def _turn(self) -> None:
        self._turned = True
