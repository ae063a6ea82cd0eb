"""The relay's program between a containerd and an exitd made of plain sockets, which are driven frame by frame."""

import contextlib
import hashlib
import json
import os
import pathlib
import select
import signal
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from shim import fields, native, prepare, programs, record
from shim._native import ffi, lib
from tests.shim.relaywords import HELLO, REQUEST, RESPONSE, TASK, Frame, call, decode, encode, of_task
from tests.system.processes import killed, open_files
from tests.system.waits import until, wait_readable

LIMIT_SECONDS = 20.0
SOCKETS = pathlib.Path("/run/containerd/s")


class Peer:
    """One end of a stream of frames."""

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock
        sock.settimeout(LIMIT_SECONDS)
        self._frames: list[Frame] = []
        self._rest = b""

    def send(self, *frames: Frame) -> None:
        self.socket.sendall(b"".join(map(encode, frames)))

    def next(self) -> Frame | None:
        """The next frame; None at the stream's end."""
        while not self._frames:
            data = self.socket.recv(1 << 18)
            if not data:
                assert not self._rest, "the last frame is cut short"
                return None
            self._frames, self._rest = decode(self._rest + data)
        return self._frames.pop(0)

    def frames(self, count: int) -> list[Frame]:
        found = [self.next() for _ in range(count)]
        return [frame for frame in found if frame is not None]

    def silent(self, seconds: float = 0.2) -> bool:
        """Whether nothing comes for so long."""
        return not self._frames and not select.select([self.socket], [], [], seconds)[0]

    def close(self) -> None:
        self.socket.close()


class Containerd(Peer):
    """A connection of containerd to the relay."""

    def __init__(self, address: str) -> None:
        sock = socket.socket(socket.AF_UNIX)
        sock.connect(address.removeprefix("unix://"))
        super().__init__(sock)

    def ask(self, stream: int, method: str, payload: bytes = b"", service: str = TASK) -> None:
        self.send(Frame(stream, REQUEST, 0, call(method, payload, service)))

    def relay(self) -> int:
        """The pid of who listens."""
        credentials = self.socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        return int(struct.unpack("iII", credentials)[0])


class Exitd:
    """The socket where exitd would listen."""

    def __init__(self, state: pathlib.Path) -> None:
        self.path = state / "shimv2.sock"
        self.peers: list[Peer] = []
        self.begin()

    def begin(self) -> None:
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.settimeout(LIMIT_SECONDS)
        self.listener.bind(str(self.path))
        self.listener.listen(128)

    def accept(self) -> Peer:
        peer = Peer(self.listener.accept()[0])
        self.peers.append(peer)
        return peer

    def greeted(self) -> tuple[Peer, fields.Message]:
        """The next connection, and its hello."""
        peer = self.accept()
        frame = peer.next()
        assert frame is not None and (frame.type, frame.stream) == (HELLO, 0)
        return peer, fields.decode(frame.data, "relay-hello")

    def end(self) -> None:
        """As a kill does it: every descriptor at once; the socket's file stays."""
        self.listener.close()
        for peer in self.peers:
            peer.close()
        self.peers = []

    def again(self) -> None:
        self.path.unlink()
        self.begin()


@dataclass
class Bundle:
    """What containerd prepares. `log_fd`: its own end of the log."""

    directory: pathlib.Path
    log_fd: int

    @property
    def id(self) -> str:
        return self.directory.name

    @property
    def address(self) -> str:
        return (self.directory / "address").read_text()


