"""Execs under exitd-shim: another process in a running container, made by the runtime's exec, with its own shim.

`runtime exec --detach` leaves the process to its subreaper, the shim, and writes its pid: for the shim that is a create
with nothing to remove at the end. All files of an exec are in a directory inside its container's run directory.
"""

import asyncio
import contextlib
import json
import os
import signal
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial

import structlog

from shim import launch, names, native, plan, prepare
from shim.undo import undone_on_failure
from supervisor.model import errnos
from supervisor.model.errors import Busy, ExitdError, ShimFailed, TimedOut, WrongState
from supervisor.model.execs import Exec
from supervisor.model.values import Container, Process, RunKey
from supervisor.monitor import epoll, procfs, rundir
from supervisor.monitor.shims import LOOK_SECONDS
from supervisor.monitor.witness import Beginning, Watch
from supervisor.runtime.oci import begun, bundle, cgroups, command, execspec, runplan, runtime
from supervisor.runtime.oci.runplan import DRAIN_MS, SHIM_SECONDS, Place
from supervisor.runtime.oci.spec import Document
from supervisor.runtime.oci.watching import Watching
from supervisor.runtime.sandbox import MadeExec, NoProcess
from supervisor.system import room

PROCESS = "process.json"

SETTLED_SECONDS = 5.0  # until what a killed runtime has left behind has begun or ended
SIGNS_SECONDS = 5.0  # between a shim's taking its lock and its signature
HOLD_MS = 10_000  # how long the output waits for the client that is to attach

log = structlog.get_logger(__name__)


