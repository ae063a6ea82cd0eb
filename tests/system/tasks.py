"""A relay's part in the test's own hands: exitd's Task socket, asked as containerd-shim-exitd-v2 asks it."""

import contextlib
import json
import os
import pathlib
import secrets
import select
import socket
import struct
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeVar

from google.protobuf.any_pb2 import Any
from google.protobuf.empty_pb2 import Empty
from google.protobuf.message import Message

from protos.containerd import sandbox_pb2 as sb
from protos.containerd import task_pb2 as pb
from protos.containerd import types_pb2
from protos.exitd.shimv2 import relay_pb2
from protos.ttrpc.v1.ttrpc_pb2 import Request, Response
from shim import fields, native
from supervisor.ttrpc.faults import CallFailed
from supervisor.ttrpc.frames import REQUEST, Decoder, Frame, encode
from tests.system import lives, tinyroot
from tests.system.daemons import Daemon, left, remove_all, warm_up
from tests.system.processes import empty_cgroup
from tests.system.waits import LIMIT_SECONDS, until

HELLO, AGAIN, DONE, BYE, _, EVENT, TOLD, EXEC = range(0x80, 0x88)
KEEP, CACHEABLE, LEAVE = 0x80, 0x40, 0x20
V2, V3 = "containerd.task.v2.Task", "containerd.task.v3.Task"
PROCESS = "types.containerd.io/opencontainers/runtime-spec/1/Process"
RESOURCES = "types.containerd.io/opencontainers/runtime-spec/1/LinuxResources"
REPLIES: dict[str, type[Message]] = {
    "Create": pb.CreateTaskResponse,
    "Start": pb.StartResponse,
    "Delete": pb.DeleteResponse,
    "State": pb.StateResponse,
    "Pids": pb.PidsResponse,
    "Connect": pb.ConnectResponse,
    "Stats": pb.StatsResponse,
    "Wait": pb.WaitResponse,
    "StartSandbox": sb.StartSandboxResponse,
    "WaitSandbox": sb.WaitSandboxResponse,
}
M = TypeVar("M", bound=Message)


