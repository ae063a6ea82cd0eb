"""Shim v1: an OCI runtime under exitd-shim, behind the seam of `supervisor/sandbox.py`.

The shim runs create and delete; start, kill, pause and the clearing away of what a dead shim left are done here.
"""

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator

import structlog

from shim import fields, launch
from shim.record import Record
from supervisor import keeper, monitor, procstate, rundir
from supervisor.errors import ExitdError, RuntimeFailed, ShimFailed, WrongState
from supervisor.facts import Container, Process, Report, RunKey
from supervisor.inotify import Inotify
from supervisor.oci import bundle, cgroups, namespaces, runplan, runtime
from supervisor.oci.oomwatch import OomWatch
from supervisor.oci.runplan import Place
from supervisor.sandbox import ExitListener, Found, Made, OomListener
from supervisor.shims import Shims
from supervisor.witness import Senses, Watch

ADOPT_SECONDS = 10.0  # until a replacement has said that it is there
ADOPT_REST_SECONDS = 1.0  # between two replacements for the same run

log = structlog.get_logger(__name__)


class NativeContainers:
    """ContainerManager for runc, crun and their like. One per daemon; belongs to its event loop."""

    def __init__(
        self, place: Place, watcher: monitor.Monitor, keeper_line: keeper.Keeper, changes: Inotify, *, zombie: bool
    ) -> None:
        """`zombie`: this process may read wait statuses of strangers' zombies (probe.zombie)."""
        self._place = place
        self._keeper = keeper_line
        self._monitor = watcher
        self._watches: dict[RunKey, Watch] = {}
        self._cgroups: dict[str, str] = {}
        self._on_exit: ExitListener | None = None
        self._on_oom: OomListener | None = None
        self._oom = OomWatch(watcher, changes, lives=self._lives, tell=self._killed_for_memory)
        self._preparing: dict[str, asyncio.Task[bundle.Bundle]] = {}
        self._adoptions: set[asyncio.Task[None]] = set()
        self._shims = Shims(watcher, keeper_line)
        self._senses = Senses(
            monitor=watcher,
            zombie_readable=zombie,
            now_ns=time.time_ns,
            entry=self._entry,
            oom_kills=self._oom_kills,
            on_exit=self._exit_seen,
            on_shim_lost=self._shim_lost,
            on_begin=lambda key: self._oom.begin(key, self._cgroups[key.container]),
            on_over=self._oom.end,
        )

    def listen(self, on_exit: ExitListener, on_oom: OomListener) -> None:
        self._on_exit, self._on_oom = on_exit, on_oom

    async def discard(self, container_id: str) -> None:
        """The container's files. Repeatable. A preparation that is under way comes to its end first."""
        preparing = self._preparing.pop(container_id, None)
        if preparing is not None:
            await asyncio.wait([preparing])
            preparing.exception()  # looked at: nobody else will
        await asyncio.to_thread(bundle.remove, container_id, self._place.root)
        await self._clear_cgroup(bundle.pod_cgroup(container_id))  # nothing, unless it was a pod

    def news(self) -> None:
        """The keeper has journalled something: whoever has no shim may find its exit there."""
        for watch in list(self._watches.values()):
            if watch.shim_fd < 0:
                watch.look()

    # -- a run begins

    def begin_preparing(self, container: Container) -> None:
        place = self._place
        work = asyncio.to_thread(bundle.prepare, container, place.root, place.state, place.limits())
        self._preparing[container.id] = asyncio.get_running_loop().create_task(work)

    async def prepared(self, container: Container) -> bundle.Bundle:
        """In a thread: mounts, files and names of users may take the time of a slow disk."""
        if container.id not in self._preparing:
            self.begin_preparing(container)
        return await self._preparing.pop(container.id)

    async def create_container(self, container: Container) -> Made:
        own = await self.prepared(container)
        self._cgroups[container.id] = own.cgroups_path
        self._limit_pod(container)
        key = RunKey(container.id, container.run)
        with self._joins(container) as joins:
            directory = rundir.make(self._place.state, container.id, container.run, self._plan(container, own))
            watch = self._watches[key] = Watch(key, directory, self._senses)
            status = await self._shims.begin(watch, self._place.create_seconds + 5, adopt=False, joins=joins)
        if isinstance(status, launch.Created):
            watch.init = Process(status.pid, status.started)
            watch.init_fd = status.pidfd
            if watch.init_fd < 0:  # it got lost on its way: no room among our descriptors
                watch.init_fd = _or_none(monitor.open_process(status.pid, status.started))
            self._monitor_run(watch)
            if watch.shim_fd < 0:
                self._shim_lost(key)
            return Made(watch.init, watch.shim, self.monitored_by(key), procstate.program(watch.init))
        failure = await asyncio.to_thread(runplan.blame, own, container, status, self._place.create_seconds)
        if namespaces.joined(container.spec) and self._sandbox_has_ended(container):
            pod = container.spec.sandbox[:12]
            raise WrongState(f"the pause container of the pod {pod} has ended; start the pod again ({failure})")
        raise failure

    def _sandbox_has_ended(self, container: Container) -> bool:
        """Whatever its runtime says then, it is because there was nothing to join."""
        watch = self._watches.get(RunKey(container.spec.sandbox, container.sandbox_run))
        return watch is None or watch.init_fd < 0 or monitor.read_ready(watch.init_fd)

    @contextlib.contextmanager
    def _joins(self, container: Container) -> Iterator[list[int]]:
        """Descriptors of the namespaces it takes from its pod, for the length of the block. WrongState when the run of
        the pause container that it was to join is over."""
        kinds = namespaces.joined(container.spec)
        if not kinds:
            yield []
            return
        watch = self._watches.get(RunKey(container.spec.sandbox, container.sandbox_run))
        if watch is None or watch.init is None or watch.init_fd < 0:
            raise WrongState(f"the pod {container.spec.sandbox[:12]} has no pause process to join; start it first")
        found = namespaces.open_all(watch.init, watch.init_fd, kinds)
        try:
            yield found
        finally:
            for fd in found:
                os.close(fd)

    def _limit_pod(self, container: Container) -> None:
        """Before its first container is there, so that nothing in the pod is ever without the limit."""
        if container.spec.pod and container.spec.pod.memory_bytes:
            cgroups.limit_memory(bundle.pod_cgroup(container.id), container.spec.pod.memory_bytes)

    def _plan(self, container: Container, own: bundle.Bundle) -> bytes:
        return runplan.encode(container, own, self._runtime(container), self._place)

    def _runtime(self, container: Container) -> runtime.Runtime:
        path = rundir.path_of(self._place.state, container.id, container.run)
        return runtime.Runtime(
            runtime.resolve(container.spec.runtime_path or container.spec.runtime),
            f"{path}/{rundir.RUNTIME_ROOT}",
            container.spec.runtime_options,
            systemd_cgroup=cgroups.is_scope(self._cgroup(container)),
        )

    def _monitor_run(self, watch: Watch) -> None:
        try:
            watch.begin()
        except OSError as error:
            raise ShimFailed(f"cannot watch run {watch.key.run} of {watch.key.container}: {error.strerror}") from error

    # -- a run goes on

    async def start_process(self, container: Container) -> None:
        path = rundir.path_of(self._place.state, container.id, container.run)
        rt, log_file = self._runtime(container), f"{path}/{rundir.RUNTIME_LOG}"
        result = await runtime.run(rt.start(container.id, log_file), timeout_seconds=self._place.runtime_seconds)
        if result.returncode:
            words = runtime.last_error(result.stderr)
            raise RuntimeFailed(f"{container.spec.runtime} start ended with {result.returncode}: {words}")

    async def state_process(self, container: Container) -> str:
        return await runtime.state(self._runtime(container), container.id, timeout_seconds=self._place.runtime_seconds)

    async def kill_process(self, container: Container, signal_number: int, *, everyone: bool = False) -> None:
        watch = self._watches.get(RunKey(container.id, container.run))
        if watch is None or watch.init_fd < 0:
            raise WrongState(f"{container.id} has no process", id=container.id)
        if everyone:
            for pid in cgroups.pids(self._cgroup(container)):
                _kill_one(pid, signal_number, self._cgroup(container))
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(watch.init_fd, signal_number)
        if signal_number == signal.SIGKILL:
            cgroups.thaw(self._cgroup(container))

    async def pause_container(self, container: Container) -> None:
        await self._simple(container, self._runtime(container).pause(container.id), "pause")

    async def resume_container(self, container: Container) -> None:
        await self._simple(container, self._runtime(container).resume(container.id), "resume")

    async def _simple(self, container: Container, argv: list[str], verb: str) -> None:
        result = await runtime.run(argv, timeout_seconds=self._place.runtime_seconds)
        if result.returncode:
            words = runtime.last_error(result.stderr)
            raise RuntimeFailed(f"{container.spec.runtime} {verb} {container.id}: {words}")

    def has_begun(self, container: Container) -> bool:
        """A start that was killed may leave its runtime saying `created` for ever, of a program that runs."""
        now = procstate.program(container.init) if container.init is not None else ""
        return bool(now and container.waits_in) and now != container.waits_in

    def is_ending(self, container: Container) -> bool:
        return container.init is None or procstate.is_ending(container.init)

    async def pids(self, container: Container) -> tuple[int, ...]:
        return cgroups.pids(self._cgroup(container))

    # -- a run is found again

    async def connect_container(self, container: Container) -> tuple[Found, Made | None]:
        key = RunKey(container.id, container.run)
        self._cgroup(container)
        directory = rundir.reopen(self._place.state, *(key.container, key.run))
        init = container.init or rundir.created(directory.path)
        if init is None:
            directory.close()
            return Found.NOTHING, None
        watch = self._watches[key] = Watch(key, directory, self._senses, init=init)
        watch.init_fd = _or_none(monitor.open_process(init.pid, init.started_ticks))
        self._shims.find(watch)
        self._monitor_run(watch)
        watch.look()
        if watch.reported:
            return Found.ENDED, Made(init, watch.shim, "")
        if watch.shim_fd < 0 and watch.init_fd >= 0:
            self._shim_lost(key)
        return Found.LIVE, Made(init, watch.shim, self.monitored_by(key))

    def _shim_lost(self, key: RunKey) -> None:
        """The container goes on under the keeper; a replacement goes on with its output."""
        task = asyncio.get_running_loop().create_task(self._adopt(key))
        self._adoptions.add(task)
        task.add_done_callback(self._adoptions.discard)

    async def _adopt(self, key: RunKey) -> None:
        watch = self._watches.get(key)
        if watch is None or watch.reported:
            return
        log.warning("shim lost, starting a replacement", container=key.container, run=key.run)
        try:
            await watch.rest(ADOPT_REST_SECONDS)
            status = await self._shims.begin(watch, ADOPT_SECONDS, adopt=True)
            if isinstance(status, launch.Created) and status.pidfd >= 0:
                os.close(status.pidfd)  # of init, which is watched already
        except ExitdError as error:
            log.warning("no replacement shim", container=key.container, run=key.run, why=str(error))

    # -- a run ends

    def _exit_seen(self, key: RunKey, report: Report) -> None:
        assert self._on_exit is not None
        self._on_exit(key, report)

    def _lives(self, key: RunKey) -> bool:
        watch = self._watches.get(key)
        return watch is not None and watch.lives()

    def _killed_for_memory(self, key: RunKey, kills: int) -> None:
        assert self._on_oom is not None
        self._on_oom(key, kills)

    async def look_at_memory(self) -> None:
        """For the reconcile loop: memory kills that nothing woke us for."""
        await self._oom.look_at_all()

    def _entry(self, key: RunKey) -> Record | None:
        return self._keeper.entries().get((key.container, key.run, key.exec_id))

    def _oom_kills(self, key: RunKey) -> int:
        path = self._cgroups.get(key.container)
        return max((cgroups.oom_kills(path) or 0) if path else 0, self._oom.seen(key))

    def _cgroup(self, container: Container) -> str:
        if container.id not in self._cgroups:
            self._cgroups[container.id] = bundle.cgroups_path(container, self._place.root)
        return self._cgroups[container.id]

    async def settle(self, container: Container) -> None:
        await self._keeper.acknowledge(container.id, container.run)

    async def delete_process(self, container: Container) -> None:
        """The shim first: a late `runtime delete` of this run would kill the next one. The rest under the run's lock:
        a shim that a stopped keeper starts only now must not find a run to begin."""
        key = RunKey(container.id, container.run)
        path = rundir.path_of(self._place.state, container.id, container.run)
        await self._shims.leave(self._watches.get(key))
        async with self._shims.locked(path):
            if await asyncio.to_thread(os.path.isdir, f"{path}/{rundir.RUNTIME_ROOT}/{container.id}"):
                await self._delete_by_runtime(container)
            await self._clear_cgroup(self._cgroup(container))
            self.forget(container)
            rundir.remove(path)

    async def _delete_by_runtime(self, container: Container) -> None:
        """Whatever it returns, what counts is looked at afterwards: cgroups and the run directory go in any case."""
        try:
            argv = self._runtime(container).delete(container.id)
            result = await runtime.run(argv, timeout_seconds=self._place.runtime_seconds)
            if result.returncode:
                log.warning("runtime delete failed", container=container.id, status=result.returncode)
        except (ExitdError, OSError) as error:
            log.warning("runtime delete failed", container=container.id, why=str(error))

    async def _clear_cgroup(self, path: str) -> None:
        """Whoever is left in a cgroup of ours is killed. One that a bundle names may be shared: it stays."""
        if bundle.is_ours(path) and _cgroup_exists(path):
            await asyncio.to_thread(_remove_cgroup, path)

    def forget(self, container: Container) -> None:
        watch = self._watches.pop(RunKey(container.id, container.run), None)
        if watch is not None:
            watch.close()
        self._cgroups.pop(container.id, None)

    def monitored_by(self, key: RunKey) -> str:
        """Whose child init is: shim | keeper | other; empty when there is no init."""
        return self._shims.parent_of_init(self._watches.get(key))

    def shim_of(self, key: RunKey) -> Process | None:
        """The run's shim, or the replacement that came after it; None when neither lives."""
        watch = self._watches.get(key)
        return watch.shim if watch is not None and watch.shim_fd >= 0 else None

    def shim_gone(self, key: RunKey) -> asyncio.Event | None:
        """Set when the run's output is complete in its log: its shim has left."""
        watch = self._watches.get(key)
        return watch.shim_gone if watch is not None else None

    def kill_stopped_shim(self, key: RunKey) -> bool:
        """The run's shim, if it is stopped: its zombies go to the keeper. False: there is none that is."""
        watch = self._watches.get(key)
        return watch is not None and watch.kill_stopped_shim()

    def look_at_all(self) -> None:
        """For the reconcile loop: an end that nothing woke us for is found here."""
        for watch in list(self._watches.values()):
            watch.look()

    async def delete_stray(self, container_id: str, run: int, *, stranger: bool) -> None:
        """A run directory that belongs to no run of ours: its shim, itself, and what runs in its cgroup if that is a
        stranger's (the cgroup of a container that we know may be in use by its next run)."""
        key, path = RunKey(container_id, run), rundir.path_of(self._place.state, container_id, run)
        await self._shims.leave(self._watches.get(key))
        async with self._shims.locked(path):
            if stranger:
                for cgroup in bundle.stray_cgroups(container_id):
                    await self._clear_cgroup(cgroup)
            rundir.remove(path)

    async def acknowledge_strangers(self, needed: Callable[[], frozenset[RunKey]]) -> int:
        """Runs the keeper still knows and nobody needs: their acknowledgement was lost. Returns how many. `needed` is
        asked after the keeper: a run that begins meanwhile is in its answer."""
        try:
            known = await self._keeper.runs()
        except (keeper.KeeperSilent, fields.BadMessage):
            return 0
        live = needed()
        stale = [m for m in known if RunKey(m.get("id"), m.number("run"), m.get("exec")) not in live]
        for message in stale:
            await self._keeper.acknowledge(message.get("id"), message.number("run"), message.get("exec"))
        return len(stale)

    def close(self) -> None:
        for task in self._adoptions:
            task.cancel()
        for watch in self._watches.values():
            watch.close()
        self._watches.clear()
        self._oom.close()


def _cgroup_exists(path: str) -> bool:
    return any(os.path.isdir(each) for each in cgroups.paths(path).values())


def _remove_cgroup(path: str) -> None:
    try:
        cgroups.remove(path)
    except OSError as error:
        raise ShimFailed(f"cgroup {path}: {error.strerror}") from error


def _kill_one(pid: int, signal_number: int, cgroup: str) -> None:
    """The pid is from the cgroup's list; what its pidfd names is signalled only if it is on the list still."""
    with contextlib.suppress(ProcessLookupError):
        fd = os.pidfd_open(pid)
        try:
            if pid in cgroups.pids(cgroup):
                signal.pidfd_send_signal(fd, signal_number)
        finally:
            os.close(fd)


def _or_none(fd: int | None) -> int:
    return -1 if fd is None else fd
