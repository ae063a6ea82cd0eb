"""Containers that end and containers that go on, and what exitd knows of them: a line of JSON each.

lives.py begin NAME COUNT    COUNT end with codes of their own, each one's end is awaited; COUNT others live on
lives.py up NAME COUNT [POLICY [CODE]]
                             COUNT live on until they are killed, or end with CODE when they are asked to
lives.py again NAME COUNT    COUNT end at once and are started again, for ever
lives.py inits               the pid of each that runs
lives.py kill                SIGKILL for all that run; their ends are awaited
lives.py told                SIGKILL for the inits of all that run, while the database takes nothing: as long as this
                             goes on, the ends that it prints are in the ring alone
lives.py unanswered          the same for two of them. The second one's block is on the disk, and as long as this goes
                             on nobody has the end from exitd: the write of the block does not return
lives.py unflushed           the same for two of them. Of the second one the database has the row, and as long as this
                             goes on no flush of exitd's begins
lives.py wait                the ends of all there are, none of which may go on
lives.py ledger              every exit there is
lives.py events TYPE         every event of this type
lives.py all                 every container
lives.py images              every image
lives.py clear               removes all, and says nothing
"""

import contextlib
import json
import os
import pathlib
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.api.client import Client, ttrpc_beside
from supervisor.model.errors import TimedOut

SOCKET = "/run/exitd/exitd.sock"
DATABASE = "/var/lib/exitd/exitd.db"
RING = "/var/lib/exitd/exitd.ring"
WAIT_SECONDS = 600.0
STILL_SECONDS = 3.0  # what has not been reported by then waits for its block
HELD_MICROSECONDS = 10**9  # longer than anybody waits


def say(exit_: pb.Exit | None) -> None:
    assert exit_ is not None
    told = {"name": exit_.name, "kind": exit_.kind, "code": exit_.code, "signal": exit_.signal, "cause": exit_.cause}
    told |= {"reason": exit_.reason}
    print(json.dumps(told), flush=True)


def begin(client: Client, name: str, count: int) -> None:
    for number in range(1, count + 1):
        ending = pb.ContainerSpec(name=f"{name}-ends-{number}", args=["sh", "-c", f"exit {number}"], rootfs="/")
        container = client.create(ending).id
        waiting = client.begin_wait(container)
        client.start(container)
        say(waiting.result(WAIT_SECONDS))
        living = pb.ContainerSpec(name=f"{name}-lives-{number}", args=["sleep", "100000"], rootfs="/")
        client.start(client.create(living).id)


# A shell waits for its child before it heeds a trap, unless it waits by `wait`.
OBEYS = "trap 'exit {code}' TERM; sleep 100000 & wait"


def up(client: Client, name: str, count: int, policy: str = "no", code: str = "") -> None:
    args = ["sh", "-c", OBEYS.format(code=code)] if code else ["sleep", "100000"]
    for number in range(1, count + 1):
        made = pb.ContainerSpec(name=f"{name}-{number}", args=args, rootfs="/", restart=policy)
        client.start(client.create(made).id)


def again(client: Client, name: str, count: int) -> None:
    for number in range(1, count + 1):
        args = ["sh", "-c", "sleep 0.2; exit 4"]
        made = pb.ContainerSpec(name=f"{name}-{number}", args=args, rootfs="/", restart="always")
        client.start(client.create(made).id)


def kill(client: Client) -> None:
    for container in client.list(all_of_them=False):
        waiting = client.begin_wait(container.id)
        client.kill(container.id, "KILL")
        say(waiting.result(WAIT_SECONDS))


def killed(client: Client, container: pb.Container) -> pb.Exit | None:
    """By its pid, as a stranger does: no intention has to be stored before."""
    waiting = client.begin_wait(container.id)
    os.kill(container.init.pid, signal.SIGKILL)
    return waiting.result(WAIT_SECONDS)


def tell(client: Client) -> None:
    first, *others = client.list(all_of_them=False)
    ends = [killed(client, first)]  # exitd reads the whole of the kernel's log once, which takes the long way
    with contextlib.closing(sqlite3.connect(DATABASE, isolation_level=None)) as held:
        held.execute("BEGIN IMMEDIATE")
        ends += [killed(client, container) for container in others]
        for container in others:
            found = held.execute("SELECT count(*) FROM exits WHERE container = ?", (container.id,)).fetchone()
            assert found == (0,), f"{container.spec.name} is in the database"
        for end in ends:
            say(end)
        time.sleep(WAIT_SECONDS)


