"""Signals to exitctl are passed to the container that it runs."""

import queue
import signal
import threading
from collections.abc import Callable
from types import FrameType

from supervisor.cli.app import complain
from supervisor.cli.terminal import Handlers
from supervisor.model.errors import ExitdError

FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)


class SignalProxy:
    """The handler only puts signals into a queue: a gRPC call inside it could wait for a lock that the interrupted
    thread holds."""

    def __init__(self, kill: Callable[[str], None], give_up: Callable[[], None]) -> None:
        """`give_up` is called when a signal cannot be sent, so that nothing waits for output any longer."""
        self._kill = kill
        self._give_up = give_up
        self._queue: queue.SimpleQueue[int] = queue.SimpleQueue()  # its put is reentrant, made for this
        self._started = threading.Event()
        self._handlers = Handlers()

    def begin(self) -> None:
        threading.Thread(target=self._forward, name="signals", daemon=True).start()
        self._handlers.put(FORWARDED, self._noticed)

    def started(self) -> None:
        """Call it when the container runs; signals that came before are delivered now."""
        self._started.set()

    def end(self) -> None:
        self._handlers.restore()
        self._queue.put(0)
        self._started.set()

    def _noticed(self, number: int, _: FrameType | None) -> None:
        self._queue.put(number)

    def _forward(self) -> None:
        self._started.wait()
        while number := self._queue.get():
            try:
                self._kill(str(number))
            except ExitdError as error:
                # The container has ended, or the daemon is gone.
                complain(f"{signal.Signals(number).name} was not forwarded: {error}")
                self._give_up()