class NativeExecs:
    """The ExecManager for runc, crun and similar runtimes."""

    def __init__(self, place: Place, watching: Watching) -> None:
        self._place = place
        self._watching = watching

    async def create_exec(self, container: Container, e: Exec) -> MadeExec:
        await self._watching.learn(container, self._place)
        with self._root(container) as root:
            where, looking = f"the look into the root of {container.spec.name}", self._place.looking
            if e.spec.process:
                process, wanted = _given(e, root)
            else:
                process, wanted = await looking.run(where, lambda: self._prepare(container, e, root))
            directory = rundir.make_in(self.directory_of(e.key), await self._plan(container, e))
            watch = self._watching.add(e.key, directory, executes=self._watching.executes_of(container))
            _write(f"{directory.path}/{PROCESS}", process)
            kills = self._watching.oom_kills(e.key)
            status = await self._shims_word(watch, e, bundle.stream_owner(container.spec, e.spec.foreign))
            if isinstance(status, launch.Created):
                init = self._watching.hold(watch, status)
                return MadeExec(init, watch.shim, kills, unseen=await self._is_unseen(watch, wanted.argv0))
            made = await self._certainly_begun(container, e, watch, status)
            if made is NoProcess.NEVER_BEGAN:
                blame = partial(_blame, wanted, container, status, self._place.create_seconds)
                raise await looking.run(where, blame)
            if not isinstance(made, Process):
                return MadeExec(None, None, kills)
            found = made
            await room.retry(lambda: self._watching.take_up(watch, found))
            return MadeExec(found, None, kills, unseen=await self._is_unseen(watch, wanted.argv0))

    async def _is_unseen(self, watch: Watch, argv0: str) -> bool:
        """Wait until its program is executed, or it has ended. Return whether that was not seen. Raises
        CommandNotExecutable when it was never executed."""
        beginning = await watch.beginning()
        if beginning is Beginning.NEVER:
            raise command.never_executed(argv0)
        return beginning is not Beginning.SEEN

    async def _certainly_begun(
        self, container: Container, e: Exec, watch: Watch, status: launch.Failed | ExitdError | None
    ) -> Process | NoProcess:
        """As `_begun_without_word`, repeated while there is no room to look, and for SIGNS_SECONDS while a shim has the
        lock and has not signed it. Raises ShimFailed."""
        loop = asyncio.get_running_loop()
        end = loop.time() + SIGNS_SECONDS
        while True:
            try:
                return await room.retry(partial(self._begun_without_word, container, e, watch, status))
            except ShimFailed:
                if loop.time() > end:
                    raise
            await asyncio.sleep(LOOK_SECONDS)

    async def _begun_without_word(
        self, container: Container, e: Exec, watch: Watch, status: launch.Failed | ExitdError | None
    ) -> Process | NoProcess:
        """Return what has begun although no shim reported it. A keeper that stood still begins its shim late, also
        where exitd then could begin none itself: if that shim has signed the lock, it goes on; otherwise it will find
        nothing to begin. Raises OSError when there is no room to look."""
        holder = rundir.lock_holder(self.directory_of(e.key))
        if isinstance(status, launch.Failed) and holder is not None and holder == watch.shim:
            return NoProcess.NEVER_BEGAN
        return await (self._begun_unseen if status is None else self.begun_exec)(container, e)

    async def _shims_word(
        self, watch: Watch, e: Exec, owner: tuple[int, int]
    ) -> launch.Created | launch.Failed | ExitdError | None:
        """Return the shim's report; the error, if none was started but a silent keeper may start one yet; None if it
        was killed before it, or is stopped and will not report in time. Raises ShimFailed and Busy where no shim is
        started."""
        try:
            return await self._watching.shims.begin(
                watch,
                self._place.create_seconds + SHIM_SECONDS,
                adopt=False,
                stdin=e.spec.stdin,
                tty=e.spec.tty,
                owner=owner,
            )
        except TimedOut as error:
            log.warning("shim of an exec says nothing", container=e.key.container, exec=e.key.exec_id, why=str(error))
            return None
        except (Busy, ShimFailed) as error:
            if not watch.asked_in_vain:
                raise
            return error

    async def begun_exec(self, container: Container, e: Exec) -> Process | NoProcess:
        await self._watching.learn(container, self._place)
        path, loop = self.directory_of(e.key), asyncio.get_running_loop()
        end = loop.time() + self._place.create_seconds + SHIM_SECONDS
        while (made := rundir.named(path)) is None:
            if loop.time() > end or not _is_at_it(path):
                return await self._begun_unseen(container, e)
            # A shim that had no room to note its process registers the process with the keeper, and with a later one,
            # too.
            if isinstance(word := await self._watching.keepers_word(e.key), Process):
                return word
            await asyncio.sleep(LOOK_SECONDS)
        return made

    async def _begun_unseen(self, container: Container, e: Exec) -> Process | NoProcess:
        """Return what remains of a shim that was killed, or is killed now, before it reported: a process that its
        runtime had begun is the keeper's child by now. The keeper keeps the exit of one that ends before it is found
        here."""
        path = self.directory_of(e.key)
        async with self._watching.shims.locked(path):
            made, shim = rundir.named(path), rundir.lock_holder(path)
            if made is None and shim is None:
                rundir.give_up(path)
        if made is not None:
            return made
        if shim is None:  # it had not come as far as to sign its lock
            return NoProcess.NEVER_BEGAN
        await _within(lambda: procfs.is_gone(shim) and not begun.in_session(shim.pid))
        word = await self._watching.keepers_word(e.key)
        if isinstance(word, Process):
            return word
        found = await self._look_for_begun(container, shim)
        if found.process is not None and self._is_only_one(e.key):
            await self._watching.name(e.key, found.process, path)
            return found.process
        if found.process is not None or found.undecided:
            return NoProcess.UNKNOWN
        return await self._watching.keepers_word(e.key)

    def _shims_of(self, container: Container) -> Iterator[int]:
        """Yield the pids of the shims of the container's run and execs, also of dead ones. Raises OSError when there is
        no room to look."""
        path = rundir.path_of(self._place.state, container.id, container.run)
        for each in (path, *(f"{path}/{rundir.EXECS}/{id}" for id in rundir.execs(path))):
            if (holder := rundir.lock_holder(each)) is not None:
                yield holder.pid

    async def _look_for_begun(self, container: Container, shim: Process) -> begun.BegunProcess:
        cgroup, found = self._watching.cgroup_of(container, self._place.root), begun.BegunProcess()
        known, shims = self._watching.inits_of(container.id), {shim.pid, *self._shims_of(container)}

        def decided() -> bool:
            nonlocal found
            found = begun.find(begun.look(cgroups.pids(cgroup)), shim.started_ticks, known, shims)
            return found.process is not None or not found.undecided

        await _within(decided)
        return found

    def _is_only_one(self, key: RunKey) -> bool:
        """Return whether no other exec of this container lost its shim while it was made: what is found is then this
        one's."""
        path = rundir.path_of(self._place.state, key.container, key.run)
        others = [f"{path}/{rundir.EXECS}/{id}" for id in rundir.execs(path) if id != key.exec_id]
        return not any(rundir.named(each) is None and not _is_at_it(each) for each in others)

    async def connect_exec(self, container: Container, e: Exec) -> None:
        assert e.init is not None
        await self._watching.learn(container, self._place)
        self._find(container, e.key, e.init, tty=e.spec.tty)
        await self._watching.entry_awaited(e.key)

    def _find(self, container: Container, key: RunKey, init: Process, *, tty: bool = False) -> None:
        self._watching.drop(key)
        executes = self._watching.executes_of(container)
        directory = rundir.reopen(self._place.state, key.container, key.run, key.exec_id)
        with undone_on_failure(lambda: self._watching.drop(key)):
            self._watching.find(key, directory, init, executes=executes, tty=tty)

    async def signal_exec(self, container: Container, e: Exec, number: int, *, everyone: bool) -> None:
        watch = self._watching.get(e.key)
        if watch is not None and watch.is_unheld and watch.init_fd < 0:
            raise Busy(f"out of descriptors, exec {e.key.exec_id} cannot be signalled now; try again", id=container.id)
        if watch is None or watch.init_fd < 0 or watch.init is None:
            raise WrongState(f"exec {e.key.exec_id} has no process", id=container.id)
        if everyone:
            cgroup = self._watching.cgroup_of(container, self._place.root)
            await asyncio.to_thread(procfs.signal_family, watch.init, number, lambda: cgroups.pids(cgroup))
            return
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(watch.init_fd, number)

    def kill_stopped_shim(self, key: RunKey) -> bool:
        return self._watching.kill_stopped_shim(key)

    def shim_gone(self, key: RunKey) -> asyncio.Event | None:
        return self._watching.shim_gone(key)

    async def settle_exec(self, key: RunKey) -> None:
        await self._watching.settle(key, self.directory_of(key))

    async def delete_exec(self, container: Container, e: Exec) -> None:
        await self._watching.learn(container, self._place)
        path, shims = self.directory_of(e.key), self._watching.shims
        word = await self._watching.keepers_word(e.key) if e.init is None else None  # `leave` has it forgotten
        await self._watching.leave(e.key, path, runplan.leaves_seconds(e.spec.foreign))
        async with shims.locked(path):
            if e.init is None:
                await asyncio.to_thread(self._end_abandoned, container, path, word)
            self._watching.drop(e.key)
            rundir.remove(path)

    def leaked_execs(self, container: Container, known: Collection[str]) -> Sequence[str]:
        return rundir.execs(rundir.path_of(self._place.state, container.id, container.run), but=known)

    async def delete_leaked_execs(self, container: Container, known: Collection[str]) -> None:
        for exec_id in self.leaked_execs(container, known):
            log.warning("directory of an exec left over, removing it", container=container.id, exec=exec_id)
            leaked = self.directory_of(RunKey(container.id, container.run, exec_id))
            async with self._watching.shims.locked(leaked):
                rundir.remove(leaked)

    def directory_of(self, key: RunKey) -> str:
        return rundir.path_of(self._place.state, key.container, key.run, key.exec_id)

    @contextlib.contextmanager
    def _root(self, container: Container) -> Iterator[str]:
        """Yield the container's root as its processes see it, with all mounts, valid for the length of the block.
        Raises WrongState when the container has ended; checked last, since its pid may be another's then."""
        watch = self._watching.get(RunKey(container.id, container.run))
        root_fd = -1
        try:
            if watch is None or watch.init is None or watch.init_fd < 0:
                raise ProcessLookupError
            root_fd = os.open(f"/proc/{watch.init.pid}/root", os.O_PATH | os.O_DIRECTORY)
            if epoll.read_ready(watch.init_fd) or procfs.is_ending(watch.init):
                raise ProcessLookupError
            yield f"/proc/self/fd/{root_fd}"
        except (ProcessLookupError, FileNotFoundError, PermissionError) as error:
            raise WrongState(f"{container.spec.name} has ended", id=container.id) from error
        finally:
            if root_fd >= 0:
                os.close(root_fd)

    def _prepare(self, container: Container, e: Exec, root: str) -> tuple[Document, command.Command]:
        document = bundle.configuration(container, self._place.root)
        user = bundle.user_of_exec(container, e.spec.user, root)
        own_env = document_env(document) if container.spec.bundle else bundle.with_own_address(container).spec.env
        process = execspec.process(document, e.spec, user, own_env)
        return process, bundle.command_of(process, root, mounts=(), ids=container.spec.ids)

    async def _plan(self, container: Container, e: Exec) -> bytes:
        path, key = self.directory_of(e.key), e.key
        cgroup = self._watching.cgroup_of(container, self._place.root)
        rt = await runplan.runtime_of(container, self._place, cgroup)
        files = runtime.ExecFiles(f"{path}/{PROCESS}", f"{path}/{names.PID_FILE}", f"{path}/{names.RUNTIME_LOG}")
        wanted = plan.Plan(
            id=key.container,
            run=key.run,
            exec_id=key.exec_id,
            create=tuple(rt.exec(runplan.runtime_id(container), files, console=plan.CONSOLE if e.spec.tty else "")),
            remove=(),
            pid_file=files.pid,
            runtime_log=files.log,
            oom=cgroups.oom_counter_path(cgroup) or "",
            keeper=f"{self._place.state}/{launch.SOCKET_NAME}",
            create_ms=int(self._place.create_seconds * 1000),
            drain_ms=DRAIN_MS,
            handled=not self._watching.executes_of(container),
            tty=e.spec.tty,
            rows=e.spec.size.rows if e.spec.size else 0,
            cols=e.spec.size.cols if e.spec.size else 0,
            hold_ms=HOLD_MS if e.spec.attach else 0,
        )
        return plan.encode(runplan.with_foreign(wanted, e.spec.foreign))

    def _end_abandoned(self, container: Container, path: str, word: Process | NoProcess | None) -> None:
        """End what a shim or daemon had made, and not reported, before it was killed. There is a pid file if the shim
        had no in-memory file system for it; otherwise the keeper knows what the shim had registered. A process that
        neither names ends with its container."""
        cgroup = self._watching.cgroup_of(container, self._place.root)
        process = rundir.created(path) or _in_pid_file(f"{path}/{names.PID_FILE}", cgroup)
        if process is None and isinstance(word, Process):
            process = word
        if process is not None:
            procfs.signal_family(process, signal.SIGKILL, lambda: cgroups.pids(cgroup))


