"""All that exitd has for foreign shims, put together: made when the first such container is there."""

from collections.abc import Awaitable, Callable

from supervisor.model.values import Container
from supervisor.monitor.earlyholds import EarlyHolds
from supervisor.monitor.epoll import Monitor
from supervisor.monitor.keeper import Keeper
from supervisor.monitor.kernelword import Executions, KernelWord
from supervisor.runtime.foreign_shim.containers import ShimV2Containers
from supervisor.runtime.foreign_shim.execs import ShimV2Execs
from supervisor.runtime.foreign_shim.pumps import Pumps
from supervisor.runtime.foreign_shim.registry import ShimRegistry
from supervisor.runtime.oci.bundle import Bundle
from supervisor.runtime.oci.runplan import Place
from supervisor.system.inotify import Inotify


class ForeignFamily:
    """The managers of containers and execs, over one registry and its pumps. Arguments: see `ShimRegistry` and
    `ShimV2Containers`."""

    def __init__(
        self,
        place: Place,
        monitor: Monitor,
        inotify: Inotify,
        keeper: Keeper,
        prepared: Callable[[Container], Awaitable[Bundle]],
        *,
        zombie: bool,
        kernel: KernelWord,
        executions: Executions,
        early: EarlyHolds,
    ) -> None:
        self._pumps = Pumps(place.state, monitor, keeper)
        self.registry = ShimRegistry(
            place, monitor, inotify, self._pumps, zombie=zombie, kernel=kernel, executions=executions, early=early
        )
        self.containers = ShimV2Containers(place, self.registry, prepared)
        self.execs = ShimV2Execs(place, self.registry)

    async def close(self) -> None:
        """Close this side. The shims live on, and so do their containers."""
        await self.registry.close()
        self._pumps.close()
