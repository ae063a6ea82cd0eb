"""What callers ask of execs: to run one, to end it, to hear of its end, to be attached to it."""

from supervisor.engine.containers import Containers
from supervisor.engine.execlife import NOTHING_ELSE, Execs, Live
from supervisor.engine.ledger import Ledger
from supervisor.engine.node import GONE_SECONDS
from supervisor.model.errors import NoSuchContainer, NoSuchExec, WrongState
from supervisor.model.execs import Exec, ExecSpec
from supervisor.model.values import By, Container, Exit, Phase
from supervisor.store.database import Store, Transaction
from supervisor.streams.attach import AttachTarget

BEGINNING = (Phase.CREATING, Phase.STARTING)


class ExecOperations:
    """Implements `supervisor.api.servicers.ExecCalls`."""

    def __init__(self, containers: Containers, store: Store, execs: Execs, ledger: Ledger) -> None:
        self._containers = containers
        self._store = store
        self._execs = execs
        self._ledger = ledger

    async def exec(
        self, id: str, spec: ExecSpec, by: By, exec_id: str = "", beside: Transaction = NOTHING_ELSE
    ) -> Exec:
        """`exec_id`, `beside`: see `Execs.begin`."""
        container = await self._containers.find(id)
        await self._containers.until(container.id, _has_begun, GONE_SECONDS, "its start")
        return await self._execs.begin(self._containers.known(container.id), spec, by, exec_id, beside)

    async def kill_exec(self, id: str, exec_id: str, signal: int, everyone: bool, by: By) -> None:
        """Signal the exec's process; with `everyone` its session and descendants, too. Raises what `Containers.find`
        raises; NoSuchExec; WrongState when it has ended; StoreFailed."""
        container = await self._containers.find(id)
        live = self._execs.get(container.id, exec_id)
        if live is None or live.over.is_set():
            if live is not None or await self._store.exec_exit(container.id, exec_id) is not None:
                raise WrongState(f"exec {exec_id} has ended, there is nothing to signal", id=container.id)
            raise _no_exec(id, exec_id)
        await self._execs.kill(live, signal, everyone, by)

    async def wait_exec(self, id: str, exec_id: str, run: int) -> Exit:
        """Return the exec's exit once it is stored; also of a container that is gone, from the ledger. `run` 0: of
        whichever run has the exec. Raises NoSuchExec, also for one that failed to begin; AmbiguousId, Recovering."""
        container_id = await self._id_of(id)
        live = self._execs.get(container_id, exec_id)
        if live is not None and run in (0, live.key.run):
            return await self._execs.wait(live)
        store = self._store
        found = await (store.last_exit(container_id, run, exec_id) if run else store.exec_exit(container_id, exec_id))
        if found is None:
            raise _no_exec(id, exec_id)
        return found

    async def _id_of(self, reference: str) -> str:
        """Of a container that is gone: what the ledger of exits knows it by."""
        try:
            return (await self._containers.find(reference)).id
        except NoSuchContainer:
            return await self._ledger.id_of(reference)

    async def target(self, container: Container, exec_id: str) -> AttachTarget:
        """Return the exec to attach to. Raises WrongState, NoSuchExec when there is none (any more)."""
        live = self._execs.get(container.id, exec_id)
        if live is None:
            if await self._store.exec_exit(container.id, exec_id) is not None:
                raise WrongState(f"exec {exec_id} has ended", id=container.id)
            raise _no_exec(container.spec.name, exec_id)
        return self._target_of(live)

    def _target_of(self, live: Live) -> AttachTarget:
        spec, name = live.exec.spec, f"exec {live.key.exec_id[:12]} of {live.container.spec.name}"
        return AttachTarget(name, self._execs.directory_of(live), spec.tty, spec.stdin, over=live.over.wait)


def _has_begun(container: Container | None) -> bool:
    return container is None or container.phase not in BEGINNING


def _no_exec(id: str, exec_id: str) -> NoSuchExec:
    return NoSuchExec(f"{id} has no exec {exec_id}, and the ledger of exits knows none", id=id)
