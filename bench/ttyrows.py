"""The row about a terminal's output: what an exec writes to its terminal, until containerd's client has it."""

import contextlib
import os
import pathlib
import select
import statistics
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bench.cpumeter import of_process_ms
from bench.figures import EXITD
from bench.peers import Containerd
from bench.rows import Bench, settle
from bench.streams import LAST_LINE, LINE_BYTES, READ_BYTES, Lines
from bench.tasks import Node
from supervisor.compare.harness import in_turns, timed
from supervisor.compare.machine import LIMIT_SECONDS, Work, until
from supervisor.compare.way import WayContainer

PAIR = (EXITD, Containerd.name)
LINES = 34_500  # 6.9 MB
STRACE = "strace"
CHUNK_BYTES = 4096  # a terminal's buffer gives one byte less at once
PROCESS = {"cwd": "/", "env": ["PATH=/usr/bin:/bin"], "user": {"uid": 0, "gid": 0}}


@dataclass(frozen=True, slots=True)
class Shown:
    """One exec's output: milliseconds until the client has read it, the processor's of the shims in that time, and
    their system calls, where these are counted."""

    took: float
    used: float
    calls: int = 0


class Output:
    """What is written, how much of it a terminal makes, and the fifo that the client reads."""

    def __init__(self, bench: Bench) -> None:
        count = bench.count(LINES, 500)
        self.lines = Lines(bench.scratch, "tty-lines", count)
        self.bytes = self.lines.bytes + len(LAST_LINE) + count + 1  # a carriage return in each line
        self.megabytes = count * LINE_BYTES / 1e6
        self._place = bench.scratch.state_place("tty-fifos")

    @contextlib.contextmanager
    def fifo(self, name: str) -> Iterator[tuple[str, int]]:
        """Its path and its reading end, which does not block."""
        path = f"{self._place}/{name}"
        os.mkfifo(path)
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        try:
            yield path, fd
        finally:
            os.close(fd)
            os.unlink(path)

    def read(self, fd: int) -> None:
        """All of it. EOFError: there is less. ValueError: it does not end as it should."""
        poll, left, last = select.poll(), self.bytes, b""
        poll.register(fd, select.POLLIN)
        while left > 0:
            if not poll.poll(LIMIT_SECONDS * 1000):
                raise TimeoutError(f"{left} bytes are missing: not within {LIMIT_SECONDS:.0f} s")
            data = os.read(fd, READ_BYTES)
            if not data:
                raise EOFError(f"{left} bytes are missing")
            left, last = left - len(data), (last + data)[-len(LAST_LINE) - 1 :]
        if left or last != LAST_LINE.replace(b"\n", b"\r\n"):
            raise ValueError(f"{-left} bytes too many, and the last ones are {last!r}")


def tty_output(bench: Bench) -> None:
    """From the moment a `cat` on a terminal is let go until the client has read everything."""
    if not bench.has(Containerd.name):
        return
    node, output = bench.shared(Node), Output(bench)
    with contextlib.ExitStack() as stack:
        tasks: dict[str, WayContainer] = {}
        for who in PAIR:
            tasks[who] = node.run_one(who, bench.id(), Work(data=output.lines.place))
            stack.callback(node.end_one, tasks[who])

        def one(who: str, counted: bool = False) -> Shown:
            return _shown(node, who, tasks[who].id, bench.id(), output, counted)

        took = in_turns(PAIR, bench.count(20, 2), one)
        calls = {who: one(who, counted=True).calls for who in PAIR} if bench.has(STRACE) else {}
    what = f"{output.megabytes:.1f} MB through an exec's terminal"
    for who, samples in took.items():
        ms = [each.took for each in samples]
        speed = output.megabytes / statistics.median(ms) * 1000
        bench.add("tty-output", f"{what} until the client has it", who, "ms", ms, note=f"{speed:.1f} MB/s")
        bench.add("tty-output", f"{what}: the shims' processor time", who, "ms", [each.used for each in samples])
    for at, name in (("took", what), ("used", f"{what}: the shims' processor time")):
        pairs = zip(took[EXITD], took[Containerd.name], strict=True)
        over = [float(getattr(ours, at)) / float(getattr(theirs, at)) for ours, theirs in pairs]
        bench.add("tty-output", f"{name}, over containerd's shim", EXITD, "x", over)
    for who, count in calls.items():
        each = count * CHUNK_BYTES / output.bytes
        note = f"{count:,} in all, by strace" + ("; fewer than 7 are wanted" if who == EXITD else "")
        bench.add("tty-output", f"{what}: the shims' system calls for each 4 KiB", who, "", (each,), note=note)


def _shown(node: Node, who: str, task: str, exec_id: str, output: Output, counted: bool) -> Shown:
    stays = f"{' '.join(output.lines.cat)} && exec cat {output.lines.go}"  # a shim that has ended has no clock any more
    process: dict[str, object] = {**PROCESS, "args": ("/bin/sh", "-c", stays)}
    with output.fifo(exec_id) as (path, fd):
        ended = node.api.exec_on_terminal(task, exec_id, process, path)
        settle()
        shims = node.shims_of(who)  # of this task alone: every row ends its own

        def moved() -> None:
            output.lines.let_go()
            output.read(fd)

        if counted:
            with _counted(shims, f"{path}.calls") as calls:
                took, _ = timed(moved)
            used = 0.0
        else:
            calls, used = [], sum(map(of_process_ms, shims))
            took, _ = timed(moved)
            used = sum(map(of_process_ms, shims)) - used
        output.lines.let_go()
        if code := ended(LIMIT_SECONDS):
            raise RuntimeError(f"containerd says that cat ended with {code}")
    return Shown(took, used, sum(calls))


@contextlib.contextmanager
def _counted(pids: Sequence[int], path: str) -> Iterator[list[int]]:
    """The system calls of these processes in the block, by name, once it has ended. They are slow meanwhile."""
    command = [STRACE, "-f", "-qq", "-c", "-o", path, *(f"--attach={pid}" for pid in pids)]
    calls: list[int] = []
    # Its stderr: strace 6.1 warns of every thread that it finds in the middle of a system call.
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as strace:
        try:
            until(lambda: all(map(_is_traced, pids)), "strace")
            yield calls
        finally:
            strace.terminate()
    rows = [line.split() for line in pathlib.Path(path).read_text().splitlines()]
    calls += [int(row[3]) for row in rows if len(row) > 4 and row[3].isdigit() and row[-1] != "total"]
    os.unlink(path)


def _is_traced(pid: int) -> bool:
    """All its threads."""
    texts = [path.read_text() for path in pathlib.Path(f"/proc/{pid}/task").glob("*/status")]
    return bool(texts) and all("TracerPid:\t0\n" not in text for text in texts)


TTY_ROWS = {"tty-output": tty_output}
