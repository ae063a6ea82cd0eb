"""`make demo`: seven ways to end, side by side on real containers, each compared with the end that it was made to have.

Every container waits at its own fifo until the demo lets it continue, so that daemon and shims can be killed or stopped
before its end. What it does then is known by construction, and is compared with what exitd reports.
"""

import hashlib
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import FrameType

from protos.exitd.v1 import exitd_pb2 as pb
from shim.frozen import frozen
from supervisor.api.answers import status_of
from supervisor.api.client import Client, Unreachable
from supervisor.cli import spoken, table
from supervisor.cli.shape import number_of, time_text
from supervisor.cli.stage import INTERRUPTS, Stage, StageFailed
from supervisor.cli.watch import event_line
from supervisor.model.errors import ExitdError, ShuttingDown
from supervisor.model.values import Exited, ExitStatus, Signaled
from supervisor.monitor import epoll

STEP_SECONDS = 15.0
PAYLOAD_BYTES = 1 << 20
INSIDE = "/mnt"  # where a container finds its fifo and the payload
FAULT = f"exec {os.path.realpath(sys.executable)} -I -S -c 'import ctypes; ctypes.string_at(0)'"
HEADINGS = ("NAME", "EXIT", "SIGNAL", "REASON", "SOURCE", "EXITED AT", "A CLIENT KNEW AFTER", "MADE TO BE")
AWAY = " (exitd was away)"


@frozen
class DemoPart:
    """One container: what happens before its end, how it ends, and so what is true."""

    name: str
    what: str
    ending: str  # as shell commands
    truth: ExitStatus
    memory_bytes: int = 0


# The true end of the second is a fault: the first process of a pid namespace ignores a SIGSEGV that is merely sent to
# it.
PARTS = (
    DemoPart("code", "exits with 7", "exit 7", Exited(7)),
    DemoPart("fault", "reads address 0", FAULT, Signaled(signal.SIGSEGV)),
    DemoPart("memory", "wants more than its 32 MiB", "exec tail /dev/zero", Signaled(signal.SIGKILL), 32 << 20),
    DemoPart("shim-killed", "its shim is killed, then it writes 1 MiB and exits with 43",
         f"cat {INSIDE}/payload; exit 43", Exited(43)),
    DemoPart("shim-stopped", "its shim is stopped (SIGSTOP), then it exits with 13", "exit 13", Exited(13)),
    DemoPart("exitd-killed", "exitd is killed, then it exits with 21", "exit 21", Exited(21)),
    DemoPart("both-killed", "exitd and its shim are killed, then it exits with 32", "exit 32", Exited(32)),
)  # fmt: skip


