"""exitd's word of a living task's state, where the task's relay finds it: a link in the run directory whose text is the
state (docs/decisions/0055). It is there only while that state is certain, and is taken away before anything changes it.
So what the relay reads there is true whether exitd is busy, silent or away."""

import contextlib
import os

import structlog

from shim.names import STATE
from supervisor.containerd import tasks
from supervisor.engine.containers import Containers
from supervisor.model.errnos import said
from supervisor.model.errors import ShimFailed
from supervisor.model.values import Container, Phase
from supervisor.monitor.rundir import path_of

CERTAIN = frozenset({Phase.CREATED, Phase.RUNNING, Phase.PAUSED})  # in the others it changes, or nothing lives

log = structlog.get_logger(__name__)


def place_of(state: str, container: Container) -> str:
    return f"{path_of(state, container.id, container.run)}/{STATE}"


class StandingWords:
    """The words of all tasks; belongs to the node's event loop. A word is one link(2)-like call on exitd's own state
    directory, so it is written and taken away in the loop, in the same step that shows the container."""

    def __init__(self, containers: Containers, state: str) -> None:
        self._containers = containers
        self._state = state
        self._written: dict[str, str] = {}  # by container
        self._turning: dict[str, int] = {}  # changes under way, by container

    def look_up(self, container: Container) -> None:
        """Take away what an earlier exitd has written, unless it is what was stored. Raises OSError."""
        if _has_word(container):
            self._settle(container)

    def settle(self, container: Container) -> None:
        """Write what is shown from now on. A failure is logged: without a word the relay asks exitd."""
        if not _has_word(container):
            return
        try:
            self._settle(container)
        except OSError as error:
            log.warning("a task's state is not written for its relay", container=container.id, why=said(error))

    def turning(self, container: Container) -> None:
        """Take the word away, and write none until `turned`. Raises ShimFailed: nothing may be changed."""
        if not _has_word(container):
            return
        self._turning[container.id] = self._turning.get(container.id, 0) + 1
        try:
            self._settle(container)
        except OSError as error:
            self._end_turn(container.id)
            raise ShimFailed(f"{place_of(self._state, container)}: {said(error)}") from error

    def turned(self, container: Container) -> None:
        self._end_turn(container.id)
        self.settle(container)

    def forget(self, container_id: str) -> None:
        self._written.pop(container_id, None)
        self._turning.pop(container_id, None)

    def _end_turn(self, container_id: str) -> None:
        left = self._turning.pop(container_id, 1) - 1
        if left:
            self._turning[container_id] = left

    def _settle(self, container: Container) -> None:
        path, wanted = place_of(self._state, container), self._wanted(container)
        if container.id not in self._written:
            self._written[container.id] = _read(path)
        if wanted == self._written[container.id]:
            return
        if self._written[container.id]:
            with contextlib.suppress(FileNotFoundError):  # the run's directory is gone
                os.unlink(path)
            self._written[container.id] = ""
        if wanted and container.id not in self._containers.recovering:
            with contextlib.suppress(FileNotFoundError):
                os.symlink(wanted, path)
                self._written[container.id] = wanted

    def _wanted(self, container: Container) -> str:
        if container.damaged or container.id in self._turning or container.phase not in CERTAIN:
            return ""
        return tasks.WORDS[tasks.look(container).status]


def _has_word(container: Container) -> bool:
    """Of a pod's pause container that was made through the Sandbox service more is asked than its state."""
    return container.spec.task is not None and not tasks.is_sandbox(container)


def _read(path: str) -> str:
    try:
        return os.readlink(path)
    except FileNotFoundError:
        return ""