@dataclass
class Relays:
    """The relay's program in one directory, which makes the sockets its own; and whoever it talks to."""

    directory: pathlib.Path
    bundles: list[Bundle] = field(default_factory=list)
    sockets: set[pathlib.Path] = field(default_factory=set)  # computed here: what a file says is never removed
    connections: list[Containerd] = field(default_factory=list)
    exitds: list[Exitd] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.state = self.directory / "state"
        self.state.mkdir()
        self.program = str(programs.find("containerd-shim-exitd-v2"))
        self.containerd = str(self.directory / "containerd.sock")

    def bundle(self, id: str, **annotations: str) -> Bundle:
        directory = self.directory / id
        directory.mkdir()
        (directory / "config.json").write_text(json.dumps({"annotations": annotations}))
        os.mkfifo(directory / "log", 0o700)
        made = Bundle(directory, os.open(directory / "log", os.O_RDWR | os.O_NONBLOCK))
        self.sockets |= {self.socket(name) for name in (id, *annotations.values())}
        self.bundles.append(made)
        return made

    def socket(self, group: str) -> pathlib.Path:
        """Where the relay of a group listens."""
        return SOCKETS / hashlib.sha256(f"{self.containerd}/ns/{group}".encode()).hexdigest()

    def words(self, id: str, *rest: str) -> list[str]:
        flags = ("-namespace", "ns", "-address", self.containerd, "-publish-binary", "/usr/bin/containerd", "-id", id)
        return [self.program, *flags, *rest]

    def environment(self) -> dict[str, str]:
        return {"EXITD_STATE": str(self.state), "TTRPC_ADDRESS": self.containerd + ".ttrpc"}

    def begin(self, bundle: Bundle) -> subprocess.Popen[bytes]:
        """`start`, with stdout and stderr in one pipe, as containerd reads them."""
        return subprocess.Popen(
            self.words(bundle.id, "start"),
            cwd=bundle.directory,
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )

    def start(self, bundle: Bundle) -> str:
        said, _ = (done := self.begin(bundle)).communicate(timeout=LIMIT_SECONDS)
        assert done.returncode == 0, said
        return said.decode().strip()

    def start_on_a_new_host(self, bundle: Bundle) -> pathlib.Path:
        """The first relay ever, under a narrow umask: in a namespace with an empty /run. Returns its root."""
        script = 'mount -t tmpfs tmpfs /run && umask 0177 && exec "$@"'
        done = subprocess.run(
            ["unshare", "--mount", "sh", "-c", script, "sh", *self.words(bundle.id, "start")],
            cwd=bundle.directory,
            env=self.environment() | {"PATH": os.environ["PATH"]},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=LIMIT_SECONDS,
            check=True,
        )
        assert done.stderr == b""
        return pathlib.Path(f"/proc/{self.living()[0]}/root")

    def delete(
        self, bundle: Bundle, cwd: pathlib.Path | None = None, tracer: Sequence[str] = ()
    ) -> tuple[bytes, str, float]:
        """What it prints, what it warns of, and the seconds it takes."""
        began = time.monotonic()
        done = subprocess.run(
            [*tracer, *self.words(bundle.id, "-bundle", str(bundle.directory), "delete")],
            cwd=cwd or bundle.directory,
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=LIMIT_SECONDS,
            check=True,
        )
        return done.stdout, done.stderr.decode(), time.monotonic() - began

    def connect(self, address: str) -> Containerd:
        self.connections.append(Containerd(address))
        return self.connections[-1]

    def exitd(self) -> Exitd:
        self.exitds.append(Exitd(self.state))
        return self.exitds[-1]

    def living(self) -> list[int]:
        """Those that live."""
        found = []
        for name in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                words = pathlib.Path(f"/proc/{name}/cmdline").read_bytes().split(b"\0")
                if self.containerd.encode() in words and native.process_stat(int(name))[0] != "Z":
                    found.append(int(name))
        return found

    def gone(self, pid: int) -> None:
        """Whoever reaps it may take a moment, or never do it."""
        until(lambda: pid not in self.living(), f"relay {pid} is gone")

    def close(self) -> None:
        for pid in self.living():
            killed(pid, signal.SIGKILL)
        for connection in self.connections:
            connection.close()
        for exitd in self.exitds:
            exitd.end()
        for bundle in self.bundles:
            os.close(bundle.log_fd)
        for path in self.sockets:
            path.unlink(missing_ok=True)


@contextlib.contextmanager
def relays_in(directory: pathlib.Path) -> Iterator[Relays]:
    relays = Relays(directory)
    try:
        yield relays
    finally:
        relays.close()


@dataclass
class Chain:
    """A containerd, its relay and an exitd that know each other."""

    relays: Relays
    bundle: Bundle
    client: Containerd
    exitd: Exitd
    up: Peer
    hello: fields.Message

    @property
    def pid(self) -> int:
        return self.hello.number("pid")

    def answer(self, stream: int, reply: bytes, flags: int = 0) -> None:
        self.up.send(Frame(stream, RESPONSE, flags, reply))

    def ask(self, stream: int, method: str, payload: bytes, reply: bytes, flags: int = 0) -> None:
        """A call from end to end."""
        self.client.ask(stream, method, payload)
        asked = self.up.next()
        assert asked is not None and (asked.type, asked.stream) == (REQUEST, stream)
        self.answer(stream, reply, flags)
        assert self.client.next() == Frame(stream, RESPONSE, 0, reply)


def chain(relays: Relays, id: str = "c1", **annotations: str) -> Chain:
    """With the first request, a Wait on stream 1, unanswered."""
    return chain_of(relays, relays.bundle(id, **annotations))


