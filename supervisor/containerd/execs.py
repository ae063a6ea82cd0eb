"""Execs as containerd has them: added, started, ended, deleted. Each Start begins an exec of exitd's."""

import asyncio
import contextlib
import json
import secrets

from protos.containerd import task_pb2 as pb
from shim import fields, record
from shim.frozen import field, mutable, replace
from supervisor.containerd import making, options, tasks
from supervisor.containerd.callers import Caller
from supervisor.containerd.tasks import CREATED, Op, TaskLook, check
from supervisor.engine.execlife import Execs
from supervisor.engine.execops import ExecOperations
from supervisor.engine.node import END_SEEN_SECONDS, Node
from supervisor.model import lifecycle
from supervisor.model.errors import BadRequest, Code, ExitdError, NameTaken, NoSuchExec, TimedOut, WrongState
from supervisor.model.execs import Exec, ExecPhase, ExecSpec
from supervisor.model.taskfacts import Stdio, TaskExec, Tombstone
from supervisor.model.values import By, Container, Exit
from supervisor.monitor import procfs
from supervisor.monitor.rundir import path_of
from supervisor.runtime.oci import shape
from supervisor.runtime.oci import spec as documents
from supervisor.store.database import Transaction
from supervisor.ttrpc.faults import CallFailed

GONE_SECONDS = 10.0  # how long the rest of an exec's output and its shim may take
Document = dict[str, object]


@mutable
class Kept:
    """One exec. `begun` is set when a Start has had a result, or can no longer happen. `doubtful`: an earlier daemon
    has begun a Start, whose result must be found out."""

    fact: TaskExec
    begun: asyncio.Event = field(default_factory=asyncio.Event)
    exit: Exit | None = None
    doubtful: bool = False


