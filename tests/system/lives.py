"""Whole lives of containers in a line each; clients attached to them, and inits that leave others behind."""

import os
import pathlib
import signal
import threading
import time

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.api.attachment import Attachment
from supervisor.api.client import Client
from supervisor.runtime.oci import bundle, cgroups
from tests.system.daemons import spec
from tests.system.processes import in_mask
from tests.system.waits import LIMIT_SECONDS, until


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

    def planned() -> pb.Container | None:
        """Seen twice at the same time: it is computed from two clocks, which are not read in one moment."""
        first, second = client.inspect(container), client.inspect(container)
        apart = abs(first.restart_at.ToNanoseconds() - second.restart_at.ToNanoseconds())
        return second if far(second) and apart < 10e6 else None

    seen = until(planned, "a long back-off")
    assert seen is not None
    return seen


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


LINES = 3
# A child and one of a double fork, who ignore what can be ignored and hold the output open; both write first.
CHILD = "trap '' HUP INT TERM; echo $1; echo $$ >/mnt/.$1; mv /mnt/.$1 /mnt/$1; while :; do sleep 0.1; done"
LEAVES = f"""
sh -c "$CHILD" sh child & (setsid sh -c "$CHILD" sh grandchild &)
until [ -e /mnt/child ] && [ -e /mnt/grandchild ]; do sleep 0.05; done
: >/mnt/up
until [ -e /mnt/end ]; do sleep 0.05; done
seq {LINES}
exit 3
"""
WHOLE = sorted(["child", "grandchild", *map(str, range(1, LINES + 1))])


def cgroup(container: str) -> str:
    """The container's cgroups path, whichever driver has made its cgroup; where it has none, as if by cgroupfs."""
    found = [path for path in bundle.leaked_cgroups(container) if cgroups.existing(path)]
    return found[0] if found else bundle.single_cgroup(container)


def members(container: str) -> tuple[int, ...]:
    return cgroups.pids(cgroup(container))


def begun(client: Client, shared: pathlib.Path, **fields: object) -> pb.Container:
    """A container whose init is about to end, and has left two behind."""
    mounts = [pb.Mount(source=str(shared), destination="/mnt")]
    made = up(client, "sh", "-c", LEAVES, env=[f"CHILD={CHILD}"], mounts=mounts, **fields)
    until((shared / "up").exists, "it leaves nobody behind")
    return made


def output(client: Client, container: str) -> list[str]:
    return sorted(b"".join(reply.data for reply in client.logs(pb.LogsRequest(id=container))).decode().split())


def created(client: Client, *args: str, **fields: object) -> str:
    return client.create(spec(*args, **fields)).id


def attached(client: Client, *args: str, **fields: object) -> tuple[str, Attachment]:
    """A container that runs, attached to before its start."""
    container = created(client, *args, **fields)
    it = client.attach(container)
    client.start(container)
    return container, it


class Reader:
    """Reads all replies in a thread of its own."""

    def __init__(self, it: Attachment) -> None:
        self.out, self.err, self.dropped = bytearray(), bytearray(), 0
        self.failure: BaseException | None = None
        self._thread = threading.Thread(target=self._read, args=(it,), daemon=True)
        self._thread.start()

    def _read(self, it: Attachment) -> None:
        try:
            for reply in it:
                self.out += reply.stdout
                self.err += reply.stderr
                self.dropped = reply.dropped or self.dropped
        except BaseException as error:
            self.failure = error

    def until(self, text: bytes) -> None:
        until(lambda: text in self.out, f"{text!r}")

    def ended(self) -> "Reader":
        self._thread.join(LIMIT_SECONDS)
        assert not self._thread.is_alive(), "the output does not end"
        assert self.failure is None, repr(self.failure)
        return self


def kill_shim(client: Client, container: str) -> None:
    """Dead when this returns."""
    until(lambda: client.inspect(container).HasField("shim"), "a shim")
    shim = client.inspect(container).shim
    assert shim.pid > 1
    os.kill(shim.pid, signal.SIGKILL)
    until(lambda: client.inspect(container).shim != shim, "the end of the shim")


def taken(it: Attachment, text: bytes) -> bytes:
    """What is read until `text` has come. After the limit it is detached, and the test fails."""
    read, limit = b"", threading.Timer(LIMIT_SECONDS, it.cancel)
    limit.start()
    try:
        while text not in read:
            reply = next(it, None)
            assert reply is not None, f"no {text!r} in {read!r}"
            read += reply.stdout
    finally:
        limit.cancel()
    return read
