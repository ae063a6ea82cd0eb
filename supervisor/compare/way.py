"""What every way to run pods is asked for, so that all are measured by the same steps."""

import contextlib
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from shim.frozen import frozen
from supervisor.compare.group import ProcessGroup
from supervisor.compare.machine import Work
from supervisor.model.values import UNKNOWN_NUMBER, Exited, ExitStatus, Signaled, Unknown, fold

NO_ANSWER_SECONDS = 10.0  # then a way has none


@dataclass(slots=True)
class WayContainer:
    """A container that runs. `pidfd` is init's."""

    id: str
    pid: int
    pidfd: int = -1

    def hold(self) -> "WayContainer":
        self.pidfd = os.pidfd_open(self.pid)
        return self

    def kill(self) -> None:
        """Kill its init. Raises ProcessLookupError when it has ended."""
        signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)

    def end(self) -> None:
        """Kill it, unless it has ended or was closed."""
        if self.pidfd >= 0:
            with contextlib.suppress(ProcessLookupError):
                self.kill()

    def close(self) -> None:
        if self.pidfd >= 0:
            os.close(self.pidfd)
            self.pidfd = -1


@frozen
class WayPod:
    """A pause container and its members, as they were asked for."""

    id: str
    pause: WayContainer
    members: tuple[WayContainer, ...]

    @property
    def containers(self) -> tuple[WayContainer, ...]:
        return (self.pause, *self.members)


@frozen
class WayAnswer:
    """What a way says of an end. `status` None: it has no answer. `folded`: its one number may stand for a signal."""

    words: str
    status: ExitStatus | None
    folded: bool = False


Wait = Callable[[float], WayAnswer]  # blocks that many seconds at most; TimeoutError


class Driver(Protocol):
    """One way with daemons and directories of its own. `group`: they and the monitors are in it."""

    group: ProcessGroup

    def prepare(self, id: str, works: Sequence[Work]) -> object:
        """Make what must be there before a pod can be asked for: files alone."""

    def start(self, prepared: object) -> WayPod:
        """Start a pod: pause container and members run when this returns."""

    def begin_wait(self, container: WayContainer) -> Wait:
        """Ask, as a client that waits for the end. Return what blocks until it is known."""

    def answer(self, container: WayContainer, seconds: float = NO_ANSWER_SECONDS) -> WayAnswer:
        """Ask for its end now, also a daemon that is only just coming back, for so many seconds."""

    def answers_for(self, containers: Sequence[WayContainer]) -> bool:
        """Whether the daemon says of each that it runs."""

    def end(self, pod: WayPod) -> None:
        """Remove everything of the pod, whatever has become of it."""

    def beside(self, pod: WayPod) -> list[int]:
        """Return the pids of the processes that stay with the pod beside the containers' own."""

    def daemons(self) -> list[int]: ...
    def victims(self, pod: WayPod) -> Mapping[str, int]:
        """Return who could be missing when its first member ends: pids by name."""

    def kill_daemon(self) -> bool:
        """Kill the daemon, and await its end. Return False if this way has none."""

    def start_daemon(self) -> None:
        """Start the daemon again, and wait until it answers; do nothing while it runs."""

    def close(self) -> None: ...


def number_answer(number: int, words: str = "") -> WayAnswer:
    """Return the answer of a way that has a single number for every end: 255 is its word for not knowing."""
    said = words or str(number)
    return WayAnswer(said, Unknown(said, number) if number == UNKNOWN_NUMBER else Exited(number), folded=True)


def verdict(truth: ExitStatus, answer: WayAnswer) -> str:
    """Return right | unknown | wrong | lost."""
    if answer.status is None:
        return "lost"
    if isinstance(answer.status, Unknown):
        return "unknown"
    same = fold(answer.status) == fold(truth) if answer.folded else _plain(answer.status) == _plain(truth)
    return "right" if same else "wrong"


def words_of(status: ExitStatus) -> str:
    """Return the status in the words of the report."""
    match status:
        case Exited(code):
            return f"exited {code}"
        case Signaled(number, _):
            return f"signal {number}"
        case Unknown(cause, _):
            return f"unknown: {cause}"


def _plain(status: ExitStatus) -> ExitStatus:
    """Return the status without whether it dumped core, which is the host's setting."""
    return Signaled(status.signal) if isinstance(status, Signaled) else status
