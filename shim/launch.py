"""Asking the keeper for a shim, and what a shim answers: messages, and a blocking client for callers without a loop."""

import array
import os
import socket
from collections.abc import Sequence

from shim import fields
from shim.frozen import frozen

SOCKET_NAME = "keeper.sock"
MESSAGE_MAX_BYTES = 8192


class KeeperRefused(Exception):
    """The keeper answered no; `number` is its errno."""

    def __init__(self, why: str, number: int) -> None:
        super().__init__(f"keeper: {why}" + (f": {os.strerror(number)}" if number else ""))
        self.number = number


@frozen
class Created:
    """The shim's word that init exists and waits; `pidfd` is the receiver's to close, -1 if none came."""

    pid: int
    started: int
    shim_pid: int
    shim_started: int
    keeper_knows: bool
    pidfd: int


@frozen
class Failed:
    """Why a shim made nothing. `text` is the end of the runtime's own log; it explains, it never decides."""

    stage: str
    errno: int
    wait_status: int
    text: str


def key(id: str, run: int, exec_id: str = "") -> list[tuple[str, str | int]]:
    return [("id", id), ("run", run), ("exec", exec_id)]


def spawn_request(
    id: str, run: int, exec_id: str, directory: str, program: str, *, adopt: bool, slots: Sequence[int] = ()
) -> bytes:
    """`slots`: where each descriptor that goes with the request is to be; none: in their order, from the first on."""
    pairs = [*key(id, run, exec_id), ("dir", directory), ("program", program), ("adopt", int(adopt))]
    return fields.encode("exitd-spawn", [*pairs, *[("seat", slot) for slot in slots]])


def parse_status(data: bytes, descriptors: list[int]) -> Created | Failed:
    """A shim's status message. BadMessage when it is none."""
    message = fields.decode(data, "exitd-status")
    if message.get("kind") == "created":
        return Created(
            message.number("pid") if message.get("pid") else 0,
            message.number("started") if message.get("started") else 0,
            message.number("shim_pid"),
            message.number("shim_started") if message.get("shim_started") else 0,
            message.get("keeper") == "yes",
            descriptors[0] if descriptors else -1,
        )
    return Failed(message.get("stage"), message.number("errno"), message.number("wait_status"), message.get("text"))


def receive(sock: socket.socket) -> tuple[bytes, list[int]]:
    """One message and its descriptors (CLOEXEC); b"" when the peer has gone."""
    data, control, _, _ = sock.recvmsg(MESSAGE_MAX_BYTES, socket.CMSG_SPACE(16), socket.MSG_CMSG_CLOEXEC)
    numbers = array.array("i")
    for level, kind, payload in control:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            numbers.frombytes(payload[: len(payload) - len(payload) % numbers.itemsize])
    return data, list(numbers)


def connect(state: str, timeout_seconds: float = 2.0) -> socket.socket:
    """A connection to the state directory's keeper. OSError when there is none."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    sock.settimeout(timeout_seconds)
    try:
        sock.connect(os.path.join(state, SOCKET_NAME))
    except OSError:
        sock.close()
        raise
    return sock


def ask(sock: socket.socket, request: bytes, descriptors: list[int]) -> tuple[fields.Message, list[int]]:
    """One request, its answer. KeeperRefused, or OSError (TimeoutError) when the keeper is gone or stopped."""
    socket.send_fds(sock, [request], descriptors)
    while True:
        data, received = receive(sock)
        if not data:
            raise ConnectionResetError("the keeper closed the connection")
        message = fields.decode(data)
        if message.kind == "exitd-refused":
            raise KeeperRefused(message.get("why"), message.number("errno"))
        if message.kind != "exitd-news":
            return message, received
