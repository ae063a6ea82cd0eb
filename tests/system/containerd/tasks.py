"""containerd's own Tasks service over gRPC, call by call, as its clients use it; and programs whose ends are known."""

import json
import os
import pathlib
import time
from dataclasses import dataclass, field
from typing import Any

import grpc

from tests.system.containerd.history import STOPPED, Call, End, Who
from tests.system.containerd.server import IMAGE, Containerd
from tests.system.containerd.wiretable import Table
from tests.system.waits import LIMIT_SECONDS, until

MOUNTS = """
    Mount: type 1 string, source 2 string, target 3 string, options 4 *string
    """
WIRE = Table(
    "containerd.services.tasks.v1",
    MOUNTS
    + """
    CreateTaskRequest: container_id 1 string, rootfs 3 *Mount
    CreateTaskResponse: container_id 1 string, pid 2 uint32
    StartRequest: container_id 1 string, exec_id 2 string
    StartResponse: pid 1 uint32
    ExecProcessRequest: container_id 1 string, spec 6 any, exec_id 7 string
    KillRequest: container_id 1 string, exec_id 2 string, signal 3 uint32, all 4 bool
    PauseTaskRequest: container_id 1 string
    ResumeTaskRequest: container_id 1 string
    DeleteTaskRequest: container_id 1 string
    DeleteProcessRequest: container_id 1 string, exec_id 2 string
    DeleteResponse: id 1 string, pid 2 uint32, exit_status 3 uint32, exited_at 4 time
    WaitRequest: container_id 1 string, exec_id 2 string
    WaitResponse: exit_status 1 uint32, exited_at 2 time
    GetRequest: container_id 1 string, exec_id 2 string
    Process: container_id 1 string, id 2 string, pid 3 uint32, status 4 int32, exit_status 9 uint32, exited_at 10 time
    GetResponse: process 1 Process
    Empty:
    """,
)
SNAPSHOTS = Table(
    "containerd.services.snapshots.v1",
    MOUNTS
    + """
    MountsRequest: snapshotter 1 string, key 2 string
    MountsResponse: mounts 1 *Mount
    """,
)
# verb: the method, its request, its answer
METHODS = {
    "create": ("Create", "CreateTaskRequest", "CreateTaskResponse"),
    "start": ("Start", "StartRequest", "StartResponse"),
    "exec": ("Exec", "ExecProcessRequest", "Empty"),
    "kill": ("Kill", "KillRequest", "Empty"),
    "pause": ("Pause", "PauseTaskRequest", "Empty"),
    "resume": ("Resume", "ResumeTaskRequest", "Empty"),
    "delete": ("Delete", "DeleteTaskRequest", "DeleteResponse"),
    "delete exec": ("DeleteProcess", "DeleteProcessRequest", "DeleteResponse"),
    "wait": ("Wait", "WaitRequest", "WaitResponse"),
    "state": ("Get", "GetRequest", "GetResponse"),
}
PROCESS = "types.containerd.io/opencontainers/runtime-spec/1/Process"
FOREVER = 3600.0  # for a Wait: it is given up by whoever looks for its answer

# Who is told to go ends by itself, and who gets SIGTERM by its trap; each time with a code that nobody else has.
INIT = "trap 'exit {term}' TERM; (read x </mnt/go) & : >/mnt/up; wait; exit {own}"
EXEC = ": >/mnt/{name}.up; read x </mnt/{name}.go; exit {own}"


@dataclass
class Pending:
    """One call under way."""

    who: Who
    verb: str
    begun: float
    future: Any

    def call(self, seconds: float = LIMIT_SECONDS) -> Call:
        """Its answer, or that it has none."""
        try:
            answer = self.future.result(timeout=seconds)
        except grpc.RpcError as error:
            return self._over(error=str(error.code().name), text=str(error.details()))
        except grpc.FutureCancelledError:
            return self._over(error="CANCELLED")
        except grpc.FutureTimeoutError:
            return self._over(error="NO_ANSWER")
        if self.verb == "state":
            answer = answer.process
            end = _end(answer) if answer.status == STOPPED else None
            return self._over(pid=answer.pid, status=answer.status, end=end)
        pid = getattr(answer, "pid", 0)
        return self._over(pid=pid, end=_end(answer) if self.verb in ("wait", "delete", "delete exec") else None)

    def _over(self, **found: Any) -> Call:
        return Call(self.begun, time.time(), self.who, self.verb, **found)


