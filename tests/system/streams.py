"""Runs whose streams are all there: slots for stdin, stage and tty, a client of the control socket, pipes to attach."""

import contextlib
import json
import os
import pathlib
import select
import signal
import socket
from collections.abc import Iterator, Sequence
from typing import Any

from shim import fields, launch, plan, programs
from tests.system.keepers import Keeper, Node, Run
from tests.system.processes import empty_cgroup
from tests.system.waits import LIMIT_SECONDS, wait_readable

OUTPUT, INPUT, STAGE = ((4, 6), (5, 7)), (12, 13), (14, 15)
PROGRESS_BYTES = 4096


def terminal(bundle: pathlib.Path) -> pathlib.Path:
    """The same bundle, its process on a terminal."""
    path = bundle / "config.json"
    config = json.loads(path.read_text())
    config["process"]["terminal"] = True
    path.write_text(json.dumps(config))
    return bundle


def planned(keeper: Keeper, run: Run, bundle: pathlib.Path, **streams: Any) -> plan.Plan:
    """`streams`: fields of the plan."""
    console = ("--console-socket", plan.CONSOLE) if streams.get("tty") else ()
    command = ("create", "--bundle", str(bundle), "--pid-file", f"{run.directory}/pid", *console, run.id)
    streams.setdefault("log", f"{run.directory}/log")
    return plan.Plan(
        id=run.id,
        run=1,
        create=(*run.runtime, *command),
        remove=(*run.runtime, "delete", "--force", run.id),
        keeper=f"{keeper.state}/{launch.SOCKET_NAME}",
        create_ms=10_000,
        **streams,
    )


def make(keeper: Keeper, id: str, bundle: pathlib.Path, *, stdin: bool = False, shim: str = "", **streams: Any) -> Run:
    """Everything up to the shim's answer."""
    run = keeper.run_directory(id)
    (run.directory / "plan").write_bytes(plan.encode(planned(keeper, run, bundle, **streams)))
    (run.directory / "progress").write_bytes(bytes(PROGRESS_BYTES))
    pipes = [*(() if streams.get("tty") else OUTPUT), *((INPUT,) if stdin else ()), STAGE]
    spawn(keeper, run, pipes, shim)
    return run


def replace(keeper: Keeper, run: Run, shim: str = "") -> None:
    """A shim in the place of one that has died."""
    spawn(keeper, run, None, shim)


def spawn(keeper: Keeper, run: Run, pipes: Sequence[tuple[int, int]] | None, shim: str) -> None:
    """`pipes`: the slots of their ends; None: a replacement's, which has what the keeper kept."""
    assert keeper.socket is not None
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    slots = {3: theirs.detach()}
    for pair in pipes or ():
        slots.update(zip(pair, os.pipe(), strict=True))
    program, adopt = shim or str(programs.find("exitd-shim")), pipes is None
    request = launch.spawn_request(run.id, 1, "", str(run.directory), program, adopt=adopt, slots=[*slots])
    try:
        answer, descriptors = launch.ask(keeper.socket, request, [*slots.values()])
    finally:
        for fd in slots.values():
            os.close(fd)
    if run.shim_pidfd >= 0:
        os.close(run.shim_pidfd)
    run.shim_pidfd, run.shim_pid = descriptors[0], answer.number("pid")
    ours.settimeout(LIMIT_SECONDS)
    with ours:
        heard(run, ours, adopt)


def heard(run: Run, ours: socket.socket, adopt: bool) -> None:
    """The shim's status; one that was killed first has none."""
    try:
        data, passed = launch.receive(ours)
    except ConnectionResetError:
        return
    status = launch.parse_status(data, passed) if data else None
    if not adopt:
        run.status = status
    elif isinstance(status, launch.Created) and status.pidfd >= 0:
        os.close(status.pidfd)