def _given(e: Exec, root: str) -> tuple[Document, command.Command]:
    """Return the process that the client gave as a whole, and its command. Reads no file."""
    process = execspec.whole(e.spec)
    return process, bundle.command_of(process, root, mounts=())


async def _within(done: Callable[[], bool]) -> None:
    """Wait until it is, at most SETTLED_SECONDS."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(SETTLED_SECONDS):
            while True:
                if await asyncio.to_thread(done):
                    return
                await asyncio.sleep(LOOK_SECONDS)


def _is_at_it(path: str) -> bool:
    """A shim holds the lock of this directory. One that starts only now finds it taken, and leaves."""
    with rundir.locked(path) as free:
        return not free


def document_env(document: Document) -> tuple[str, ...]:
    """Return the environment (K=V) of a config.json; empty where it has no list of it."""
    process = document.get("process")
    env = process.get("env") if isinstance(process, dict) else None
    return tuple(env) if isinstance(env, list) else ()


def _in_pid_file(path: str, cgroup: str) -> Process | None:
    """The process is the container's if its cgroup lists it after its start time was read."""
    try:
        with open(path, "rb") as file:
            pid = int(file.read(32))
        process = Process(pid, native.process_stat(pid)[2])
    except (OSError, ValueError):
        return None
    return process if pid in cgroups.pids(cgroup) else None


def _write(path: str, document: Document) -> None:
    try:
        prepare.write_new(path, json.dumps(document).encode())
    except OSError as error:
        if room.is_used_up(error):
            raise room.busy(path, error.strerror) from error
        raise ShimFailed(f"{path}: {errnos.said(error)}") from error


def _blame(
    wanted: command.Command, container: Container, status: launch.Failed | ExitdError | None, create_seconds: float
) -> ExitdError:
    """Return why nothing runs: by stage and errno, or by a look into the root; never by the runtime's messages."""
    if isinstance(status, ExitdError):
        return status
    if status is None:
        return ShimFailed(f"the exitd-shim of an exec in {container.spec.name} died before it ran; try again")
    verb = f"{container.spec.runtime} exec"
    failure = runplan.blame_stage(verb, status, create_seconds)
    return failure or command.blame(wanted, runtime.last_error(status.text), verb)
