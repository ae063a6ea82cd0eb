"""Many tasks and many ends under a real containerd: what the daemon watches them with is given back, and an end is
recorded whoever does not read."""

import contextlib
import json
import os
import pathlib
import socket
import time
from collections import Counter
from collections.abc import Iterator

import pytest
from google.protobuf.message import Message

from protos.exitd.v1 import exitd_pb2 as pb
from protos.ttrpc.v1.ttrpc_pb2 import Request
from supervisor.api.client import Client
from supervisor.ttrpc.frames import REQUEST, Frame, encode
from tests.system.containerd.events import Recorder
from tests.system.containerd.history import Who
from tests.system.containerd.server import EXITD, IMAGE, Box, Containerd, Said
from tests.system.containerd.tasks import PROCESS, WIRE, Pending, Tasks
from tests.system.daemons import has_probed
from tests.system.exitctl import Cli
from tests.system.lives import ledger, word
from tests.system.processes import stopped
from tests.system.waits import scaled, until

LIVES, EXECS = scaled(300, least=8), scaled(600, least=100)
WAITS = 6  # for each exec: the answers are more than a socket takes whose reader stands still, some 280
AT_ONCE = 5
THREADS = 60  # of the daemon: far fewer than ends
COURIER_SECONDS = 10.0  # after that, a relay brings an event again that containerd has not answered


@pytest.fixture
def calls(containerd: Containerd) -> Iterator[Tasks]:
    made = Tasks(containerd)
    yield made
    made.close()


def held(pid: int) -> Counter[str]:
    """What a process has open, by kind, and the inotify watches besides."""
    found: Counter[str] = Counter()
    for name in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            kind = os.readlink(f"/proc/{pid}/fd/{name}").partition(":[")[2]
            found[kind if kind.startswith("event") else "other"] += 1
            found["watch"] += pathlib.Path(f"/proc/{pid}/fdinfo/{name}").read_text().count("inotify wd:")
    return found


def never_started(containerd: Containerd, calls: Tasks) -> None:
    id = containerd.box(EXITD, "idle").id
    containerd.wanted("container", "create", "--runtime", EXITD, "--", IMAGE, id, "true")
    for verb, fields in (("create", {"rootfs": calls.mounts(id)}), ("delete", {})):
        assert calls.begin(verb, Who(id), **fields).call().error == ""
    containerd.wanted("container", "rm", id)


def test_what_watches_a_tasks_memory_is_given_back_however_the_task_goes(containerd: Containerd, calls: Tasks) -> None:
    daemon = containerd.with_exitd()
    with daemon.client() as client:
        until(lambda: has_probed(client), "exitd does not know its sources of evidence")
    containerd.box(EXITD, "stays").started("--null-io", "--", "sleep", "1000")  # and with it the keeper, and its line
    before = held(daemon.pid)
    other = containerd.box(EXITD, "other").started("--null-io", "--", "sleep", "1000")
    more = held(daemon.pid) - before
    assert more["eventfd]"] == 1 or more["watch"] >= 1, f"a task's memory is not watched: {more}"
    other.end()
    until(lambda: held(daemon.pid) == before, f"{held(daemon.pid)} after one, {before} before")
    for _ in range(LIVES):
        assert containerd.box(EXITD, "short").run("--rm", "--", "true") == Said(0, "", "")
        assert containerd.box(EXITD, "none").run("--rm", "--", "/no/such/program").code == 1
        never_started(containerd, calls)
    until(lambda: held(daemon.pid) == before, f"{held(daemon.pid)} after {LIVES}, {before} before")


