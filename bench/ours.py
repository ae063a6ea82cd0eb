"""exitd: a keeper and its shims without the daemon, and the daemon whole."""

import contextlib
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass

import grpc

from protos.exitd.v1 import exitd_pb2 as pb
from shim import fields, launch, plan, programs, slots
from supervisor.api.client import Client
from supervisor.api.rpc import Stub
from supervisor.compare.daemon import Daemon as OwnDaemon
from supervisor.compare.harness import few_at_once, killed
from supervisor.compare.machine import (
    CGROUP,
    LIMIT_SECONDS,
    SLEEP,
    Scratch,
    Work,
    run,
    until,
    wait_readable,
)
from supervisor.compare.way import WayContainer
from supervisor.monitor import rundir

TREE = pathlib.Path(__file__).resolve().parent.parent


@dataclass(slots=True)
class Run:
    directory: rundir.RunDirectory
    shim_pidfd: int
    shim_pid: int


class Shims:
    """exitd-keeper and exitd-shim with this process in the daemon's place, so that nothing of the daemon is timed."""

    name = "exitd"

    def __init__(self, scratch: Scratch) -> None:
        self._scratch = scratch
        self._state = scratch.state_place("shims")
        self._logs = scratch.root_place("shims")
        self._shim = str(programs.find("exitd-shim"))
        self._runc = shutil.which("runc") or "runc"
        command = [str(programs.find("exitd-keeper")), "--state", self._state, "--stay"]
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
        until(self._connected, "the keeper")
        self._runs: dict[str, Run] = {}

    def create(self, id: str, work: Work = SLEEP, bundle: str = "") -> tuple[WayContainer, float]:
        """A created container, and the milliseconds from asking for its shim to the shim's `created`. `bundle`: what is
        run, if not one for `work` that is made here."""
        bundle = bundle or self._scratch.bundle(f"{id}-exitd", f"{CGROUP}/{id}", work)
        path = self.path_of(id)
        pid_file, runtime_log = f"{path}/pid", f"{path}/runtime.log"
        runc = (self._runc, "--root", f"{path}/rt", "--log", runtime_log, "--log-format", "json")
        console = ("--console-socket", plan.CONSOLE) if work.tty else ()
        create = (*runc, "create", "--bundle", bundle, "--pid-file", pid_file, *console, id)
        remove = (*runc, "delete", "--force", id)
        keeper = f"{self._state}/{launch.SOCKET_NAME}"
        wanted = plan.Plan(
            id, 1, create, remove, pid_file=pid_file, runtime_log=runtime_log, log=self.log_of(id), keeper=keeper,
            tty=work.tty,
        )  # fmt: skip
        directory = rundir.make(self._state, id, 1, plan.encode(wanted))
        begun = time.perf_counter()
        status, shim_pidfd = self._spawn(id, path, work)
        took = (time.perf_counter() - begun) * 1000
        if not isinstance(status, launch.Created):
            raise RuntimeError(f"exitd-shim: {status}")
        self._runs[id] = Run(directory, shim_pidfd, status.shim_pid)
        return WayContainer(id, status.pid, status.pidfd), took

    def start(self, id: str, work: Work = SLEEP) -> WayContainer:
        container, _ = self.create(id, work)
        run(self._runc, "--root", f"{self.path_of(id)}/rt", "start", id)
        return container

    def path_of(self, id: str) -> str:
        """Its run directory."""
        return rundir.path_of(self._state, id, 1)

    def log_of(self, id: str) -> str:
        return f"{self._logs}/{id}.log"

    def end(self, container: WayContainer) -> float:
        """Four bytes on the fifo, and the record behind them: it was written before."""
        directory = self._runs[container.id].directory
        took, _ = killed(container, lambda: wait_readable(directory.fifo_fd, "the fifo"))
        number, record = rundir.read_fifo(directory), rundir.read_record(directory)
        if number != 137 or record is None or record.signal != 9:
            raise ValueError(f"fifo {number}, record {record}")
        return took

    def clean(self, container: WayContainer) -> None:
        """The shim deletes the container by itself once init is dead."""
        container.end()
        done = self._runs.pop(container.id)
        wait_readable(done.shim_pidfd, "the shim's end")
        os.close(done.shim_pidfd)
        container.close()
        launch.ask(self._socket, fields.encode("exitd-ack", launch.key(container.id, 1)), [])
        done.directory.close()
        rundir.remove(done.directory.path)

    def monitors(self) -> list[int]:
        return [run.shim_pid for run in self._runs.values()]

    def close(self) -> None:
        self._socket.close()
        self._process.terminate()
        self._process.wait()

    def _connected(self) -> bool:
        try:
            self._socket = launch.connect(self._state)
            launch.ask(self._socket, fields.encode("exitd-hello", []), [])
        except (FileNotFoundError, ConnectionError):
            return False
        return True

    def _spawn(self, id: str, path: str, work: Work) -> tuple[launch.Created | launch.Failed | None, int]:
        """With the slots that the daemon fills for a first shim."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.settimeout(LIMIT_SECONDS)
        with ours:
            with theirs, _pipes(work) as pipes:
                fds = {slots.STATUS_FD: theirs.fileno(), **pipes}
                request = launch.spawn_request(id, 1, "", path, self._shim, adopt=False, slots=[*fds])
                _, passed = launch.ask(self._socket, request, [*fds.values()])
            data, descriptors = launch.receive(ours)
            return launch.parse_status(data, descriptors) if data else None, passed[0]


@contextlib.contextmanager
def _pipes(work: Work) -> Iterator[dict[int, int]]:
    """Their ends by slot, open for the block. A tty stands for all but the stage's."""
    wanted = [(slots.STAGE_READ_FD, slots.STAGE_WRITE_FD)]
    if not work.tty:
        wanted += [(slots.OUT_FD, slots.OUT_WRITE_FD), (slots.ERR_FD, slots.ERR_WRITE_FD)]
    if work.stdin and not work.tty:
        wanted.append((slots.IN_FD, slots.IN_WRITE_FD))
    fds = {slot: fd for pair in wanted for slot, fd in zip(pair, os.pipe(), strict=True)}
    try:
        yield fds
    finally:
        for fd in fds.values():
            os.close(fd)


