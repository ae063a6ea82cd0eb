"""The fake shim as a program: `start` and `delete`; -v is shell. The daemon that `start` leaves is in service.py."""

import contextlib
import hashlib
import json
import os
import signal
import socket
import sys
import time
from dataclasses import dataclass
from typing import NoReturn

from shim.later import PURE_PROTOBUF, cleandoc, later, without
from tests.fakeshim.modes import Modes, read

GROUPS = ("io.containerd.runc.v2.group", "io.kubernetes.cri.sandbox-id")
FOREVER_SECONDS = 3600.0
WITH_VALUE = ("namespace", "id", "address", "publish-binary", "bundle", "socket")


@dataclass(frozen=True)
class Words:
    action: str
    flags: dict[str, str]

    def wanted(self, flag: str) -> str:
        """kata's shim in Rust refuses to go without some that others ignore."""
        value = self.flags.get(flag, "")
        return value if value else fail(f"the flag -{flag} must not be empty")


def main() -> None:
    words, modes = parse(sys.argv[1:]), read(program())
    for flag in ("namespace", "id", "publish-binary"):
        words.wanted(flag)
    {"start": start, "delete": delete}[words.action](words, modes)


def program() -> str:
    """As it was called."""
    return os.path.abspath(sys.argv[0]).removesuffix(".py")


def parse(given: list[str]) -> Words:
    flags: dict[str, str] = {}
    rest = iter(given)
    for word in rest:
        if not word.startswith("-"):
            return Words(word, flags)
        name = word.lstrip("-")
        flags[name] = next(rest, "") if name in WITH_VALUE else "true"
    return Words("", flags)


def fail(text: str) -> NoReturn:
    sys.stderr.write(f"{text}\n")
    sys.exit(1)


def say(data: bytes) -> None:
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


# -- start


def start(words: Words, modes: Modes) -> None:
    check_stdin(words, modes)
    if modes.start in ("fails", "hangs"):
        if modes.start == "hangs":
            time.sleep(FOREVER_SECONDS)
        fail("no such hypervisor")
    if modes.eager:
        with socket.socket(socket.AF_UNIX) as events:
            events.connect(os.environ["TTRPC_ADDRESS"])
    path = socket_path(words, modes)
    listening = bound(path)
    write_address(path)
    if listening is not None:
        serve_in_background(listening, path, words, modes)
    if modes.start == "mute":
        time.sleep(FOREVER_SECONDS)
    printed = answer(path, modes)
    if modes.start == "noise":
        sys.stderr.write("time=now level=warning msg=deprecated\n")
        sys.stderr.flush()
    say(printed)


def check_stdin(words: Words, modes: Modes) -> None:
    from google.protobuf.message import DecodeError

    from protos.containerd.bootstrap_pb2 import BootstrapParams

    given = sys.stdin.buffer.read()
    if modes.stdin == "options" and given and b"runc.v1.Options" not in given[:40]:
        fail("unsupported option type")
    if modes.stdin == "message":
        try:
            params = BootstrapParams.FromString(given)
        except DecodeError:
            fail("started through the deprecated API")
        if (params.instance_id, params.namespace) != (words.flags["id"], words.flags["namespace"]):
            fail("started through the deprecated API")


def socket_path(words: Words, modes: Modes) -> str:
    with open("config.json", "rb") as file:
        annotations = json.load(file).get("annotations") or {}
    group = next((annotations[name] for name in GROUPS if name in annotations), words.flags["id"])
    key = f"{words.flags['address']}/{words.flags['namespace']}/{group}"
    name = hashlib.sha256(key.encode()).hexdigest()[:24]
    return f"\0/containerd-shim/{name}.sock" if modes.start == "abstract" else f"{modes.sockets}/{name}"


def bound(path: str) -> socket.socket | None:
    """None: a shim of this group is there."""
    listening = socket.socket(socket.AF_UNIX)
    try:
        listening.bind(path)
    except OSError:
        with socket.socket(socket.AF_UNIX) as caller, contextlib.suppress(ConnectionRefusedError):
            caller.connect(path)
            return None
        os.unlink(path)
        listening.bind(path)
    listening.listen(64)
    return listening


def write_address(path: str) -> None:
    with open("address", "w", encoding="utf-8") as file:
        file.write(f"unix://{path}".replace("\0", "@"))


def serve_in_background(listening: socket.socket, path: str, words: Words, modes: Modes) -> None:
    later(PURE_PROTOBUF)
    later("inspect", cleandoc=cleandoc)
    with without("ssl"):  # as exitd does it: a seventh of what a shim's start takes
        import asyncio  # noqa: F401

    from tests.fakeshim import service  # before the fork: it takes a while

    if (pid := os.fork()) != 0:
        with open("shim.pid", "w", encoding="utf-8") as file:
            file.write(str(pid))
        return
    os.setsid()
    null_fd = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 2) if modes.start == "held" else (0, 1, 2):
        os.dup2(null_fd, fd)
    if modes.start == "late-dead":
        os._exit(1)
    if modes.start == "deaf":
        be_deaf(listening, path)
    service.serve(listening, path, program(), words.flags["namespace"])


def be_deaf(listening: socket.socket, path: str) -> NoReturn:
    """One connection fills the queue."""
    listening.listen(0)
    with socket.socket(socket.AF_UNIX) as caller:
        caller.connect(path)
        while True:
            time.sleep(FOREVER_SECONDS)


def answer(path: str, modes: Modes) -> bytes:
    from protos.containerd.bootstrap_pb2 import BootstrapResult

    address = f"unix://{path}"
    match modes.start:
        case "json2" | "json3" | "json4":
            words = {"version": int(modes.start[-1]), "address": address, "protocol": "ttrpc"}
            return json.dumps(words).encode()
        case "message" | "message3":
            version = 3 if modes.start == "message3" else 2
            return BootstrapResult(version=version, address=address, protocol="ttrpc").SerializeToString()
        case "grpc":
            return json.dumps({"version": 3, "address": address, "protocol": "grpc"}).encode()
        case "vsock":
            return json.dumps({"version": 3, "address": "vsock://3:1024", "protocol": "ttrpc"}).encode()
        case "nothing":
            return b""
        case "garbage":
            return b"\xff\xfe\x00 what is this"
        case "abstract":
            return path[1:].encode()
    return address.encode()


# -- delete


def delete(words: Words, modes: Modes) -> None:
    from google.protobuf.timestamp_pb2 import Timestamp

    from protos.containerd.task_pb2 import DeleteResponse

    bundle = words.wanted("bundle")
    if modes.delete == "hangs":
        time.sleep(FOREVER_SECONDS)
    if modes.delete == "fails":
        fail("cannot delete")
    pid = end_processes(bundle)
    if modes.delete == "noise":
        sys.stderr.write("level=warning msg=nothing\n")
    if modes.delete == "garbage":
        say(b"\xffnot a message")
    elif modes.delete != "nothing":
        seconds = int(time.time())
        say(DeleteResponse(pid=pid, exit_status=137, exited_at=Timestamp(seconds=seconds)).SerializeToString())


def end_processes(bundle: str) -> int:
    """Whatever is left of those that the shim has begun. init's pid; 0: there was none."""
    from shim import native

    try:
        with open(f"{bundle}/begun", encoding="utf-8") as file:
            begun = [tuple(map(int, line.split())) for line in file]
    except FileNotFoundError:
        return 0
    for pid, started in begun:
        with contextlib.suppress(ProcessLookupError, FileNotFoundError):
            if native.process_stat(pid)[2] == started:
                os.killpg(pid, signal.SIGKILL)
    return begun[0][0] if begun else 0