def chain_of(relays: Relays, bundle: Bundle) -> Chain:
    exitd = relays.exitd()
    client = relays.connect(relays.start(bundle))
    client.ask(1, "Wait", of_task("c1"))
    up, hello = exitd.greeted()
    assert up.next() == Frame(1, REQUEST, 0, call("Wait", of_task("c1")))
    return Chain(relays, bundle, client, exitd, up, hello)


def is_watched(chain: Chain) -> None:
    """The relay has read exitd's note, and holds init's pidfd."""
    until(lambda: "anon_inode:[pidfd]" in open_files(chain.pid).values(), "init is not watched")


@dataclass
class Container:
    """A process of ours as init, a run directory, and a thread as its shim: it looks, records, and then reaps."""

    relays: Relays
    bundle: Bundle
    init: subprocess.Popen[bytes]
    directory: pathlib.Path
    thread: threading.Thread | None = None

    @property
    def started(self) -> int:
        return native.process_stat(self.init.pid)[2]

    def write_task(self, started: int, state: pathlib.Path | None = None) -> None:
        """As exitd does it after create; `state`: where it keeps its word of the task's state."""
        pairs: list[tuple[str, str | int]] = [("directory", str(self.directory)), ("pid", self.init.pid)]
        self._note([*pairs, ("started", started), *([("state", str(state))] if state is not None else [])])

    def leave_end(self, code: int | str, at_ns: int | str, oom_kills: int = 0, started: int = 0) -> None:
        """As exitd does it before it removes the record; `started`: of another process than init."""
        pairs: list[tuple[str, str | int]] = [("directory", str(self.directory)), ("pid", self.init.pid)]
        end: list[tuple[str, str | int]] = [("code", code), ("at_ns", at_ns), ("oom_kills", oom_kills)]
        self._note([*pairs, ("started", started or self.started), *end])

    def _note(self, pairs: list[tuple[str, str | int]]) -> None:
        """As a whole: the relay may be about to read it."""
        (made := self.bundle.directory / "exitd.task.new").write_bytes(fields.encode("task", pairs))
        made.rename(self.bundle.directory / "exitd.task")

    def watched(self) -> None:
        """By a shim that lives."""
        started = self.started
        self.thread = threading.Thread(target=self._watch, args=(os.pidfd_open(self.init.pid), started))
        self.thread.start()

    def _watch(self, pidfd: int, started: int) -> None:
        if wait_readable(pidfd):
            result = os.waitid(os.P_PIDFD, pidfd, os.WEXITED | os.WNOWAIT)
            assert result is not None
            self.record(result.si_status, result.si_code != os.CLD_EXITED, started)
        os.close(pidfd)

    def record(self, value: int, signaled: bool, started: int) -> None:
        kept = [ffi.new("char[]", word) for word in (b"c1", b"", b"boot", b"shim")]
        facts = ffi.new("struct exit_facts *")
        facts.id, facts.exec, facts.boot_id, facts.witness = kept
        facts.pid, facts.started, facts.realtime_ns = self.init.pid, started, time.time_ns()
        facts.signaled, facts.value, facts.began = int(signaled), value, 1
        out = ffi.new("char[]", record.RECORD_BYTES)
        assert lib.record_format(out, record.RECORD_BYTES, facts) > 0
        fd = os.open(self.directory / record.NAME, os.O_WRONLY)
        os.pwrite(fd, bytes(ffi.buffer(out, record.RECORD_BYTES)), 0)
        os.close(fd)


def ends(c: Container) -> None:
    """By itself."""
    assert c.init.stdin is not None
    c.init.stdin.close()
    pidfd = os.pidfd_open(c.init.pid)
    assert wait_readable(pidfd)
    os.close(pidfd)


@contextlib.contextmanager
def container(relays: Relays, command: str = "exec sleep 1000") -> Iterator[Container]:
    """With its bundle, and exitd's note in that."""
    bundle = relays.bundle("c1")
    directory = relays.directory / "run"
    directory.mkdir()
    prepare.make_record(str(directory / record.NAME))
    with subprocess.Popen(["sh", "-c", command], stdin=subprocess.PIPE) as init:
        made = Container(relays, bundle, init, directory)
        task: list[tuple[str, str | int]] = [
            ("directory", str(directory)),
            ("pid", init.pid),
            ("started", made.started),
        ]
        (bundle.directory / "exitd.task").write_bytes(fields.encode("task", task))
        try:
            yield made
        finally:
            init.kill()
            if made.thread:
                made.thread.join(20)
