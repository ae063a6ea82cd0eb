"""The volumes for the event loop: which there are, who mounts them, and their removal in a thread."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import TypeVar

import structlog

from supervisor.engine.containers import Containers
from supervisor.engine.participants import Participant
from supervisor.model.errors import ExitdError, NoSuchVolume, ShimFailed, VolumeInUse
from supervisor.model.values import Container
from supervisor.model.volumes import Volume
from supervisor.runtime.oci import volumes
from supervisor.system.aside import Aside

MOST_SHOWN = 3
REMOVALS = 4  # at once: each may read a whole disk
REMOVAL_SECONDS = 120.0

T = TypeVar("T")

log = structlog.get_logger(__name__)


class VolumeService(Participant):
    """Implements `supervisor.api.servicers.VolumeCalls`."""

    def __init__(self, root: str, containers: Containers) -> None:
        self._root = root
        self._containers = containers
        self._removals = Aside(REMOVALS, limit_seconds=REMOVAL_SECONDS)

    async def discarded(self, container_id: str) -> None:
        """Remove the anonymous volumes of a container that removes itself, is removed with them, is a pod's (as with
        the CRI), or never came to run.
        Raises as `remove_volume`, but for one that is gone, or that another uses."""
        container = self._containers.get(container_id)
        if container is None or not _drops_volumes(container):
            return
        for mount in container.spec.mounts:
            if mount.anonymous:
                with contextlib.suppress(NoSuchVolume, VolumeInUse):
                    await self._remove(mount.volume, container_id)

    async def create_volume(self, name: str) -> Volume:
        """Return the volume; one that is there stays as it is. Raises ShimFailed when the disk refuses."""
        await self._on_disk(lambda: volumes.make(self._root, name))
        return await self._found(name)

    async def list_volumes(self) -> tuple[tuple[Volume, tuple[str, ...]], ...]:
        """Return each with the ids of the containers that mount it."""
        found = await self._on_disk(lambda: volumes.listing(self._root))
        return tuple((each, self._users(each.name)) for each in found)

    async def remove_volume(self, name: str) -> None:
        """Raises NoSuchVolume; VolumeInUse while a container has it, running or not; ShimFailed when the disk refuses,
        and TimedOut when it takes long: what is left then goes at the next start."""
        await self._remove(name)

    async def _remove(self, name: str, besides: str = "") -> None:
        """`besides`: the container that goes, too."""
        self._refuse_if_used(name, besides)
        try:
            gone = volumes.take_away(self._root, name)  # here, so that no container gets it after that look
        except OSError as error:
            raise _failed(f"volume {name}", error) from error
        if not gone:
            raise _missing(name)
        await self._delete(f"volume {name}", gone)

    def _refuse_if_used(self, name: str, besides: str) -> None:
        users = tuple(user for user in self._users(name) if user != besides)
        if users:
            more = f" and {len(users) - MOST_SHOWN} more" if len(users) > MOST_SHOWN else ""
            shown = f"{', '.join(id[:12] for id in users[:MOST_SHOWN])}{more}"
            raise VolumeInUse(f"volume {name} is in use by {shown}; remove them first (exitctl rm)", volume=name)
        damaged = next((c for c in self._containers.values() if c.damaged and c.id != besides), None)
        if damaged is not None:
            raise VolumeInUse(
                f"volume {name} may be in use by {damaged.id[:12]}, whose row is damaged: what it mounts is not known; "
                "remove it first (exitctl rm)",
                volume=name,
            )

    async def sweep(self) -> None:
        """After a start: complete the removals that an earlier daemon has begun."""
        try:
            for gone in await self._on_disk(lambda: volumes.hidden(self._root)):
                await self._delete("a volume that was being removed", gone)
        except ExitdError as error:
            log.warning("volumes that were being removed are left", why=str(error))

    async def _delete(self, what: str, gone: str) -> None:
        def delete() -> None:
            try:
                volumes.delete(gone)
            except OSError as error:
                raise _failed(f"{what}: what is left is {gone}", error) from error

        await self._removals.run(f"removing {what}", delete)

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
            raise _failed(volumes.top_of(self._root), error) from error


def _drops_volumes(container: Container) -> bool:
    never_ran = bool(container.error) and container.run == 1 and container.started_ns is None
    spec = container.spec
    return container.drops_volumes or spec.auto_remove or bool(spec.sandbox or spec.pod) or never_ran


def _failed(what: str, error: OSError) -> ShimFailed:
    return ShimFailed(f"{what}: {error.strerror or error}")


def _missing(name: str) -> NoSuchVolume:
    return NoSuchVolume(f"no volume {name}; exitctl volume ls shows them", volume=name)