def until(look: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + WAIT_SECONDS
    while not look():
        assert time.monotonic() < end, what
        time.sleep(0.05)


@contextlib.contextmanager
def tampered(*words: str) -> Iterator[None]:
    """exitd's system calls are as strace is asked to make them."""
    shown = subprocess.run(
        ["systemctl", "show", "--property=MainPID", "--value", "exitd.service"],
        capture_output=True,
        text=True,
        check=True,
    )
    exitd = int(shown.stdout)
    threads = pathlib.Path(f"/proc/{exitd}/task")
    with subprocess.Popen(["strace", "-f", "-qq", "-o", "/dev/null", "-p", str(exitd), *words]) as tracer:
        try:
            seen = f"TracerPid:\t{tracer.pid}\n"
            until(lambda: all(seen in (t / "status").read_text() for t in threads.iterdir()), "strace does not begin")
            yield
        finally:
            tracer.terminate()


def has_row(container: pb.Container) -> bool:
    with contextlib.closing(sqlite3.connect(f"file:{DATABASE}?mode=ro", uri=True)) as database:
        found = database.execute("SELECT count(*) FROM exits WHERE container = ?", (container.id,)).fetchone()
    return bool(found == (1,))


def unanswered(client: Client) -> None:
    first, second, *_ = client.list(all_of_them=False)
    say(killed(client, first))  # see `tell`
    assert second.id.encode() not in pathlib.Path(RING).read_bytes()
    inject = f"inject=pwrite64:delay_exit={HELD_MICROSECONDS}"
    with tampered("-P", RING, "-e", "trace=pwrite64", "-e", inject):
        waiting = client.begin_wait(second.id)
        os.kill(second.init.pid, signal.SIGKILL)
        until(lambda: second.id.encode() in pathlib.Path(RING).read_bytes(), "its block does not come")
        with open(RING, "rb") as file:
            os.fsync(file.fileno())  # the pages may be seen before the write of them has ended
        with contextlib.suppress(TimedOut):
            raise AssertionError(f"the end is reported: {waiting.result(STILL_SECONDS)}")
        assert not has_row(second), "the end is in the database"
        print(json.dumps({"name": second.spec.name, "kind": "signaled", "signal": signal.SIGKILL}), flush=True)
        time.sleep(WAIT_SECONDS)


def unflushed(client: Client) -> None:
    first, second, *_ = client.list(all_of_them=False)
    say(killed(client, first))  # see `tell`
    client.remove(first.id, force=True)  # whatever of it is still to be stored is flushed: the row would wait for that
    inject = f"inject=fsync,fdatasync:delay_enter={HELD_MICROSECONDS}"
    with tampered("-e", "trace=fsync,fdatasync", "-e", inject):
        end = killed(client, second)
        until(lambda: has_row(second), "the row does not come")
        say(end)
        time.sleep(WAIT_SECONDS)


def main() -> None:
    with Client(SOCKET, ttrpc_beside(SOCKET)) as client:
        match sys.argv[1:]:
            case ["begin", name, count]:
                begin(client, name, int(count))
            case ["up", name, count, *more]:
                up(client, name, int(count), *more)
            case ["again", name, count]:
                again(client, name, int(count))
            case ["inits"]:
                for container in client.list(all_of_them=False):
                    print(json.dumps({"name": container.spec.name, "pid": container.init.pid}))
            case ["events", kind]:
                wanted = pb.EventsRequest(from_seq=1, no_follow=True, filters=[f"type={kind}"])
                for reply in client.events(wanted):
                    if reply.HasField("event"):
                        event = reply.event
                        print(json.dumps({"name": event.name, "seq": event.seq, "text": str(event)}))
            case ["all"]:
                for container in client.list(all_of_them=True):
                    print(json.dumps({"name": container.spec.name}))
            case ["images"]:
                for image in client.images():
                    print(json.dumps({"id": image.id}))
            case ["clear"]:
                for container in client.list(all_of_them=True):
                    client.remove(container.id, force=True)
            case ["kill"]:
                kill(client)
            case ["told"]:
                tell(client)
            case ["unanswered"]:
                unanswered(client)
            case ["unflushed"]:
                unflushed(client)
            case ["wait"]:
                for container in client.list(all_of_them=True):
                    say(client.begin_wait(container.id).result(WAIT_SECONDS))
            case ["ledger"]:
                for exit_ in client.exits(pb.ExitsRequest()):
                    say(exit_)


if __name__ == "__main__":
    main()
