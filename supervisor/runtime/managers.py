"""The two families of runtimes: which one a container has, and what is asked of both."""

import asyncio
from collections.abc import Callable, Collection

from supervisor.model.values import Container, Process, RunKey
from supervisor.runtime.foreign_shim.containers import ShimV2Containers
from supervisor.runtime.foreign_shim.execs import ShimV2Execs
from supervisor.runtime.oci import podlimits
from supervisor.runtime.oci.execs import NativeExecs
from supervisor.runtime.oci.native import NativeContainers
from supervisor.runtime.sandbox import RunListener
from supervisor.streams.attach import Orders


class ContainerRuntimes:
    """The ContainerManagers of both families. Files and images are handled in the same way."""

    def __init__(self, native: NativeContainers, foreign: ShimV2Containers) -> None:
        self.native = native
        self.foreign = foreign

    def of(self, container: Container) -> NativeContainers | ShimV2Containers:
        return self.foreign if container.spec.runtime_type else self.native

    def _by(self, key: RunKey) -> NativeContainers | ShimV2Containers:
        return self.foreign if self.foreign.has(key) else self.native

    def listen(self, listener: RunListener) -> None:
        self.native.listen(listener)
        self.foreign.listen(listener)

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
        return self.foreign.orders(key) if self.foreign.has(key) else Orders()

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
        return not self.foreign.has(key) and self.native.kill_stopped_shim(key)

    def look_at_all(self) -> None:
        self.native.look_at_all()
        self.foreign.look_at_all()

    async def look_at_memory(self) -> None:
        await self.native.look_at_memory()
        await self.foreign.look_at_memory()

    async def delete_stray(self, container_id: str, run: int, *, stranger: bool) -> None:
        await self.foreign.delete_stray(container_id, run)
        await self.native.delete_stray(container_id, run, stranger=stranger)

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

    def __init__(self, native: NativeExecs, foreign: ShimV2Execs) -> None:
        self._native = native
        self._foreign = foreign

    def of(self, container: Container) -> NativeExecs | ShimV2Execs:
        return self._foreign if container.spec.runtime_type else self._native

    def _by(self, key: RunKey) -> NativeExecs | ShimV2Execs:
        return self._foreign if self._foreign.has(key) else self._native

    def kill_stopped_shim(self, key: RunKey) -> bool:
        return not self._foreign.has(key) and self._native.kill_stopped_shim(key)

    def shim_gone(self, key: RunKey) -> asyncio.Event | None:
        return self._by(key).shim_gone(key)

    async def settle_exec(self, key: RunKey) -> None:
        await self._by(key).settle_exec(key)

    def directory_of(self, key: RunKey) -> str:
        return self._native.directory_of(key)
