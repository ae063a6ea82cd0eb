"""The fake shim's Task service: as a good shim has it, and odd where `modes` says so."""

import asyncio
import json
import os
import signal
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, NoReturn

from google.protobuf.any_pb2 import Any as Packed
from google.protobuf.empty_pb2 import Empty
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from protos.containerd import cgroups2_pb2, process_pb2, runc_pb2
from protos.containerd import events_pb2 as events
from protos.containerd import task_pb2 as pb
from protos.ttrpc.v1.ttrpc_pb2 import Response, Status
from supervisor.model.errors import Code
from supervisor.ttrpc import connection, frames
from supervisor.ttrpc.faults import CallFailed
from supervisor.ttrpc.frames import Frame
from supervisor.ttrpc.server import Server
from supervisor.ttrpc.services import Method
from tests.fakeshim.modes import Modes, read
from tests.fakeshim.processes import Io, Process, reserve
from tests.fakeshim.publisher import Publisher, stamp

LAST_WORDS_SECONDS = 0.2
EXEC_SECONDS = 5.0  # for the execs of a container whose init has ended


@dataclass
class Task:
    bundle: str
    init: Process
    starts: int = 0
    execs: dict[str, Process] = field(default_factory=dict)


def serve(listening: socket.socket, path: str, program: str, namespace: str) -> NoReturn:
    """Until the last one says Shutdown."""
    modes = read(program)
    reserve()
    if modes.log == "wanted":
        write_log(modes)
    if modes.explicit_ok:
        connection.ServerConnection.respond = respond_ok  # type: ignore

    async def until_shutdown() -> None:
        await Service(path, program, namespace).run(listening)

    asyncio.run(until_shutdown())
    os._exit(0)


def write_log(modes: Modes) -> None:
    """Nobody there to read: it waits. No fifo: it dies."""
    try:
        log_fd = os.open("log", os.O_WRONLY)
    except FileNotFoundError:
        os._exit(1)
    for number in range(modes.log_lines):
        os.write(log_fd, f'time="now" level=info msg="starting signal loop" number={number}\n'.encode())
    os.dup2(log_fd, 2)


def respond_ok(core: connection.ServerConnection, stream: int, message: Message, flags: int = 0) -> bytes:
    """Success in so many words, as shims in Rust have it."""
    core._forget(stream)
    response = Response(status=Status(), payload=message.SerializeToString())
    return frames.encode(Frame(stream, frames.RESPONSE, flags, response.SerializeToString()))