class TaskExecs:
    """The execs of all tasks; belongs to the node's event loop."""

    def __init__(self, node: Node, operations: ExecOperations, execs: Execs, asides: making.Asides) -> None:
        self._node = node
        self._operations = operations
        self._execs = execs
        self._asides = asides
        self._of: dict[str, dict[str, Kept]] = {}  # by container

    async def load(self) -> None:
        """Load them after exitd's own execs, and before the first request."""
        for fact in await self._node.store.load_task_execs():
            kept = Kept(fact, doubtful=bool(fact.run_as and not fact.error))
            if fact.error:
                kept.begun.set()
            self._of.setdefault(fact.container, {})[fact.name] = kept

    async def _settle(self, c: Container, kept: Kept) -> None:
        """Wait until the container has been examined after a daemon start. A Start without a result has not
        happened."""
        if not kept.doubtful:
            return
        await self._node.containers.find(c.id)
        e = self._running(kept.fact)
        running = e is not None and (e.phase is ExecPhase.RUNNING or e.exit is not None)
        has_begun = running or await self._node.store.exec_exit(c.id, kept.fact.run_as) is not None
        if kept.doubtful and has_begun:
            kept.begun.set()
        elif kept.doubtful:  # still doubtful: another request may have begun it meanwhile
            kept.fact = replace(kept.fact, run_as="", start_key="")
        kept.doubtful = False

    def forget(self, container_id: str) -> None:
        """Forget the execs of a removed container; their rows are gone with it."""
        for kept in self._of.pop(container_id, {}).values():
            kept.begun.set()

    def knows(self, c: Container, name: str) -> bool:
        return name in self._of.get(c.id, {})

    def run_as(self, c: Container, name: str) -> str | None:
        """Return exitd's id of the running exec, empty for init; None if nothing runs yet. Raises CallFailed for an
        unknown exec."""
        return "" if not name else self._get(c, name).fact.run_as or None

    def pids(self, c: Container) -> dict[int, str]:
        """Return the execs' names by their first processes' pids."""
        names = {kept.fact.run_as: name for name, kept in self._of.get(c.id, {}).items()}
        there = self._execs.of(c.id) if names else ()
        return {e.init.pid: names[e.key.exec_id] for e in there if e.init is not None and e.key.exec_id in names}

    def _get(self, c: Container, name: str) -> Kept:
        kept = self._of.get(c.id, {}).get(name)
        if kept is None:
            raise tasks.no_exec(name)
        return kept

    def _running(self, fact: TaskExec) -> Exec | None:
        live = self._execs.get(fact.container, fact.run_as) if fact.run_as else None
        return live.exec if live is not None else None

    # -- it begins

    async def add(self, c: Container, request: pb.ExecProcessRequest, caller: Caller) -> None:
        old = self._of.get(c.id, {}).get(request.exec_id)
        if old is not None:
            if caller.key and old.fact.add_key == caller.key:
                return
            raise NameTaken(f"exec {request.exec_id} of {request.id} already exists")
        check(Op.EXEC, tasks.look(c).status, request.id)
        making.checked_id(request.exec_id, "an exec")
        process = options.document(request.spec if request.HasField("spec") else None, "Process")
        _check(process)
        stdio = Stdio(request.stdin, request.stdout, request.stderr, request.terminal)
        await making.settled(self._asides, stdio, caller.namespace, request.exec_id)
        fact = TaskExec(c.id, request.exec_id, json.dumps(process), stdio, caller.key)
        events = lifecycle.events(c, self._node.moment(), "exec_added", exec_name=fact.name)
        await self._put(fact, Transaction(events=events))
        self._of.setdefault(c.id, {})[fact.name] = Kept(fact)

    async def _put(self, fact: TaskExec, change: Transaction = Transaction()) -> None:  # noqa: B008  (frozen)
        self._node.events.publish(await self._node.store.commit(replace(change, task_execs=(fact,))))

    async def start(self, c: Container, name: str, caller: Caller) -> int:
        """Start it and return its pid."""
        kept = self._get(c, name)
        await self._settle(c, kept)
        if not (caller.key and kept.fact.start_key == caller.key):
            if kept.fact.run_as:
                seen = await self._look(kept)
                check(Op.START, seen.status, name)
                raise CallFailed(Code.UNKNOWN, f"{name}: its start has failed: {kept.fact.error}")
            check(Op.EXEC, tasks.look(c).status, name)
            await self._begin(c, kept, caller)
        elif kept.fact.error:
            raise CallFailed(Code.UNKNOWN, kept.fact.error)
        return (await self._look(kept)).pid

    async def _begin(self, c: Container, kept: Kept, caller: Caller) -> None:
        old = kept.fact
        new = replace(old, start_key=caller.key, run_as=secrets.token_hex(16), error="")
        spec = await self._spec(c, new)
        try:
            await self._operations.exec(c.id, spec, caller.by, new.run_as, Transaction(task_execs=(new,)))
            kept.fact = new
        except (ExitdError, OSError) as error:
            # The wrong moment, after which the request may be repeated; or it was tried, and will never run.
            kept.fact = old if isinstance(error, WrongState) else replace(new, error=str(error))
            await self._put(kept.fact)
            raise
        finally:
            if kept.fact.run_as:
                kept.begun.set()

    async def _spec(self, c: Container, fact: TaskExec) -> ExecSpec:
        process: Document = json.loads(fact.process)
        assert c.spec.task is not None
        owner = (c.spec.foreign.uid, c.spec.foreign.gid)
        streams = await making.settled(self._asides, fact.stdio, c.spec.namespace, fact.name, owner)
        return ExecSpec(
            args=tuple(documents.strings(process, "args")),
            tty=fact.stdio.terminal,
            stdin=bool(streams.stdin),
            foreign=streams,
            process=fact.process,
            name=fact.name,
        )

    def word(self, c: Container, name: str, state: str) -> bytes:
        """Return the message from which a relay knows a running exec, its process and the record of its end; empty if
        there is no such process any more, or a text in it that no message can hold."""
        kept = self._of.get(c.id, {}).get(name)
        running = self._running(kept.fact) if kept is not None else None
        if kept is None or running is None or running.init is None or c.spec.task is None:
            return b""
        stdio, key = kept.fact.stdio, running.key
        pairs: list[tuple[str, str | int]] = [
            *(("id", c.spec.name), ("exec", name), ("bundle", c.spec.task.bundle)),
            *(("stdin", stdio.stdin), ("stdout", stdio.stdout), ("stderr", stdio.stderr)),
            ("terminal", int(stdio.terminal)),
            ("record", f"{path_of(state, key.container, key.run, key.exec_id)}/{record.NAME}"),
            *(("pid", running.init.pid), ("started", running.init.started_ticks)),
        ]
        try:
            return fields.encode("exec", pairs)
        except ValueError:
            return b""

    # -- questions

    async def look(self, c: Container, name: str) -> tuple[TaskLook, Stdio]:
        kept = self._get(c, name)
        return await self._look(kept), kept.fact.stdio

    async def _look(self, kept: Kept) -> TaskLook:
        running = self._running(kept.fact)
        if kept.exit is None and kept.fact.run_as and (running is None or running.phase is ExecPhase.EXITED):
            found = await self._node.store.exec_exit(kept.fact.container, kept.fact.run_as)
            kept.exit = found or (running.exit if running is not None else None)
        return tasks.look_at_exec(kept.fact, running, kept.exit)

    async def wait(self, c: Container, name: str) -> TaskLook:
        """May be called before the start. An exec whose start has failed has no code and no time."""
        kept = self._get(c, name)
        await self._settle(c, kept)
        await kept.begun.wait()
        if kept.exit is None and kept.fact.run_as and not kept.fact.error:
            with contextlib.suppress(NoSuchExec):
                kept.exit = await self._operations.wait_exec(c.id, kept.fact.run_as, c.run)
        return tasks.ended(0, kept.exit) if kept.exit is not None else TaskLook(CREATED, 0)

    # -- it ends

    async def kill(self, c: Container, name: str, signal: int, everyone: bool, by: By) -> None:
        kept = self._get(c, name)
        seen = await self._look(kept)
        if seen.status == CREATED:
            raise CallFailed(Code.FAILED_PRECONDITION, f"{name}: process not created")
        check(Op.KILL, seen.status, name)
        try:
            await self._operations.kill_exec(c.id, kept.fact.run_as, signal, everyone, by)
        except (WrongState, NoSuchExec) as error:
            raise CallFailed(Code.NOT_FOUND, f"{name}: process already finished: not found") from error

    async def delete(self, c: Container, name: str, caller: Caller) -> TaskLook:
        """Delete it, after the rest of its output has been written."""
        kept = self._get(c, name)
        await self._end_noticed(c, kept)
        seen = await self._look(kept)
        check(Op.DELETE, seen.status, name)
        live = self._execs.get(c.id, kept.fact.run_as) if kept.fact.run_as else None
        if live is not None:
            try:
                async with asyncio.timeout(GONE_SECONDS):
                    await live.gone.wait()
            except TimeoutError as error:
                raise TimedOut(f"exec {name} is not gone after {GONE_SECONDS:g} s", id=c.id) from error
        tombstones = (self._tombstone(c, name, caller.key, seen),) if caller.key else ()
        await self._node.store.commit(Transaction(ended_task_execs=(kept.fact,), tombstones=tombstones, ahead=True))
        self._of.get(c.id, {}).pop(name, None)
        kept.begun.set()
        return seen

    async def _end_noticed(self, c: Container, kept: Kept) -> None:
        """Wait for an end that is not stored yet: the relay may have reported it while exitd was away or stood still,
        and what it has answered to a Delete must not be refused."""
        running = self._running(kept.fact)
        if running is None or running.exit is not None or running.init is None or not procfs.is_ending(running.init):
            return
        with contextlib.suppress(TimeoutError, NoSuchExec):
            async with asyncio.timeout(END_SEEN_SECONDS):
                await self._operations.wait_exec(c.id, kept.fact.run_as, c.run)

    def _tombstone(self, c: Container, name: str, key: str, seen: TaskLook) -> Tombstone:
        boot = self._node.moment().boot
        where = (c.spec.namespace, c.spec.name, name, key)
        return Tombstone(*where, seen.pid, seen.code, seen.at_ns, boot.boot_id, boot.ns)


def _check(process: Document) -> None:
    """Raises BadRequest, before anything of the request is stored."""
    shape.check_depth(process, "process")
    shape.check(process, shape.PROCESS, "process")
    if not documents.strings(process, "args"):
        raise BadRequest("process.args: a command is needed")
