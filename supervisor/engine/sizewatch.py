"""Whether the empty directories of pods on the disk are larger than they may be, looked at again and again.

A file system that exitd did not make has no limit for one directory of it. So a pod may write more for some seconds,
and is ended then: as the kubelet does it, without project quotas. Decision 53.
"""

import asyncio
import time
from collections.abc import Callable, Iterator

import structlog

from supervisor.engine.node import Node
from supervisor.model import lifecycle
from supervisor.model.errors import ExitdError
from supervisor.model.values import Container, Phase
from supervisor.runtime.oci import bundle
from supervisor.system import diskuse
from supervisor.system.aside import Aside
from supervisor.system.diskuse import Usage

EVERY_SECONDS = 10.0  # the kubelet's own
MOST_SHARE = 0.1  # of the time may be spent on looks, however large the directories are
EACH_SECONDS, EACH_ENTRIES = 2.0, 500_000  # of one directory: what lies behind is not counted
LIMIT_SECONDS = 25.0

log = structlog.get_logger(__name__)


class SizeWatch:
    """Belongs to the node's event loop."""

    def __init__(self, node: Node, root: str) -> None:
        """`root`: exitd's directory of what outlives a boot."""
        self._node, self._root = node, root
        self._looks = Aside(1, LIMIT_SECONDS)
        self._too_many: set[tuple[str, str]] = set()  # that could not be counted as a whole; each is logged once

    async def forever(self, every_seconds: float = EVERY_SECONDS) -> None:
        """Look again and again, until cancelled. The pause is `every_seconds`, and longer after a look that took long:
        looks take MOST_SHARE of the time at most. One that fails is logged."""
        seconds = 0.0
        while True:
            await asyncio.sleep(max(every_seconds, seconds / MOST_SHARE))
            began = time.monotonic()
            try:
                await self.look()
            except Exception:  # out of descriptors, say: the next round looks again
                log.exception("a look at the sizes of empty directories failed")
            seconds = time.monotonic() - began

    async def look(self) -> None:
        """Measure all that are limited, and mark the pods that are to be ended: it is their keeper that ends them."""
        limited = list(self._limited())
        self._too_many &= {(pause.id, name) for pause, limits in limited for name in limits}
        for pause, limits in limited:
            for name, limit_bytes in limits.items():
                if (
                    (now := self._node.containers.get(pause.id)) is not None
                    and now.run == pause.run
                    and not now.evicted
                ):
                    await self._look_at(pause, name, limit_bytes)

    async def _look_at(self, pause: Container, name: str, limit_bytes: int) -> None:
        path = bundle.empty_dir_of(pause, self._root, name)
        try:
            found = await self._looks.run(f"the size of {name}", _measured(path), pause.id)
            if found.size_bytes > limit_bytes:
                happening = lifecycle.Overgrown(pause.run, name, found.size_bytes, limit_bytes)
                await self._node.apply(pause.id, happening, patient=True)
                log.info("evicted", pod=pause.id, volume=name, size_bytes=found.size_bytes, limit_bytes=limit_bytes)
        except (ExitdError, OSError) as error:  # it has ended meanwhile, or the next round looks again
            log.warning("the size of an empty directory", pod=pause.id, volume=name, why=str(error))
            return
        if not found.complete and (pause.id, name) not in self._too_many:
            self._too_many.add((pause.id, name))
            log.warning("an empty directory is too large to be counted", pod=pause.id, volume=name)

    def _limited(self) -> Iterator[tuple[Container, dict[str, int]]]:
        """Yield the pods that run, each with the limits of its directories in bytes."""
        found: dict[str, dict[str, int]] = {}
        for member in self._node.containers.values():
            for mount in member.spec.mounts if member.spec.sandbox else ():
                if mount.empty_dir and mount.size_bytes and not mount.tmpfs:
                    limits = found.setdefault(member.spec.sandbox, {})
                    limits[mount.empty_dir] = min(mount.size_bytes, limits.get(mount.empty_dir, mount.size_bytes))
        for pod_id, limits in found.items():
            pause = self._node.containers.get(pod_id)
            if pause is not None and pause.phase in (Phase.RUNNING, Phase.PAUSED) and not pause.evicted:
                yield pause, limits


def _measured(path: str) -> Callable[[], Usage]:
    return lambda: diskuse.of_tree(path, diskuse.budget(EACH_SECONDS, EACH_ENTRIES))
