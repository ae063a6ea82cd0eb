"""Execs under foreign shims: added, waited for, started. Each has a pump for its streams, as its container has."""

import asyncio
import contextlib
import json
from collections.abc import Collection, Sequence

import structlog

from supervisor.model.errors import (
    Busy,
    ExitdError,
    NoSuchContainer,
    NoSuchExec,
    RuntimeFailed,
    ShimFailed,
    ShimLost,
    TimedOut,
    WrongState,
)
from supervisor.model.execs import Exec
from supervisor.model.taskfacts import Stdio
from supervisor.model.values import Container, Process, RunKey
from supervisor.monitor import procfs, rundir
from supervisor.runtime.foreign_shim import place, pumps
from supervisor.runtime.foreign_shim.connection import ShimConnection
from supervisor.runtime.foreign_shim.registry import Run, ShimRegistry
from supervisor.runtime.foreign_shim.watching import as_named
from supervisor.runtime.oci import bundle, cgroups, command, execspec, spec
from supervisor.runtime.oci.execs import document_env
from supervisor.runtime.oci.runplan import Place
from supervisor.runtime.oci.spec import Document
from supervisor.runtime.sandbox import MadeExec, NoProcess
from supervisor.system import room

SIGKILL = 9

log = structlog.get_logger(__name__)


