"""containerd's sandbox controller in the test's own hands: bundles as containerd 2 makes them, the real relay begun for
each, its ttrpc connections, and who takes the events. exitd behind the relay is a real one."""

import contextlib
import json
import os
import pathlib
import secrets
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.message import Message

from protos.containerd import events_pb2
from protos.containerd import podsandbox_pb2 as cri
from protos.containerd import sandbox_pb2 as sb
from protos.containerd import task_pb2 as pb
from protos.containerd.forward_pb2 import ForwardRequest
from protos.ttrpc.v1.ttrpc_pb2 import Request, Response
from shim import programs
from supervisor.ttrpc.faults import CallFailed
from tests.shim.relaywords import REQUEST, RESPONSE, Frame, call, decode, encode
from tests.system import tinyroot
from tests.system.daemons import Daemon
from tests.system.processes import empty_cgroup
from tests.system.relay import Bundle, Containerd, Relays
from tests.system.waits import until

TASK, SANDBOX = "containerd.task.v2.Task", "containerd.runtime.sandbox.v1.Sandbox"
GROUP = {"io.kubernetes.cri.container-type": "container"}
LIFE = ("/tasks/create", "/tasks/start", "/tasks/exit", "/tasks/delete")
NAMESPACES = {"network": "net", "ipc": "ipc", "uts": "uts"}
M = TypeVar("M", bound=Message)


class Connection:
    """One connection of containerd's to the relay, with any number of calls under way."""

    def __init__(self, address: str) -> None:
        self._peer = Containerd(address)
        self._next = 1
        self._answers: dict[int, Response] = {}

    def begin(self, service: str, method: str, request: Message) -> int:
        stream, self._next = self._next, self._next + 2
        self._peer.send(Frame(stream, REQUEST, 0, call(method, request.SerializeToString(), service)))
        return stream

    def answer(self, stream: int, kind: type[M]) -> M:
        """CallFailed as it was refused."""
        while stream not in self._answers:
            frame = self._peer.next()
            assert frame is not None and frame.type == RESPONSE, frame
            self._answers[frame.stream] = Response.FromString(frame.data)
        found = self._answers[stream]
        if found.status.code:
            raise CallFailed(found.status.code, found.status.message)
        return kind.FromString(found.payload)

    def ask(self, service: str, method: str, request: Message, kind: type[M]) -> M:
        return self.answer(self.begin(service, method, request), kind)

    def silent(self) -> bool:
        return self._peer.silent()

    def is_closed(self) -> bool:
        """Whether the relay has ended it."""
        return self._peer.next() is None

    def relay(self) -> int:
        return self._peer.relay()

    def close(self) -> None:
        self._peer.close()


class Events:
    """Where containerd takes events: each is accepted, and noted."""

    def __init__(self, path: str) -> None:
        self.taken: list[tuple[str, str, int]] = []  # topic, container, exit status
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(path)
        self._listener.listen(16)
        self._open = [self._listener]
        self._threads = [threading.Thread(target=self._serve)]
        self._threads[0].start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection = self._listener.accept()[0]
                self._open.append(connection)
                self._threads.append(threading.Thread(target=self._take, args=(connection,)))
                self._threads[-1].start()

    def _take(self, connection: socket.socket) -> None:
        rest = b""
        with contextlib.suppress(OSError):
            while data := connection.recv(1 << 16):
                frames, rest = decode(rest + data)
                for frame in frames:
                    self._note(ForwardRequest.FromString(Request.FromString(frame.data).payload))
                    connection.sendall(encode(Frame(frame.stream, RESPONSE, 0, b"")))

    def _note(self, request: ForwardRequest) -> None:
        envelope = request.envelope
        kind = getattr(events_pb2, envelope.event.type_url.rpartition(".")[2])
        event: Any = kind.FromString(envelope.event.value)
        self.taken.append((envelope.topic, event.container_id, getattr(event, "exit_status", 0)))

    def of(self, id: str) -> list[tuple[str, int]]:
        return [(topic, status) for topic, container, status in self.taken if container == id]

    def close(self) -> None:
        for each in self._open:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        for thread in list(self._threads):
            thread.join(20)
        for each in self._open:
            each.close()


@dataclass
class RealRelays(Relays):
    """Begun for an exitd that is a real one."""

    daemon: Daemon | None = None

    def __post_init__(self) -> None:
        assert self.daemon is not None
        self.state = self.daemon.state
        self.program = str(programs.find("containerd-shim-exitd-v2"))
        self.containerd = str(self.directory / "containerd.sock")


@dataclass
class Controller:
    """A containerd of one test, as far as its sandboxes go."""

    relays: RealRelays
    events: Events
    connections: list[Connection] = field(default_factory=list)

    def pod(self, **config: Any) -> "Pod":
        """A sandbox's bundle, which has no config.json, and its relay. Nothing is asked of it yet."""
        id = f"pod{secrets.token_hex(4)}"
        directory = self.relays.directory / id
        (directory / "rootfs").mkdir(parents=True)
        os.mkfifo(directory / "log", 0o700)
        bundle = Bundle(directory, os.open(directory / "log", os.O_RDWR | os.O_NONBLOCK))
        self.relays.bundles.append(bundle)
        self.relays.sockets.add(self.relays.socket(id))
        return Pod(self, bundle, self.connect(self.relays.start(bundle)), config)

    def connect(self, address: str) -> Connection:
        self.connections.append(Connection(address))
        return self.connections[-1]

    def close(self) -> None:
        for connection in self.connections:
            connection.close()
        self.events.close()


