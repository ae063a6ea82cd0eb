"""The Task service of a shim, over one connection: one method for each call, values in and out, a time limit for all
but Wait.

Versions 2 and 3 of the service differ only in name. A shim's `start` prints which one it has; some print the wrong one,
so until the first answer, code 12 means: ask under the other name.
"""

import asyncio
import os
import socket
import stat
from collections.abc import Mapping
from typing import Generic, Self, TypeVar

from google.protobuf.any_pb2 import Any
from google.protobuf.empty_pb2 import Empty
from google.protobuf.message import DecodeError, Message

from protos.containerd import process_pb2, runc_pb2, types_pb2
from protos.containerd import task_pb2 as pb
from shim.frozen import frozen
from supervisor.model.errors import BadRequest, Code, ShimFailed, ShimLost, TimedOut, Unsupported
from supervisor.model.taskfacts import RootMount, Stdio
from supervisor.runtime.foreign_shim.binary import Address, Deleted
from supervisor.runtime.foreign_shim.refusals import refusal
from supervisor.runtime.foreign_shim.verdict import ShimWord, instant_ns
from supervisor.system.aside import Aside
from supervisor.ttrpc.client import TtrpcClient
from supervisor.ttrpc.faults import CallFailed, Closed

OPEN_SECONDS = 5.0
MAKE_SECONDS = 120.0  # of create and start: a virtual machine may have to boot
DELETE_SECONDS = 30.0  # output is drained first
CALL_SECONDS = 10.0
CONNECT_SECONDS = 5.0
SHUTDOWN_SECONDS = 5.0

JSON_TYPES = "types.containerd.io/opencontainers/runtime-spec/1/"  # the prefix of Process and LinuxResources
DETAILS = "ProcessDetails"  # from any package: which exec a process belongs to

M = TypeVar("M", bound=Message)


@frozen
class ShimState:
    """The answer of State. `status`: unknown | created | running | stopped | paused | pausing. The last two fields are
    0 until the end."""

    status: str
    pid: int
    exit_status: int
    exited_at_ns: int


@frozen
class ShimMember:
    """A process of a container. `exec_id`: it is the first process of this exec. Several containers may have one
    pid."""

    pid: int
    exec_id: str = ""


@frozen
class Connected:
    """The answer of Connect: who serves a task. 0: not reported."""

    shim_pid: int
    task_pid: int
    version: str


@frozen
class Stats:
    """A message of the named kind, as its bytes: io.containerd.cgroups.v1.Metrics or v2."""

    kind: str
    value: bytes


NOTHING = Stdio()


