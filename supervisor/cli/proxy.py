"""Signals to exitctl are passed to the container that it runs."""

import contextlib
import queue
import signal
import threading
import time
from collections.abc import Callable

from supervisor.cli.app import complain
from supervisor.cli.away import GONE
from supervisor.cli.signals import Signals
from supervisor.model.errors import ExitdError

LEAVE_PRESSES, LEAVE_SECONDS = 3, 2.0
FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)


class Presses:
    """Counts ctrl-c. Pure."""

    def __init__(self) -> None:
        self._times: list[float] = []

    def is_last(self, now: float) -> bool:
        """Return whether this is the third within LEAVE_SECONDS."""
        self._times = [*(each for each in self._times if now - each < LEAVE_SECONDS), now]
        return len(self._times) >= LEAVE_PRESSES


class SignalProxy:
    """Signals wait in a queue until the container runs; a thread of the proxy's own sends them, since that may take a
    while."""

    def __init__(
        self, signals: Signals, kill: Callable[[str], None], give_up: Callable[[], None], leave: Callable[[], None]
    ) -> None:
        """`give_up` is called when a signal cannot be sent, so that nothing waits for output any longer. `leave` is
        called for the third ctrl-c within a short time, which is not sent: the first two have had no effect."""
        self._signals = signals
        self._kill = kill
        self._give_up = give_up
        self._leave = leave
        self._presses = Presses()
        self._queue: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._started = threading.Event()
        self._stack = contextlib.ExitStack()

    def begin(self) -> None:
        threading.Thread(target=self._forward, name="proxy", daemon=True).start()
        self._stack.enter_context(self._signals.calling(FORWARDED, self._came))

    def _came(self, number: int) -> None:
        """In the signals' thread."""
        if number == signal.SIGINT and self._presses.is_last(time.monotonic()):
            self._leave()
        else:
            self._queue.put(number)

    def started(self) -> None:
        """Call it when the container runs; signals that came before are delivered now."""
        self._started.set()

    def end(self) -> None:
        self._stack.close()
        self._queue.put(0)
        self._started.set()

    def _forward(self) -> None:
        self._started.wait()
        while number := self._queue.get():
            try:
                self._kill(str(number))
            except ExitdError as error:
                complain(f"{signal.Signals(number).name} was not forwarded: {error}")
                if isinstance(error, GONE):  # else it has ended, which is reported by itself
                    self._give_up()