class Control:
    """A connection to a shim's control socket."""

    def __init__(self, run: Run) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.settimeout(LIMIT_SECONDS)
        directory = os.open(run.directory, os.O_PATH)
        try:
            self.socket.connect(f"/proc/self/fd/{directory}/control.sock")
        finally:
            os.close(directory)

    def ask(self, op: str, fds: Sequence[int] = (), **keys: str | int) -> fields.Message:
        socket.send_fds(self.socket, [fields.encode("exitd-control", [("op", op), *keys.items()])], [*fds])
        return fields.decode(self.socket.recv(4096))

    def ok(self, op: str, fds: Sequence[int] = (), **keys: str | int) -> None:
        answer = self.ask(op, fds, **keys)
        assert answer.kind == "exitd-ok", answer

    def refused(self, op: str, fds: Sequence[int] = (), **keys: str | int) -> int:
        answer = self.ask(op, fds, **keys)
        assert answer.kind == "exitd-refused" and answer.get("why"), answer
        return answer.number("errno")

    def count(self, name: str) -> int:
        return self.ask("counters").number(name)

    def farewell(self) -> fields.Message:
        """What the shim says unasked when there is no more output, before it closes the connection."""
        told = fields.decode(self.socket.recv(4096), "exitd-counters")
        assert self.socket.recv(4096) == b""
        return told

    def close(self) -> None:
        self.socket.close()


class Attached:
    """A client that is attached: our ends of its pipes."""

    def __init__(self, run: Run, streams: str = "out,err", mode: str = "lossless") -> None:
        self.control = Control(run)
        self.fds: dict[str, int] = {}
        theirs = []
        for name in ("in", "out", "err"):
            if name in streams.split(","):
                read_fd, write_fd = os.pipe()
                self.fds[name] = write_fd if name == "in" else read_fd
                theirs.append(read_fd if name == "in" else write_fd)
        try:
            self.control.ok("attach", theirs, streams=streams, mode=mode)
        finally:
            for fd in theirs:
                os.close(fd)

    def read(self, size: int = 65536, name: str = "out") -> bytes:
        assert wait_readable(self.fds[name]), "nothing came"
        return os.read(self.fds[name], size)

    def read_to_end(self, name: str = "out") -> bytes:
        return b"".join(iter(lambda: self.read(name=name), b""))

    def read_until(self, end: bytes, name: str = "out") -> bytes:
        got = b""
        while end not in got:
            part = self.read(name=name)
            assert part, got
            got += part
        return got

    def write(self, data: bytes) -> None:
        poll = select.poll()
        poll.register(self.fds["in"], select.POLLOUT)
        os.set_blocking(self.fds["in"], False)
        while data:
            assert poll.poll(LIMIT_SECONDS * 1000), "nobody takes the input"
            data = data[os.write(self.fds["in"], data) :]

    def close(self, name: str = "") -> None:
        """One pipe, or all and the connection."""
        for each in [name] if name else [*self.fds]:
            os.close(self.fds.pop(each))
        if not name:
            self.control.close()


@contextlib.contextmanager
def attached(run: Run, streams: str = "out,err", mode: str = "lossless") -> Iterator[Attached]:
    made = Attached(run, streams, mode)
    try:
        yield made
    finally:
        made.close()


@contextlib.contextmanager
def control(run: Run) -> Iterator[Control]:
    made = Control(run)
    try:
        yield made
    finally:
        made.close()


def log_of(run: Run) -> bytes:
    return (run.directory / "log").read_bytes()


def texts(log: bytes, stream: str = "stdout") -> bytes:
    """A stream's bytes, out of a log in the CRI's format."""
    assert not log or log.endswith(b"\n"), log[-200:]
    parts = [line.split(b" ", 3) for line in log.split(b"\n")[:-1]]
    return b"".join(p[3] + (b"\n" if p[2] == b"F" else b"") for p in parts if p[1] == stream.encode())


def json_texts(log: bytes, stream: str = "stdout") -> str:
    entries = [json.loads(line) for line in log.splitlines()]
    return "".join(entry["log"] for entry in entries if entry["stream"] == stream)


def rotated(path: pathlib.Path, files: int = 1000) -> bytes:
    """What all files of a log have, the oldest first."""
    older = [path.with_name(f"{path.name}.{n}") for n in range(files - 1, 0, -1)]
    return b"".join(each.read_bytes() for each in [*older, path] if each.exists())


def kill_container(run: Run) -> None:
    signal.pidfd_send_signal(run.created.pidfd, signal.SIGKILL)
    assert wait_readable(run.shim_pidfd)


def finish(node: Node, keeper: Keeper, *runs: Run) -> None:
    for run in runs:
        run.clean()
        keeper.acknowledge(run.id)
    empty_cgroup(node.cgroup)
    assert keeper.entries() == []
