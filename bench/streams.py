"""What goes through containers: lines to be let go, a program that echoes, and whoever is attached to them."""

import errno
import os
import pathlib
import socket
import subprocess
import termios
import threading
from collections.abc import Callable
from typing import Protocol

from bench.ours import TREE, Daemon, Shims
from bench.peers import Conmon
from protos.exitd.v1 import exitd_pb2 as pb
from shim import fields
from shim.undo import undone_on_failure
from supervisor.compare.machine import DATA, LIMIT_SECONDS, Scratch, Work, until, wait_readable

LINE_BYTES = 200
LAST_LINE = b"the last line\n"
READ_BYTES = 65536
READY = b"ready"
ECHO = Work(("/bin/sh", "-c", "stty raw -echo; echo ready; exec cat"), tty=True, stdin=True)
SESSION_SECONDS = 600.0  # a client that has waited so long is ended


class Lines:
    """A directory in memory with lines of 200 bytes, for a container that `cat`s them once it is let go."""

    def __init__(self, scratch: Scratch, name: str, lines: int, times: int = 1) -> None:
        self.place = scratch.state_place(name)
        self.bytes = lines * LINE_BYTES * times
        os.mkfifo(f"{self.place}/go")
        pathlib.Path(f"{self.place}/lines").write_bytes(b"".join(b"%0199d\n" % number for number in range(lines)))
        pathlib.Path(f"{self.place}/last").write_bytes(LAST_LINE)
        self._names = ("lines",) * times + ("last",)
        self.go = f"{DATA}/go"
        self.cat = ("cat", self.go, *(f"{DATA}/{name}" for name in self._names))
        self.work = Work(("/bin/sh", "-c", f"{' '.join(self.cat)}; exec sleep 1000000"), data=self.place, stdin=True)

    @property
    def paths(self) -> list[str]:
        """The same for a `cat` that runs here."""
        return [f"{self.place}/{name}" for name in self._names]

    def let_go(self) -> None:
        """Returns once the container's `cat` has nothing more to wait for."""
        until(self._opened, "a container that wants to write")

    def _opened(self) -> bool:
        try:
            os.close(os.open(f"{self.place}/go", os.O_WRONLY | os.O_NONBLOCK))
        except OSError as error:
            if error.errno != errno.ENXIO:  # nobody reads yet
                raise
            return False
        return True


def wait_logged(log: str, last: bytes = LAST_LINE) -> None:
    """Returns when this is the end of a log, at most 5 ms later."""

    def is_last() -> bool:
        if not os.path.exists(log):  # a shim makes it after it has said that the container is created
            return False
        with open(log, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            return os.pread(file.fileno(), len(last), max(0, size - len(last))) == last

    until(is_last, f"the last line in {log}", step=0.005)


class Session(Protocol):
    """Someone who writes to a container and reads from it."""

    def write(self, data: bytes) -> None: ...
    def read(self) -> bytes:
        """What has come, which is something. A packet of conmon's begins with a byte that is not the container's."""

    def close(self) -> None: ...


def wait_for(session: Session, word: bytes) -> None:
    """Reads until this has come."""
    read = b""
    while word not in read:
        read += session.read()


class Ends:
    """A session by descriptors."""

    def __init__(self, in_fd: int, out_fd: int, close: Callable[[], None]) -> None:
        self._in_fd, self._out_fd = in_fd, out_fd
        self.close = close

    def write(self, data: bytes) -> None:
        os.write(self._in_fd, data)

    def read(self) -> bytes:
        wait_readable(self._out_fd, "output")
        data = os.read(self._out_fd, READ_BYTES)
        if not data:
            raise EOFError("the session has ended")
        return data


def on_pty(*command: str) -> Ends:
    """A program on a terminal of its own, which is raw when this returns and has said that it is ready."""
    master_fd, slave_fd = os.openpty()
    process = subprocess.Popen(
        command, stdin=slave_fd, stdout=slave_fd, stderr=slave_fd, start_new_session=True, cwd=TREE
    )
    os.close(slave_fd)

    def close() -> None:
        process.kill()
        process.wait()
        os.close(master_fd)

    session = Ends(master_fd, master_fd, close)
    with undone_on_failure(close):
        wait_for(session, READY)
        until(lambda: not termios.tcgetattr(master_fd)[3] & termios.ICANON, "a raw terminal")
    return session


def through_exitctl(daemon: Daemon) -> Ends:
    """`exitctl run -i -t` of a container that echoes."""
    return on_pty(*daemon.exitctl("run", "-i", "-t", "--bundle", daemon.new_bundle(ECHO)))


def attach(peer: Shims | Conmon, id: str, work: Work) -> Ends:
    """To all that the container has."""
    return _to_shim(peer, id, work) if isinstance(peer, Shims) else _to_conmon(peer, id)


def _to_shim(shims: Shims, id: str, work: Work) -> Ends:
    """Over its control socket."""
    outputs = ["out"] if work.tty else ["out", "err"]
    control = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    control.settimeout(LIMIT_SECONDS)
    directory_fd = os.open(shims.path_of(id), os.O_PATH)
    control.connect(f"/proc/self/fd/{directory_fd}/control.sock")
    os.close(directory_fd)
    given_fd, in_fd = os.pipe()
    pipes = [os.pipe() for _ in outputs]
    keys = [("op", "attach"), ("streams", ",".join(["in", *outputs])), ("mode", "lossless")]
    theirs = [given_fd, *(out for _, out in pipes)]
    socket.send_fds(control, [fields.encode("exitd-control", keys)], theirs)
    fields.decode(control.recv(4096), "exitd-ok")
    for fd in theirs:
        os.close(fd)

    def close() -> None:
        control.close()
        for fd in (in_fd, *(out for out, _ in pipes)):
            os.close(fd)

    return Ends(in_fd, pipes[0][0], close)


def _to_conmon(conmon: Conmon, id: str) -> Ends:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.connect(conmon.socket_of(id))
    return Ends(connection.fileno(), connection.fileno(), connection.close)


class OverApi:
    """Attached over gRPC by this process."""

    def __init__(self, daemon: Daemon) -> None:
        self._client = daemon.client()
        made = self._client.create(pb.ContainerSpec(bundle=daemon.new_bundle(ECHO), tty=True, stdin=True))
        self._attachment = self._client.attach(made.id)
        self._limit = threading.Timer(SESSION_SECONDS, self._attachment.cancel)
        self._limit.daemon = True
        self._limit.start()
        self._client.start(made.id)
        wait_for(self, READY)

    def write(self, data: bytes) -> None:
        self._attachment.write(data)

    def read(self) -> bytes:
        reply: pb.AttachReply | None = next(self._attachment, None)
        if reply is None:
            raise EOFError("the attach has ended")
        return reply.stdout

    def close(self) -> None:
        self._limit.cancel()
        self._attachment.cancel()
        self._client.close()