class Daemon(OwnDaemon):
    """One that makes what the rows want. `by_ttrpc`: no client speaks gRPC to it, so that gRPC is not begun."""

    def __init__(self, scratch: Scratch, name: str = "d", *, by_ttrpc: bool = False) -> None:
        super().__init__(scratch.state_place(name), scratch.root_place(name))
        self._scratch, self._by_ttrpc = scratch, by_ttrpc
        self._numbers = iter(range(1_000_000))
        self.start(by_ttrpc=by_ttrpc)

    def client(self, *, by_ttrpc: bool = False) -> Client:
        return super().client(by_ttrpc=by_ttrpc or self._by_ttrpc)

    def stub(self) -> Stub:
        """A connection of its own; closed with this process."""
        return Stub(grpc.insecure_channel(f"unix:{self.state}/exitd.sock"))

    def exitctl(self, *words: str) -> tuple[str, ...]:
        """The command."""
        return (sys.executable, "-m", "supervisor.cli", "--address", f"{self.state}/exitd.sock", *words)

    def new_bundle(self, work: Work = SLEEP) -> str:
        return self._scratch.bundle(f"exitd-{next(self._numbers)}", work=work)

    def create(self, client: Client, bundle: str = "") -> str:
        """A created container; its id."""
        return client.create(pb.ContainerSpec(bundle=bundle or self.new_bundle())).id

    def start_one(self, client: Client) -> WayContainer:
        id = self.create(client)
        started = client.start(id)
        return WayContainer(id, started.init.pid).hold()

    def start_many(self, count: int) -> list[str]:
        with self.client() as client:

            def one(_: int) -> str:
                id = self.create(client)
                client.start(id)
                return id

            return few_at_once(one, range(count))
