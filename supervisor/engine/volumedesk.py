"""The volumes for the event loop: which there are, who mounts them, and their removal in a thread."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

import structlog

from supervisor.engine.containers import Containers
from supervisor.model.errors import NoSuchVolume, ShimFailed, VolumeInUse
from supervisor.runtime.oci import volumes
from supervisor.runtime.oci.volumes import Volume

MOST_SHOWN = 3

T = TypeVar("T")

log = structlog.get_logger(__name__)


class VolumeDesk:
    """Implements `supervisor.api.doors.VolumeCalls`."""

    def __init__(self, root: str, containers: Containers) -> None:
        self._root = root
        self._containers = containers
        self._removals = asyncio.Lock()  # one at a time: each may read a whole disk

    async def create_volume(self, name: str) -> Volume:
        """Return the volume; one that is there stays as it is. Raises ShimFailed when the disk refuses."""
        await self._on_disk(lambda: volumes.make(self._root, name))
        return await self._found(name)

    async def list_volumes(self) -> tuple[tuple[Volume, tuple[str, ...]], ...]:
        """Return each with the ids of the containers that mount it."""
        found = await self._on_disk(lambda: volumes.listing(self._root))
        return tuple((each, self._users(each.name)) for each in found)

    async def remove_volume(self, name: str) -> None:
        """Raises NoSuchVolume; VolumeInUse while a container has it, running or not."""
        async with self._removals:
            self._refuse_if_used(name)
            gone = await self._on_disk(lambda: volumes.take_away(self._root, name))
            if not gone:
                raise _missing(name)
            try:
                self._refuse_if_used(name)  # by a container that was admitted meanwhile
            except VolumeInUse:
                await self._on_disk(lambda: volumes.put_back(self._root, name, gone))
                raise
            await self._on_disk(lambda: volumes.delete(gone))

    def _refuse_if_used(self, name: str) -> None:
        users = self._users(name)
        if users:
            more = f" and {len(users) - MOST_SHOWN} more" if len(users) > MOST_SHOWN else ""
            shown = f"{', '.join(id[:12] for id in users[:MOST_SHOWN])}{more}"
            raise VolumeInUse(f"volume {name} is in use by {shown}; remove them first (exitctl rm)", volume=name)

    async def sweep(self) -> None:
        """After a start: complete the removals that an earlier daemon has begun."""
        try:
            async with self._removals:
                await self._on_disk(lambda: volumes.sweep(self._root))
        except ShimFailed as error:
            log.warning("volumes that were being removed are left", why=str(error))

    async def _found(self, name: str) -> Volume:
        for each in await self._on_disk(lambda: volumes.listing(self._root)):
            if each.name == name:
                return each
        raise _missing(name)

    def _users(self, name: str) -> tuple[str, ...]:
        users = (c.id for c in self._containers.values() if any(mount.volume == name for mount in c.spec.mounts))
        return tuple(sorted(users))

    async def _on_disk(self, work: Callable[[], T]) -> T:
        try:
            return await asyncio.to_thread(work)
        except OSError as error:
            raise ShimFailed(f"{volumes.top_of(self._root)}: {error.strerror or error}") from error


def _missing(name: str) -> NoSuchVolume:
    return NoSuchVolume(f"no volume {name}; exitctl volume ls shows them", volume=name)