@dataclass
class Pod:
    """One sandbox. `config`: fields of CRI's PodSandboxConfig."""

    controller: Controller
    bundle: Bundle
    connection: Connection
    config: dict[str, Any]

    @property
    def id(self) -> str:
        return self.bundle.id

    @property
    def cgroup(self) -> str:
        return f"/{self.controller.relays.directory.name}-{self.id}"

    def create(self, netns: str = "") -> sb.CreateSandboxResponse:
        """As CRI asks for it, with a cgroup of the test's own."""
        config = cri.PodSandboxConfig(**self.config)
        if not config.linux.cgroup_parent:
            config.linux.cgroup_parent = self.cgroup
        options = AnyMessage(type_url="runtime.v1.PodSandboxConfig", value=config.SerializeToString())
        request = sb.CreateSandboxRequest(
            sandbox_id=self.id, bundle_path=str(self.bundle.directory), options=options, netns_path=netns
        )
        return self.ask("CreateSandbox", request, sb.CreateSandboxResponse)

    def started(self, netns: str = "") -> int:
        """Created and started; its pid."""
        self.create(netns)
        return self.ask("StartSandbox", sb.StartSandboxRequest(sandbox_id=self.id), sb.StartSandboxResponse).pid

    def ask(self, method: str, request: Message, kind: type[M]) -> M:
        return self.connection.ask(SANDBOX, method, request, kind)

    def status(self) -> sb.SandboxStatusResponse:
        return self.ask("SandboxStatus", sb.SandboxStatusRequest(sandbox_id=self.id), sb.SandboxStatusResponse)

    def wait(self) -> int:
        """The stream of a WaitSandbox that is under way."""
        return self.connection.begin(SANDBOX, "WaitSandbox", sb.WaitSandboxRequest(sandbox_id=self.id))

    def waited(self, stream: int) -> sb.WaitSandboxResponse:
        return self.connection.answer(stream, sb.WaitSandboxResponse)

    def stop(self, seconds: int = 0) -> None:
        request = sb.StopSandboxRequest(sandbox_id=self.id, timeout_secs=seconds)
        self.ask("StopSandbox", request, sb.StopSandboxResponse)

    def shutdown(self) -> None:
        self.ask("ShutdownSandbox", sb.ShutdownSandboxRequest(sandbox_id=self.id), sb.ShutdownSandboxResponse)

    def deleted(self) -> pb.DeleteResponse:
        """What the relay's `delete` prints, and containerd publishes."""
        said, _, _ = self.controller.relays.delete(self.bundle)
        return pb.DeleteResponse.FromString(said)

    def member(self, name: str, *args: str, pid: int, mounts: tuple[dict[str, Any], ...] = ()) -> "Member":
        """A container as CRI makes it, in the namespaces of the process `pid`."""
        id = f"{name}-{self.id}"
        relays = self.controller.relays
        directory = tinyroot.bundle(relays.directory / id, list(args), f"{self.cgroup}/{id}")
        config = json.loads((directory / "config.json").read_text())
        kinds = [each for each in config["linux"]["namespaces"] if each["type"] not in NAMESPACES]
        joined = [{"type": kind, "path": f"/proc/{pid}/ns/{file}"} for kind, file in NAMESPACES.items()]
        config["linux"]["namespaces"] = kinds + joined
        config.pop("hostname", None)
        config["mounts"] += mounts
        config["root"]["readonly"] = False
        config["annotations"] = {**GROUP, "io.kubernetes.cri.sandbox-id": self.id}
        (directory / "config.json").write_text(json.dumps(config))
        os.mkfifo(directory / "log", 0o700)
        bundle = Bundle(directory, os.open(directory / "log", os.O_RDWR | os.O_NONBLOCK))
        relays.bundles.append(bundle)
        address = relays.start(bundle)
        assert address == self.bundle.address  # containerd has one relay for a pod
        return Member(bundle, self.controller.connect(address))


@dataclass
class Member:
    bundle: Bundle
    connection: Connection

    @property
    def id(self) -> str:
        return self.bundle.id

    def ask(self, method: str, request: Message, kind: type[M]) -> M:
        return self.connection.ask(TASK, method, request, kind)

    def create(self) -> int:
        request = pb.CreateTaskRequest(id=self.id, bundle=str(self.bundle.directory))
        return self.ask("Create", request, pb.CreateTaskResponse).pid

    def started(self) -> int:
        """The stream of its Wait, which is asked before the start."""
        self.create()
        stream = self.wait()
        self.ask("Start", pb.StartRequest(id=self.id), pb.StartResponse)
        return stream

    def wait(self) -> int:
        return self.connection.begin(TASK, "Wait", pb.WaitRequest(id=self.id))

    def waited(self, stream: int) -> int:
        return self.connection.answer(stream, pb.WaitResponse).exit_status

    def pid(self) -> int:
        return self.ask("Connect", pb.ConnectRequest(id=self.id), pb.ConnectResponse).task_pid

    def delete(self) -> int:
        """As containerd does it for a shim of version 2: Delete, Shutdown, and the connection is closed."""
        status = self.ask("Delete", pb.DeleteRequest(id=self.id), pb.DeleteResponse).exit_status
        self.ask("Shutdown", pb.ShutdownRequest(id=self.id), pb.ShutdownRequest)
        self.connection.close()
        return status


@contextlib.contextmanager
def controlled(daemon: Daemon, directory: pathlib.Path) -> Iterator[Controller]:
    """With a directory whose name no other test has. Afterwards no relay is left and no cgroup."""
    relays = RealRelays(directory, daemon=daemon)
    controller = Controller(relays, Events(relays.containerd + ".ttrpc"))
    try:
        yield controller
    finally:
        controller.close()
        relays.close()
        for bundle in relays.bundles:
            empty_cgroup(f"/{directory.name}-{bundle.id}")


def relay_gone(controller: Controller, pid: int) -> None:
    until(lambda: pid not in controller.relays.living(), f"relay {pid} is gone")
