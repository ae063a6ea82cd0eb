"""Shim v2: containers under any containerd shim binary, implementing `supervisor/runtime/sandbox.py`.

exitd takes containerd's place: it makes the bundle, listens for events, calls `start`, and from then on uses the Task
service on the socket that was printed. A Wait is open from before the start to the end; after a restart of the daemon
it sends Connect and Wait again. `verdict.py` decides which observed end is reported.
"""

import asyncio
import contextlib
import functools
from collections.abc import Awaitable, Callable

import structlog

from shim.undo import undone_on_failure
from supervisor.model.errors import (
    ExitdError,
    NoSuchContainer,
    RuntimeFailed,
    ShimFailed,
    ShimLost,
    TimedOut,
    WrongState,
)
from supervisor.model.taskfacts import Stdio
from supervisor.model.values import Container, Phase, Process, RunKey, Winsize
from supervisor.monitor import procfs, rundir
from supervisor.monitor.control import Control
from supervisor.runtime.foreign_shim import binary, leaked, options, place, process, pumps
from supervisor.runtime.foreign_shim.connection import CALL_SECONDS, ShimConnection
from supervisor.runtime.foreign_shim.detach import SILENT_SECONDS, detach, detach_nameless
from supervisor.runtime.foreign_shim.logfifo import LogFifo
from supervisor.runtime.foreign_shim.place import Contact
from supervisor.runtime.foreign_shim.registry import Run, ShimRegistry
from supervisor.runtime.foreign_shim.watching import process_of
from supervisor.runtime.oci import bundle, cgroups, command, namespaces, podlimits
from supervisor.runtime.oci.runplan import Place
from supervisor.runtime.sandbox import CreatedRun, Found, RunListener
from supervisor.streams.attach import Orders
from supervisor.system import room

MONITORED_BY, SILENT = "shim-v2", "unresponsive"
SIGKILL = 9

log = structlog.get_logger(__name__)


async def set_pod_limits(container: Container) -> None:
    """Set a pod's own limits if its containers are in its cgroup. An earlier exitd stored such limits, without effect,
    also for shims that run them elsewhere. Raises ShimFailed."""
    if binary.is_of_runc(container.spec.runtime_type):
        await podlimits.set_limits(container)