@dataclass
class Relay:
    """One relay process with one connection of containerd's. `again` sends on a new connection to exitd.

    With `courier` it brings events: `next_event` is one that was handed over, `told` answers it."""

    daemon: Daemon
    namespace: str
    id: str = field(default_factory=lambda: secrets.token_hex(8))
    number: int = 1
    live: str = ""
    address: str = ""
    courier: bool = False
    flags: dict[int, int] = field(default_factory=dict)
    begun: list[fields.Message] = field(default_factory=list)  # what exitd has said of execs that have begun
    _handed: deque[int] = field(default_factory=deque)
    _asked: dict[int, tuple[str, bytes]] = field(default_factory=dict)
    _answers: dict[int, Response] = field(default_factory=dict)
    _socket: socket.socket | None = None
    _decoder: Decoder = field(default_factory=Decoder)
    _next: int = 1

    def connect(self, *, hello: bool = True) -> "Relay":
        self.close()
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(f"{self.daemon.state}/shimv2.sock")
        self._decoder = Decoder()
        words: list[tuple[str, str | int]] = [
            *(("relay", self.id), ("connection", self.number), ("live", self.live or self.number)),
            *(("pid", os.getpid()), ("started", native.process_stat(os.getpid())[2])),
            *(("namespace", self.namespace), ("group", ""), ("address", self.address), ("socket", "/none")),
            *([("courier", 1)] if self.courier else []),
        ]
        if hello:
            self.say(Frame(0, HELLO, 0, fields.encode("relay-hello", words)))
        return self

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def say(self, frame: Frame) -> None:
        assert self._socket is not None
        self._socket.sendall(encode(frame))

    def begin(self, method: str, request: Message, service: str = V2) -> int:
        """Asks, and does not wait."""
        stream, self._next = self._next, self._next + 2
        data = Request(service=service, method=method, payload=request.SerializeToString()).SerializeToString()
        self._asked[stream] = (method, data)
        self.say(Frame(stream, REQUEST, 0, data))
        return stream

    def again(self, *streams: int, attempt: int = 1) -> None:
        """Over a new connection, these requests and all that are not answered once more, in their order."""
        self.connect()
        for stream in sorted({*streams, *(self._asked.keys() - self._answers.keys())}):
            self._answers.pop(stream, None)
            self.say(Frame(stream, AGAIN, 0, struct.pack(">II", attempt, 1000)))
            self.say(Frame(stream, REQUEST, 0, self._asked[stream][1]))

    def confirm(self) -> None:
        """All answers have arrived: exitd may forget them."""
        for stream in self._answers:
            self.say(Frame(stream, DONE, 0, b""))

    def answer(self, stream: int, seconds: float = LIMIT_SECONDS) -> Message:
        """CallFailed as exitd answered. ConnectionError when it has gone."""
        deadline = time.monotonic() + seconds
        while stream not in self._answers:
            self._read(deadline)
        response = self._answers[stream]
        if response.status.code:
            raise CallFailed(response.status.code, response.status.message)
        return REPLIES.get(self._asked[stream][0], Empty).FromString(response.payload)

    def is_answered(self, stream: int, seconds: float = 0.0) -> bool:
        with contextlib.suppress(TimeoutError, CallFailed):
            self.answer(stream, seconds)
        return stream in self._answers

    def ask(self, method: str, request: Message, service: str = V2) -> Message:
        return self.answer(self.begin(method, request, service))

    def code(self, method: str, request: Message) -> int:
        """Of the refusal; 0: it was done."""
        try:
            self.ask(method, request)
        except CallFailed as error:
            return error.code
        return 0

    def _read(self, deadline: float) -> None:
        assert self._socket is not None
        ready, _, _ = select.select([self._socket], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            raise TimeoutError("no answer")
        data = self._socket.recv(1 << 16)
        if not data:
            raise ConnectionError("exitd has gone")
        for frame in self._decoder.feed(data):
            assert isinstance(frame, Frame) and frame.stream not in self._answers, frame
            if frame.type == EVENT:
                self._handed += struct.unpack_from(">Q", frame.data)
                continue
            if frame.type == EXEC:
                self.begun.append(fields.decode(frame.data, "exec"))
                continue
            self._answers[frame.stream] = Response.FromString(frame.data)
            self.flags[frame.stream] = frame.flags

    def next_event(self) -> int:
        """The number of the next one that exitd has handed over, or hands over now."""
        deadline = time.monotonic() + LIMIT_SECONDS
        while not self._handed:
            self._read(deadline)
        return self._handed.popleft()

    def told(self, number: int) -> None:
        """containerd has it."""
        self.say(Frame(0, TOLD, 0, struct.pack(">Q", number)))

    def clean_up(self, id: str, bundle: pathlib.Path) -> pb.DeleteResponse:
        """As the relay's `delete` asks."""
        request = relay_pb2.CleanupRequest(namespace=self.namespace, id=id, bundle=str(bundle))
        stream = self.begin("Cleanup", request, "exitd.shimv2.Relay")
        self._asked[stream] = ("Delete", b"")
        found = self.answer(stream)
        assert isinstance(found, pb.DeleteResponse)
        return found

    # -- a task's life in few words

    def create(self, id: str, bundle: pathlib.Path, **fields: object) -> int:
        request = pb.CreateTaskRequest(id=id, bundle=str(bundle), **fields)  # type: ignore[arg-type]
        return int(self.ask("Create", request).pid)  # type: ignore[attr-defined]

    def start(self, id: str, exec_id: str = "") -> int:
        return int(self.ask("Start", pb.StartRequest(id=id, exec_id=exec_id)).pid)  # type: ignore[attr-defined]

    def state(self, id: str, exec_id: str = "") -> pb.StateResponse:
        found = self.ask("State", pb.StateRequest(id=id, exec_id=exec_id))
        assert isinstance(found, pb.StateResponse)
        return found

    def wait(self, id: str, exec_id: str = "") -> pb.WaitResponse:
        found = self.ask("Wait", pb.WaitRequest(id=id, exec_id=exec_id))
        assert isinstance(found, pb.WaitResponse)
        return found

    def kill(self, id: str, signal: int = 9, exec_id: str = "", *, all: bool = False) -> int:
        return self.code("Kill", pb.KillRequest(id=id, signal=signal, exec_id=exec_id, all=all))

    def delete(self, id: str, exec_id: str = "") -> pb.DeleteResponse:
        found = self.ask("Delete", pb.DeleteRequest(id=id, exec_id=exec_id))
        assert isinstance(found, pb.DeleteResponse)
        return found

    def add_exec(self, id: str, exec_id: str, *args: str, **fields: object) -> int:
        process = {"args": args, "cwd": "/", "env": ["PATH=/bin"], "user": {"uid": 0, "gid": 0}, "terminal": True}
        spec = Any(type_url=PROCESS, value=json.dumps(process).encode())
        request = pb.ExecProcessRequest(id=id, exec_id=exec_id, spec=spec, **fields)  # type: ignore[arg-type]
        return self.code("Exec", request)


@dataclass
class Tasks:
    """A daemon, a relay, and bundles as containerd makes them."""

    daemon: Daemon
    relay: Relay
    base: pathlib.Path

    def bundle(self, id: str, *args: str) -> pathlib.Path:
        place = tinyroot.bundle(self.base / id, list(args), f"/{self.relay.namespace}/{id}")
        return place

    def mounted(self, id: str, *args: str) -> tuple[pathlib.Path, list[types_pb2.Mount]]:
        """A bundle whose root file system is still to be mounted: two layers."""
        bundle = self.bundle(id, *args)
        config = json.loads((bundle / "config.json").read_text())
        config["root"]["readonly"] = False
        (bundle / "config.json").write_text(json.dumps(config))
        layer = self.base / f"{id}-layer"
        os.rename(bundle / "rootfs", layer)
        (bundle / "rootfs").mkdir()
        for name in ("upper", "work"):
            (self.base / f"{id}-{name}").mkdir()
        options = [f"lowerdir={layer}", f"upperdir={self.base}/{id}-upper", f"workdir={self.base}/{id}-work"]
        return bundle, [types_pb2.Mount(type="overlay", source="overlay", options=options)]

    def restart(self) -> None:
        """exitd is killed and comes back; the relay finds it again."""
        self.daemon.restart()
        self.relay.again()

    def mounts(self) -> int:
        return pathlib.Path("/proc/self/mountinfo").read_text().count(f" {self.base}/")

    def log(self) -> list[str]:
        """The types of this relay's events."""
        with self.daemon.client() as client:
            return [event.type for event in lives.events(client) if event.namespace == self.relay.namespace]


@contextlib.contextmanager
def of_daemon(daemon: Daemon, base: pathlib.Path) -> Iterator[Tasks]:
    """With a namespace of its own; the cgroups below its name are empty and gone afterwards."""
    relay = Relay(daemon, f"exitd-{secrets.token_hex(4)}").connect()
    try:
        yield Tasks(daemon, relay, base)
    finally:
        relay.close()
        empty_cgroup(f"/{relay.namespace}")


@contextlib.contextmanager
def alone(daemon: Daemon, base: pathlib.Path) -> Iterator[Tasks]:
    """Nothing else lives, and nothing is left. exitd may be killed meanwhile."""
    with daemon.client() as client:
        warm_up(client)
    with of_daemon(daemon, base) as made:
        yield made
        with daemon.client() as client:
            remove_all(client)
    until(lambda: left(daemon).shims == 0 and made.mounts() == 0, f"left behind: {left(daemon)}")