@dataclass
class Actor:
    """A container of the demo, and a client that waits for its end, and asks again when the daemon goes away."""

    part: DemoPart
    stage: Stage
    id: str = ""
    shim_fd: int = -1
    init_fd: int = -1
    exit: pb.Exit | None = None
    known_ns: int = 0
    asked: threading.Event = field(default_factory=threading.Event)
    known: threading.Event = field(default_factory=threading.Event)

    def enter(self, client: Client) -> None:
        """Create and start the container and a wait for it; return when it is at its fifo."""
        own = self.stage.base / "given" / self.part.name
        own.mkdir(parents=True)
        os.mkfifo(own / "go")
        if self.part.name == "shim-killed":
            (own / "payload").write_bytes(os.urandom(PAYLOAD_BYTES))
        script = f"read go <{INSIDE}/go; {self.part.ending}"
        spec = pb.ContainerSpec(
            name=self.part.name,
            args=["sh", "-c", script],
            rootfs="/",
            memory_bytes=self.part.memory_bytes,
            mounts=[pb.Mount(source=str(own), destination=INSIDE, read_only=True)],
        )
        self.id = client.create(spec).id
        container = client.start(self.id)
        self.shim_fd, self.init_fd = _open(container.shim), _open(container.init)
        threading.Thread(target=self._wait, daemon=True).start()

    def _wait(self) -> None:
        while not self.stage.cleared.is_set():
            self.stage.up.wait()
            try:
                with self.stage.client() as client:
                    waiting = client.begin_wait(self.id)
                    self.asked.set()
                    self.exit = waiting.result(STEP_SECONDS)
                    self.known_ns = time.time_ns()
                    return self.known.set()
            except (Unreachable, ShuttingDown):
                self.stage.cleared.wait(0.01)
            except ExitdError:
                return  # without an answer the comparison fails

    def go(self) -> None:
        """Let it go on to its end."""
        if not self.asked.wait(STEP_SECONDS):
            raise StageFailed(f"{self.part.name}: no client could ask for its end")
        fifo = self.stage.base / "given" / self.part.name / "go"
        deadline = time.monotonic() + STEP_SECONDS
        while time.monotonic() < deadline:
            try:
                fd = os.open(fifo, os.O_WRONLY | os.O_NONBLOCK)
            except OSError:  # ENXIO: its shell has not opened the fifo yet
                select.select([], [], [], 0.005)
                continue
            os.write(fd, b"go\n")
            return os.close(fd)
        raise StageFailed(f"{self.part.name} did not come to its fifo")

    def harm_shim(self, number: signal.Signals) -> None:
        """Send SIGKILL and wait for the end; or send SIGSTOP."""
        signal.pidfd_send_signal(self.shim_fd, number)
        if number is signal.SIGKILL:
            _wait_end(self.shim_fd, f"the shim of {self.part.name}")

    def is_true(self) -> bool:
        if self.exit is None:
            return False
        said = status_of(self.exit)
        if isinstance(said, Signaled):  # whether it dumped core depends on the host, not on the container
            said = Signaled(said.signal)
        return said == self.part.truth

    def row(self) -> list[str]:
        exit_ = self.exit
        truth = _plain(self.part.truth)
        if exit_ is None:
            return [self.part.name, "no answer", "-", "-", "-", "-", "-", f"{truth}: WRONG"]
        at_ns = spoken.nanoseconds(exit_.at)
        name = f"{exit_.signal} {spoken.signal_name(exit_.signal)}" if exit_.kind == "signaled" else "-"
        number = "unknown" if exit_.kind == "unknown" else str(number_of(exit_))
        knew = spoken.precise(max(0, self.known_ns - at_ns)) + (
            AWAY if at_ns < self.stage.back_ns < self.known_ns else ""
        )
        verdict = f"{truth}: {'right' if self.is_true() else 'WRONG'}"
        return [self.part.name, number, name, exit_.reason, exit_.source, time_text(exit_.at), knew, verdict]


