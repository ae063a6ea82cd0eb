"""The tasks of a containerd, present and new ones: reported by its events, and listed now and then.

Events report a task at once. But a subscription has no answer that says from when on it counts, and a connection may
break. So the tasks are also listed, when the connection is made, soon after, and then every 30 seconds.
"""

import asyncio
import contextlib
import os
from collections.abc import AsyncGenerator, Callable
from types import TracebackType
from typing import NoReturn, Protocol, Self

import structlog

from shim.frozen import frozen
from supervisor.external.enginenames import EngineNames
from supervisor.model import foreign, whose
from supervisor.model.errors import BadRequest, Busy, ExitdError, NoSuchProcess, NotPermitted, TimedOut
from supervisor.model.values import NO_NAMES, Names
from supervisor.model.watched import FoundProcess, Target
from supervisor.system import room
from supervisor.system.aside import Aside
from supervisor.system.background import Background, pauses

LIST_AFTER_SECONDS = (0.0, 1.0, 5.0, 30.0)  # the last one is repeated
AGAIN_SECONDS = (0.2, 0.5, 1.0, 2.0)  # from a broken connection to the next attempt; the last one is repeated
ROOM_SECONDS = 1.0  # from a task for which there was no room to the next list
FIRST_SECONDS = 10.0
DOCKER_NAMESPACE = "moby"
NAMES_AT_ONCE, MOST_NAMING = 8, 1000  # questions for the names of tasks, in all

log = structlog.get_logger(__name__)


class NoAnswer(Exception):
    """containerd is not there, or did not do what was asked."""


@frozen
class LiveTask:
    """A task of containerd that has a process."""

    namespace: str
    id: str
    pid: int


class TasksApi(Protocol):
    """The part of containerd's API that is used. Raises NoAnswer."""

    async def __aenter__(self) -> Self: ...
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
    async def tasks(self) -> tuple[LiveTask, ...]: ...
    async def names(self, namespace: str, id: str) -> Names:
        """Return what the container of a task is called; no names for one that is gone."""

    def beginnings(self) -> AsyncGenerator[LiveTask, None]:
        """Yield the tasks that begin; ends when the connection does."""


class Watcher(Protocol):
    """The part of the observer that is used."""

    async def observe(self, found: FoundProcess) -> object: ...
    def lacks_names(self, container: str) -> bool:
        """Return whether a process of this container is watched whose names are not known."""

    async def name(self, container: str, names: Names) -> None:
        """Note its names."""


