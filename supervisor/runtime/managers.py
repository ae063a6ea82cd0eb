"""Two families of runtimes behind one seam: whom a call is for, the container's own runtime says."""

import asyncio
from collections.abc import Callable, Collection

from supervisor.model.execs import Exec
from supervisor.model.values import Container, Process, RunKey
from supervisor.runtime.foreign_shim.containers import ShimV2Containers
from supervisor.runtime.foreign_shim.execs import ShimV2Execs
from supervisor.runtime.oci.execs import NativeExecs
from supervisor.runtime.oci.native import NativeContainers
from supervisor.runtime.sandbox import ExitListener, Found, Made, MadeExec, NoProcess, OomListener
from supervisor.streams.attach import Orders


class Containers:
    """ContainerManager, and what else is asked of one. Files and images are the same in both families."""

    def __init__(self, native: NativeContainers, foreign: ShimV2Containers) -> None:
        self.native = native
        self.foreign = foreign

    def _of(self, container: Container) -> NativeContainers | ShimV2Containers:
        return self.foreign if container.spec.runtime_type else self.native

    def _by(self, key: RunKey) -> NativeContainers | ShimV2Containers:
        return self.foreign if self.foreign.has(key) else self.native

    def listen(self, on_exit: ExitListener, on_oom: OomListener) -> None:
        self.native.listen(on_exit, on_oom)
        self.foreign.listen(on_exit, on_oom)

    def begin_preparing(self, container: Container) -> None:
        self.native.begin_preparing(container)

    async def create_container(self, container: Container) -> Made:
        return await self._of(container).create_container(container)

    async def start_process(self, container: Container) -> None:
        await self._of(container).start_process(container)

    async def connect_container(self, container: Container) -> tuple[Found, Made | None]:
        return await self._of(container).connect_container(container)

    async def state_process(self, container: Container) -> str:
        return await self._of(container).state_process(container)

    async def kill_process(self, container: Container, signal: int, *, everyone: bool = False) -> None:
        await self._of(container).kill_process(container, signal, everyone=everyone)

    async def pause_container(self, container: Container) -> None:
        await self._of(container).pause_container(container)

    async def resume_container(self, container: Container) -> None:
        await self._of(container).resume_container(container)

    async def is_paused(self, container: Container) -> bool:
        return await self._of(container).is_paused(container)

    async def pids(self, container: Container) -> tuple[int, ...]:
        return await self._of(container).pids(container)

    async def update_container(self, container: Container, resources: str) -> None:
        await self._of(container).update_container(container, resources)

    def has_begun(self, container: Container) -> bool:
        return self._of(container).has_begun(container)

    def is_unseen(self, container: Container) -> bool:
        return self._of(container).is_unseen(container)

    def may_start_again(self, container: Container) -> bool:
        return self._of(container).may_start_again(container)

    def sees_init(self, container: Container) -> bool:
        return self._of(container).sees_init(container)

    def is_ending(self, container: Container) -> bool:
        return self._of(container).is_ending(container)

    async def end_rest(self, container: Container) -> int:
        return await self._of(container).end_rest(container)

    async def settle(self, container: Container) -> None:
        await self._of(container).settle(container)

    async def delete_process(self, container: Container) -> None:
        await self._of(container).delete_process(container)

    async def discard(self, container_id: str) -> None:
        await self.native.discard(container_id)

    def forget(self, container: Container) -> None:
        self._of(container).forget(container)

    # -- by key, or of all of them

    def cgroup_of(self, container: Container) -> str:
        return self.native.cgroup_of(container)

    def orders(self, key: RunKey) -> Orders:
        return self.foreign.orders(key) if self.foreign.has(key) else Orders()

    def monitored_by(self, key: RunKey) -> str:
        return self._by(key).monitored_by(key)

    def shim_of(self, key: RunKey) -> Process | None:
        return self._by(key).shim_of(key)

    def shim_gone(self, key: RunKey) -> asyncio.Event | None:
        return self._by(key).shim_gone(key)

    def kill_stopped_shim(self, key: RunKey) -> bool:
        """A foreign shim is never killed: it may be that of others, too."""
        return not self.foreign.has(key) and self.native.kill_stopped_shim(key)

    def look_at_all(self) -> None:
        self.native.look_at_all()

    async def look_at_memory(self) -> None:
        await self.native.look_at_memory()
        await self.foreign.look_at_memory()

    async def delete_stray(self, container_id: str, run: int, *, stranger: bool) -> None:
        await self.foreign.delete_stray(container_id, run)
        await self.native.delete_stray(container_id, run, stranger=stranger)

    async def sweep_cgroups(self, known: Collection[str]) -> None:
        await self.native.sweep_cgroups(known)

    async def acknowledge_strangers(self, needed: Callable[[], frozenset[RunKey]]) -> int:
        return await self.native.acknowledge_strangers(needed)


class ExecProcesses:
    """ExecManager, likewise."""

    def __init__(self, native: NativeExecs, foreign: ShimV2Execs) -> None:
        self._native = native
        self._foreign = foreign

    def _of(self, container: Container) -> NativeExecs | ShimV2Execs:
        return self._foreign if container.spec.runtime_type else self._native

    def _by(self, key: RunKey) -> NativeExecs | ShimV2Execs:
        return self._foreign if self._foreign.has(key) else self._native

    async def create_exec(self, container: Container, e: Exec) -> MadeExec:
        return await self._of(container).create_exec(container, e)

    async def begun_exec(self, container: Container, e: Exec) -> Process | NoProcess:
        return await self._of(container).begun_exec(container, e)

    async def connect_exec(self, container: Container, e: Exec) -> None:
        await self._of(container).connect_exec(container, e)

    async def signal_exec(self, container: Container, e: Exec, number: int, *, everyone: bool) -> None:
        await self._of(container).signal_exec(container, e, number, everyone=everyone)

    def kill_stopped_shim(self, key: RunKey) -> bool:
        return not self._foreign.has(key) and self._native.kill_stopped_shim(key)

    def shim_gone(self, key: RunKey) -> asyncio.Event | None:
        return self._by(key).shim_gone(key)

    async def settle_exec(self, key: RunKey) -> None:
        await self._by(key).settle_exec(key)

    async def delete_exec(self, container: Container, e: Exec) -> None:
        await self._of(container).delete_exec(container, e)

    async def delete_strays(self, container: Container, known: Collection[str]) -> None:
        await self._of(container).delete_strays(container, known)

    def directory_of(self, key: RunKey) -> str:
        return self._native.directory_of(key)
