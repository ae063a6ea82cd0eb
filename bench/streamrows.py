"""The rows about streams: output into a log, an echo, what stays in memory, and a command in a running container."""

import contextlib
import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from bench.figures import EXITD
from bench.ours import Daemon, Shims
from bench.peers import Bare, Conmon, Containerd
from bench.rows import Bench, settle
from bench.streams import (
    ECHO,
    READY,
    Lines,
    OverApi,
    Session,
    attach,
    on_pty,
    through_exitctl,
    wait_for,
    wait_logged,
)
from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.api.client import Client
from supervisor.compare.harness import in_turns, timed
from supervisor.compare.machine import LIMIT_SECONDS, cpu_seconds, run
from supervisor.compare.podman import Podman

CAT = "bare cat"
PTY = "bare pty"
REST_SECONDS = 0.5  # after the last output: what a shim gives back it has given back
TRUE = "/usr/bin/true"
ECHO_GOALS_MS = {"exitd: shim": 1.0, "exitd: API": 0.8, "exitd: exitctl": 1.0}  # over a bare pty


@dataclass(frozen=True, slots=True)
class Moved:
    seconds: float
    cpu_seconds: float


def log_throughput(bench: Bench) -> None:
    """Lines of 200 bytes on stdout until the last one is in the log, and what the monitor needs for them."""
    lines = Lines(bench.scratch, "lines", 80_000, bench.count(32, 2))
    megabytes = lines.bytes / 1e6
    with contextlib.ExitStack() as stack:
        ways: dict[str, Callable[[], Moved]] = {CAT: lambda: _copied(bench, lines)}
        for peer in _loggers(bench, stack):
            ways[peer.name] = lambda peer=peer: _logged(bench, peer, lines)  # type: ignore[misc]  # bound now
        took = in_turns(list(ways), bench.count(7, 1), lambda who: ways[who]())
    figure = partial(bench.add, "log-throughput")
    bare = [megabytes / one.seconds for one in took.pop(CAT)]
    figure("stdout of 200-byte lines into a file", CAT, "MB/s", bare, note="cat | cat, nothing framed")
    for who, samples in took.items():
        speeds = [megabytes / one.seconds for one in samples]
        figure("stdout of 200-byte lines into the log", who, "MB/s", speeds, note=f"{megabytes:.0f} MB each")
        figure("the monitor's CPU time per MB", who, "ms", [one.cpu_seconds * 1000 / megabytes for one in samples])
    if "conmon" in took:
        pairs = list(zip(took[EXITD], took["conmon"], strict=True))
        faster = [theirs.seconds / ours.seconds for ours, theirs in pairs]
        figure("MB/s over conmon's in the same round", EXITD, "x", faster, goal=2, at_least=True)
        cost = [ours.cpu_seconds / theirs.cpu_seconds for ours, theirs in pairs]
        figure("CPU per MB over conmon's in the same round", EXITD, "x", cost, goal=0.5)


def _loggers(bench: Bench, stack: contextlib.ExitStack) -> list[Shims | Conmon]:
    found: list[Shims | Conmon] = [stack.enter_context(contextlib.closing(Shims(bench.scratch)))]
    if bench.has(Conmon.name):
        found.append(stack.enter_context(contextlib.closing(Conmon(bench.scratch))))
    return found


def _logged(bench: Bench, peer: Shims | Conmon, lines: Lines) -> Moved:
    id = bench.id()
    container = peer.start(id, lines.work)
    (monitor,) = peer.monitors()
    settle()
    used = cpu_seconds(monitor)
    lines.let_go()
    begun = time.perf_counter()
    wait_logged(peer.log_of(id))
    seconds = time.perf_counter() - begun
    used = cpu_seconds(monitor) - used
    peer.clean(container)
    written = os.path.getsize(peer.log_of(id))
    os.unlink(peer.log_of(id))  # before the disk has much to do with it
    if written < lines.bytes:
        raise RuntimeError(f"{peer.name}: {written} bytes in the log, {lines.bytes} were written")
    return Moved(seconds, used)


def _copied(bench: Bench, lines: Lines) -> Moved:
    """The same through a pipe between two programs that do nothing with it."""
    path = f"{bench.scratch.root_place('cat')}/log"
    begun = time.perf_counter()
    run("/bin/sh", "-c", f"cat {' '.join(lines.paths)} | cat >{path}")
    seconds = time.perf_counter() - begun
    os.unlink(path)
    return Moved(seconds, 0.0)


def echo(bench: Bench) -> None:
    """A byte typed until it has come back from a raw `cat`, over the same on a pty without any container."""
    figure = partial(bench.add, "echo")
    with contextlib.ExitStack() as stack:
        sessions = _sessions(bench, stack)
        for load in bench.loads():
            took = in_turns(list(sessions), bench.count(200, 10), lambda who: _round_trip(sessions[who]))
            figure("a byte typed until it is back", PTY, "ms", took[PTY], load=load)
            for who in list(sessions)[1:]:
                over = [one - bare for one, bare in zip(took[who], took[PTY], strict=True)]
                goal = ECHO_GOALS_MS.get(who)
                note = f"{statistics.median(took[who]):.2f} in all"
                figure("the same in a container, over a bare pty", who, "ms", over, load=load, goal=goal, note=note)


