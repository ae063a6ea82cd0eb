"""Shim v1: an OCI runtime under exitd-shim, implementing `supervisor/runtime/sandbox.py`.

The shim runs create and delete. This module runs start, kill and pause, and removes what a dead shim left.
"""

import asyncio
import contextlib
import json
import os
import signal
import time
from collections.abc import Callable, Collection, Iterator
from functools import partial

import structlog

from shim import launch, names, native
from shim.undo import undone_on_failure
from supervisor.model import errnos
from supervisor.model.errors import Busy, ExitdError, RuntimeFailed, ShimFailed, TimedOut, WrongState
from supervisor.model.values import ROW_DAMAGED, UNCONFINED, Container, Phase, Process, Report, RunKey, Source, Unknown
from supervisor.monitor import epoll, procfs, rundir
from supervisor.monitor.ownership import Owner
from supervisor.monitor.witness import Beginning, Watch
from supervisor.runtime.oci import (
    bundle,
    cgroups,
    command,
    liveresources,
    namespaces,
    podlimits,
    rest,
    rootfs,
    runplan,
    runtime,
    scopes,
    slices,
)
from supervisor.runtime.oci.runplan import SHIM_SECONDS, Place
from supervisor.runtime.oci.unfiltered import Unfiltered
from supervisor.runtime.oci.unmounted import Unmounted
from supervisor.runtime.oci.watching import Watching, pidfd_of
from supervisor.runtime.sandbox import CreatedRun, Found, RunListener
from supervisor.system import room

SHIM_NAME = "exitd-shim"  # comm, of proc(5)
RESOURCES = "resources.json"
CRUN = "crun"
BUSY_CGROUP_SECONDS = 60  # after its end, a container does not count as clean while its cgroup is busy for so long
START_GRACE_MS = 1000  # for a start whose exitd ends: init dies with one that is killed in its last step
FILL_SECONDS = 100.0  # for the bundle of a container with volumes, which may get all of a directory of the image
LOST_SECONDS = 5.0  # how long an init whose state directory was lost may take to end

log = structlog.get_logger(__name__)


