"""The two families of runtimes: which one a container has, and what is asked of both."""

import asyncio
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from supervisor.model.values import Container, Process, RunKey
from supervisor.runtime.oci import podlimits
from supervisor.runtime.oci.execs import NativeExecs
from supervisor.runtime.oci.native import NativeContainers
from supervisor.runtime.sandbox import RunListener
from supervisor.streams.attach import Orders

if TYPE_CHECKING:
    from supervisor.runtime.foreign_shim.containers import ShimV2Containers
    from supervisor.runtime.foreign_shim.execs import ShimV2Execs
    from supervisor.runtime.foreign_shim.family import ForeignFamily


class ForeignShims:
    """The family of foreign shims, from its first container on: most daemons have none, and make nothing for it."""

    def __init__(self, make: "Callable[[], ForeignFamily]") -> None:
        self._make = make
        self._listener: RunListener | None = None
        self.family: ForeignFamily | None = None  # None: nothing can be under a foreign shim yet

    def get(self) -> "ForeignFamily":
        if self.family is None:
            self.family = self._make()
            if self._listener is not None:
                self.family.containers.listen(self._listener)
        return self.family

    def listen(self, listener: RunListener) -> None:
        self._listener = listener
        if self.family is not None:
            self.family.containers.listen(listener)

    def holder(self, key: RunKey) -> "ShimV2Containers | None":
        """Return the manager of containers, if the run is under a foreign shim."""
        return self.family.containers if self.family is not None and self.family.containers.has(key) else None

    async def close(self) -> None:
        if self.family is not None:
            await self.family.close()


class ContainerRuntimes:
    """The ContainerManagers of both families. Files and images are handled in the same way."""

    def __init__(self, native: NativeContainers, foreign: ForeignShims) -> None:
        self.native = native
        self._foreign = foreign

    def of(self, container: Container) -> "NativeContainers | ShimV2Containers":
        return self._foreign.get().containers if container.spec.runtime_type else self.native

    def _by(self, key: RunKey) -> "NativeContainers | ShimV2Containers":
        return self._foreign.holder(key) or self.native

    def listen(self, listener: RunListener) -> None:
        self.native.listen(listener)
        self._foreign.listen(listener)

    def begin_preparing(self, container: Container) -> None:
        self.native.begin_preparing(container)

    async def discard(self, container_id: str, *, is_pod: bool = True) -> None:
        await self.native.discard(container_id, is_pod=is_pod)

    # -- by key, or for all

    def cgroup_of(self, container: Container) -> str:
        return self.native.cgroup_of(container)

    async def resources_for(self, container: Container, limits: Collection[str]) -> str:
        return await self.native.resources_for(container, limits)

    async def update_pod(self, container: Container, limits: Collection[str]) -> None:
        """Give the pod of this pause container these limits of its spec, in the cgroup around its containers."""
        await podlimits.change_limits(container, limits)

    def orders(self, key: RunKey) -> Orders:
        holder = self._foreign.holder(key)
        return holder.orders(key) if holder is not None else Orders()

    def monitored_by(self, key: RunKey) -> str:
        return self._by(key).monitored_by(key)

    def shim_of(self, key: RunKey) -> Process | None:
        return self._by(key).shim_of(key)

    def shim_gone(self, key: RunKey) -> asyncio.Event | None:
        return self._by(key).shim_gone(key)

    def output_read(self, key: RunKey) -> asyncio.Event | None:
        """Return the native family's event: under a foreign shim clients get their output from that."""
        return self.native.output_read(key)

    def kill_stopped_shim(self, key: RunKey) -> bool:
        """Kill its stopped shim. A foreign shim is never killed: other containers may share it."""
        return self._foreign.holder(key) is None and self.native.kill_stopped_shim(key)

    def look_at_all(self) -> None:
        self.native.look_at_all()
        if (family := self._foreign.family) is not None:
            family.containers.look_at_all()

    async def look_at_memory(self) -> None:
        await self.native.look_at_memory()
        if (family := self._foreign.family) is not None:
            await family.containers.look_at_memory()

    async def delete_leaked_run(self, container_id: str, run: int, *, stranger: bool) -> None:
        await self._foreign.get().containers.delete_leaked_run(container_id, run)
        await self.native.delete_leaked_run(container_id, run, stranger=stranger)

    async def runs_on(self, container_id: str) -> bool:
        return await self.native.runs_on(container_id)

    async def discard_root(self, container_id: str) -> None:
        await self.native.discard_root(container_id)

    async def sweep_cgroups(self, known: Collection[str]) -> None:
        await self.native.sweep_cgroups(known)

    async def acknowledge_strangers(self, needed: Callable[[], frozenset[RunKey]]) -> int:
        return await self.native.acknowledge_strangers(needed)


class ExecRuntimes:
    """The ExecManagers of both families."""

    def __init__(self, native: NativeExecs, foreign: ForeignShims) -> None:
        self._native = native
        self._foreign = foreign

    def of(self, container: Container) -> "NativeExecs | ShimV2Execs":
        return self._foreign.get().execs if container.spec.runtime_type else self._native

    def _by(self, key: RunKey) -> "NativeExecs | ShimV2Execs":
        family = self._foreign.family
        return family.execs if family is not None and family.execs.has(key) else self._native

    def kill_stopped_shim(self, key: RunKey) -> bool:
        is_foreign = self._foreign.holder(key) is not None
        return not is_foreign and self._native.kill_stopped_shim(key)

    def shim_gone(self, key: RunKey) -> asyncio.Event | None:
        return self._by(key).shim_gone(key)

    async def settle_exec(self, key: RunKey) -> None:
        await self._by(key).settle_exec(key)

    def directory_of(self, key: RunKey) -> str:
        return self._native.directory_of(key)
