"""The last output of a container that removes itself stays until the client that follows it has it.

A client that follows such a container from its beginning (`exitctl run --rm`) asks again after a restart of exitd, and
the container may have ended meanwhile. So a mark beside its log says that a client was listening; where an exitd before
this one has left one, the removal waits for that client, for a limited time. Without a mark nothing waits.
"""

import asyncio
import contextlib
import os
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import structlog

from supervisor.engine.containers import Containers
from supervisor.engine.participants import Participant
from supervisor.model.errors import Busy, TimedOut
from supervisor.runtime.oci import bundle
from supervisor.system.aside import Aside

LISTENER_SECONDS = 5.0  # that a removal waits for a client that is still reading
AWAITED_SECONDS = 10.0  # and for one that followed before exitd went away
MARK = "listened"

log = structlog.get_logger(__name__)


class LastWords(Participant):
    """One per daemon; belongs to its event loop."""

    def __init__(self, containers: Containers, root: str, spawn: Callable[[Coroutine[Any, Any, object]], None]) -> None:
        self._containers = containers
        self._root = root
        self._spawn = spawn
        self._aside = Aside()
        self._listening = Counter[str]()
        self._awaited = set[str]()  # whose listeners an earlier exitd had
        self._left = asyncio.Event()  # a listener, just now
        self._stopping = False

    def stop(self) -> None:
        """The daemon ends: a client that listens will come back, and is to be waited for."""
        self._stopping = True

    @contextlib.asynccontextmanager
    async def listening(self, container_id: str) -> AsyncIterator[None]:
        """For as long as a client follows the container."""
        container = self._containers.get(container_id)
        if container is None or not container.spec.auto_remove:
            yield
            return
        self._listening[container_id] += 1
        try:
            if self._listening[container_id] == 1:
                await self._mark(container_id)
            yield
        finally:
            self._listening[container_id] -= 1
            if not self._listening[container_id]:
                del self._listening[container_id]
                self._has_left(container_id)

    def _has_left(self, container_id: str) -> None:
        if not self._stopping:
            self._awaited.discard(container_id)
            self._left.set()
            self._spawn(self._unmark(container_id))

    async def before_find(self, container_id: str) -> None:
        container = self._containers.get(container_id)
        if container is None or not container.spec.auto_remove:
            return
        path = self._path(container_id)
        if await self._aside.run("looking for listeners", lambda: os.path.lexists(path), self._root):
            self._awaited.add(container_id)

    async def removing(self, container_id: str) -> None:
        if container_id not in self._awaited and not self._listening[container_id]:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(AWAITED_SECONDS if container_id in self._awaited else LISTENER_SECONDS):
                while container_id in self._awaited or self._listening[container_id]:
                    self._left.clear()
                    await self._left.wait()
        self._awaited.discard(container_id)

    async def _mark(self, container_id: str) -> None:
        """Without a mark a listener may lose the last output, if exitd is killed; it is no reason to refuse it."""
        path = self._path(container_id)

        def make() -> None:
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))

        try:
            await self._aside.run("marking a listener", make, self._root)
        except (OSError, TimedOut, Busy) as error:
            log.warning("a listener is not marked", container=container_id, why=str(error))

    async def _unmark(self, container_id: str) -> None:
        """A mark that stays has the removal wait for a client that does not come, once."""
        path = self._path(container_id)

        def remove() -> None:
            if not self._listening[container_id]:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(path)

        try:
            await self._aside.run("unmarking a listener", remove, self._root)
        except (OSError, TimedOut, Busy) as error:
            log.warning("a listener stays marked", container=container_id, why=str(error))

    def _path(self, container_id: str) -> str:
        return f"{bundle.directory_of(self._root, container_id)}/{MARK}"
