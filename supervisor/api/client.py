"""exitctl's side of the API: one synchronous channel to the daemon's unix socket, and errors by their names.

Whatever goes wrong is an ExitdError: the daemon's own reason words become the daemon's own classes again, told by
google.rpc.ErrorInfo in the trailing metadata and never by text.
"""

import os
import socket
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")  # both are read when grpc is imported
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

import grpc
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2  # type: ignore[import-untyped]  # ships no py.typed

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor import errors
from supervisor.api.attachment import Attachment
from supervisor.api.rpc import Stub
from supervisor.errors import ExitdError

DEFAULT_STATE = "/run/exitd"
CALL_SECONDS = 30.0  # a call that only looks
WORK_SECONDS = 120.0  # a call that has the runtime work
IMAGE_SECONDS = 3600.0  # a call that reads a whole image; the daemon's own limits come first
KILL_SECONDS = 60.0  # how long after the grace period an end by SIGKILL may take
GREETING_SECONDS = 2.0
DEFAULT_GRACE_SECONDS = 10
DETAILS_KEY = "grpc-status-details-bin"
SOCKET_PATH_LIMIT = 107  # sun_path, unix(7)

REASONS: Mapping[str, type[ExitdError]] = {cls.reason: cls for cls in errors.CODES}


class Unreachable(ExitdError):
    """No daemon answers on the socket."""

    reason = "UNREACHABLE"


def socket_path(address: str | None, environment: Mapping[str, str]) -> str:
    """The daemon's socket: `address`, else EXITD_ADDRESS, else exitd.sock in EXITD_STATE, else the default's.

    Takes plain paths and gRPC's unix:PATH and unix:///PATH. Raises BadRequest for what cannot be a unix socket.
    """
    state = environment.get("EXITD_STATE") or DEFAULT_STATE
    text = address or environment.get("EXITD_ADDRESS") or os.path.join(state, "exitd.sock")
    scheme, colon, rest = text.partition(":")
    if colon and "/" not in scheme:
        if scheme != "unix":
            raise errors.BadRequest(f"the address {text!r} is no unix socket: give a path or unix:PATH")
        text = rest[2:] if rest.startswith("///") else rest
    path = os.path.abspath(text)
    if len(os.fsencode(path)) > SOCKET_PATH_LIMIT:
        raise errors.BadRequest(
            f"the socket path {path} is longer than the {SOCKET_PATH_LIMIT} bytes a unix socket can have: "
            "choose a shorter state directory"
        )
    return path


def translate(error: grpc.RpcError, path: str) -> ExitdError:
    """What a failed call means. `path` is the socket, for the words to a person."""
    named = _named(error)
    if named is not None:
        return named
    code, text = error.code(), error.details() or ""
    if code is grpc.StatusCode.UNAVAILABLE:
        return Unreachable(f"no daemon answers on {path}: {_next_step(path)}")
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return errors.TimedOut(f"the daemon on {path} did not answer in time; what was asked may still be going on")
    if code is grpc.StatusCode.UNIMPLEMENTED:
        return ExitdError(f"the daemon on {path} does not know this request; is it older than this exitctl?")
    return ExitdError(text or f"the daemon answered {code.name.lower().replace('_', ' ')}")


def _named(error: grpc.RpcError) -> ExitdError | None:
    """The error as the daemon named it, or None when it did not come from exitd's own code."""
    packed = next((item.value for item in error.trailing_metadata() or () if item.key == DETAILS_KEY), None)
    if not isinstance(packed, bytes):
        return None
    info = error_details_pb2.ErrorInfo()
    try:
        status = status_pb2.Status.FromString(packed)
        found = any(detail.Unpack(info) for detail in status.details)
    except DecodeError:
        return None
    if not found or info.domain != "exitd":
        return None
    named = REASONS.get(info.reason, ExitdError)(error.details() or status.message or info.reason)
    named.reason = info.reason  # a newer daemon may have words this client has no class for
    named.metadata = dict(info.metadata)
    return named