class ShimV2Execs:
    """The ExecManager for shim v2 binaries. A shim signals only an exec's first process. The rest of its family is
    found on this host; in a virtual machine it ends with the container."""

    def __init__(self, where: Place, registry: ShimRegistry) -> None:
        self._place = where
        self._registry = registry

    def has(self, key: RunKey) -> bool:
        return self._run(key) is not None

    def _run(self, key: RunKey) -> Run | None:
        return self._registry.get(RunKey(key.container, key.run))

    async def _to(self, container: Container) -> tuple[Run, ShimConnection]:
        run = self._run(RunKey(container.id, container.run))
        if run is None:
            raise WrongState(f"{container.spec.name} has ended", id=container.id)
        return run, await run.peer.link()

    async def create_exec(self, container: Container, e: Exec) -> MadeExec:
        run, link = await self._to(container)
        where, looking = f"the look into the root of {container.spec.name}", self._place.looking
        process, wanted = await looking.run(where, lambda: self._prepare(container, e))
        counting = f"a look at the memory kills of {container.spec.name}"
        kills = await room.patiently(lambda: self._registry.oom_kills(e.key), counting)  # before anything is begun
        directory = rundir.make_in(self.directory_of(e.key), pumps.plan_of_exec(e, self._place))
        fifos = await self._registry.pumps.begin(e.key, directory, e.spec)
        stdio = Stdio(fifos.stdin, fifos.stdout, fifos.stderr, e.spec.tty)
        await link.exec(container.id, e.key.exec_id, json.dumps(process).encode(), stdio=stdio)
        watched = self._registry.watching.add(e.key, run.peer)
        self._registry.watching.begin(watched)
        try:
            pid = await link.start(container.id, e.key.exec_id, seconds=self._place.runtime_seconds)
        except (NoSuchContainer, NoSuchExec) as error:
            raise WrongState(f"{container.spec.name} has ended", id=container.id) from error
        except RuntimeFailed as error:
            words = str(error)
            raise await looking.run(
                where, lambda: command.blame(wanted, words, f"{container.spec.runtime} exec")
            ) from error
        except (TimedOut, ShimLost):
            found = await room.retry(lambda: self.begun_exec(container, e))
            if found is NoProcess.NEVER_BEGAN:
                raise
            if not isinstance(found, Process):
                return MadeExec(None, None, kills)
            pid = found.pid
        try:
            init = await room.patiently(lambda: as_named(pid), "a look at an exec")
        except Busy:
            init = Process(pid, 0)  # its Wait reports how it ends
        _note(e, directory.path, init)
        self._registry.watching.hold(watched, init, own=run.peer.is_plain)
        return MadeExec(init, run.shim, kills)

    async def begun_exec(self, container: Container, e: Exec) -> Process | NoProcess:
        """If no daemon has noted it, the shim knows."""
        if (made := rundir.created(self.directory_of(e.key))) is not None:
            return made
        try:
            if self._registry.find(container) is None:
                return NoProcess.UNKNOWN
            _, link = await self._to(container)
            state = await link.state(container.id, e.key.exec_id)
        except (NoSuchExec, NoSuchContainer):
            return NoProcess.NEVER_BEGAN
        except (ShimLost, WrongState):
            return NoProcess.UNKNOWN
        if state.status == "created":
            return NoProcess.NEVER_BEGAN
        return as_named(state.pid)

    async def connect_exec(self, container: Container, e: Exec) -> None:
        assert e.init is not None
        key, run = e.key, self._registry.find(container)
        self._registry.pumps.find(key, rundir.reopen(self._place.state, key.container, key.run, key.exec_id))
        if run is None:
            return self._registry.lost(key, e.init)
        watched = self._registry.watching.add(key, run.peer)
        self._registry.watching.hold(watched, e.init, own=run.peer.is_plain)
        self._registry.watching.begin(watched)

    async def signal_exec(self, container: Container, e: Exec, number: int, *, everyone: bool) -> None:
        watched = self._registry.watching.get(e.key)
        if watched is None or watched.reported:
            raise WrongState(f"exec {e.key.exec_id} has no process", id=container.id)
        if everyone and watched.init is not None and not self._registry.watching.is_shared(watched):
            cgroup = bundle.cgroups_path(container, self._place.root)
            await asyncio.to_thread(procfs.signal_family, watched.init, number, lambda: cgroups.pids(cgroup))
            return
        try:
            _, link = await self._to(container)
            await link.kill(container.id, number, e.key.exec_id, everyone=everyone)
        except ShimLost as error:
            raise WrongState(f"{container.spec.name} has lost its shim", id=container.id) from error

    def kill_stopped_shim(self, key: RunKey) -> bool:
        """A foreign shim serves its whole container, or pod."""
        return False

    def shim_gone(self, key: RunKey) -> asyncio.Event | None:
        return self._registry.pumps.gone(key)

    async def settle_exec(self, key: RunKey) -> None:
        """Does nothing: the shim reports the end again until it is deleted."""

    async def delete_exec(self, container: Container, e: Exec) -> None:
        """An exec that was not asked to start may run nevertheless: it is ended first."""
        with contextlib.suppress(ShimLost, WrongState, NoSuchContainer, NoSuchExec):
            _, link = await self._to(container)
            if e.exit is None:
                with contextlib.suppress(ExitdError):
                    await link.kill(container.id, SIGKILL, e.key.exec_id)
            await link.delete(container.id, e.key.exec_id)
        await self._clear(e.key)

    async def _clear(self, key: RunKey) -> None:
        await self._registry.pumps.remove(key)
        self._registry.watching.drop(key)

    def leaked_execs(self, container: Container, known: Collection[str]) -> Sequence[str]:
        return rundir.execs(rundir.path_of(self._place.state, container.id, container.run), but=known)

    async def delete_leaked_execs(self, container: Container, known: Collection[str]) -> None:
        for exec_id in self.leaked_execs(container, known):
            log.warning("directory of an exec left over, removing it", container=container.id, exec=exec_id)
            await self._clear(RunKey(container.id, container.run, exec_id))

    def directory_of(self, key: RunKey) -> str:
        return rundir.path_of(self._place.state, key.container, key.run, key.exec_id)

    def _prepare(self, container: Container, e: Exec) -> tuple[Document, command.Command]:
        """Users and commands are looked up in the container's root as exitd sees it: init may run under another
        kernel."""
        document = bundle.configuration(container, self._place.root)
        root = spec.rootfs_of(document)
        if e.spec.process:
            process = execspec.whole(e.spec)
            return process, bundle.command_of(process, root, mounts=())
        user = bundle.user_of_exec(container, e.spec.user, root)
        own_env = document_env(document) if container.spec.bundle else bundle.with_own_address(container).spec.env
        process = execspec.process(document, e.spec, user, own_env)
        return process, bundle.command_of(process, root, mounts=())


def _note(e: Exec, path: str, init: Process) -> None:
    """Leave its process in its directory. It has begun: without room for that, the store and its shim know it alone."""
    try:
        place.leave_init(path, init)
    except ShimFailed as error:
        log.warning("an exec's process is not noted", container=e.key.container, exec=e.key.exec_id, why=str(error))
