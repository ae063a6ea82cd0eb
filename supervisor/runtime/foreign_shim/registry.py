"""What all containers under foreign shims share: the address for their events, the connections to their shims, the
ends."""

import asyncio
import time
from functools import partial

import structlog

from protos.containerd import events_pb2
from shim.frozen import mutable
from supervisor.model.errors import ExitdError, ShimFailed
from supervisor.model.values import Container, Process, Report, RunKey, Source, Unknown
from supervisor.monitor import epoll, rundir
from supervisor.monitor.earlyholds import EarlyHolds
from supervisor.monitor.kernelword import Executions, KernelWord
from supervisor.runtime.foreign_shim import forwarding, leaked, place, process
from supervisor.runtime.foreign_shim.binary import Shim
from supervisor.runtime.foreign_shim.logfifo import LogFifo
from supervisor.runtime.foreign_shim.peer import Peer
from supervisor.runtime.foreign_shim.place import Contact
from supervisor.runtime.foreign_shim.pumps import Pumps
from supervisor.runtime.foreign_shim.verdict import SHIM_LOST, Deletion, ShimWord, instant_ns
from supervisor.runtime.foreign_shim.watching import ShimWatching
from supervisor.runtime.oci import cgroups
from supervisor.runtime.oci.bundle import cgroups_path
from supervisor.runtime.oci.oomwatch import OomWatch
from supervisor.runtime.oci.runplan import Place
from supervisor.runtime.sandbox import RunListener
from supervisor.system import room
from supervisor.system.inotify import Inotify

NAMESPACE = "exitd"  # the namespace that shims get as containerd's, by which they group containers
EVENTS = "shimv2-events.sock"

log = structlog.get_logger(__name__)


@mutable
class Run:
    """One run, from when its shim is known until nothing of it is left."""

    key: RunKey
    path: str
    peer: Peer
    cgroup: str
    log: LogFifo
    shim: Process | None = None
    parted: bool = False  # it has been deleted there, or the shim did not answer that request
    keeping: tuple[asyncio.Task[None], ...] = ()

    @property
    def bundle(self) -> str:
        return place.bundle_of(self.path, self.key.container)

    async def close(self) -> None:
        """Cancel what is under way for the run, and close its connection and its log."""
        for task in self.keeping:
            task.cancel()
        await asyncio.gather(*self.keeping, return_exceptions=True)
        self.peer.close()
        self.log.close()


