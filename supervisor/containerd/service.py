"""containerd's Task service, on top of exitd's own operations. `execs.py` has the execs, `callers.py` the callers."""

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable, Iterator

from google.protobuf.empty_pb2 import Empty

from protos.containerd import task_pb2 as pb
from shim.frozen import frozen
from supervisor.containerd import making, metrics, options, tasks
from supervisor.containerd.callers import Caller
from supervisor.containerd.execs import TaskExecs
from supervisor.containerd.relays import Relays
from supervisor.containerd.tasks import STOPPED, Op, TaskLook, check, look
from supervisor.engine.containers import exit_of, is_over
from supervisor.engine.execlife import Execs
from supervisor.engine.node import GONE_SECONDS
from supervisor.engine.runs import Runs
from supervisor.engine.services import EngineServices
from supervisor.engine.streamservice import StreamService
from supervisor.model.errors import BadRequest, Code, NoSuchContainer, NoSuchExec, RuntimeFailed, ShimFailed, WrongState
from supervisor.model.lifecycle import Paused, RemoveAsked, Resumed
from supervisor.model.values import LIVE, By, Container, Phase, Reason, RunKey, Spec, Winsize
from supervisor.monitor import procfs
from supervisor.runtime.managers import ContainerRuntimes
from supervisor.store.codec import TOMBSTONE_OF, key_parts
from supervisor.ttrpc.faults import CallFailed

READ_SECONDS = 1.0  # for clients to read what is left of an output, before a Wait is answered
LOOK_SECONDS = 1.0  # wait of a question for a container examined after a daemon start: State has 2 s
MOST_SIGNAL = 64
KEY_IS = "relay = ? AND connection = ? AND stream = ?"  # of a tombstone


@frozen
class SandboxPlace:
    """What every sandbox has in common. `pause`: the directory with exitd's pause program; `platform`: os, architecture
    and variant of this machine, as images name them."""

    pause: str
    platform: tuple[str, str, str]


@frozen
class AdapterParts:
    """The parts of exitd that the service uses."""

    runs: Runs
    manager: ContainerRuntimes
    services: EngineServices
    execs: Execs
    task_execs: TaskExecs
    streams: StreamService
    state: str
    asides: making.Asides
    relays: Relays
    sandboxes: SandboxPlace


