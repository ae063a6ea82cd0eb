"""Signals to exitctl are passed to the container that it runs."""

import contextlib
import queue
import signal
import threading
from collections.abc import Callable

from supervisor.cli.app import complain
from supervisor.cli.signals import Signals
from supervisor.model.errors import ExitdError

FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)


class SignalProxy:
    """Signals wait in a queue until the container runs; a thread of the proxy's own sends them, since that may take a
    while."""

    def __init__(self, signals: Signals, kill: Callable[[str], None], give_up: Callable[[], None]) -> None:
        """`give_up` is called when a signal cannot be sent, so that nothing waits for output any longer."""
        self._signals = signals
        self._kill = kill
        self._give_up = give_up
        self._queue: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._started = threading.Event()
        self._stack = contextlib.ExitStack()

    def begin(self) -> None:
        threading.Thread(target=self._forward, name="proxy", daemon=True).start()
        self._stack.enter_context(self._signals.calling(FORWARDED, self._queue.put))

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
                # The container has ended, or the daemon is gone.
                complain(f"{signal.Signals(number).name} was not forwarded: {error}")
                self._give_up()