class ContainerdTasks:
    """Watches the tasks of one socket."""

    def __init__(self, target: Target, connect: Callable[[str], TasksApi], observer: Watcher) -> None:
        self.trouble = ""
        self._socket = target.where
        self._writer = whose.ANY_USER  # until it is known who owns the socket
        self._connect = connect
        self._observer = observer
        self._naming = Background()
        self._names_at_once = asyncio.Semaphore(NAMES_AT_ONCE)
        self._on_disk = EngineNames()
        self._looks = Aside(most_at_once=1)  # the caller that asked for the watch has named the socket
        self._readings = Aside(most_at_once=1)  # of files with names, which hold up no look at a task
        self._listed = asyncio.Event()
        self._missing = asyncio.Event()  # there was no room to look at a task: it is in the next list, which comes soon
        self._task: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        """Return when the present tasks have been looked at, or that has failed."""
        self._task = asyncio.create_task(self._forever())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FIRST_SECONDS):
                await self._listed.wait()

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        await self._naming.close()

    async def _forever(self) -> None:
        """A client that cannot be made, for lack of descriptors as a rule, is made again."""
        said = ""
        while True:
            try:
                async with self._connect(self._socket) as api:
                    await self._ask(api)
            except Exception as error:
                if str(error) != said:
                    log.exception("no client of a containerd, trying again", socket=self._socket)
                said = str(error)
                self.trouble = f"containerd on {self._socket} cannot be asked: {error}"
            self._listed.set()
            await asyncio.sleep(AGAIN_SECONDS[-1])

    async def _ask(self, api: TasksApi) -> NoReturn:
        attempt, said = 0, ""
        while True:
            why = await self._until_broken(api)
            attempt = 0 if not self.trouble else attempt + 1
            if not attempt or why != said:
                log.warning("containerd does not answer, trying again until it does", socket=self._socket, why=why)
            said, self.trouble = why, f"containerd does not answer on {self._socket}: {why}"
            self._listed.set()
            await asyncio.sleep(AGAIN_SECONDS[min(attempt, len(AGAIN_SECONDS) - 1)])

    async def _until_broken(self, api: TasksApi) -> str:
        """Return the reason why the connection broke."""
        why = ""
        try:
            async with asyncio.TaskGroup() as together:
                together.create_task(self._hear(api))
                together.create_task(self._list(api))
        except* NoAnswer as errors:
            why = str(errors.exceptions[0])
        except* Exception as errors:
            log.exception("watching a containerd failed", socket=self._socket)
            why = str(errors.exceptions[0])
        return why

    async def _hear(self, api: TasksApi) -> None:
        async with contextlib.aclosing(api.beginnings()) as tasks:
            async for task in tasks:
                await self._look(task, api)
        raise NoAnswer("it has ended the connection")

    async def _list(self, api: TasksApi) -> None:
        for seconds in pauses(LIST_AFTER_SECONDS):
            await self._rest(seconds)
            self._missing.clear()
            tasks = await api.tasks()
            self.trouble = ""
            for task in tasks:
                await self._look(task, api)
            self._listed.set()

    async def _rest(self, seconds: float) -> None:
        """Wait so long, or ROOM_SECONDS once a task is missing."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._missing.wait()
                await asyncio.sleep(ROOM_SECONDS)

    async def _look(self, task: LiveTask, api: TasksApi) -> None:
        with contextlib.suppress(OSError, TimedOut, Busy):  # it is made anew just now; what it was before is not asked
            self._writer = await self._looks.run(f"looking at {self._socket}", lambda: os.stat(self._socket).st_uid)
        found = foreign.task_found(self._socket, task.namespace, task.id, task.pid, self._writer)
        try:
            await self._observer.observe(found)
        except (NoSuchProcess, NotPermitted, BadRequest) as error:
            log.warning("a task that could not be watched", container=found.container, why=str(error))
        except (ExitdError, OSError) as error:
            self._miss(found, error)
        else:
            if self._observer.lacks_names(found.container) and len(self._naming) < MOST_NAMING:
                self._naming.spawn(self._name(found.container, task, api))

    def _miss(self, found: FoundProcess, error: ExitdError | OSError) -> None:
        if not self.trouble:
            log.warning("a task is not watched yet", container=found.container, why=str(error))
        self.trouble = str(error)
        if room.lacks_room(error):
            self._missing.set()

    async def _names_of(self, task: LiveTask, api: TasksApi) -> Names:
        """docker puts neither names nor images into its containerd: they are in its own files."""
        if task.namespace == DOCKER_NAMESPACE:
            with contextlib.suppress(TimedOut):
                found = await self._readings.run("reading docker's names", lambda: self._on_disk.of_docker(task.id))
                if found != NO_NAMES:
                    return found
        return await api.names(task.namespace, task.id)

    async def _name(self, container: str, task: LiveTask, api: TasksApi) -> None:
        """Ask for the names once the task is watched, since it may end at any moment. What cannot be asked now is asked
        when the tasks are listed the next time."""
        try:
            async with self._names_at_once:
                names = await self._names_of(task, api) if self._observer.lacks_names(container) else None
            if names is not None:
                await self._observer.name(container, names)
        except (NoAnswer, ExitdError) as error:
            log.info("the names of a task are not known yet", container=container, why=str(error))