class TaskService:
    """One for all relays; belongs to the node's event loop. Its methods raise CallFailed and ExitdError."""

    def __init__(self, parts: AdapterParts) -> None:
        self._runs = parts.runs
        self._node = parts.runs.node
        self._manager = parts.manager
        self._operations = parts.services.containers
        self._ending = parts.services.ending
        self._live = parts.execs
        self._streams = parts.streams
        self._state = parts.state
        self._asides = parts.asides
        self.execs = parts.task_execs
        self._making: dict[str, int] = {}  # creates under way, by relay
        self._last: dict[str, bytes] = {}  # readings of who runs, for when it does not any more

    # -- who there is

    def find(self, namespace: str, id: str) -> Container | None:
        """As clients see it."""
        c = self._node.containers.named(namespace, id, task=True)
        return c if tasks.is_there(c) else None

    async def looked_at(self, caller: Caller, id: str) -> Container:
        """For a question: at once, or nearly."""
        c = self._node.containers.named(caller.namespace, id, task=True)
        if c is not None and (found := self._node.containers.recovering.get(c.id)) is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS):
                    await found.wait()
        if (c := self.find(caller.namespace, id)) is None:
            raise tasks.no_task(id)
        return c

    async def settled(self, namespace: str, id: str) -> Container | None:
        """For a change: once it has been looked up after a daemon start."""
        c = self._node.containers.named(namespace, id, task=True)
        if c is not None and c.id in self._node.containers.recovering:
            with contextlib.suppress(NoSuchContainer):
                await self._node.containers.find(c.id)
        c = self._node.containers.named(namespace, id, task=True)
        return c if c is not None and c.spec.task is not None else None

    async def _task(self, caller: Caller, id: str) -> Container:
        c = await self.settled(caller.namespace, id)
        if c is None or not tasks.is_there(c):
            raise tasks.no_task(id)
        return c

    @contextlib.contextmanager
    def _allowed(self, op: Op, c: Container) -> Iterator[None]:
        """Refuse with the same error if the state changes during the block."""
        check(op, look(c).status, c.spec.name)
        try:
            yield
        except WrongState:
            check(op, look(self._node.containers.get(c.id, c)).status, c.spec.name)
            raise

    # -- it begins

    async def create(self, request: pb.CreateTaskRequest, caller: Caller) -> pb.CreateTaskResponse:
        async def spec_of() -> Spec:
            spec, pause = await making.spec_of(request, caller, self._asides), self._sandbox_of(caller)
            return spec if pause is None else await making.as_member(spec, pause, self._asides)

        c = await self.made(request.id, request.bundle, caller, spec_of)
        return pb.CreateTaskResponse(pid=look(c).pid)

    async def made(self, id: str, bundle: str, caller: Caller, spec_of: Callable[[], Awaitable[Spec]]) -> Container:
        """Return the task of this name, made by this very request: now, or by an exitd that could not answer it.
        `spec_of` is called only if it is to be made."""
        relay = caller.hello.relay
        self._making[relay] = self._making.get(relay, 0) + 1
        try:
            c = await self._created_before(id, bundle, caller)
            if c is None:
                c = await self._operations.create(await spec_of(), caller.by)
                await making.put_shims(c, caller)
            await making.leave_word(c, self._state, self._asides)
            return c
        finally:
            self._making[relay] -= 1
            if not self._making[relay]:
                del self._making[relay]

    def _sandbox_of(self, caller: Caller) -> Container | None:
        """Return the sandbox that was made through the caller's relay: containerd gives all containers of a pod one."""
        made = (c for c in self._node.containers.values() if tasks.is_sandbox(c) and tasks.is_there(c))
        return next((c for c in made if c.spec.task is not None and c.spec.task.relay == caller.hello.relay), None)

    async def _created_before(self, id: str, bundle: str, caller: Caller) -> Container | None:
        """Return the task if this very request has made it. Otherwise clean up what a crash has left of it, or a task
        from before a reboot, of which containerd knows nothing."""
        c = await self.settled(caller.namespace, id)
        if c is None or c.spec.task is None:
            return None
        if tasks.is_of_another_boot(c, self._node.clock.boot_id()):
            await self.remove(c, caller.by, "")
        elif caller.key and c.spec.task.create_key == caller.key:
            if tasks.is_there(c):
                return c
            await self._gone(c)
        elif await making.is_forgotten(c, self._asides, bundle):
            await self.remove(c, caller.by, "")
        return None

    async def start(self, request: pb.StartRequest, caller: Caller) -> pb.StartResponse:
        c = await self._task(caller, request.id)
        if request.exec_id:
            return pb.StartResponse(pid=await self.execs.start(c, request.exec_id, caller))
        if not (caller.key and c.start_key == caller.key):
            with self._allowed(Op.START, c):
                await self._runs.launch(c.id, key=caller.key)
        elif c.started_ns is None and c.error:  # it failed, and its caller has not heard of it
            raise RuntimeFailed(c.error)
        return pb.StartResponse(pid=look(self._node.containers.get(c.id, c)).pid)

    def exec_word(self, namespace: str, request: pb.StartRequest) -> bytes:
        """Return what the relay needs to know of an exec that has begun; nothing if it has ended."""
        c = self.find(namespace, request.id)
        return self.execs.word(c, request.exec_id, self._state) if c is not None else b""

    # -- it ends

    async def kill(self, request: pb.KillRequest, caller: Caller) -> Empty:
        c = await self._task(caller, request.id)
        if not 0 < request.signal <= MOST_SIGNAL:
            raise BadRequest(f"signal {request.signal}: there is no such signal")
        try:
            await self._signal(c, request, caller.by)
        except CallFailed as error:
            if not (caller.attempt and error.code == Code.NOT_FOUND):
                raise  # unless this very request ended it, before an exitd that has died could answer
        return Empty()

    async def _signal(self, c: Container, request: pb.KillRequest, by: By) -> None:
        if request.exec_id:
            await self.execs.kill(c, request.exec_id, request.signal, request.all, by)
        elif not (request.all and look(c).status == STOPPED):  # processes left behind by init have been ended by then
            with self._allowed(Op.KILL, c):
                await self._operations.kill(c.id, request.signal, request.all, by)

    async def delete(self, request: pb.DeleteRequest, caller: Caller) -> pb.DeleteResponse:
        c = await self.settled(caller.namespace, request.id)
        if c is None or not tasks.is_there(c) or (request.exec_id and not self.execs.knows(c, request.exec_id)):
            return tasks.delete_reply(await self._deleted_before(request, caller))
        if request.exec_id:
            return tasks.delete_reply(await self.execs.delete(c, request.exec_id, caller))
        if c.phase is Phase.REMOVING:
            await self._gone(c)
            if c.delete_key != caller.key:
                return tasks.delete_reply(await self._deleted_before(request, caller))
            return tasks.delete_reply(look(c))
        check(Op.DELETE, look(c).status, request.id)
        return tasks.delete_reply(await self.remove(c, caller.by, caller.key))

    async def _deleted_before(self, request: pb.DeleteRequest, caller: Caller) -> TaskLook:
        """Return the answer that this very request has had; for a task also an earlier request's that the relay has not
        confirmed. If exitd ended twice while it answered that, it has failed, and containerd asks again: if there were
        no such task then, containerd would publish the end itself, a second time."""
        store = self._node.store
        found = await store.tombstones(KEY_IS, *key_parts(caller.key)) if caller.key else []
        if not found and not request.exec_id:
            words, values = f"relay = ? AND {TOMBSTONE_OF}", (caller.hello.relay, caller.namespace, request.id, "")
            found = await store.tombstones(words, *values)
        if not found:
            raise tasks.no_exec(request.exec_id) if request.exec_id else tasks.no_task(request.id)
        return tasks.of_tombstone(found[0])

    async def remove(self, c: Container, by: By, key: str) -> TaskLook:
        """End the task if it has not ended, and remove everything of it. Return how it ended."""
        if c.phase in LIVE:
            await self._ending.by_policy(c.id, Reason.KILL, by, 0)
        try:
            now = await self._node.apply(c.id, RemoveAsked(by, key))
        except (NoSuchContainer, WrongState):
            now = self._node.containers.get(c.id)
            if now is not None and now.phase is not Phase.REMOVING:
                raise
        c = now or c
        await self._gone(c)
        return await self._end_of(c)

    async def _end_of(self, c: Container) -> TaskLook:
        """Describe how a task that is gone has ended. `c`: as it was seen last, perhaps before its end; one that was
        never made has none, and no code either."""
        if c.exit is not None and c.exit.key.run == c.run:
            return look(c)
        stored = await self._node.store.last_exit(c.id, c.run)
        return tasks.ended(look(c).pid, stored) if stored is not None else tasks.unknown(self._node.clock.now_ns())

    async def _gone(self, c: Container) -> None:
        await self._node.containers.until(c.id, lambda now: now is None, GONE_SECONDS, "its removal")
        self._last.pop(c.id, None)

    async def wait(self, request: pb.WaitRequest, caller: Caller) -> pb.WaitResponse:
        """Wait for as long as the caller's connection lives."""
        if self.find(caller.namespace, request.id) is None:
            await self.settled(caller.namespace, request.id)
        c = self.find(caller.namespace, request.id)
        if c is None or (request.exec_id and not self.execs.knows(c, request.exec_id)):
            return tasks.wait_reply(await self._waited_before(request, caller))
        if request.exec_id:
            ended = await self.execs.wait(c, request.exec_id)
            if self.execs.knows(c, request.exec_id) and (run_as := self.execs.run_as(c, request.exec_id)):
                await self._output_read(RunKey(c.id, c.run, run_as))
            return tasks.wait_reply(ended)
        last = exit_of(await self._node.containers.until(c.id, is_over(c.run), None, "its exit"))
        if last is None:
            raise tasks.no_task(request.id)
        await self._output_read(last.key)
        return tasks.wait_reply(tasks.ended(0, last))

    async def _output_read(self, key: RunKey) -> None:
        """Return when clients have read the output, or after a while. Those of containerd's Go library close their ends
        of the fifos as soon as they have the answer of a Wait, and lose what they have not read by then."""
        read = self._manager.output_read(key)
        if read is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(READ_SECONDS):
                    await read.wait()

    async def _waited_before(self, request: pb.WaitRequest, caller: Caller) -> TaskLook:
        """Return the answer of a Wait that was lost, and whose process has been deleted meanwhile."""
        values = (caller.namespace, request.id, request.exec_id)
        found = await self._node.store.tombstones(TOMBSTONE_OF, *values) if caller.attempt else []
        if not found:
            raise tasks.no_exec(request.exec_id) if request.exec_id else tasks.no_task(request.id)
        return tasks.of_tombstone(found[0])

    def is_unused(self, relay: str, is_given_up: Callable[[Container], bool]) -> bool:
        """Return whether no existing task was made through this relay, but for those that containerd has given up:
        exitd removes them by itself."""
        made = (c.spec.task for c in self._node.containers.values() if not is_given_up(c))
        return relay not in self._making and all(task is None or task.relay != relay for task in made)

    # -- questions

    async def state(self, request: pb.StateRequest, caller: Caller) -> pb.StateResponse:
        c = await self.looked_at(caller, request.id)
        assert c.spec.task is not None
        if request.exec_id:
            seen, stdio = await self.execs.look(c, request.exec_id)
        else:
            seen, stdio = look(c), c.spec.task.stdio
        return tasks.state_reply(request.id, request.exec_id, c.spec.task.bundle, stdio, seen)

    async def pids(self, request: pb.PidsRequest, caller: Caller) -> pb.PidsResponse:
        c = await self.looked_at(caller, request.id)
        there = await self._manager.of(c).pids(c) if c.phase in LIVE else ()
        return tasks.pids_reply(look(c).pid, there, self.execs.pids(c))

    async def stats(self, request: pb.StatsRequest, caller: Caller) -> pb.StatsResponse:
        c = await self.looked_at(caller, request.id)
        found = None
        if c.phase in LIVE:
            found = await asyncio.to_thread(metrics.read, self._manager.cgroup_of(c))
        if found is not None:
            self._last[c.id] = found.SerializeToString()
        else:
            kills = c.exit.oom.kills if c.exit is not None else c.oom_told
            found = metrics.after_the_end(self._last.get(c.id, b""), kills)
        return pb.StatsResponse(stats=metrics.wrap(found))

    async def connect(self, request: pb.ConnectRequest, caller: Caller) -> pb.ConnectResponse:
        """Also answers for a task that does not exist."""
        try:
            pid = look(await self.looked_at(caller, request.id)).pid
        except CallFailed:
            pid = 0
        return pb.ConnectResponse(shim_pid=caller.hello.pid, task_pid=pid)

    # -- it goes on

    async def pause(self, request: pb.PauseRequest, caller: Caller) -> Empty:
        c = await self._task(caller, request.id)
        if caller.attempt and c.phase is Phase.PAUSED:
            return Empty()
        with self._allowed(Op.PAUSE, c):
            if caller.attempt and await self._manager.of(c).state_process(c) == "paused":
                await self._node.apply(c.id, Paused())  # done by a daemon that ended before it could be stored
            else:
                await self._operations.pause(c.id, caller.by)
        return Empty()

    async def resume(self, request: pb.ResumeRequest, caller: Caller) -> Empty:
        c = await self._task(caller, request.id)
        if caller.attempt and c.phase is Phase.RUNNING:
            return Empty()
        with self._allowed(Op.RESUME, c):
            if caller.attempt and await self._manager.of(c).state_process(c) == "running":
                await self._node.apply(c.id, Resumed())
            else:
                await self._operations.resume(c.id, caller.by)
        return Empty()

    async def update(self, request: pb.UpdateTaskRequest, caller: Caller) -> Empty:
        c = await self._task(caller, request.id)
        check(Op.UPDATE, look(c).status, request.id)
        resources = options.document(request.resources, "LinuxResources")
        await self._manager.of(c).update_container(c, json.dumps(resources))
        return Empty()

    async def checkpoint(self, request: pb.CheckpointTaskRequest, caller: Caller) -> Empty:
        raise CallFailed(Code.UNIMPLEMENTED, "checkpoints are not implemented")

    async def exec(self, request: pb.ExecProcessRequest, caller: Caller) -> Empty:
        await self.execs.add(await self._task(caller, request.id), request, caller)
        return Empty()

    async def resize_pty(self, request: pb.ResizePtyRequest, caller: Caller) -> Empty:
        """Resize. Does nothing for a process without a terminal, or one that has ended."""
        c = await self._task(caller, request.id)
        run_as = self.execs.run_as(c, request.exec_id)
        if c.phase in LIVE and run_as is not None:
            with self._unless_over(c, run_as):
                await self._streams.resize(c.id, run_as, Winsize(request.height, request.width))
        return Empty()

    async def close_io(self, request: pb.CloseIORequest, caller: Caller) -> Empty:
        """Close stdin. Does nothing for a process that has ended."""
        c = await self._task(caller, request.id)
        run_as = self.execs.run_as(c, request.exec_id)
        if request.stdin and c.phase in LIVE and run_as is not None:
            with self._unless_over(c, run_as):
                await self._streams.close_stdin(c.id, run_as)
        return Empty()

    @contextlib.contextmanager
    def _unless_over(self, c: Container, run_as: str) -> Iterator[None]:
        """If the process is ending, it is no failure that the shim is gone or has no such stream."""
        try:
            yield
        except (WrongState, NoSuchExec):
            pass
        except ShimFailed:
            if not self._is_ending(c, run_as):
                raise

    def _is_ending(self, c: Container, run_as: str) -> bool:
        """Return whether it is dead or dying, whether or not that is stored."""
        if not run_as:
            return self._node.is_ending(c)
        live = self._live.get(c.id, run_as)
        return live is None or live.exec.init is None or procfs.is_ending(live.exec.init)
