"""Whole lives of containers in a line each, and a daemon that must leave nothing behind."""

import contextlib
import os
import pathlib
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import grpc

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.api.client import Client
from supervisor.api.rpc import Stub
from tests.system.daemonrig import LIMIT_SECONDS, Daemon, commands, spec, until
from tests.system.gates import in_mask


@contextlib.contextmanager
def directory() -> Iterator[pathlib.Path]:
    """A short one: the state directory's sockets have little room for their paths."""
    base = pathlib.Path(tempfile.mkdtemp(prefix="exitd-"))
    yield base
    assert str(base) not in pathlib.Path("/proc/self/mountinfo").read_text()
    shutil.rmtree(base)


@contextlib.contextmanager
def daemon(**how: Any) -> Iterator[Daemon]:
    """A daemon of its own for the block, already up; afterwards no process of it may live, and no mount stay."""
    with directory() as base:
        made = Daemon(base, **how)
        try:
            yield made.start()
        finally:
            made.end()
        until(lambda: not processes_of(base), f"still there: {processes_of(base)}")


@dataclass
class Wrapper:
    """A runtime that is runc, but for what `on` puts before one of its commands."""

    path: pathlib.Path

    @classmethod
    def make(cls, directory: pathlib.Path) -> "Wrapper":
        path = directory / "runtime"
        path.write_text(
            f"""#!/bin/sh
            for verb; do
                case $verb in create|start|state|kill|delete|pause|resume|exec) break ;; esac
            done
            [ ! -e {directory}/$verb ] || . {directory}/$verb
            exec runc "$@"
            """
        )
        path.chmod(0o755)
        return cls(path)

    def on(self, verb: str, script: str) -> None:
        """A shell script with runc's words in "$@". When it comes to its end, runc has its turn."""
        self.path.with_name(verb).write_text(script)

    @property
    def name(self) -> str:
        return str(self.path)


def processes_of(base: pathlib.Path) -> list[str]:
    """Whoever has this directory in its command line or works in it."""
    found = []
    for pid, command in commands():
        with contextlib.suppress(OSError):
            if str(base).encode() in command or os.readlink(f"/proc/{pid}/cwd").startswith(str(base)):
                found.append(f"{pid}: {command.decode(errors='replace')}")
    return found


def stub(daemon: Daemon) -> Stub:
    """The whole API, also what exitctl has no use for."""
    return Stub(grpc.insecure_channel(f"unix:{daemon.state}/exitd.sock"))


def run(client: Client, *args: str, **fields: object) -> tuple[str, pb.Exit]:
    """Created, started, ended: the full id and the exit. The container stays."""
    container = client.create(spec(*args, **fields)).id
    waiting = client.begin_wait(container)
    client.start(container)
    return container, ended(waiting.result(LIMIT_SECONDS))


def up(client: Client, *args: str, **fields: object) -> pb.Container:
    """A container that runs."""
    return client.start(client.create(spec(*(args or ("sleep", "1000")), **fields)).id)


def up_trapping(client: Client, script: str, number: int = signal.SIGTERM, **fields: object) -> pb.Container:
    """A shell that runs and has set its trap for this signal: an init of a pid namespace would not notice it before."""
    container = up(client, "sh", "-c", script, **fields)
    until(lambda: in_mask(container.init.pid, "SigCgt", number), "the trap is not set")
    return container


def ended(exit_: pb.Exit | None) -> pb.Exit:
    assert exit_ is not None
    return exit_


def last_exit(client: Client, container: str) -> pb.Exit:
    """The exit of the newest run; waits for it."""
    return ended(client.begin_wait(container).result(LIMIT_SECONDS))


def first_exit(client: Client, container: str) -> pb.Exit:
    """Of the first run; waits for it. For a pod its pause container's: a wait without a run is one for its members."""
    return ended(client.begin_wait(container, run=1).result(LIMIT_SECONDS))


def backing_off(client: Client, container: str, seconds: float) -> pb.Container:
    """Between two runs, and the next one at least so far away."""

    def far(c: pb.Container) -> bool:
        return c.phase == pb.PHASE_RESTARTING and c.restart_at.ToNanoseconds() - time.time_ns() > seconds * 1e9

    until(lambda: far(client.inspect(container)), "a long back-off")
    return client.inspect(container)


def word(exit_: pb.Exit) -> str:
    """`exited 7`, `signaled 9`, `unknown monitors-killed`."""
    shown = {"exited": exit_.code, "signaled": exit_.signal, "unknown": exit_.cause}
    return f"{exit_.kind} {shown[exit_.kind]}"


def ledger(client: Client, container: str) -> list[pb.Exit]:
    return list(client.exits(pb.ExitsRequest(id=container)))


def events(client: Client, container: str = "") -> list[pb.Event]:
    """What the log holds at this moment, of one container or of all."""
    filters = (f"id={container}",) if container else ()
    request = pb.EventsRequest(from_seq=0, filters=filters, no_follow=True)
    return [reply.event for reply in client.events(request) if reply.HasField("event")]


def types(client: Client, container: str) -> list[str]:
    return [event.type for event in events(client, container)]