class NativeContainers:
    """The ContainerManager for runc, crun and similar runtimes. One per daemon; belongs to its event loop."""

    def __init__(self, place: Place, watching: Watching, owner: Owner) -> None:
        self._place = place
        self._owner = owner
        self._anothers: set[str] = set()  # cgroups with another exitd's mark, which they keep
        self._watching = watching
        self._preparing: dict[str, asyncio.Task[bundle.Bundle]] = {}
        self._unfiltered = Unfiltered(place.programs)
        self._unmounted = Unmounted()

    def listen(self, listener: RunListener) -> None:
        self._watching.listen(listener)

    async def discard(self, container_id: str, *, is_pod: bool = True) -> None:
        """Delete the container's files, after a preparation in progress has ended. Repeatable. Raises ShimFailed,
        TimedOut, Busy."""
        preparing = self._preparing.pop(container_id, None)
        if preparing is not None:
            await asyncio.wait([preparing])
            preparing.exception()  # its error is retrieved here, since no other code waits for it
        what = f"removing the files of {container_id[:12]}"
        root, let_go = self._place.root, self._unmounted.let_go
        await self._place.clearing.run(what, lambda: bundle.remove(container_id, root, let_go), container_id)
        for path in (bundle.pod_cgroup(container_id), bundle.pod_slice(container_id)) if is_pod else ():
            await self._clear_cgroup(path)

    # -- a run begins

    def begin_preparing(self, container: Container) -> None:
        # The words of some wait for their address, and what has ids of its own for the row that keeps these.
        if not container.spec.address_mark and container.spec.ids is None:
            self._begin_preparing(container)

    def _begin_preparing(self, container: Container) -> None:
        self._preparing[container.id] = asyncio.get_running_loop().create_task(self._prepare(container))

    async def _prepare(self, container: Container) -> bundle.Bundle:
        place = self._place
        kept = {
            source: await place.sources.run(f"looking at {source}", partial(bundle.flags_of, source), source)
            for source in bundle.named_sources(container.spec)
        }
        what = f"making the bundle of {container.spec.name or container.id}"
        limits = place.limits()
        volumes = sorted({mount.volume for mount in container.spec.mounts if mount.volume})
        return await (place.filling if volumes else place.making).run(
            what,
            lambda: bundle.prepare(container, place.root, place.state, limits, place.fill, kept),
            "/".join(volumes),  # those of the same ones wait for each other's fill without a place
            seconds=FILL_SECONDS if volumes else None,
        )

    async def prepared(self, container: Container) -> bundle.Bundle:
        """Prepare the bundle in a thread: mounts, files and user names may wait for a slow disk."""
        if container.id not in self._preparing:
            self._begin_preparing(container)
        made = await self._preparing.pop(container.id)
        if container.networks:  # it may have been prepared before its addresses were known
            what, root = f"the names of {container.spec.name or container.id}", self._place.root
            await self._place.making.run(what, lambda: bundle.name_in_network(container, root))
        return made

    async def create_container(self, container: Container) -> CreatedRun:
        own = await self.prepared(container)
        # The watch does not know its cgroup yet.
        rt = await runplan.runtime_of(container, self._place, own.cgroups_path)
        if container.spec.security.seccomp not in ("", UNCONFINED):  # a bundle's own profile is not promised by exitd
            await self._unfiltered.refuse(rt.path)
        self._watching.cgroups[container.id] = own.cgroups_path
        self._watching.executes[container.id] = own.executes
        self._watching.own_pids[container.id] = own.own_pids
        self._name_shim_cgroup(container)
        await podlimits.set_limits(container)
        await self._refuse_a_taken_name(container)
        key = RunKey(container.id, container.run)
        pause = self._watching.get(RunKey(container.spec.sandbox, container.sandbox_run))
        with namespaces.opened(container.spec, pause) as joins:
            plan = runplan.encode(container, own, rt, self._place)
            directory = rundir.make(self._place.state, container.id, container.run, plan)
            watch = self._watching.add(key, directory, executes=own.executes)
            self._watching.mark_shared(watch)
            status = await self._watching.shims.begin(
                watch,
                self._place.create_seconds + SHIM_SECONDS,
                adopt=False,
                joins=joins,
                stdin=container.spec.stdin,
                tty=container.spec.tty,
                owner=bundle.stream_owner(container.spec, container.spec.foreign),
            )
        if isinstance(status, launch.Created):
            created = status
            waits_in = await room.retry(lambda: self._waits_in(container, created))
            init = self._watching.hold(watch, status)
            self._watching.spawn(self._mark_until_done(container, own.cgroups_path))  # while the run is being stored
            return CreatedRun(init, watch.shim, self.monitored_by(key), waits_in)
        failure = await self._place.making.run(
            f"looking for the command of {container.spec.name or container.id}",
            lambda: runplan.blame(own, container, status, self._place.create_seconds),
        )
        if namespaces.joined(container.spec) and self._sandbox_has_ended(container):
            pod = container.spec.sandbox[:12]
            raise WrongState(f"the pause container of the pod {pod} has ended; start the pod again ({failure})")
        raise failure

    async def _waits_in(self, container: Container, created: launch.Created) -> str:
        """Return the program that waits for its start. Raises OSError for lack of descriptors; may be repeated then.

        The program is the runtime's, or a copy that it has made of itself. If its file system hangs, it is not known:
        `has_begun` then leaves the question to the runtime's state."""
        init = Process(created.pid, created.started)
        try:
            return await runplan.at_runtime(container, self._place, lambda: procfs.program(init))
        except TimedOut as error:
            log.warning("which program waits for its start is not known", container=container.id, why=str(error))
            return ""

    async def _mark_until_done(self, container: Container, cgroup: str) -> None:
        """Mark them, however long there are no descriptors to look at them with. If this daemon is killed before, the
        next one does it when it finds the run."""

        async def mark() -> None:
            self._mark(container, cgroup)

        await room.retry(mark)

    def _mark(self, container: Container, cgroup: str) -> None:
        """Mark the cgroups that exitd made for the container, its pod's included. A bundle's own may be shared with
        others."""
        for path in (cgroup, bundle.cgroup_around(container) if container.spec.pod else ""):
            if path and bundle.is_ours(path):
                self._owner.mark((*cgroups.paths(path).values(),))

    def _name_shim_cgroup(self, container: Container) -> None:
        """Note the cgroup for every later shim of this container: the first, those of execs, and replacements."""
        if container.spec.shim_cgroup:
            self._watching.shim_cgroups[container.id] = container.spec.shim_cgroup

    def _sandbox_has_ended(self, container: Container) -> bool:
        """Return whether its pod's sandbox has ended, or is ending: this explains any error of its runtime. The first
        process of a pid namespace kills all others in it before its own end can be seen, pid_namespaces(7)."""
        watch = self._watching.get(RunKey(container.spec.sandbox, container.sandbox_run))
        if watch is None or watch.init is None or watch.init_fd < 0:
            return True
        return epoll.read_ready(watch.init_fd) or procfs.is_ending(watch.init)

    async def _refuse_a_taken_name(self, container: Container) -> None:
        """Raise WrongState for a name in use in a shared runtime root: the delete after a failed create would end that
        container."""
        path = f"{runplan.runtime_root(container, self._place)}/{runplan.runtime_id(container)}"
        if container.spec.runtime_root and await self._is_known(container):
            raise WrongState(
                f"{path}: the runtime knows a container of this name there already; delete that one first, or take"
                " another Root in the runtime's options",
                id=container.id,
            )

    async def _runtime(self, container: Container) -> runtime.Runtime:
        return await runplan.runtime_of(container, self._place, self._cgroup(container))

    # -- a run goes on

    async def start_process(self, container: Container) -> None:
        # Without a log file: on a full state directory the runtime would not begin, for lack of space for it.
        command_line = (await self._runtime(container)).start(runplan.runtime_id(container))
        watch = self._watching.get(RunKey(container.id, container.run))
        with _eye_on(watch):
            limit_seconds = self._place.runtime_seconds
            result = await runtime.run(command_line, timeout_seconds=limit_seconds, grace_ms=START_GRACE_MS)
        words = runtime.last_error(result.stderr)
        # The runtime may find an init that ends at once deleted, with its fifo, before its start command is done.
        beginning = await watch.beginning(patient=result.returncode == 0) if watch is not None else Beginning.LATE
        if watch is not None and beginning is Beginning.NEVER:
            found = watch.record()
            if result.returncode if found is None else found.signal is not None:
                raise RuntimeFailed(
                    f"{container.spec.name}: its init was killed before it executed its command ({words})"
                )
            argv0, where = next(iter(container.spec.args), "its command"), f"exitctl logs {container.spec.name}"
            raise command.never_executed(argv0, words, f", and at: {where}")
        if result.returncode:
            raise RuntimeFailed(f"{container.spec.runtime} start ended with {result.returncode}: {words}")
        if beginning is Beginning.UNSEEN:
            raise RuntimeFailed(
                f"{container.spec.name} has ended; whether its command was executed is not known: its shim was gone"
            )

    async def state_process(self, container: Container) -> str:
        rt, limit_seconds = await self._runtime(container), self._place.runtime_seconds
        return await runtime.state(
            rt, runplan.runtime_id(container), self._place.programs, timeout_seconds=limit_seconds
        )

    async def kill_process(self, container: Container, signal_number: int, *, everyone: bool = False) -> None:
        watch = self._watching.get(RunKey(container.id, container.run))
        if watch is not None and watch.is_unheld and watch.init_fd < 0:
            raise Busy(f"out of descriptors, {container.id} cannot be signalled now; try again", id=container.id)
        if watch is None or watch.init_fd < 0:
            if watch is None and container.damaged and signal_number == signal.SIGKILL:
                await self._end_unwatched(container)
                report = Report(Unknown(ROW_DAMAGED), Source.NONE, container.init, time.time_ns(), at_is_found=True)
                return self._watching.report(RunKey(container.id, container.run), report)
            raise WrongState(f"{container.id} has no process", id=container.id)
        with contextlib.suppress(ProcessLookupError):  # signalled before the others, whose ends init may be waiting for
            signal.pidfd_send_signal(watch.init_fd, signal_number)
        if everyone:
            first = container.init.pid if container.init is not None else 0
            for pid in cgroups.pids(self._cgroup(container)):
                if pid != first:
                    _kill_one(pid, signal_number, self._cgroup(container))
        if signal_number == signal.SIGKILL:
            cgroups.thaw(self._cgroup(container))

    async def pause_container(self, container: Container) -> None:
        rt = await self._runtime(container)
        await self._simple(container, rt.pause(runplan.runtime_id(container)), "pause")

    async def resume_container(self, container: Container) -> None:
        rt = await self._runtime(container)
        await self._simple(container, rt.resume(runplan.runtime_id(container)), "resume")

    async def is_paused(self, container: Container) -> bool:
        """Return whether its cgroup is frozen. If it is not, ask the runtime, which may have another way of pausing."""
        if cgroups.is_frozen(self._cgroup(container)):
            return True
        return container.phase is Phase.PAUSED and await self.state_process(container) == "paused"

    async def update_container(self, container: Container, resources: str) -> None:
        """Change its limits. `resources`: JSON of runtime-spec's linux.resources."""
        path = f"{rundir.path_of(self._place.state, container.id, container.run)}/{RESOURCES}"
        rt, lifted = await self._runtime(container), tuple[str, ...]()
        cgroup = self._cgroup(container)
        of_scope = scopes.changed(json.loads(resources)) if cgroups.is_scope(cgroup) else {}
        if os.path.basename(rt.path).startswith(CRUN):
            resources, lifted = liveresources.split(resources)
        await asyncio.to_thread(_write, path, resources)
        await self._simple(container, rt.update(runplan.runtime_id(container), path), "update")
        for controller in lifted:
            await asyncio.to_thread(_lift, cgroup, controller)
        await scopes.limit(cgroup, of_scope)

    async def resources_for(self, container: Container, limits: Collection[str]) -> str:
        """Return these limits of the container's spec for `update_container`, whichever family it is of. What the spec
        leaves open and no update has set is as its bundle has it. Raises BadRequest for what cannot be set on this
        machine, ShimFailed."""
        try:
            return await asyncio.to_thread(self._resources_for, container, limits)
        except OSError as error:
            raise ShimFailed(f"the machine's cgroups cannot be looked at: {error.strerror}") from error

    def _resources_for(self, container: Container, limits: Collection[str]) -> str:
        limits, found = liveresources.with_memory(limits), liveresources.look(self._cgroup(container))
        liveresources.refuse_impossible(container.spec, limits, found)
        own = [name for name in limits if name in container.changed or not container.spec.bundle]
        document = liveresources.resources(container.spec, own, found)
        if others := [name for name in limits if name not in own]:
            of_bundle = bundle.resources_of(container, self._place.root)
            for section, values in liveresources.resources(container.spec, others, found, of_bundle).items():
                document[section] = {**document.get(section, {}), **values}
        return json.dumps(document)

    async def _simple(self, container: Container, argv: list[str], verb: str) -> None:
        result = await runtime.run(argv, timeout_seconds=self._place.runtime_seconds)
        if result.returncode:
            words = runtime.last_error(result.stderr)
            raise RuntimeFailed(f"{container.spec.runtime} {verb} {container.id}: {words}")

    async def has_begun(self, container: Container) -> bool:
        """The runtime's state is no proof: after a start that was killed it may stay `created` while the program
        runs. The file system of the program is the container's own, and may hang."""
        init = container.init
        if init is None or not container.waits_in:
            return False
        what = f"the look at what {container.spec.name} executes"
        limit_seconds = self._place.runtime_seconds

        async def look() -> str:
            return await self._place.programs.run(
                what, lambda: procfs.program(init), container.id, seconds=limit_seconds
            )

        now = await room.patiently_awaited(look, what)
        return bool(now) and now != container.waits_in

    def is_unseen(self, container: Container) -> bool:
        watch = self._watching.get(RunKey(container.id, container.run))
        return watch is None or not watch.is_seen_begun()

    def may_start_again(self, container: Container) -> bool:
        return True

    def sees_init(self, container: Container) -> bool:
        return True

    def is_ending(self, container: Container) -> bool:
        return container.init is None or procfs.is_ending(container.init)

    async def pids(self, container: Container) -> tuple[int, ...]:
        return cgroups.pids(self._cgroup(container))

    def cgroup_of(self, container: Container) -> str:
        return self._cgroup(container)

    # -- a run is found again

    async def connect_container(self, container: Container) -> tuple[Found, CreatedRun | None]:
        key = RunKey(container.id, container.run)
        await self._watching.learn(container, self._place)
        self._name_shim_cgroup(container)
        if await self._is_lost(container):
            if container.damaged:
                return self._unnamed(container), None
            await self._end_lost(container)
            return Found.LOST, None
        directory = rundir.reopen(self._place.state, *(key.container, key.run))
        with undone_on_failure(directory.close):
            init = container.init or rundir.created(directory.path)
            if init is None:
                directory.close()
                return self._unnamed(container) if container.damaged else Found.NOTHING, None
        with undone_on_failure(lambda: self._watching.drop(key)):
            executes, tty = self._watching.executes_of(container), container.spec.tty
            watch = self._watching.find(key, directory, init, executes=executes, tty=tty)
        await self._watching.entry_awaited(key)
        if watch.reported:
            return Found.ENDED, CreatedRun(init, watch.shim, "")
        self._mark(container, self._cgroup(container))  # its exitd was killed before it did, or was older
        return Found.LIVE, CreatedRun(init, watch.shim, self.monitored_by(key))

    def _unnamed(self, container: Container) -> Found:
        """Classify a damaged container's run without an init. Nothing that may belong to it is ended."""
        lives = container.init is not None and not procfs.is_gone(container.init)
        return Found.UNWATCHED if lives or cgroups.pids(self._cgroup(container)) else Found.NOTHING

    async def _is_lost(self, container: Container) -> bool:
        """Return whether the run's directory is gone and its keeper does not know the run. Raises ShimFailed when that
        cannot be said."""
        key = RunKey(container.id, container.run)
        path = rundir.path_of(self._place.state, container.id, container.run)
        if _is_there(path):
            return False
        if earlier := self._owner.earlier_state_of(container.id, container.run):
            raise ShimFailed(
                f"{path} is not there, but {earlier} has the run: start exitd with --state {earlier}, or stop the"
                " container with an exitd that was, first",
                id=container.id,
            )
        return not await self._watching.keeper_knows(key)

    async def _end_lost(self, container: Container) -> None:
        """End what runs of a lost run, since no other process would. Raises ShimFailed when it does not end."""
        log.warning("state directory lost, ending the container", container=container.id, run=container.run)
        await self._end_unwatched(container)

    async def _end_unwatched(self, container: Container) -> None:
        """End init and all other processes in the cgroup, then the shim, whose `runtime delete` would recreate the
        run's directory. Raises ShimFailed when init does not end."""
        first = () if container.init is None else (container.init.pid,)
        shims = await asyncio.to_thread(_shims_of, {*cgroups.pids(self._cgroup(container)), *first})
        try:
            await self._end_init(container)
            for shim_fd in shims:
                if not await asyncio.to_thread(epoll.read_ready, shim_fd, LOST_SECONDS):
                    with contextlib.suppress(ProcessLookupError):
                        signal.pidfd_send_signal(shim_fd, signal.SIGKILL)
        finally:
            _close(shims)

    async def _end_init(self, container: Container) -> None:
        await self._clear_cgroup(self._cgroup(container))
        init_fd = pidfd_of(container.init) if container.init is not None else -1
        if init_fd < 0:
            return
        try:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(init_fd, signal.SIGKILL)
            if not await asyncio.to_thread(epoll.read_ready, init_fd, LOST_SECONDS):
                raise ShimFailed(f"{container.id}: its init does not end", id=container.id)
        finally:
            os.close(init_fd)

    # -- a run ends

    async def _is_known(self, container: Container) -> bool:
        """Return whether its runtime has a container of this name. A caller may have named the runtime's root. Raises
        TimedOut, Busy."""
        path = f"{runplan.runtime_root(container, self._place)}/{runplan.runtime_id(container)}"
        if not container.spec.runtime_root:
            return _is_there(path)
        return await self._place.programs.at(path, lambda: os.path.isdir(path), self._place.runtime_seconds)

    def _cgroup(self, container: Container) -> str:
        return self._watching.cgroup_of(container, self._place.root)

    def leaves_nothing(self, container: Container) -> bool:
        """Its pid namespace is its own: the kernel ends all others in it with its init."""
        if container.spec.bundle:
            return self._watching.own_pids.get(container.id, False)
        return container.spec.pid == "own"

    async def end_rest(self, container: Container) -> int:
        """The shim has done this already, if it saw init's end and the cgroup was never shared. Cgroups that its plan
        does not name, and those still shared, are left alone."""
        if self.leaves_nothing(container):
            return 0
        path = rundir.path_of(self._place.state, container.id, container.run)
        directories = await asyncio.to_thread(rest.to_end, path, self._place.state)
        if not directories or not rest.members(directories):
            return 0
        left = await asyncio.to_thread(rest.end, directories)
        if left:
            log.warning("processes live on without their init", container=container.id, run=container.run, pids=left)
        return len(left)

    async def settle(self, container: Container) -> None:
        key = RunKey(container.id, container.run)
        await self._watching.settle(key, rundir.path_of(self._place.state, container.id, container.run))

    async def delete_process(self, container: Container) -> None:
        """End the shim first: a late `runtime delete` of this run would kill the next one. The rest happens under the
        run's lock, so that a shim which a stopped keeper starts only now finds no run to begin."""
        key = RunKey(container.id, container.run)
        path = rundir.path_of(self._place.state, container.id, container.run)
        await self._watching.learn(container, self._place)
        await self._watching.leave(key, path, runplan.leaves_seconds(container.spec.foreign))
        is_unmade = container.init is None and container.exit is None
        async with self._watching.shims.locked(path, is_unmade=is_unmade):
            has_begun = container.init is not None or _is_there(path)  # before that, the name may be another's
            if has_begun and await self._is_known(container):
                await self._delete_by_runtime(container)
            await self._clear_cgroup(self._cgroup(container))
            if container.spec.task is not None and _cgroup_exists(self._cgroup(container)):  # usually not shared
                is_gone = await asyncio.to_thread(_remove_if_empty, self._cgroup(container))
                if not is_gone and _has_just_ended(container, path) and not rest.sharers(path):
                    raise TimedOut(f"the cgroup of {container.spec.name} is still busy", id=container.id)
                if not is_gone:
                    log.info("a task's cgroup is not empty and stays", container=container.id, name=container.spec.name)
            self.forget(container)
            rundir.remove(path)

    async def _delete_by_runtime(self, container: Container) -> None:
        """Run the runtime's delete. Its result is only logged, for cgroups and run directory are removed in any case.
        Raises Busy when there was no room for it; nothing has changed then."""
        try:
            argv = (await self._runtime(container)).delete(runplan.runtime_id(container))
            result = await runtime.run(argv, timeout_seconds=self._place.runtime_seconds)
            if result.returncode:
                log.warning("runtime delete failed", container=container.id, status=result.returncode)
        except Busy:  # the caller tries again
            raise
        except (ExitdError, OSError) as error:
            log.warning("runtime delete failed", container=container.id, why=str(error))

    async def _clear_cgroup(self, path: str) -> None:
        """Kill all processes left in one of exitd's own cgroups. One that a bundle names may be shared, and stays. A
        slice is systemd's to remove; where systemd does not, exitd does."""
        if not bundle.is_ours(path) or not _cgroup_exists(path):
            return
        if pod := bundle.pod_of_slice(path):
            if why := await slices.end(pod):
                log.warning("systemd does not stop the slice", slice=path, why=why)
            if not _cgroup_exists(path):
                return
        await asyncio.to_thread(_remove_cgroup, path)

    def forget(self, container: Container) -> None:
        self._watching.drop(RunKey(container.id, container.run))
        self._watching.forget(container.id)

    def monitored_by(self, key: RunKey) -> str:
        """Return which process is init's parent: shim | keeper | other; empty if there is no init."""
        return self._watching.shims.parent_of_init(self._watching.get(key))

    def shim_of(self, key: RunKey) -> Process | None:
        """Return the run's shim or its replacement; None if neither is alive."""
        watch = self._watching.get(key)
        return watch.shim if watch is not None and watch.shim_fd >= 0 else None

    def shim_gone(self, key: RunKey) -> asyncio.Event | None:
        """Return the event that is set when the run's output is complete in its log and its shim has left."""
        return self._watching.shim_gone(key)

    def output_read(self, key: RunKey) -> asyncio.Event | None:
        """Return the event that is set when the clients of the run, or of an exec, have read all that they get."""
        return self._watching.output_read(key)

    def kill_stopped_shim(self, key: RunKey) -> bool:
        return self._watching.kill_stopped_shim(key)

    def look_at_all(self) -> None:
        """Called by the reconcile loop: finds an end that no event reported, and mends what a run's output needs."""
        self._watching.look_at_all()

    async def look_at_memory(self) -> None:
        """Called by the reconcile loop: finds memory kills that no event reported."""
        await self._watching.look_at_memory()

    async def delete_leaked_run(self, container_id: str, run: int, *, stranger: bool) -> None:
        """Remove a run directory of an unknown run, and its shim. If its container is unknown, too (`stranger`), end
        what runs in its cgroup, unless that is marked by another exitd. The cgroup of a known container may be in use
        by its next run."""
        key, path = RunKey(container_id, run), rundir.path_of(self._place.state, container_id, run)
        await self._watching.shims.leave(self._watching.get(key))
        async with self._watching.shims.locked(path):
            if stranger:
                for cgroup in bundle.leaked_cgroups(container_id):
                    if any(self._owner.is_anothers(each) for each in cgroups.existing(cgroup)):
                        log.warning("another exitd's cgroup is left alone", cgroup=cgroup)
                    else:
                        await self._clear_cgroup(cgroup)
            rundir.remove(path)

    async def runs_on(self, container_id: str) -> bool:
        """Return whether processes are left of a container that exitd does not know. Raises OSError."""
        return await asyncio.to_thread(lambda: any(map(cgroups.pids, bundle.leaked_cgroups(container_id))))

    async def discard_root(self, container_id: str) -> None:
        """Unmount the root, in STATE/roots, of a container that exitd does not know: a preparation that was given up
        may have mounted it after the removal. Raises OSError, TimedOut, Busy."""
        what, apart = f"removing the root of {container_id[:12]}", bundle.apart_of(self._place.state, container_id)
        await self._place.clearing.run(what, lambda: rootfs.release_apart(apart), container_id)

    async def sweep_cgroups(self, known: Collection[str]) -> None:
        """End what runs in cgroups with this exitd's mark that belong to no container it knows, and to no run directory
        that may still be adopted or removed. Adopted containers have the cgroup that their bundle names."""
        await self._remove_misplaced()
        found = await asyncio.to_thread(bundle.all_cgroups)
        self._anothers.intersection_update(found)
        used: frozenset[str] | None = None
        for path in found:
            if path.rpartition("/")[2] in known or path in self._anothers:  # most of them: /exitd/ID
                continue
            id = bundle.id_of(path)
            if id in known:
                continue
            used = self._used(known) if used is None else used
            if cgroups.inside(path) in used or _is_there(f"{self._place.state}/c/{id}"):
                continue
            directories = cgroups.existing(path)
            if any(self._owner.is_anothers(each) for each in directories):
                self._anothers.add(path)
            elif any(self._owner.owns(each) for each in directories):
                log.warning("cgroup without a container, ending what runs in it", cgroup=path)
                try:
                    await self._clear_cgroup(path)
                except (ExitdError, OSError) as error:
                    log.warning("cgroup not removed", cgroup=path, why=str(error))

    async def _remove_misplaced(self) -> None:
        """Remove what crun has left in the cgroups of exitd and the keeper."""
        keeper = self._watching.shims.keeper
        own = (os.getpid(), *((keeper.pid,) if keeper is not None else ()))
        try:
            if misplaced := await asyncio.to_thread(scopes.remove_misplaced, own):
                log.info("what crun left in a cgroup that is no container's is removed", cgroups=misplaced)
        except OSError as error:
            log.warning("what crun left is not removed", why=str(error))

    def _used(self, known: Collection[str]) -> frozenset[str]:
        """Return the cgroups of the containers with these ids, as paths below the top."""
        named = (path for id, path in self._watching.cgroups.items() if id in known)
        return frozenset(map(cgroups.inside_or_nowhere, named))

    async def acknowledge_strangers(self, needed: Callable[[], frozenset[RunKey]]) -> int:
        """Called by the reconcile loop: acknowledge to the keeper the runs that are no longer needed."""
        return await self._watching.acknowledge_strangers(needed)