def _next_step(path: str) -> str:
    if not os.path.exists(path):
        return "start exitd, or name its state directory in EXITD_STATE (its socket: --address, EXITD_ADDRESS)"
    if not os.access(path, os.R_OK | os.W_OK):
        return "the socket belongs to root and the group exitd; run this as root"
    return "it is not running, or too busy to accept; start exitd or look at its log"


class Client:
    """One connection to the daemon. Use as a context manager; every method raises ExitdError."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._channel = grpc.insecure_channel(
            f"unix:{quote(path)}", options=[("grpc.max_receive_message_length", -1), ("grpc.enable_retries", 0)]
        )
        self._stub = Stub(self._channel)
        # gRPC cannot tell the daemon who calls. The kernel can, on a socket beside it: the token read there stands for
        # this process as long as that connection is open.
        self._identity, self._metadata = _introduce(Path(path).parent / "caller.sock")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._channel.close()
        if self._identity is not None:
            self._identity.close()

    def create(self, spec: pb.ContainerSpec) -> pb.Container:
        reply: pb.CreateContainerReply = self._call(
            "CreateContainer", pb.CreateContainerRequest(spec=spec), WORK_SECONDS
        )
        return reply.container

    def start(self, container_id: str) -> pb.Container:
        reply: pb.StartReply = self._call("Start", pb.StartRequest(id=container_id), WORK_SECONDS)
        return reply.container

    def stop(self, container_id: str, grace_seconds: int | None) -> None:
        request = pb.StopRequest(id=container_id, timeout_seconds=grace_seconds)
        self._call("Stop", request, self._grace(container_id, grace_seconds) + KILL_SECONDS)

    def restart(self, container_id: str, grace_seconds: int | None) -> None:
        request = pb.RestartRequest(id=container_id, timeout_seconds=grace_seconds)
        self._call("Restart", request, self._grace(container_id, grace_seconds) + KILL_SECONDS + WORK_SECONDS)

    def kill(self, container_id: str, signal: str, *, everyone: bool = False, exec_id: str = "") -> None:
        request = pb.KillRequest(id=container_id, signal=signal, all=everyone, exec_id=exec_id)
        self._call("Kill", request, CALL_SECONDS)

    def exec(self, container_id: str, spec: pb.ExecSpec) -> pb.Exec:
        """It runs when this returns. With `spec.attach` its output waits for `attach`."""
        reply: pb.ExecReply = self._call("Exec", pb.ExecRequest(id=container_id, spec=spec), WORK_SECONDS)
        return reply.exec

    def pause(self, container_id: str) -> None:
        self._call("Pause", pb.PauseRequest(id=container_id), WORK_SECONDS)

    def resume(self, container_id: str) -> None:
        self._call("Resume", pb.ResumeRequest(id=container_id), WORK_SECONDS)

    def remove(self, container_id: str, *, force: bool) -> None:
        self._call("Remove", pb.RemoveRequest(id=container_id, force=force), WORK_SECONDS)

    def list(self, *, all_of_them: bool, filters: tuple[str, ...] = ()) -> tuple[pb.Container, ...]:
        reply: pb.ListReply = self._call("List", pb.ListRequest(all=all_of_them, filters=filters), CALL_SECONDS)
        return tuple(reply.containers)

    def inspect(self, container_id: str) -> pb.Container:
        reply: pb.InspectReply = self._call("Inspect", pb.InspectRequest(id=container_id), CALL_SECONDS)
        return reply.container

    def run_pod(self, spec: pb.ContainerSpec) -> pb.Pod:
        """`spec` is of its pause container."""
        reply: pb.RunPodReply = self._call("RunPod", pb.RunPodRequest(spec=spec), WORK_SECONDS)
        return reply.pod

    def stop_pod(self, pod_id: str, grace_seconds: int | None = None) -> pb.Pod:
        pod = self.inspect_pod(pod_id)
        grace = sum(
            max((self._grace_of(each.spec, grace_seconds) for each in level), default=0) for level in _levels(pod)
        )
        request = pb.StopPodRequest(id=pod.id, timeout_seconds=grace_seconds)
        reply: pb.StopPodReply = self._call("StopPod", request, grace + 2 * KILL_SECONDS)
        return reply.pod

    def remove_pod(self, pod_id: str, *, force: bool) -> None:
        self._call("RemovePod", pb.RemovePodRequest(id=pod_id, force=force), WORK_SECONDS)

    def pods(self, filters: tuple[str, ...] = ()) -> tuple[pb.Pod, ...]:
        reply: pb.ListPodsReply = self._call("ListPods", pb.ListPodsRequest(filters=filters), CALL_SECONDS)
        return tuple(reply.pods)

    def inspect_pod(self, pod_id: str) -> pb.Pod:
        reply: pb.InspectPodReply = self._call("InspectPod", pb.InspectPodRequest(id=pod_id), CALL_SECONDS)
        return reply.pod

    def load_image(self, word: str, name: str = "") -> tuple[pb.Image, ...]:
        request = pb.LoadImageRequest(word=word, name=name)
        reply: pb.LoadImageReply = self._call("LoadImage", request, IMAGE_SECONDS)
        return tuple(reply.images)

    def pull_image(self, word: str, *, if_missing: bool = False) -> pb.Image:
        request = pb.PullImageRequest(name=word, if_missing=if_missing)
        reply: pb.PullImageReply = self._call("PullImage", request, IMAGE_SECONDS)
        return reply.image

    def import_image(self, path: str, name: str = "") -> pb.Image:
        request = pb.ImportImageRequest(path=path, name=name)
        reply: pb.ImportImageReply = self._call("ImportImage", request, IMAGE_SECONDS)
        return reply.image

    def images(self) -> tuple[pb.Image, ...]:
        reply: pb.ListImagesReply = self._call("ListImages", pb.ListImagesRequest(), CALL_SECONDS)
        return tuple(reply.images)

    def remove_image(self, word: str) -> pb.RemoveImageReply:
        reply: pb.RemoveImageReply = self._call("RemoveImage", pb.RemoveImageRequest(word=word), WORK_SECONDS)
        return reply

    def version(self) -> pb.VersionReply:
        reply: pb.VersionReply = self._call("Version", pb.VersionRequest(), CALL_SECONDS)
        return reply

    def info(self) -> pb.InfoReply:
        reply: pb.InfoReply = self._call("Info", pb.InfoRequest(), CALL_SECONDS)
        return reply

    def exits(self, request: pb.ExitsRequest) -> Iterator[pb.Exit]:
        return (reply.exit for reply in self._stream("Exits", request, WORK_SECONDS))

    def events(self, request: pb.EventsRequest) -> Iterator[pb.EventsReply]:
        """Follows for ever unless the request says otherwise."""
        return self._stream("Events", request, None)

    def logs(self, request: pb.LogsRequest) -> "Stream":
        """Begun when this returns; follows for ever if the request says so."""
        return self._stream("Logs", request, None)

    def attach(
        self,
        container_id: str,
        *,
        exec_id: str = "",
        stdin: bool = True,
        stdout: bool = True,
        stderr: bool = True,
        lossless: bool = True,
        size: tuple[int, int] | None = None,
    ) -> Attachment:
        """Attached when this returns; a created container can be, before its start. WrongState once it has ended.

        `lossless` False: output that is not read in time is dropped and counted. `size`: rows and columns, for a
        terminal.
        """
        start = pb.AttachStart(
            id=container_id,
            exec_id=exec_id,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            lossless=lossless,
            size=pb.Winsize(rows=size[0], cols=size[1]) if size else None,
        )
        return Attachment(
            start,
            lambda requests: self._stub.Attach(requests, metadata=self._metadata),
            lambda error: translate(error, self.path),
        )

    def resize(self, container_id: str, rows: int, cols: int, *, exec_id: str = "") -> None:
        """WrongState when it has no terminal."""
        size = pb.Winsize(rows=rows, cols=cols)
        self._call("ResizePty", pb.ResizePtyRequest(id=container_id, exec_id=exec_id, size=size), CALL_SECONDS)

    def close_stdin(self, container_id: str, *, exec_id: str = "") -> None:
        """The container reads an end of file, behind what others have sent. WrongState with a terminal."""
        self._call("CloseStdin", pb.CloseStdinRequest(id=container_id, exec_id=exec_id), CALL_SECONDS)

    def reopen_log(self, container_id: str) -> None:
        self._call("ReopenLog", pb.ReopenLogRequest(id=container_id), CALL_SECONDS)

    def begin_wait(self, container_id: str, *, condition: str = "exited", run: int = 0, exec_id: str = "") -> "Waiting":
        """Asks now, so that no exit slips by; `Waiting.result` blocks for the answer."""
        request = pb.WaitRequest(id=container_id, condition=condition, run=run, exec_id=exec_id)
        return Waiting(self._stub.Wait.future(request, metadata=self._metadata), self.path)  # type: ignore[attr-defined]

    def _grace(self, container_id: str, seconds: int | None) -> float:
        return seconds if seconds is not None else self._grace_of(self.inspect(container_id).spec, None)

    def _grace_of(self, spec: pb.ContainerSpec, seconds: int | None) -> float:
        if seconds is not None:
            return seconds
        return spec.stop_timeout_seconds if spec.HasField("stop_timeout_seconds") else DEFAULT_GRACE_SECONDS

    def _call(self, method: str, request: object, seconds: float) -> Any:
        call: Callable[..., Any] = getattr(self._stub, method)
        try:
            return call(request, timeout=seconds, metadata=self._metadata)
        except grpc.RpcError as error:
            raise translate(error, self.path) from error

    def _stream(self, method: str, request: object, seconds: float | None) -> "Stream":
        call: Callable[..., Any] = getattr(self._stub, method)
        return Stream(call(request, timeout=seconds, metadata=self._metadata), self.path)


class Stream(Iterator[Any]):
    """Replies as they come. Ends quietly when cancelled."""

    def __init__(self, call: Any, path: str) -> None:
        self._call = call
        self._path = path
        self._cancelled = False

    def __next__(self) -> Any:
        try:
            return next(self._call)
        except grpc.RpcError as error:
            if self._cancelled:
                raise StopIteration from None
            raise translate(error, self._path) from error

    def cancel(self) -> None:
        """May be called from any thread."""
        self._cancelled = True
        self._call.cancel()


class Waiting:
    """An exit somebody has asked for."""

    def __init__(self, future: Any, path: str) -> None:
        self._future = future
        self._path = path

    def result(self, seconds: float | None = None) -> pb.Exit | None:
        """The exit, or None when there is none (a container removed before it ever ran).

        Raises TimedOut when `seconds` go by first: the container goes on. Other failures as the daemon names them.
        """
        reply = self.reply(seconds)
        return reply.exit if reply.HasField("exit") else None

    def reply(self, seconds: float | None = None) -> pb.WaitReply:
        """The whole answer: a pod's has the exits of its members. An empty one after `cancel`."""
        try:
            reply: pb.WaitReply = self._future.result(timeout=seconds)
            return reply
        except grpc.FutureCancelledError:
            return pb.WaitReply()
        except grpc.FutureTimeoutError:
            self._future.cancel()
            raise errors.TimedOut(f"it had not happened after {seconds:g} s") from None
        except grpc.RpcError as error:
            raise translate(error, self._path) from error

    def cancel(self) -> None:
        self._future.cancel()


def _levels(pod: pb.Pod) -> tuple[list[pb.Container], list[pb.Container]]:
    """Who is stopped together, in order: the members, then the pause container."""
    return list(pod.members), [pod.pause]


def _introduce(path: Path) -> tuple[socket.socket | None, tuple[tuple[str, str], ...]]:
    """The open connection that proves who we are, and the metadata that refers to it. Nothing there: nobody asks."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    connection.settimeout(GREETING_SECONDS)
    try:
        connection.connect(os.fspath(path))
        token = _line(connection)
    except OSError:
        token = ""
    if not token:
        connection.close()
        return None, ()
    return connection, (("exitd-caller", token),)


def _line(connection: socket.socket) -> str:
    received = b""
    while b"\n" not in received and len(received) < 256:
        chunk = connection.recv(256)
        if not chunk:
            break
        received += chunk
    token = received.split(b"\n")[0].strip()
    return token.decode("ascii") if token.isalnum() else ""