class Service:
    def __init__(self, path: str, program: str, namespace: str) -> None:
        self.path = path
        self.program = program
        self.tasks: dict[str, Task] = {}
        self.publisher = Publisher(namespace)
        self.over = asyncio.Event()
        self._background: set[asyncio.Task[None]] = set()

    @property
    def modes(self) -> Modes:
        return read(self.program)

    async def run(self, listening: socket.socket) -> None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, os._exit, 1)  # as after a bad health check
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR2, self._tell_oom)
        methods = {
            name: Method(request, reply, self._guarded(name, work))
            for name, (request, reply, work) in self._table().items()
        }
        server = Server({f"containerd.task.{version}.Task": methods for version in self.modes.services})
        await server.listen(listening)
        await self.over.wait()
        await self.publisher.told()
        await server.stop(LAST_WORDS_SECONDS)
        if not self.path.startswith("\0"):
            os.unlink(self.path)

    def _table(self) -> "dict[str, tuple[type[Message], type[Message], Callable[[Any], Awaitable[Message]]]]":
        return {
            "Create": (pb.CreateTaskRequest, pb.CreateTaskResponse, self.create),
            "Start": (pb.StartRequest, pb.StartResponse, self.start),
            "Delete": (pb.DeleteRequest, pb.DeleteResponse, self.delete),
            "Exec": (pb.ExecProcessRequest, Empty, self.exec),
            "Kill": (pb.KillRequest, Empty, self.kill),
            "Pause": (pb.PauseRequest, Empty, self.pause),
            "Resume": (pb.ResumeRequest, Empty, self.resume),
            "Update": (pb.UpdateTaskRequest, Empty, self.update),
            "ResizePty": (pb.ResizePtyRequest, Empty, self.resize),
            "CloseIO": (pb.CloseIORequest, Empty, self.close_io),
            "State": (pb.StateRequest, pb.StateResponse, self.state),
            "Pids": (pb.PidsRequest, pb.PidsResponse, self.pids),
            "Connect": (pb.ConnectRequest, pb.ConnectResponse, self.connect),
            "Stats": (pb.StatsRequest, pb.StatsResponse, self.stats),
            "Wait": (pb.WaitRequest, pb.WaitResponse, self.wait),
            "Shutdown": (pb.ShutdownRequest, Empty, self.shutdown),
        }

    def _guarded(self, name: str, work: Callable[[Any], Awaitable[Message]]) -> Callable[[Any, Any], Any]:
        async def handler(request: Any, call: object) -> Message:
            modes = self.modes
            if name == "Start" and modes.vm and not request.exec_id:
                task = self._task(request.id)
                task.starts += 1
                if task.starts > 1:  # it waits for itself
                    await asyncio.Event().wait()
            if name in modes.dies_on:
                os._exit(1)
            if name in modes.freezes_on:
                os.kill(os.getpid(), signal.SIGSTOP)
            if name in modes.never:
                await asyncio.Event().wait()
            if name in modes.refused:
                raise CallFailed(*modes.refused[name])
            return await work(request)

        return handler

    # -- the life of a task

    async def create(self, request: pb.CreateTaskRequest) -> pb.CreateTaskResponse:
        if request.id in self.tasks:
            raise CallFailed(Code.ALREADY_EXISTS, f"task {request.id}: already exists")
        process = process_in(request.bundle)
        task = Task(request.bundle, process_of(process, Io(request.stdin, request.stdout, request.stderr)))
        try:
            task.init.make(request.bundle, lambda ended: self._spawn(self._init_ended(request.id, task)))
        except OSError as error:
            raise CallFailed(Code.UNKNOWN, f"OCI runtime create failed: {error}") from error
        self.tasks[request.id] = task
        io = events.TaskIO(stdin=request.stdin, stdout=request.stdout, stderr=request.stderr)
        pid = self._told_pid(task.init)
        self._tell("create", events.TaskCreate(container_id=request.id, bundle=request.bundle, io=io, pid=pid))
        return pb.CreateTaskResponse(pid=pid)

    async def start(self, request: pb.StartRequest) -> pb.StartResponse:
        task, process = self._task(request.id), self._process(request)
        if process.word != "CREATED":
            raise CallFailed(Code.UNKNOWN, f"cannot start a process that is {process.word}")
        if request.exec_id:
            on_end = lambda ended: self._spawn(self._exec_ended(request.id, request.exec_id, ended))  # noqa: E731
            process.make(task.bundle, on_end)
        process.start()
        pid = self._told_pid(process)
        if request.exec_id:
            told: Message = events.TaskExecStarted(container_id=request.id, exec_id=request.exec_id, pid=pid)
        else:
            told = events.TaskStart(container_id=request.id, pid=pid)
        self._tell("exec-started" if request.exec_id else "start", told)
        return pb.StartResponse(pid=pid)

    async def delete(self, request: pb.DeleteRequest) -> pb.DeleteResponse:
        task, process = self._task(request.id), self._process(request)
        if process.word in ("RUNNING", "PAUSED"):
            raise CallFailed(Code.UNKNOWN, "cannot delete a running process")
        if process.word == "CREATED" and process.popen is not None:
            process.signal(signal.SIGKILL, everyone=True)
            await process.ended.wait()
        process.forget()
        answer = pb.DeleteResponse(pid=self._told_pid(process), **self._end_of(process))
        if request.exec_id:
            del task.execs[request.exec_id]
        else:
            del self.tasks[request.id]
            told = events.TaskDelete(container_id=request.id, pid=answer.pid, **self._end_of(process))
            self._tell("delete", told)
        return answer

    async def exec(self, request: pb.ExecProcessRequest) -> Empty:
        task = self._task(request.id)
        if request.exec_id in task.execs:
            raise CallFailed(Code.ALREADY_EXISTS, f"exec {request.exec_id}: already exists")
        if task.init.word != "RUNNING":
            raise CallFailed(Code.UNKNOWN, f"cannot exec in a container that is {task.init.word}")
        io = Io(request.stdin, request.stdout, request.stderr)
        task.execs[request.exec_id] = process_of(json.loads(request.spec.value), io)
        self._tell("exec-added", events.TaskExecAdded(container_id=request.id, exec_id=request.exec_id))
        return Empty()

    async def _init_ended(self, id: str, task: Task) -> None:
        """Its execs' ends come first, whose processes share no pid namespace with it here."""
        for each in task.execs.values():
            if each.started and each.status < 0:
                each.signal(signal.SIGKILL, everyone=True)
                await asyncio.wait_for(each.ended.wait(), EXEC_SECONDS)
        if self.modes.oom_at_end and task.init.status == 128 + signal.SIGKILL:
            self._tell("oom", events.TaskOOM(container_id=id))
        if task.init.started:
            self._tell_exit(id, id, task.init)
        task.init.ended.set()

    async def _exec_ended(self, id: str, exec_id: str, process: Process) -> None:
        self._tell_exit(id, exec_id, process)
        process.ended.set()

    def _tell_oom(self) -> None:
        """Some process in each of its containers was killed for memory."""
        for id in self.tasks:
            self._tell("oom", events.TaskOOM(container_id=id))

    def _tell_exit(self, id: str, name: str, process: Process) -> None:
        exited = events.TaskExit(container_id=id, id=name, pid=self._told_pid(process), **self._end_of(process))
        if self.modes.odd_events:
            self._tell_odd(id)
        for _ in range(self.modes.exit_events):
            self._tell("exit", exited)

    def _tell_odd(self, id: str) -> None:
        """Of no known kind, of no known container or exec, of no known process, and much of it."""
        at = Timestamp(seconds=2**62, nanos=-(2**31))
        self._tell("none", Timestamp(seconds=1))
        self._tell("x" * 1_000_000 + "\n", Timestamp(seconds=1))
        self._tell("oom", events.TaskOOM(container_id="../" * 300_000))
        for container, name in (("", ""), ("x" * 1_000_000, "a\nb"), (id, "x" * 1_000_000), (id, "../e")):
            self._tell("exit", events.TaskExit(container_id=container, id=name, pid=2**32 - 1, exited_at=at))
        self._tell("exit", events.TaskExit(container_id=id, id=id, pid=2**32 - 1, exit_status=3, exited_at=at))

    # -- what is asked of it meanwhile

    async def kill(self, request: pb.KillRequest) -> Empty:
        process = self._process(request)
        if self.modes.vm and process.word == "CREATED":
            raise CallFailed(Code.UNKNOWN, "Sandbox not running, impossible to signal the container: unknown")
        if process.word == "STOPPED" or process.popen is None:
            raise CallFailed(Code.NOT_FOUND, "process already finished: not found")
        process.signal(request.signal, everyone=request.all)
        return Empty()

    async def pause(self, request: pb.PauseRequest) -> Empty:
        return self._paused(request.id, "RUNNING", is_paused=True)

    async def resume(self, request: pb.ResumeRequest) -> Empty:
        return self._paused(request.id, "PAUSED", is_paused=False)

    def _paused(self, id: str, wanted: str, *, is_paused: bool) -> Empty:
        init = self._task(id).init
        if init.word != wanted:
            raise CallFailed(Code.UNKNOWN, f"the container is {init.word}")
        init.pause(is_paused=is_paused)
        if is_paused:
            self._tell("paused", events.TaskPaused(container_id=id))
        else:
            self._tell("resumed", events.TaskResumed(container_id=id))
        return Empty()

    async def update(self, request: pb.UpdateTaskRequest) -> Empty:
        self._task(request.id)
        json.loads(request.resources.value)
        return Empty()

    async def resize(self, request: pb.ResizePtyRequest) -> Empty:
        self._process(request)
        return Empty()

    async def close_io(self, request: pb.CloseIORequest) -> Empty:
        self._process(request).close_stdin()
        return Empty()

    async def state(self, request: pb.StateRequest) -> pb.StateResponse:
        process = self._process(request)
        return pb.StateResponse(
            id=request.id,
            exec_id=request.exec_id,
            bundle=self._task(request.id).bundle,
            pid=self._told_pid(process),
            status=process.word,
            **(self._end_of(process) if process.status >= 0 else {}),
        )

    async def pids(self, request: pb.PidsRequest) -> pb.PidsResponse:
        task = self._task(request.id)
        if self.modes.one_pid:
            return pb.PidsResponse(processes=[process_pb2.ProcessInfo(pid=os.getpid())])
        found = [process_pb2.ProcessInfo(pid=task.init.pid)]
        for name, each in task.execs.items():
            info = Packed(type_url="containerd.runc.v1.ProcessDetails")
            info.value = runc_pb2.ProcessDetails(exec_id=name).SerializeToString()
            found += [process_pb2.ProcessInfo(pid=each.pid, info=info)] if each.word == "RUNNING" else []
        return pb.PidsResponse(processes=found)

    async def connect(self, request: pb.ConnectRequest) -> pb.ConnectResponse:
        task = self.tasks.get(request.id)
        return pb.ConnectResponse(shim_pid=os.getpid(), task_pid=self._told_pid(task.init) if task else 0)

    async def stats(self, request: pb.StatsRequest) -> pb.StatsResponse:
        self._task(request.id)
        metrics = cgroups2_pb2.Metrics()
        metrics.pids.current, metrics.memory.usage, metrics.cpu.usage_usec = 1, 4096, 1000
        return pb.StatsResponse(
            stats=Packed(type_url="io.containerd.cgroups.v2.Metrics", value=metrics.SerializeToString())
        )

    async def wait(self, request: pb.WaitRequest) -> pb.WaitResponse:
        process = self._process(request)
        await process.ended.wait()
        match self.modes.wait:
            case "never":
                await asyncio.Event().wait()
            case "late":
                await asyncio.sleep(self.modes.late_seconds)
            case "after-event":
                await self.publisher.told()
            case "error":
                raise CallFailed(Code.UNKNOWN, "ttrpc: closed")
        return pb.WaitResponse(**self._end_of(process))

    async def shutdown(self, request: pb.ShutdownRequest) -> Empty:
        modes = self.modes
        if self.tasks or modes.shutdown == "stays":
            return Empty()
        if modes.shutdown == "eof":
            await self.publisher.told()
            os.unlink(self.path)
            os._exit(0)
        self.over.set()
        return Empty()

    # -- helpers

    def _task(self, id: str) -> Task:
        if id not in self.tasks:
            raise CallFailed(Code.NOT_FOUND, "container not created: not found")
        return self.tasks[id]

    def _process(self, request: Any) -> Process:
        task = self._task(request.id)
        if not request.exec_id:
            return task.init
        if request.exec_id not in task.execs:
            raise CallFailed(Code.NOT_FOUND, f"process does not exist {request.exec_id}: not found")
        return task.execs[request.exec_id]

    def _told_pid(self, process: Process) -> int:
        modes = self.modes
        if modes.told_pid >= 0:
            return modes.told_pid
        if modes.told_exec_pid >= 0 and all(task.init is not process for task in self.tasks.values()):
            return modes.told_exec_pid
        return os.getpid() if modes.one_pid else process.pid

    def _end_of(self, process: Process) -> dict[str, Any]:
        if process.status < 0:
            return {}
        told, at = self.modes.status, self.modes.at
        exited_at = Timestamp(seconds=at[0], nanos=at[1]) if at else stamp(process.at_ns)
        return {"exit_status": process.status if told < 0 else told, "exited_at": exited_at}

    def _tell(self, topic: str, event: Message) -> None:
        self.publisher.tell(f"/tasks/{topic}", event)

    def _spawn(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)


def process_in(bundle: str) -> dict[str, Any]:
    with open(f"{bundle}/config.json", "rb") as file:
        process: dict[str, Any] = json.load(file)["process"]
    return process


def process_of(process: dict[str, Any], io: Io) -> Process:
    env = dict(each.partition("=")[::2] for each in process.get("env") or ())
    cwd = process.get("cwd") or "/"
    return Process(list(process["args"]), env, cwd if os.path.isdir(cwd) else "/", io)