class ShimRegistry:
    """One per daemon; belongs to its event loop."""

    def __init__(
        self,
        where: Place,
        watcher: epoll.Monitor,
        changes: Inotify,
        pumps: Pumps,
        *,
        zombie: bool,
        kernel: KernelWord,
        executions: Executions,
        early: EarlyHolds | None = None,
    ) -> None:
        """`zombie`: this process may read wait statuses of other processes' zombies (probe.zombie). `early`: what is
        held already of what will be looked up."""
        self.place = where
        self.pumps = pumps
        self.watching = ShimWatching(
            self._ended, self.oom_kills, zombie=zombie, kernel=kernel, executions=executions, early=early
        )
        self._runs: dict[str, Run] = {}
        self._listener: RunListener | None = None
        self._oom = OomWatch(watcher, changes, lives=self._lives, report=self._killed_for_memory)
        self._events = forwarding.Forwarding(self._happened)
        self._beginning = asyncio.Lock()
        self._serves = False

    def listen(self, listener: RunListener) -> None:
        self._listener = listener

    async def serve(self) -> None:
        """Listen for events, before any shim is started: some connect at once. Repeatable. Raises CannotStart."""
        async with self._beginning:
            if not self._serves:
                await self._events.start(f"{self.place.state}/{EVENTS}")
                self._serves = True

    async def close(self) -> None:
        """Close this side. The shims live on, and so do their containers."""
        self.watching.close()
        for run in list(self._runs.values()):
            await run.close()
        self._runs.clear()
        self._oom.close()
        await self._events.stop()

    # -- one run

    def get(self, key: RunKey) -> Run | None:
        """Return this run; None if it is over, or the container has another one."""
        run = self._runs.get(key.container)
        return run if run is not None and run.key.run == key.run else None

    def shim(self, container_id: str, program: str) -> Shim:
        """Return how its shim is called."""
        state = self.place.state
        return Shim(program, NAMESPACE, container_id, f"{state}/exitd.sock", f"{state}/{EVENTS}")

    def begin(self, key: RunKey, path: str, contact: Contact, cgroup: str, log_fifo: LogFifo) -> Run:
        """Begin a run, the only one of its container. `path`: its directory. `contact`: how its shim is reached."""
        assert key.container not in self._runs, f"the last run of {key.container} is not over"
        looks = self.place.programs
        peer = Peer(key.container, contact, lambda silent: self._silence_seen(key, silent), self._check_seconds, looks)
        run = self._runs[key.container] = Run(key, path, peer, cgroup, log_fifo)
        return run

    def find(self, container: Container) -> Run | None:
        """Return a run whose shim was begun by an earlier daemon, or by a create that failed. None: its address is not
        known. Raises OSError when that cannot be read now, ShimFailed without a log fifo."""
        key, path = RunKey(container.id, container.run), rundir.path_of(self.place.state, container.id, container.run)
        if (known := self.get(key)) is not None:
            return known
        contact = place.read_contact(path)
        if contact is None or not place.laid_out(path, container.id):
            return None
        bundle = place.bundle_of(path, container.id)
        cgroup = cgroups_path(container, self.place.root)
        run = self.begin(key, path, contact, cgroup, LogFifo(bundle, container.id))
        run.shim = container.shim
        return run

    def keep(self, run: Run) -> None:
        """From now on check that its shim is alive, and notice its death. Repeatable."""
        loop = asyncio.get_running_loop()
        run.keeping = run.keeping or (loop.create_task(run.peer.keep()), loop.create_task(self._lose(run)))

    def _check_seconds(self) -> float:
        return self.place.limits().reconcile_seconds

    def watch_memory(self, run: Run, logged: int) -> None:
        """Watch the run's cgroup, which exists now. `logged`: memory kills of this run that are already in the event
        log."""
        self._oom.begin(run.key, run.cgroup, logged)

    async def end(self, key: RunKey) -> None:
        """Close what this process holds of the run."""
        run = self.get(key)
        if run is not None:
            del self._runs[key.container]
            self._oom.end(key)
        self.watching.drop_run(key)
        if run is not None:
            await run.close()

    async def delete(self, run_path: str, container_id: str, program: str) -> Deletion:
        """Call the shim's `delete` binary and return what it reports. It is always called, possibly several times."""
        bundle = place.bundle_of(run_path, container_id)
        try:
            deleted = await process.delete(self.shim(container_id, program), bundle)
        except (ExitdError, OSError) as error:
            log.warning("the shim's delete failed, something may be left", container=container_id, why=str(error))
            return Deletion(failed=True)
        return Deletion(ShimWord(deleted.exit_status, deleted.exited_at_ns) if deleted is not None else None)

    def is_lone(self, run: Run) -> bool:
        """Return whether no other run needs its shim. Raises OSError as `is_alone`."""
        return self.is_alone(run.path, run.peer.contact.address)

    def is_alone(self, run_path: str, address: str) -> bool:
        """Return whether no other run needs the shim there, by the files in the state directory: some runs may not be
        found yet. Raises OSError when one of them cannot be read now: it may be of the pod that shares the shim."""
        runs = (found for found in rundir.runs(self.place.state) if not self._has_parted(*found))
        paths = (rundir.path_of(self.place.state, *found) for found in runs)
        contacts = (place.read_contact(path) for path in paths if path != run_path)
        return all(contact is None or contact.address != address for contact in contacts)

    def _has_parted(self, container_id: str, run: int) -> bool:
        found = self.get(RunKey(container_id, run))
        return found is not None and found.parted

    async def end_shim(self, run: Run, patience: float) -> None:
        """End the shim of a run that is the only one to use it: it has `patience` seconds to exit, then it is killed.
        Raises ShimFailed."""
        found = {run.shim} if run.shim is not None else set()
        for each in found | set(await asyncio.to_thread(leaked.workers_in, run.bundle)):
            if not await leaked.ended(each, patience):
                raise ShimFailed(f"the shim of {run.key.container[:12]}, process {each.pid}, does not die of SIGKILL")

    # -- what shims report

    async def _lose(self, run: Run) -> None:
        await run.peer.lost.wait()
        if any(not watched.reported for watched in self.watching.of_peer(run.peer)):
            log.warning("shim lost", container=run.key.container, run=run.key.run)
        program = run.peer.contact.program
        delete = partial(self.delete, run.path, run.key.container, program)
        await room.retry(lambda: self.watching.lose(run.peer, delete))

    def _happened(self, happened: forwarding.Happened) -> None:
        event = happened.event
        if happened.namespace != NAMESPACE or not isinstance(event, events_pb2.TaskExit | events_pb2.TaskOOM):
            return
        run = self._runs.get(event.container_id)
        if run is None:
            log.info(
                "an event of no run",
                topic=happened.topic[: forwarding.SHOWN],
                container=event.container_id[: forwarding.SHOWN],
            )
        elif isinstance(event, events_pb2.TaskOOM):
            self._out_of_memory(run)
        else:
            exec_id = event.id if event.id != event.container_id else ""
            key = RunKey(event.container_id, run.key.run, exec_id)
            self.watching.event_came(key, ShimWord(event.exit_status, instant_ns(event.exited_at)), event.pid)

    def _silence_seen(self, key: RunKey, silent: bool) -> None:
        assert self._listener is not None
        self._listener.silence_seen(key, silent)

    def _out_of_memory(self, run: Run) -> None:
        """A shim whose containers are processes of this host reports what their cgroup counts. Another's report may be
        about a virtual machine, where no cgroup of this host counts."""
        log.info("a shim reports a memory kill", container=run.key.container, run=run.key.run)
        if run.peer.is_plain:
            self._oom.wake(run.key)
        else:
            self._oom.note(run.key)

    def _ended(self, key: RunKey, report: Report) -> None:
        assert self._listener is not None
        if not key.exec_id:
            self._oom.end(key)
        self.pumps.end(key)
        self._listener.exit_seen(key, report)

    def lost(self, key: RunKey, init: Process) -> None:
        """Report an end that no witness can be asked about any more."""
        self._ended(key, Report(Unknown(SHIM_LOST), Source.NONE, init, time.time_ns(), at_is_found=True))

    def oom_kills(self, key: RunKey) -> int:
        """Return the memory kills in the container's cgroup so far."""
        run = self._runs.get(key.container)
        whole = RunKey(key.container, key.run)
        return max((cgroups.oom_kills(run.cgroup) or 0) if run is not None else 0, self._oom.seen(whole))

    def _lives(self, key: RunKey) -> bool:
        watched = self.watching.get(key)
        return watched is not None and not watched.reported and watched.wait is None

    def _killed_for_memory(self, key: RunKey, kills: int) -> None:
        assert self._listener is not None
        self._listener.memory_kills_seen(key, kills)

    async def look_at_memory(self) -> None:
        await self._oom.look_at_all()