@contextlib.contextmanager
def _eye_on(watch: Watch | None) -> Iterator[None]:
    """While the block runs, let exitd itself watch whether init executes its program, if there is no shim to do so."""
    if watch is None or not watch.has_no_shim():
        yield
        return
    looking = asyncio.get_running_loop().create_task(watch.see_begin())
    try:
        yield
    finally:
        looking.cancel()


def _shims_of(pids: Collection[int]) -> list[int]:
    """Return pidfds of the shims that are parents of these processes; the caller closes them. Raises ShimFailed when
    that cannot be said now."""
    found: list[int] = []
    with undone_on_failure(lambda: _close(found)):
        try:
            for parent in {_parent_of(pid) for pid in pids} - {0}:
                if (fd := epoll.open_pid(parent)) is not None:
                    found.append(fd)
                    if procfs.name(parent) != SHIM_NAME:
                        os.close(found.pop())
        except OSError as error:
            raise ShimFailed(f"a shim cannot be looked for: {error.strerror}") from error
    return found


def _close(descriptors: list[int]) -> None:
    for fd in descriptors:
        os.close(fd)


def _parent_of(pid: int) -> int:
    """Return 0 if the process has ended."""
    try:
        return native.process_stat(pid)[1]
    except ProcessLookupError:
        return 0


