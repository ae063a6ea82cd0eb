"""What both clients know of the way to exitd: where its socket is, who asks, and what a failed call means."""

import os
import time
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote

# Read when grpc is imported: without it, a program that forks has a line on stderr for each fork.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

import grpc as grpc
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2  # type: ignore[import-untyped]  # ships no py.typed

from exitd_client import errors
from exitd_client.messages import message, service

DEFAULT_STATE = "/run/exitd"
SOCKET_PATH_BYTES = 107  # sun_path, unix(7)
GREETING_SECONDS = 2.0
AGAIN_SECONDS = 0.1  # between two tries while exitd is away
THERE_SECONDS = 1.0  # a call that failed after so long had reached exitd
TOKEN_KEY = "exitd-caller"
TOKEN_BYTES = 256  # more than a token has
DETAILS_KEY = "grpc-status-details-bin"
OPTIONS = (
    ("grpc.max_receive_message_length", -1),
    ("grpc.enable_retries", 0),  # a call is sent once; what is safe to ask again, the clients ask again
    # While gRPC waits before it connects again, calls fail; and other channels of the process with the same address and
    # options would wait with it.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 100),
    ("grpc.use_local_subchannel_pool", 1),
)


def socket_path(address: str | None, environment: Mapping[str, str]) -> str:
    """Return the path of the socket: `address` (a path, or unix:PATH), else EXITD_ADDRESS, else exitd.sock in
    EXITD_STATE, else /run/exitd/exitd.sock. Raises BadRequest."""
    state = environment.get("EXITD_STATE") or DEFAULT_STATE
    text = address or environment.get("EXITD_ADDRESS") or os.path.join(state, "exitd.sock")
    if text.startswith("unix:"):
        text = text.removeprefix("unix:")
        text = text[2:] if text.startswith("///") else text
    path = os.path.abspath(text)
    if len(os.fsencode(path)) > SOCKET_PATH_BYTES:
        raise errors.BadRequest(
            f"{path} is longer than the {SOCKET_PATH_BYTES} bytes that a unix socket's path can have"
        )
    return path


def target(path: str) -> str:
    """Return gRPC's name for a unix socket."""
    return f"unix:{quote(path)}"


def identity_path(path: str) -> str:
    """Return the socket on which exitd learns who asks: gRPC does not say."""
    return os.path.join(os.path.dirname(path), "caller.sock")


def token_of(line: bytes) -> str:
    """Return the token that exitd sent, empty for anything else."""
    word = line.split(b"\n")[0].strip()
    return word.decode("ascii") if word.isalnum() and word.isascii() else ""


def metadata(token: str) -> tuple[tuple[str, str], ...]:
    return ((TOKEN_KEY, token),) if token else ()


def stubs(channel: Any) -> dict[str, Any]:
    """Return what calls each method of the API over a channel, grpc's or grpc.aio's."""
    found = {}
    for method in service().methods:
        kind = f"{_kind(method.client_streaming)}_{_kind(method.server_streaming)}"
        request, reply = message(method.input_type.name), message(method.output_type.name)
        found[method.name] = getattr(channel, kind)(
            f"/{service().full_name}/{method.name}",
            request_serializer=request.SerializeToString,
            response_deserializer=reply.FromString,
        )
    return found


def failure(error: Any, path: str) -> errors.ExitdError:
    """Return what a failed call (an RpcError of grpc or grpc.aio) means. `path` is for the words to a person."""
    code, text = error.code(), error.details() or ""
    if (info := _info(error.trailing_metadata() or ())) is not None:
        return errors.named(info.reason, text, dict(info.metadata))
    if code == grpc.StatusCode.UNAVAILABLE:
        return errors.Unreachable(f"no exitd answers on {path}")
    if code == grpc.StatusCode.DEADLINE_EXCEEDED:
        return errors.TimedOut("the time limit has passed; what was asked may still be going on")
    if code == grpc.StatusCode.UNIMPLEMENTED:
        return errors.ExitdError(f"the exitd on {path} does not know this request: it is older than this client")
    return errors.ExitdError(text or f"exitd answered {code.name}")


def _info(trailing: Iterable[Any]) -> Any | None:
    """Return the ErrorInfo that exitd's own code sent; None where the error is gRPC's."""
    packed = next((value for key, value in trailing if key == DETAILS_KEY), None)
    if not isinstance(packed, bytes):
        return None
    info = error_details_pb2.ErrorInfo()
    try:
        found = any(detail.Unpack(info) for detail in status_pb2.Status.FromString(packed).details)
    except DecodeError:
        return None
    return info if found and info.domain == "exitd" else None


def _kind(streaming: bool) -> str:
    return "stream" if streaming else "unary"


class Deadline:
    """A limit for several calls together. `seconds` None: none."""

    def __init__(self, seconds: float | None) -> None:
        self._end = None if seconds is None else time.monotonic() + seconds

    def left(self, most: float | None = None) -> float | None:
        """Return the seconds that are left, `most` if that is less; None without any limit."""
        mine = None if self._end is None else max(0.0, self._end - time.monotonic())
        return min((each for each in (mine, most) if each is not None), default=None)


class Patience:
    """How long exitd may be away before what follows it gives up; anew for each absence."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._end: float | None = None

    def spend(self, deadline: Deadline, error: errors.ExitdError) -> None:
        """Note that exitd is away. Raises `error`, which says so, when it has been for too long."""
        now = time.monotonic()
        self._end = now + self._seconds if self._end is None else self._end
        if now >= self._end or deadline.left() == 0:
            raise error

    def renew(self) -> None:
        """Note that exitd is there."""
        self._end = None
