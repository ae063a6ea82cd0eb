"""What containers and images take of the disk: looked up in a thread, request after request, each within bounds."""

import time
from collections.abc import Collection, Mapping

from supervisor.engine.containers import Containers
from supervisor.engine.imageservice import ImageService
from supervisor.model.values import Container, Phase
from supervisor.model.views import ContainerUsage, DiskUsage, Occupied
from supervisor.runtime.oci import bundle, volumes
from supervisor.system import diskuse
from supervisor.system.aside import Aside
from supervisor.system.diskuse import LookBudget, Usage

ALL_SECONDS = 10.0  # of one request
EACH_SECONDS, EACH_ENTRIES = 2.0, 500_000  # of one tree, so that a huge one leaves something to the others
LIMIT_SECONDS = 25.0  # with the wait for earlier requests


class DiskUsages:
    """Implements `supervisor.api.servicers.UsageCalls`."""

    def __init__(self, containers: Containers, images: ImageService, root: str) -> None:
        """`root`: exitd's directory of what outlives a boot."""
        self._containers, self._images, self._root = containers, images, root
        self._looks = Aside(1, LIMIT_SECONDS)
        self._known: dict[str, Usage] = {}  # of layers of images, which never change, by diff id

    async def disk_usage(self, ids: tuple[str, ...], images: bool) -> DiskUsage:
        """Return what these containers have written, all for no ids; with `images` also what the images, their layers
        and the volumes take. Sizes are in bytes; what is not counted after ALL_SECONDS is marked as incomplete. Raises
        TimedOut, Busy."""
        wanted = {*ids}
        those = [each for each in self._containers.values() if not ids or each.id in wanted]
        end = time.monotonic() + ALL_SECONDS
        found = await self._looks.run("the look at what containers have written", lambda: self._written(those, end))
        if not images:
            return DiskUsage(found)
        listed = await self._images.list_images()
        layers = await self._images.layers()
        mounted = {mount.volume for each in self._containers.values() for mount in each.spec.mounts}
        used = {layer.diff_id for image, users in listed if users for layer in image.layers}
        return DiskUsage(
            found,
            Occupied(
                count=len(listed),
                active=sum(bool(users) for _, users in listed),
                size_bytes=sum(image.size_bytes for image, _ in listed),
            ),
            await self._looks.run("the look at the layers of images", lambda: self._unpacked(layers, used, end)),
            await self._looks.run("the look at volumes", lambda: self._of_volumes(mounted, end)),
        )

    def _written(self, containers: list[Container], end: float) -> tuple[ContainerUsage, ...]:
        return tuple(self._of_one(container, end) for container in containers)

    def _of_one(self, container: Container, end: float) -> ContainerUsage:
        layer, in_memory = bundle.layer_usage(container.id, self._root, _share(end))
        logs = bundle.own_logs(container.id, self._root)
        return ContainerUsage(
            container.id,
            active=container.phase in (Phase.RUNNING, Phase.PAUSED),
            in_memory=in_memory,
            layer_bytes=layer.size_bytes,
            complete=layer.complete,
            log_files=len(logs),
            log_bytes=diskuse.of_files(logs).size_bytes,
        )

    def _of_volumes(self, mounted: Collection[str], end: float) -> Occupied:
        found = volumes.listing(self._root)
        total = Usage()
        for each in found:
            total += diskuse.of_tree(each.path, _share(end))
        active = sum(each.name in mounted for each in found)
        return Occupied(len(found), active, total.size_bytes, total.complete)

    def _unpacked(self, layers: Mapping[str, str], used: Collection[str], end: float) -> Occupied:
        total = Usage()
        for diff_id, path in layers.items():
            found = self._known.get(diff_id) or diskuse.of_tree(path, _share(end))
            if found.complete and found.size_bytes:
                self._known[diff_id] = found
            total += found
        self._known = {diff_id: found for diff_id, found in self._known.items() if diff_id in layers}
        return Occupied(len(layers), len({*layers} & {*used}), total.size_bytes, total.complete)


def _share(end: float) -> LookBudget:
    return diskuse.budget(min(EACH_SECONDS, end - time.monotonic()), EACH_ENTRIES)