def main() -> None:
    """Ends the process: 0 if everything was true and nothing was left, 130 after Ctrl-C, else 1."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    os.environ.pop("EXITD_ADDRESS", None)  # whichever daemon this shell uses, the demo has its own
    stage = Stage()
    code = 1
    try:
        code = _play(stage)
    except KeyboardInterrupt:
        say("Interrupted.")
        code = 128 + signal.SIGINT
    except (StageFailed, ExitdError, OSError) as error:
        say(f"The demo could not go on: {error}\n{_last_lines(stage.log())}")
    finally:
        for number in INTERRUPTS:
            signal.signal(number, signal.SIG_IGN)  # clearing up is not interrupted
        code = _clear(stage) or code
    sys.exit(code)


def _play(stage: Stage) -> int:
    say("== exitctl doctor")
    words = (sys.executable, "-m", "supervisor.cli", "doctor", "--state", str(stage.state))
    if subprocess.run(words, check=False, env={**os.environ, "EXITD_STATE": str(stage.state)}).returncode:
        say("This machine lacks what exitd needs; the lines with FAIL name it and the cure.")
        return 1
    stage.raise_daemon()
    say(f"\n== exitd runs, pid {stage.daemon_pid}, all it has is in {stage.base}")
    actors = {part.name: Actor(part, stage) for part in PARTS}
    with stage.client() as client:
        for actor in actors.values():
            actor.enter(client)
            say(f"   {actor.part.name:13} started: {actor.part.what}")
    _act_one(actors)
    _act_two(stage, actors)
    say("\n== What exitd says, and what each was made to be")
    say(table.columns([HEADINGS, *(actor.row() for actor in actors.values())]), end="")
    return _judge(stage, list(actors.values()))


def _act_one(actors: dict[str, Actor]) -> None:
    say("\n== exitd lives")
    actors["shim-stopped"].harm_shim(signal.SIGSTOP)
    actors["shim-stopped"].go()
    say("   shim-stopped: kill -STOP its shim; released")
    actors["shim-killed"].harm_shim(signal.SIGKILL)
    actors["shim-killed"].go()
    say("   shim-killed: kill -9 its shim; released")
    for name in ("code", "fault", "memory"):
        actors[name].go()
    say("   code, fault, memory: released")
    for name in ("code", "fault", "memory", "shim-killed", "shim-stopped"):
        actors[name].known.wait(STEP_SECONDS)


def _act_two(stage: Stage, actors: dict[str, Actor]) -> None:
    say("\n== exitd is killed")
    stage.kill_daemon()
    actors["both-killed"].harm_shim(signal.SIGKILL)
    say("   kill -9 exitd, then the shim of both-killed")
    for name in ("exitd-killed", "both-killed"):
        actors[name].go()
        _wait_end(actors[name].init_fd, name)
    say("   exitd-killed, both-killed: released; they have ended, and no exitd is there")
    stage.raise_daemon()
    say(f"   exitd is started again, pid {stage.daemon_pid}; the clients ask again")
    for name in ("exitd-killed", "both-killed"):
        actors[name].known.wait(STEP_SECONDS)


def _judge(stage: Stage, actors: Sequence[Actor]) -> int:
    """Check the codes, the output, and that the event stream has every exit once. Return 0 if all is as it must be."""
    wrong = [actor.part.name for actor in actors if not actor.is_true()]
    with stage.client() as client:
        say("\n== The event stream (exitctl events --from-seq 1)")
        events = [
            reply.event for reply in client.events(pb.EventsRequest(from_seq=1, no_follow=True)) if reply.event.seq
        ]
        say("".join(f"{event_line(event)}\n" for event in events), end="")
        talker = next(actor for actor in actors if actor.part.name == "shim-killed")
        written = b"".join(reply.data for reply in client.logs(pb.LogsRequest(id=talker.id, follow=True, run=1)))
    counts = {actor.part.name: sum(e.id == actor.id and e.HasField("exit") for e in events) for actor in actors}
    given = (stage.base / "given" / talker.part.name / "payload").read_bytes()
    complete = written == given
    say("\n== In short")
    say(f"   {len(actors) - len(wrong)} of {len(actors)} exits reported correctly"
        + (f"; WRONG: {', '.join(wrong)}" if wrong else ""))  # fmt: skip
    twice = [f"{name} {count} times" for name, count in counts.items() if count != 1]
    say(f"   in the event stream: {', '.join(twice) if twice else 'each of them exactly once'}")
    say(f"   shim-killed wrote {len(given)} bytes, sha256 {hashlib.sha256(given).hexdigest()[:16]}...; "
        f"its log has {len(written)} bytes, {'the same ones' if complete else 'and NOT the same'}")  # fmt: skip
    return 1 if wrong or twice or not complete else 0


def _clear(stage: Stage) -> int:
    found = stage.clear()
    if found:
        say("   left behind, and removed now: " + "; ".join(found))
        return 1
    say("   nothing is left: no process, no mount, no cgroup, no directory")
    return 0


def say(text: str, end: str = "\n") -> None:
    """Print, even if the reader has gone: that must not keep the demo from clearing up."""
    try:
        print(text, end=end, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _plain(status: ExitStatus) -> str:
    match status:
        case Exited(code):
            return f"exit {code}"
        case Signaled(number):
            return spoken.signal_name(number)
    return "unknown"


def _open(process: pb.Process) -> int:
    pidfd = epoll.open_process(process.pid, process.started_ticks)
    if pidfd is None:
        raise StageFailed(f"process {process.pid} is gone before its time")
    return pidfd


def _wait_end(pidfd: int, what: str) -> None:
    if not select.select([pidfd], [], [], STEP_SECONDS)[0]:
        raise StageFailed(f"{what} has not ended within {STEP_SECONDS:.0f} s")


def _last_lines(text: str, count: int = 20) -> str:
    lines = text.splitlines()[-count:]
    return "\n".join(["The last lines of its log:", *(f"   {line}" for line in lines)]) if lines else ""


def _interrupt(number: int, _: FrameType | None) -> None:
    raise KeyboardInterrupt(number)


if __name__ == "__main__":
    main()