class ShimV2Containers:
    """The ContainerManager for shim v2 binaries. `prepared` makes a container's bundle of exitd's own kind."""

    def __init__(
        self, where: Place, registry: ShimRegistry, prepared: Callable[[Container], Awaitable[bundle.Bundle]]
    ) -> None:
        self._place = where
        self._registry = registry
        self._prepared = prepared
        self._starting: set[RunKey] = set()  # runs whose Start is not answered yet

    def listen(self, listener: RunListener) -> None:
        self._registry.listen(listener)

    # -- a run begins

    async def create_container(self, container: Container) -> CreatedRun:
        own = await self._prepared(container)
        await set_pod_limits(container)
        key, path = RunKey(container.id, container.run), self._path(container)
        pause = self._registry.watching.get(RunKey(container.spec.sandbox, container.sandbox_run))
        with namespaces.opened(container.spec, pause) as joins:
            plan = pumps.plan_of(container, self._place)
            config = await asyncio.to_thread(_config, own.path)
            directory = rundir.make(self._place.state, container.id, container.run, plan)
            with undone_on_failure(directory.close):
                work = place.lay_out(config, path, container.id)
            fifos = await self._registry.pumps.begin(key, directory, container.spec)
            run = await self._start(container, key, work, own.cgroups_path)
            with place.linked(bundle.links(container, self._place.state), joins):
                wanted = bundle.command_in(own.document, container.spec.ids)
                init = await self._create(container, run, work, fifos, wanted)
        return CreatedRun(init, run.shim, MONITORED_BY)

    async def _start(self, container: Container, key: RunKey, work: str, cgroup: str) -> Run:
        """Return its run, with a new shim or that of its pod."""
        program, path = container.spec.runtime_path, self._path(container)
        await self._registry.serve()
        log_fifo = LogFifo(work, container.id)
        with undone_on_failure(log_fifo.close):
            shim, wanted = self._registry.shim(container.id, program), options.packed(container, self._place.state)
            address = await process.start(shim, work, wanted, self._place.programs, seconds=self._place.create_seconds)
            contact = Contact(program, address.address, address.version, address.protocol)
            place.leave_contact(path, contact)
        return self._registry.begin(key, path, contact, cgroup, log_fifo)

    async def _create(
        self, container: Container, run: Run, work: str, fifos: pumps.Fifos, wanted: command.Command | None
    ) -> Process:
        """Create the container and open a Wait for its end. Return init, which waits for its start."""
        link = await run.peer.link()
        await self._know_shim(run, link)  # some shims do not know their own pid yet
        stdio = Stdio(fifos.stdin, fifos.stdout, fifos.stderr, container.spec.tty)
        given, seconds = options.packed(container, self._place.state), self._place.create_seconds
        try:
            pid = await link.create(container.id, work, stdio=stdio, options=given, seconds=seconds)
        except TimedOut:
            run.peer.silent = True  # so that the removal does not wait for it as long again
            raise
        except RuntimeFailed as error:
            if wanted is None:
                raise
            what, words = f"looking for the command of {container.spec.name}", str(error)
            raise await self._place.making.run(what, lambda: command.blame(wanted, words)) from error
        init = await room.patiently(lambda: process_of(pid), "a look at init")
        if init is None:
            raise RuntimeFailed(f"{container.spec.runtime} says that init is {pid}, and there is no such process")
        place.leave_init(run.path, init)
        if run.shim is None:
            await self._know_shim(run, link)
        self._watch(container, run, init)
        return init

    async def _know_shim(self, run: Run, link: ShimConnection) -> None:
        """Note the shim's pid, if it reports one. Whether it is alive is for its watch to find out."""
        with contextlib.suppress(ExitdError):
            run.shim = process_of((await link.connect(run.key.container)).shim_pid) or run.shim

    def _watch(self, container: Container, run: Run, init: Process) -> None:
        executes = bundle.executes(container, self._place.root)  # may fail: before anything is watched
        self._registry.watch_memory(run, container.oom_told)
        watched = self._registry.watching.add(run.key, run.peer)
        self._registry.watching.hold(watched, init, own=run.peer.is_plain, executes=executes)
        self._registry.watching.begin(watched)
        self._registry.keep(run)

    # -- a run goes on

    def _run(self, container: Container) -> Run:
        """Return its run. Raises WrongState when it has no shim."""
        run = self._registry.get(RunKey(container.id, container.run))
        if run is None:
            raise WrongState(f"{container.spec.name} has no shim", id=container.id)
        return run

    async def _to(self, container: Container) -> ShimConnection:
        return await self._run(container).peer.link()

    async def start_process(self, container: Container) -> None:
        key, link = RunKey(container.id, container.run), await self._to(container)
        self._starting.add(key)
        looking = asyncio.get_running_loop().create_task(self._registry.watching.look_meanwhile(key))
        try:
            await link.start(container.id, seconds=self._place.runtime_seconds)
        finally:
            looking.cancel()
            await asyncio.gather(looking, return_exceptions=True)
            self._starting.discard(key)
        await self._registry.watching.see_start(key)
        if self._never_executed(key):
            argv0, where = next(iter(container.spec.args), "its command"), f"exitctl logs {container.spec.name}"
            raise command.never_executed(argv0, more=f", and at: {where}")

    async def state_process(self, container: Container) -> str:
        """Ask the shim. But if init has ended without executing its program, the kernel knows that first."""
        if self._never_executed(RunKey(container.id, container.run)):
            return "stopped"
        link = await self._to(container)
        try:
            return (await link.state(container.id)).status
        except NoSuchContainer:
            return "absent"

    def _never_executed(self, key: RunKey) -> bool:
        watched = self._registry.watching.get(key)
        return watched is not None and self._registry.watching.has_begun(watched) is False

    async def kill_process(self, container: Container, signal_number: int, *, everyone: bool = False) -> None:
        """Signal through the shim, whatever the pid: it may be a virtual machine's, which others share. If the shim
        does not answer, signal init directly if it is a process of this host. A shim that does not handle SIGKILL is
        killed itself, unless others use it; its `delete` then ends the container."""
        run = self._run(container)
        try:
            await self._kill(run, signal_number, everyone=everyone)
        except TimedOut as error:
            run.peer.missed()
            if not await self._force(run, signal_number, everyone=everyone):
                if signal_number != SIGKILL or not self._registry.is_lone(run):
                    raise _silent(container, run, error) from error
                await self._registry.end_shim(run, 0)
        except RuntimeFailed:
            if signal_number != SIGKILL or not await self._never_started(container, run):
                raise
        except (WrongState, ShimLost) as error:
            if (watched := self._registry.watching.get(run.key)) is not None:
                watched.over = True
            raise WrongState(f"{container.spec.name} has ended", id=container.id) from error
        if signal_number == SIGKILL:
            cgroups.thaw(bundle.cgroups_path(container, self._place.root))

    async def _force(self, run: Run, signal_number: int, *, everyone: bool) -> bool:
        """Signal without the shim. Return False if that is not possible."""
        watched = self._registry.watching.get(run.key)
        if watched is None or watched.init is None or not self._registry.watching.force(watched, signal_number):
            return False
        log.warning(
            "signalled init itself, its shim does not answer", container=run.key.container, signal=signal_number
        )
        if everyone:
            others = functools.partial(cgroups.pids, run.cgroup)
            await asyncio.to_thread(procfs.signal_family, watched.init, signal_number, others)
        return True

    async def _never_started(self, container: Container, run: Run) -> bool:
        """A virtual machine's shim cannot signal a container that was created but not started, or whose start has
        failed; it only deletes it. The state that it reports is then the end of the run."""
        watched = self._registry.watching.get(run.key)
        if container.phase not in (Phase.CREATED, Phase.STARTING) or watched is None:
            return False
        with contextlib.suppress(ExitdError):
            is_created = run.key not in self._starting and await self.state_process(container) == "created"
            if is_created and run.key not in self._starting:
                self._registry.watching.never_started(watched)
                return True
        return False

    async def _kill(self, run: Run, signal_number: int, *, everyone: bool) -> None:
        """Signal, and once more over a new connection if the old one broke. ShimLost is ignored: the shim is gone, and
        the end will be reported."""
        seconds = SILENT_SECONDS if run.peer.silent else CALL_SECONDS
        for last in (False, True):
            link = await run.peer.link()
            try:
                return await link.kill(run.key.container, signal_number, everyone=everyone, seconds=seconds)
            except ShimLost:
                if last:
                    raise

    async def pause_container(self, container: Container) -> None:
        await (await self._to(container)).pause(container.id)

    async def resume_container(self, container: Container) -> None:
        await (await self._to(container)).resume(container.id)

    async def is_paused(self, container: Container) -> bool:
        return await self.state_process(container) == "paused"

    async def update_container(self, container: Container, resources: str) -> None:
        """Change its limits. `resources`: JSON of runtime-spec's linux.resources."""
        await (await self._to(container)).update(container.id, resources.encode())

    async def pids(self, container: Container) -> tuple[int, ...]:
        return tuple(member.pid for member in await (await self._to(container)).pids(container.id))

    def orders(self, key: RunKey) -> Orders:
        """The terminal is the shim's, and so is one copy of stdin; the pump has the other one."""

        async def resize(_: Control, size: Winsize) -> None:
            with contextlib.suppress(ShimLost):  # its end will be reported
                link = await self._of(key)
                await link.resize(key.container, key.exec_id, rows=size.rows, columns=size.cols)

        async def close_stdin(line: Control) -> None:
            await line.close_stdin()
            with contextlib.suppress(ShimLost):
                await (await self._of(key)).close_io(key.container, key.exec_id)

        return Orders(resize, close_stdin)

    async def _of(self, key: RunKey) -> ShimConnection:
        run = self._registry.get(RunKey(key.container, key.run))
        if run is None:
            raise WrongState(f"{key.container[:12]} has no shim", id=key.container)
        return await run.peer.link()

    async def has_begun(self, container: Container) -> bool:
        """What the kernel reports. Where it does not, only its shim knows: see `state_process`."""
        watched = self._registry.watching.get(RunKey(container.id, container.run))
        return watched is not None and bool(self._registry.watching.has_begun(watched))

    def is_unseen(self, container: Container) -> bool:
        watched = self._registry.watching.get(RunKey(container.id, container.run))
        return watched is None or (watched.becomes and not self._registry.watching.has_begun(watched))

    def may_start_again(self, container: Container) -> bool:
        """Some shims deadlock over a second Start."""
        run = self._registry.get(RunKey(container.id, container.run))
        return run is None or run.peer.is_plain

    def sees_init(self, container: Container) -> bool:
        watched = self._registry.watching.get(RunKey(container.id, container.run))
        return watched is not None and not self._registry.watching.is_shared(watched)

    def is_ending(self, container: Container) -> bool:
        watched = self._registry.watching.get(RunKey(container.id, container.run))
        has_ended = watched is None or watched.over or watched.reported or watched.wait is not None
        return has_ended or container.init is None or procfs.is_ending(container.init)

    # -- a run is found again

    async def connect_container(self, container: Container) -> tuple[Found, CreatedRun | None]:
        key, path = RunKey(container.id, container.run), self._path(container)
        run, init = self._registry.find(container), container.init or rundir.created(path)
        if run is None or init is None:
            return Found.NOTHING, None
        self._registry.pumps.find(key, rundir.reopen(self._place.state, container.id, container.run))
        if self._registry.watching.get(key) is None:
            self._watch(container, run, init)
        with contextlib.suppress(ShimLost, TimedOut):
            await self._know_shim(run, await run.peer.link())
        return Found.LIVE, CreatedRun(init, run.shim, self.monitored_by(key))

    def forget(self, container: Container) -> None:
        """Keeps the run: the next look-up here continues with it."""

    # -- a run ends

    def leaves_nothing(self, container: Container) -> bool:
        return True

    async def end_rest(self, container: Container) -> int:
        """Does nothing: its shim ends them before it answers Wait."""
        return 0

    async def settle(self, container: Container) -> None:
        """Does nothing: a shim reports the end again until it is deleted."""

    async def delete_process(self, container: Container) -> None:
        """As containerd does: see `detach`."""
        key, path = RunKey(container.id, container.run), self._path(container)
        if place.laid_out(path, container.id):
            run = self._registry.find(container)
            if run is not None:
                await detach(self._registry, run, container, container.init or rundir.created(path))
            else:
                await detach_nameless(self._registry, path, container.id)
                await self._registry.delete(path, container.id, container.spec.runtime_path)
        await self._clear(container, key, path)

    async def _clear(self, container: Container, key: RunKey, path: str) -> None:
        await self._registry.pumps.leave(key)
        await self._registry.end(key)
        cgroup = bundle.cgroups_path(container, self._place.root)
        if bundle.is_ours(cgroup):
            await asyncio.to_thread(_remove_cgroup, cgroup)
        await self._release(container.id, path)
        await self._registry.pumps.remove(key)

    async def _release(self, container_id: str, path: str) -> None:
        """Unmount what a shim has mounted below the run directory. Raises ShimFailed, TimedOut."""
        await self._place.clearing.run(f"unmounting what is below {path}", lambda: place.clear(path), container_id)

    async def delete_leaked_run(self, container_id: str, run: int) -> None:
        """Remove a run directory of an unknown run."""
        path = rundir.path_of(self._place.state, container_id, run)
        contact = place.read_contact(path)
        if place.laid_out(path, container_id):
            await detach_nameless(self._registry, path, container_id)
            if contact is not None:
                deletion, init = await self._registry.delete(path, container_id, contact.program), rundir.created(path)
                if deletion.failed and init is not None and self._registry.is_alone(path, contact.address):
                    await leaked.ended(init, 0)
            await self._release(container_id, path)
            await self._registry.pumps.remove(RunKey(container_id, run))

    # -- what is shown of it

    def has(self, key: RunKey) -> bool:
        return self._registry.get(RunKey(key.container, key.run) if key.exec_id else key) is not None

    def monitored_by(self, key: RunKey) -> str:
        run = self._registry.get(key)
        if run is None:
            return ""
        return SILENT if run.peer.silent else MONITORED_BY

    def shim_of(self, key: RunKey) -> Process | None:
        run = self._registry.get(key)
        return run.shim if run is not None and not run.peer.lost.is_set() else None

    def shim_gone(self, key: RunKey) -> asyncio.Event | None:
        """Return the event that is set when the run's output is complete in its log."""
        return self._registry.pumps.gone(key)

    def look_at_all(self) -> None:
        """Called by the reconcile loop: mends what the output of runs and execs needs."""
        self._registry.pumps.look_at_all()

    async def look_at_memory(self) -> None:
        await self._registry.look_at_memory()

    def _path(self, container: Container) -> str:
        return rundir.path_of(self._place.state, container.id, container.run)


def _silent(container: Container, run: Run, error: ExitdError) -> TimedOut:
    """Return the error for a person who wants to end it."""
    pid = f"process {run.shim.pid}" if run.shim is not None else "whose pid is not known"
    end = f"`kill -9 {run.shim.pid}` ends it" if run.shim is not None else "`ps` shows it; its end ends it"
    next_step = f"{end} and all containers under it"
    text = (
        f"the shim of {container.spec.name}, {pid}, does not answer, and there is no other way to signal the container"
    )
    return TimedOut(f"{text}; {next_step}: {error}", id=container.id)


def _remove_cgroup(path: str) -> None:
    try:
        cgroups.remove(path)
    except OSError as error:
        raise ShimFailed(f"cgroup {path}: {error.strerror}") from error


def _config(path: str) -> bytes:
    try:
        with open(f"{path}/config.json", "rb") as file:
            return file.read()
    except OSError as error:
        raise ShimFailed(f"{path}/config.json: {error.strerror}") from error