class ShimConnection:
    """One connection. `exec_id` names an exec; empty means init.

    All calls raise what `refusal` makes of an error response, TimedOut on this side's clock, and ShimLost when the
    connection has ended, which is never an exit.
    """

    def __init__(self, address: Address) -> None:
        self.address = address
        self.closed = asyncio.Event()
        self._client: TtrpcClient | None = None
        self._version = address.version
        self._settled = False  # a call was answered under this version

    @classmethod
    async def open(cls, address: Address, looks: Aside, seconds: float = OPEN_SECONDS) -> Self:
        """Connect. `looks`: threads that look up the path, which the shim has named. Raises ShimLost when no shim
        listens there, TimedOut, Unsupported for an address of another kind."""
        link = cls(address)
        path = socket_path(address.address)
        try:
            link._client = await TtrpcClient.connect(path, link.closed.set, seconds, looks)
        except Closed as error:
            # Only these mean that no shim is there. Other errors, such as too many open files, are this side's own.
            no_shim = isinstance(error.__cause__, ConnectionRefusedError | FileNotFoundError | NotADirectoryError)
            kind = ShimLost if no_shim or error.__cause__ is None else TimedOut
            raise kind(f"no shim answers: {error.text}") from error
        return link

    def close(self) -> None:
        """Close this side of the connection. Repeatable."""
        if self._client is not None:
            self._client.close()

    @property
    def service(self) -> str:
        return _service(self._version)

    async def create(
        self,
        id: str,
        bundle: str,
        *,
        stdio: Stdio = NOTHING,
        rootfs: tuple[RootMount, ...] = (),
        options: bytes = b"",
        seconds: float = MAKE_SECONDS,
    ) -> int:
        """Return the pid of init, which several containers may share. `options`: a serialized Any."""
        request = pb.CreateTaskRequest(
            id=id,
            bundle=bundle,
            rootfs=[types_pb2.Mount(type=m.type, source=m.source, target=m.target, options=m.options) for m in rootfs],
            terminal=stdio.terminal,
            stdin=stdio.stdin,
            stdout=stdio.stdout,
            stderr=stdio.stderr,
            options=_unpacked(options, id),
        )
        return (await self._call("Create", request, pb.CreateTaskResponse, seconds)).pid

    async def start(self, id: str, exec_id: str = "", *, seconds: float = MAKE_SECONDS) -> int:
        """Return the process's pid."""
        request = pb.StartRequest(id=id, exec_id=exec_id)
        return (await self._call("Start", request, pb.StartResponse, seconds)).pid

    async def state(self, id: str, exec_id: str = "", *, seconds: float = CALL_SECONDS) -> ShimState:
        """Return the state of a process. Its status is a name in lower case, and `unknown` for a number without one.
        The time of its end is in ns since 1970."""
        answer = await self._call("State", pb.StateRequest(id=id, exec_id=exec_id), pb.StateResponse, seconds)
        known = process_pb2.Status.DESCRIPTOR.values_by_number.get(answer.status)
        status = known.name.lower() if known is not None else "unknown"
        return ShimState(status, answer.pid, answer.exit_status, instant_ns(answer.exited_at))

    async def wait(self, id: str, exec_id: str = "") -> ShimWord:
        """Wait without a limit. A result with time 0 is no end: the shim knows of none."""
        answer = await self._call("Wait", pb.WaitRequest(id=id, exec_id=exec_id), pb.WaitResponse, None)
        return ShimWord(answer.exit_status, instant_ns(answer.exited_at))

    async def kill(
        self, id: str, signal: int, exec_id: str = "", *, everyone: bool = False, seconds: float = CALL_SECONDS
    ) -> None:
        """Send a signal. Raises WrongState when the process has ended."""
        await self._call("Kill", pb.KillRequest(id=id, exec_id=exec_id, signal=signal, all=everyone), Empty, seconds)

    async def exec(
        self, id: str, exec_id: str, process: bytes, *, stdio: Stdio = NOTHING, seconds: float = CALL_SECONDS
    ) -> None:
        """Add an exec; `start` begins it. `process`: JSON of runtime-spec's process."""
        request = pb.ExecProcessRequest(
            id=id,
            exec_id=exec_id,
            terminal=stdio.terminal,
            stdin=stdio.stdin,
            stdout=stdio.stdout,
            stderr=stdio.stderr,
            spec=Any(type_url=f"{JSON_TYPES}Process", value=process),
        )
        await self._call("Exec", request, Empty, seconds)

    async def delete(self, id: str, exec_id: str = "", *, seconds: float = DELETE_SECONDS) -> Deleted:
        """Delete a process that has ended or was never started; its output has been drained then. The time is 0 for one
        that never ran."""
        answer = await self._call("Delete", pb.DeleteRequest(id=id, exec_id=exec_id), pb.DeleteResponse, seconds)
        return Deleted(answer.pid, answer.exit_status, instant_ns(answer.exited_at))

    async def pids(self, id: str, *, seconds: float = CALL_SECONDS) -> tuple[ShimMember, ...]:
        """Return the processes of the container, each with its exec, where the shim names one."""
        answer = await self._call("Pids", pb.PidsRequest(id=id), pb.PidsResponse, seconds)
        return tuple(ShimMember(each.pid, _exec_of(each.info)) for each in answer.processes)

    async def pause(self, id: str, *, seconds: float = CALL_SECONDS) -> None:
        await self._call("Pause", pb.PauseRequest(id=id), Empty, seconds)

    async def resume(self, id: str, *, seconds: float = CALL_SECONDS) -> None:
        await self._call("Resume", pb.ResumeRequest(id=id), Empty, seconds)

    async def update(
        self, id: str, resources: bytes, annotations: Mapping[str, str] | None = None, *, seconds: float = CALL_SECONDS
    ) -> None:
        """Change the limits. `resources`: JSON of runtime-spec's linux.resources."""
        packed = Any(type_url=f"{JSON_TYPES}LinuxResources", value=resources)
        request = pb.UpdateTaskRequest(id=id, resources=packed, annotations=annotations or {})
        await self._call("Update", request, Empty, seconds)

    async def stats(self, id: str, *, seconds: float = CALL_SECONDS) -> Stats:
        """Return the shim's own figures, whose kind their name says: of cgroup v1 or v2 as a rule."""
        answer = await self._call("Stats", pb.StatsRequest(id=id), pb.StatsResponse, seconds)
        return Stats(_name(answer.stats), answer.stats.value)

    async def resize(
        self, id: str, exec_id: str = "", *, rows: int, columns: int, seconds: float = CALL_SECONDS
    ) -> None:
        """Set the size of a terminal, in characters."""
        request = pb.ResizePtyRequest(id=id, exec_id=exec_id, width=columns, height=rows)
        await self._call("ResizePty", request, Empty, seconds)

    async def close_io(self, id: str, exec_id: str = "", *, seconds: float = CALL_SECONDS) -> None:
        """Close the shim's copy of stdin: it ends once all other writers have closed it, too."""
        await self._call("CloseIO", pb.CloseIORequest(id=id, exec_id=exec_id, stdin=True), Empty, seconds)

    async def connect(self, id: str, *, seconds: float = CONNECT_SECONDS) -> Connected:
        """Return the pids of shim and init, and the version that the shim names."""
        answer = await self._call("Connect", pb.ConnectRequest(id=id), pb.ConnectResponse, seconds)
        return Connected(answer.shim_pid, answer.task_pid, answer.version)

    async def shutdown(self, id: str, *, now: bool = False, seconds: float = SHUTDOWN_SECONDS) -> None:
        """Ask the shim to end, which it does if it has no tasks. Some end without an answer."""
        try:
            await self._call("Shutdown", pb.ShutdownRequest(id=id, now=now), Empty, seconds)
        except ShimLost:
            return

    async def _call(self, method: str, request: Message, response_type: type[M], seconds: float | None) -> M:
        asked = _Question(method, request, response_type, seconds)
        try:
            return await self._ask(asked)
        except CallFailed as error:
            raise refusal(method, getattr(request, "id", ""), getattr(request, "exec_id", ""), error) from error

    async def _ask(self, asked: "_Question[M]") -> M:
        version = self._version
        try:
            return await self._ask_version(version, asked)
        except CallFailed as error:
            if error.code != Code.UNIMPLEMENTED or (self._settled and version == self._version):
                raise
            return await self._ask_other(5 - version, asked, error)

    async def _ask_other(self, version: int, asked: "_Question[M]", first: CallFailed) -> M:
        """Ask under the other name, which is the right one if anything but code 12 comes back."""
        try:
            return await self._ask_version(version, asked)
        except CallFailed as error:
            raise first if error.code == Code.UNIMPLEMENTED else error from None

    async def _ask_version(self, version: int, asked: "_Question[M]") -> M:
        if self._client is None:
            raise Closed
        name = f"{_service(version)}/{asked.method}"
        try:
            answer = await self._client.call(name, asked.request, asked.response_type, asked.seconds)
        except CallFailed as error:
            # A refusal shows which service there is; silence and a lost connection do not.
            if not isinstance(error, Closed) and error.code not in (Code.UNIMPLEMENTED, Code.DEADLINE_EXCEEDED):
                self._version, self._settled = version, True
            raise
        self._version, self._settled = version, True
        return answer


