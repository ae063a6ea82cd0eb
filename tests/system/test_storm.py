"""Bad luck in the middle of a storm of ends: exitd stands still for as long as a CRI client would wait. Every end is
reported once, as it was, and the relay answers for containerd's tasks meanwhile."""

import contextlib
import itertools
import os
import pathlib
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from protos.exitd.v1 import exitd_pb2 as pb
from tests.system import lives
from tests.system.containerd.history import Who
from tests.system.containerd.server import EXITD, Containerd
from tests.system.containerd.tasks import Tasks
from tests.system.daemons import Daemon
from tests.system.processes import stopped
from tests.system.waits import LIMIT_SECONDS, until

NATIVE, TASKS = 50, 4  # containers of exitd's own, tasks of containerd's; half of them end before it stands still
STILL_SECONDS = 10.0
ANSWER_SECONDS = 15.0  # 4 after the end, on a machine that does much else; exitd stands still until they have come
AT_ONCE = 4


def code_of(number: int) -> int:
    return 1 + number


@dataclass
class Gate:
    """A fifo from which each of many programs reads a line before it ends."""

    fd: int

    @classmethod
    @contextlib.contextmanager
    def made(cls, directory: pathlib.Path, name: str) -> "Iterator[Gate]":
        directory.mkdir(exist_ok=True)
        os.mkfifo(directory / name)
        fd = os.open(directory / name, os.O_RDWR)
        try:
            yield cls(fd)
        finally:
            os.close(fd)

    def open(self, count: int) -> None:
        """So many go on at once."""
        os.write(self.fd, b"\n" * count)


def script(name: str, number: int) -> tuple[str, ...]:
    return ("sh", "-c", f": >/mnt/up{number}; read x </mnt/{name}; exit {code_of(number)}")


def halves(count: int) -> Iterator[tuple[int, str]]:
    return zip(range(count), itertools.cycle(("before", "meanwhile")))


def natives(daemon: Daemon, directory: pathlib.Path) -> dict[int, str]:
    """Containers that wait at their gates: their ids by their numbers."""
    mounts = [pb.Mount(source=str(directory), destination="/mnt")]

    def begun(each: tuple[int, str]) -> str:
        number, name = each
        with daemon.client() as client:
            return lives.up(client, *script(name, number), mounts=mounts).id

    with ThreadPoolExecutor(AT_ONCE) as together:
        return dict(enumerate(together.map(begun, halves(NATIVE))))


def test_exitd_stands_still_in_a_storm_of_ends_and_each_is_reported_once_and_as_it_was(
    containerd: Containerd,
) -> None:
    daemon = containerd.with_exitd()
    own, theirs = containerd.base / "own", containerd.base / "theirs"
    with (
        containerd.events() as events,
        daemon.client() as client,
        contextlib.closing(Tasks(containerd)) as clients,
        contextlib.ExitStack() as gates,
    ):
        before, meanwhile = (
            [gates.enter_context(Gate.made(place, name)) for place in (own, theirs)] for name in ("before", "meanwhile")
        )
        ids = natives(daemon, own)
        boxes = [containerd.box(EXITD, "storm") for _ in range(TASKS)]
        mount = ("--mount", f"type=bind,src={theirs},dst=/mnt,options=rbind")
        for (number, name), box in zip(halves(TASKS), boxes, strict=True):
            box.started(*mount, "--", *script(name, number))
            events.wait(box.id, "/tasks/start")
        until(lambda: len(list(own.glob("up*"))) == NATIVE, "not all have begun")
        until(lambda: len(list(theirs.glob("up*"))) == TASKS, "not all have begun")
        native_waits = [client.begin_wait(id) for id in ids.values()]
        task_waits = [clients.begin("wait", Who(box.id)) for box in boxes]
        until(lambda: int(client.info().settings["waiters"]) >= NATIVE, "not all are waited for")
        first = time.time_ns()
        for each, count in zip(before, (NATIVE, TASKS), strict=True):
            each.open(count // 2)
        with stopped(daemon.pid):
            still = time.monotonic()
            for each, count in zip(meanwhile, (NATIVE, TASKS), strict=True):
                each.open(count // 2)
            ends = [each.call(ANSWER_SECONDS).end for each in task_waits]
            assert [end and end.code for end in ends] == [code_of(number) for number in range(TASKS)]
            until(lambda: time.monotonic() > still + STILL_SECONDS, "10 s", 2 * STILL_SECONDS)
            last = time.time_ns()
        answers = [lives.ended(each.result(LIMIT_SECONDS)) for each in native_waits]
        assert [each.code for each in answers] == [code_of(number) for number in range(NATIVE)]
        assert all(first <= each.at.ToNanoseconds() <= last for each in answers)
        rows = {row.container_id: row for row in client.exits(pb.ExitsRequest())}
        assert [rows[id] for id in ids.values()] == answers
        known = {row.name: row for row in rows.values()}
        for box, end in zip(boxes, ends, strict=True):
            assert end is not None
            assert (known[box.id].code, known[box.id].at.ToNanoseconds()) == (end.code, end.at_ns)
        in_order(lives.events(client), set(rows))
        for box in boxes:
            box.end()
            told = [event.topic for event in events.settled().wait(box.id, "/tasks/delete")]
            assert told == ["/tasks/create", "/tasks/start", "/tasks/exit", "/tasks/delete"]
        for id in ids.values():
            client.remove(id, force=False)
    containerd.left_is()


def in_order(log: list[pb.Event], ids: set[str]) -> None:
    """No number is given twice, and each container's life is reported in its order, its end once."""
    numbers = [event.seq for event in log]
    assert numbers == sorted(set(numbers))
    for id in ids:
        assert [event.type for event in log if event.id == id] == ["create", "start", "exit"]