def _has_just_ended(container: Container, path: str) -> bool:
    """Return whether a process in its cgroup may be its own, about to end. Later it must be another's. Of a run that
    came to nothing there is no exit, but its directory says when it was begun."""
    if container.exit is not None:
        since_ns = container.exit.at_ns
    else:
        try:
            since_ns = os.stat(f"{path}/{names.PLAN}").st_mtime_ns
        except FileNotFoundError:
            return False
    return time.time_ns() - since_ns < BUSY_CGROUP_SECONDS * 10**9


def _remove_if_empty(path: str) -> bool:
    try:
        return cgroups.remove_if_empty(path)
    except OSError as error:
        raise ShimFailed(f"cgroup {path}: {error.strerror}") from error


def _write(path: str, text: str) -> None:
    try:
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise ShimFailed(f"{path}: {errnos.said(error)}") from error


def _lift(cgroup: str, controller: str) -> None:
    try:
        cgroups.lift(cgroup, controller)
    except OSError as error:
        raise RuntimeFailed(f"cgroup {cgroup}: its limit of {controller} stays: {errnos.said(error)}") from error


def _is_there(path: str) -> bool:
    """Look in the state directory, which is in memory and does not block."""
    return os.path.isdir(path)


def _cgroup_exists(path: str) -> bool:
    return any(os.path.isdir(each) for each in cgroups.paths(path).values())


def _remove_cgroup(path: str) -> None:
    try:
        cgroups.remove(path)
    except OSError as error:
        raise ShimFailed(f"cgroup {path}: {error.strerror}") from error


def _kill_one(pid: int, signal_number: int, cgroup: str) -> None:
    """The pid is from the cgroup's list; the process of its pidfd is signalled only if the list still has it."""
    fd = epoll.open_pid(pid)
    if fd is None:
        return
    try:
        with contextlib.suppress(ProcessLookupError):
            if pid in cgroups.pids(cgroup):
                signal.pidfd_send_signal(fd, signal_number)
    finally:
        os.close(fd)