@frozen
class _Question(Generic[M]):
    method: str
    request: Message
    response_type: type[M]
    seconds: float | None


def socket_path(address: str) -> str:
    """Return what connect(2) takes; an abstract name begins with a NUL. Raises Unsupported, ShimFailed."""
    scheme, is_named, rest = address.partition("://")
    if not is_named:
        return f"\0{address}"
    if scheme != "unix":
        raise Unsupported(f"the shim serves on {address}, and exitd connects to unix sockets alone")
    path = f"\0{rest[1:]}" if rest.startswith("@") else rest
    if len(path.encode()) > 107 or not path:
        raise ShimFailed(f"the shim serves on {address}, which is no path of a unix socket")
    return path


def remove_dead_socket(address: Address) -> bool:
    """Remove the socket of a shim that has ended without doing so. Return False if there is none, or a shim listens on
    it."""
    path = socket_path(address.address)
    if path.startswith("\0") or not stat.S_ISSOCK(_mode(path)):
        return False
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as caller:
        try:
            caller.connect(path)
        except ConnectionRefusedError:
            os.unlink(path)
            return True
        except (FileNotFoundError, BlockingIOError):
            return False
    return False


def _mode(path: str) -> int:
    try:
        return os.lstat(path).st_mode
    except OSError:
        return 0


def _service(version: int) -> str:
    return f"containerd.task.v{version}.Task"


def _unpacked(options: bytes, id: str) -> Any | None:
    try:
        return Any.FromString(options) if options else None
    except DecodeError as error:
        raise BadRequest(f"the options of {id} cannot be read: {error}") from error


def _name(packed: Any) -> str:
    return packed.type_url.rpartition("/")[2]


def _exec_of(info: Any) -> str:
    if not _name(info).endswith(DETAILS):
        return ""
    try:
        return runc_pb2.ProcessDetails.FromString(info.value).exec_id
    except DecodeError:
        return ""