def _sessions(bench: Bench, stack: contextlib.ExitStack) -> dict[str, Session]:
    """Everybody's, each with a container that echoes; ended in reverse order."""
    sessions: dict[str, Session] = {PTY: on_pty(*ECHO.args)}
    stack.callback(sessions[PTY].close)
    for peer in _loggers(bench, stack):
        id = bench.id()
        stack.callback(peer.clean, peer.start(id, ECHO))
        session = attach(peer, id, ECHO)
        stack.callback(session.close)
        wait_logged(peer.log_of(id), READY + b"\n")
        session.write(b"?")
        wait_for(session, b"?")  # whether or not it was attached in time to see that `cat` is ready
        sessions["exitd: shim" if isinstance(peer, Shims) else peer.name] = session
    daemon = stack.enter_context(contextlib.closing(Daemon(bench.scratch)))
    sessions["exitd: API"] = stack.enter_context(contextlib.closing(OverApi(daemon)))
    sessions["exitd: exitctl"] = stack.enter_context(contextlib.closing(through_exitctl(daemon)))
    return sessions


def _round_trip(session: Session) -> float:
    """Milliseconds."""
    settle()
    begun = time.perf_counter()
    session.write(b"x")
    came = session.read()
    took = (time.perf_counter() - begun) * 1000
    if came[-1:] != b"x":
        raise RuntimeError(f"x came back as {came!r}")
    return took


def stream_memory(bench: Bench) -> None:
    """Private memory of a monitor with a log, and a client on the container's three streams, after 4,000 lines."""
    count = bench.count(20, 3)
    lines = Lines(bench.scratch, "few-lines", 4_000)
    with contextlib.ExitStack() as stack:
        for peer in _loggers(bench, stack):
            with contextlib.ExitStack() as running:
                for _ in range(count):
                    _talked(bench, peer, lines, running)
                time.sleep(REST_SECONDS)
                what = "private memory of a shim, log and stdio open, after 4,000 lines"
                bench.add_memory("stream-memory", what, peer.name, peer.monitors(), 60)


def _talked(bench: Bench, peer: Shims | Conmon, lines: Lines, stack: contextlib.ExitStack) -> None:
    """A container that has written all its lines, its client still attached."""
    id = bench.id()
    stack.callback(peer.clean, peer.start(id, lines.work))
    session = attach(peer, id, lines.work)
    stack.callback(session.close)
    lines.let_go()
    left = lines.bytes
    while left > 0:
        left -= len(session.read())
    wait_logged(peer.log_of(id))


def exec_true(bench: Bench) -> None:
    """`true` in a running container, from the call or the command until its end is known."""
    with contextlib.ExitStack() as stack:
        ways = _execs(bench, stack)

        def run_by(who: str) -> float:
            settle()
            return timed(ways[who])[0]

        for load in bench.loads():
            for who, values in in_turns(list(ways), bench.count(50, 3), run_by).items():
                what = "`true` in a running container until its end is reported"
                bench.add("exec", what, who, "ms", values, load=load)


def _execs(bench: Bench, stack: contextlib.ExitStack) -> dict[str, Callable[[], None]]:
    """One running container for each, and how `true` is run in it."""
    bare = Bare(bench.scratch)
    slept = bare.start(bench.id())
    stack.callback(bare.clean, slept)
    daemon = stack.enter_context(contextlib.closing(Daemon(bench.scratch)))
    client = stack.enter_context(daemon.client())
    container = daemon.start_one(client)
    stack.callback(container.close)
    ways: dict[str, Callable[[], None]] = {
        "runc exec": lambda: bare.exec(slept.id, TRUE),
        "exitd: API": lambda: true_call(client, container.id),
        "exitd: exitctl": lambda: run(*daemon.exitctl("exec", container.id, TRUE)),
    }
    if bench.has(Podman.name):
        podman = stack.enter_context(contextlib.closing(Podman(bench.scratch)))
        name = bench.id()
        podman.run(name, "--network", "none", "--security-opt", "seccomp=unconfined")
        ways["podman exec"] = lambda: podman.exec(name, TRUE)
    if bench.has(Containerd.name):
        containerd = stack.enter_context(contextlib.closing(Containerd(bench.scratch, tells=False)))
        task = containerd.start(bench.id())
        stack.callback(task.close)
        ways["ctr task exec"] = lambda: containerd.exec(task.id, bench.id(), TRUE)
    return ways


def true_call(client: Client, container: str) -> None:
    """`true` in a running container, until exitd has reported its end."""
    made = client.exec(container, pb.ExecSpec(args=[TRUE]))
    ended = client.begin_wait(container, exec_id=made.id).result(LIMIT_SECONDS)
    if ended is None or ended.kind != "exited" or ended.code:
        raise RuntimeError(f"true ended so: {ended}")


STREAM_ROWS: dict[str, Callable[[Bench], None]] = {
    "log-throughput": log_throughput,
    "echo": echo,
    "stream-memory": stream_memory,
    "exec": exec_true,
}