def _end(answer: Any) -> End:
    return End(answer.exit_status, answer.exited_at.ToNanoseconds())


class Tasks:
    """One client of one containerd; to be made anew when that was restarted."""

    def __init__(self, containerd: Containerd) -> None:
        self._channel = grpc.insecure_channel(f"unix:{containerd.address}")
        self._metadata = (("containerd-namespace", containerd.namespace),)

    def begin(self, verb: str, who: Who, **fields: Any) -> Pending:
        method, ask, answer = METHODS[verb]
        request = getattr(WIRE, ask)(container_id=who.task, **fields)
        if who.exec:
            request.exec_id = who.exec
        path = f"/{WIRE.package}.Tasks/{method}"
        call: Any = self._channel.unary_unary(path, ask_bytes, getattr(WIRE, answer).FromString)
        seconds = FOREVER if verb == "wait" else LIMIT_SECONDS
        return Pending(who, verb, time.time(), call.future(request, metadata=self._metadata, timeout=seconds))

    def mounts(self, id: str) -> list[Any]:
        """Of the container's root file system."""
        path = f"/{SNAPSHOTS.package}.Snapshots/Mounts"
        call: Any = self._channel.unary_unary(path, ask_bytes, SNAPSHOTS.MountsResponse.FromString)
        request = SNAPSHOTS.MountsRequest(snapshotter="overlayfs", key=id)
        found = call(request, metadata=self._metadata, timeout=LIMIT_SECONDS).mounts
        return [WIRE.Mount.FromString(one.SerializeToString()) for one in found]

    def close(self) -> None:
        self._channel.close()


def ask_bytes(message: Any) -> bytes:
    return bytes(message.SerializeToString())


@dataclass
class Program:
    """A container that is made and has no task yet, and the directory by which its processes are told to go."""

    id: str
    group: str
    place: pathlib.Path
    own: int
    term: int
    rootfs: list[Any] = field(default_factory=list)

    @classmethod
    def make(cls, containerd: Containerd, runtime: str, group: str, number: int) -> "Program":
        """`group`: of the pod it belongs to; empty: it stands alone."""
        id = containerd.box(runtime, "chance").id
        made = cls(id, group or id, containerd.base / f"go-{id}", own=10 + number, term=60 + number)
        made.place.mkdir()
        os.mkfifo(made.place / "go")
        containerd.keys.add(made.group)
        words = ["--runtime", runtime, "--mount", f"type=bind,src={made.place},dst=/mnt,options=rbind"]
        words += ["--annotation", f"io.containerd.runc.v2.group={group}"] if group else []
        script = INIT.format(own=made.own, term=made.term)
        containerd.wanted("container", "create", *words, "--", IMAGE, id, "sh", "-c", script)
        return made

    def exec_spec(self, name: str, own: int) -> Any:
        """As the call wants it."""
        os.mkfifo(self.place / f"{name}.go")
        script = EXEC.format(name=name, own=own)
        user = {"uid": 0, "gid": 0}
        process = {"args": ["sh", "-c", script], "cwd": "/", "env": ["PATH=/bin"], "user": user}
        spec = WIRE.ExecProcessRequest().spec
        spec.type_url, spec.value = PROCESS, json.dumps(process).encode()
        return spec

    def up(self, name: str = "") -> None:
        """Its program has begun."""
        path = self.place / (f"{name}.up" if name else "up")
        until(path.exists, f"{self.id} {name} does not begin")

    def go(self, name: str = "") -> None:
        """A fifo without a reader cannot be opened for writing only."""
        path = self.place / (f"{name}.go" if name else "go")

        def told() -> bool:
            try:
                os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))
            except OSError:
                return False
            return True

        until(told, f"{self.id} {name} does not wait to be told")