class Crowd:
    """Execs of one task that end when they are told to, each with a code of its own, and the Waits for them."""

    def __init__(self, box: Box, calls: Tasks, count: int) -> None:
        self.place = box.containerd.base / f"go-{box.id}"
        self.place.mkdir()
        os.mkfifo(self.place / "go")
        self._go = os.open(self.place / "go", os.O_RDWR)
        mount = f"type=bind,src={self.place},dst=/mnt,options=rbind"
        box.started("--null-io", "--mount", mount, "--", "sleep", "1000")
        self.codes = {Who(box.id, f"x{n}"): n % 100 for n in range(count)}
        for verb in ("exec", "start"):
            self._all(calls, verb)
        self.waits = [calls.begin("wait", who) for who in self.codes for _ in range(WAITS)]

    def _all(self, calls: Tasks, verb: str) -> None:
        whos = list(self.codes)
        for at in range(0, len(whos), AT_ONCE):
            under_way = [self._begin(calls, verb, who) for who in whos[at : at + AT_ONCE]]
            assert [each.call().error for each in under_way] == [""] * len(under_way)

    def _begin(self, calls: Tasks, verb: str, who: Who) -> Pending:
        return calls.begin(verb, who, **({"spec": self._spec(self.codes[who])} if verb == "exec" else {}))

    def _spec(self, code: int) -> object:
        args = ["sh", "-c", f"read line </mnt/go; exit {code}"]
        process = {"args": args, "cwd": "/", "env": ["PATH=/bin"], "user": {"uid": 0, "gid": 0}}
        spec = WIRE.ExecProcessRequest().spec
        spec.type_url, spec.value = PROCESS, json.dumps(process).encode()
        return spec

    def ends(self) -> set[tuple[str, int]]:
        return {(who.exec, code) for who, code in self.codes.items()}

    def go(self) -> None:
        """A line for each, who reads no further than its end."""
        os.write(self._go, b"\n" * len(self.codes))

    def close(self) -> None:
        os.close(self._go)


@contextlib.contextmanager
def unread(state: pathlib.Path, container: str, execs: list[str]) -> Iterator[None]:
    """A client of exitd that asks for all events and many Waits, and reads no answer."""
    asked: list[tuple[str, Message]] = [("Events", pb.EventsRequest(from_seq=0))]
    asked += [("Wait", pb.WaitRequest(id=container, exec_id=exec_id)) for exec_id in execs for _ in range(WAITS)]
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(f"{state}/exitd.ttrpc")
        for stream, (method, request) in enumerate(asked):
            data = Request(service="exitd.v1.Exitd", method=method, payload=request.SerializeToString())
            line.sendall(encode(Frame(2 * stream + 1, REQUEST, 0, data.SerializeToString())))
        yield


def told(events: Recorder, task: str) -> Counter[tuple[str, int]]:
    """The ends of a task's processes, and how often each was reported."""
    exits = (event.fields for event in events.of(task) if event.topic == "/tasks/exit")
    return Counter((each["id"], each.get("exit_status", 0)) for each in exits)


def ends(client: Client, id: str) -> Counter[str]:
    return Counter(map(word, ledger(client, id)))


def at_most(threads: int, pid: int) -> bool:
    """As many threads, whatever happens."""
    there = len(os.listdir(f"/proc/{pid}/task"))
    assert there <= threads, f"{there} threads"
    return True


def test_ends_are_recorded_at_once_whoever_does_not_read_and_told_once_when_he_does(
    containerd: Containerd, calls: Tasks
) -> None:
    box = containerd.box(EXITD, "crowd")
    crowd, daemon = Crowd(box, calls, EXECS), containerd.with_exitd()
    wanted = Counter(f"exited {code}" for code in crowd.codes.values())
    with daemon.client() as client, containerd.events() as events:
        (id,) = (each.id for each in client.list(all_of_them=False) if each.spec.name == box.id)
        execs = [each.id for each in client.inspect(id).execs]
        assert len(execs) == EXECS
        with unread(daemon.state, id, execs):
            with stopped(containerd.pid):
                begun = time.time()
                crowd.go()
                until(lambda: at_most(THREADS, daemon.pid) and ends(client, id) == wanted, "an end is missing")
                over = time.time()
                table = Cli(daemon)("exits", "--no-trunc").out
                away = time.time() - begun
            times = [each.at.ToNanoseconds() / 1e9 for each in ledger(client, id)]
            assert begun <= min(times) and max(times) <= over
            assert sum(f"{box.id} exec" in line for line in table.splitlines()) == EXECS
            answers = [each.call() for each in crowd.waits]
        assert [each.end.code if each.end else each for each in answers] == [crowd.codes[each.who] for each in answers]
        until(lambda: told(events, box.id).keys() >= crowd.ends(), "an end is not told")
        events.settled()
        assert told(events, box.id).keys() == crowd.ends()
        assert told(events, box.id).total() == EXECS or away > COURIER_SECONDS, told(events, box.id)
    crowd.close()
    box.end()
    containerd.left_is()
