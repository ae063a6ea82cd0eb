"""exitd, or its keeper, has no descriptor left while something begins: what has begun is followed to its end and
reported with its code, what has not is refused by name. RLIMIT_NOFILE is lowered at the moment in question."""

import contextlib
import glob
import itertools
import os
import pathlib
import resource
import select
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import pytest

from protos.exitd.v1 import exitd_pb2 as pb
from shim import fields, launch
from supervisor.model.errors import Busy
from tests.system import daemons, lives
from tests.system.daemons import Daemon, spec
from tests.system.execs import begin, end_of, exec_directories, run, shim_of, shims_of
from tests.system.lives import events, last_exit, ledger, types, word
from tests.system.processes import killed
from tests.system.waits import LIMIT_SECONDS, until

ROOM_FOR_DESCRIPTORS = 16


@dataclass
class Between:
    """`before`: what is done once, before the next answer of that kind is handed on."""

    before: dict[str, Callable[[], None]] = field(default_factory=dict)

    def hand_on(self, source: socket.socket, sink: socket.socket) -> bool:
        """One message with its descriptors. False: its sender has gone."""
        data, descriptors, _, _ = socket.recv_fds(source, launch.MESSAGE_MAX_BYTES, ROOM_FOR_DESCRIPTORS)
        try:
            if data:
                self.before.pop(fields.decode(data).kind, lambda: None)()
                socket.send_fds(sink, [data], descriptors)
        finally:
            for fd in descriptors:
                os.close(fd)
        return bool(data)


@contextlib.contextmanager
def between(daemon: Daemon) -> Iterator[Between]:
    """Everybody who talks to the daemon's keeper does so through this, for the block. The daemon is started anew; a
    container of its own must run, or its keeper would end."""
    path, own = daemon.state / launch.SOCKET_NAME, daemon.state / "own.sock"
    os.rename(path, own)
    made = Between()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening, _ending() as over:
        listening.bind(str(path))
        listening.listen(64)
        serving = threading.Thread(target=_serve, args=(made, listening, str(own), over))
        serving.start()
        try:
            daemon.restart()
            yield made
        finally:
            os.rename(own, path)
            over.set()
            serving.join()


@contextlib.contextmanager
def _ending() -> Iterator[threading.Event]:
    over = threading.Event()
    try:
        yield over
    finally:
        over.set()


def _serve(made: Between, listening: socket.socket, own: str, over: threading.Event) -> None:
    others: dict[socket.socket, socket.socket] = {}
    try:
        while not over.is_set():
            ready, _, _ = select.select([listening, *others], [], [], 0.05)
            for source in ready:
                if source is listening:
                    near, far = listening.accept()[0], socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                    far.connect(own)
                    others |= {near: far, far: near}
                elif source in others and not _is_handed_on(made, source, others[source]):
                    for each in (source, others[source]):
                        del others[each]
                        each.close()
    finally:
        for each in others:
            each.close()


def _is_handed_on(made: Between, source: socket.socket, sink: socket.socket) -> bool:
    try:
        return made.hand_on(source, sink)
    except OSError:  # one of them has gone
        return False


NOTHING_MORE = 3  # descriptors: whatever number is free, a new one is above this


def starve(pid: int, limit: int = NOTHING_MORE) -> None:
    """As of now the process opens nothing more."""
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (limit, _limits(pid)[1]))


def first_free(pid: int) -> int:
    """The number that its next descriptor would have. poll(2) refuses to look at more than the limit allows, so this is
    the least for whoever polls."""
    held = {int(name) for name in os.listdir(f"/proc/{pid}/fd")}
    return next(number for number in itertools.count() if number not in held)


def feed(pid: int) -> None:
    hard = _limits(pid)[1]
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (min(hard, 1024), hard))


@contextlib.contextmanager
def fed_again(pid: int) -> Iterator[None]:
    try:
        yield
    finally:
        feed(pid)


def _limits(pid: int) -> tuple[int, int]:
    return resource.prlimit(pid, resource.RLIMIT_NOFILE)


@dataclass
class Box:
    """A container that runs, and whoever stands between its daemon and its keeper."""

    daemon: Daemon
    keeper: Between
    id: str
    mount: pathlib.Path

    def starve_when_begun(self) -> None:
        """The daemon gets the keeper's next word of a new shim without its descriptor, and no other one."""
        self.keeper.before["exitd-spawned"] = lambda: starve(self.daemon.pid)


@pytest.fixture(scope="module")
def box() -> Iterator[Box]:
    with daemons.daemon(extra=("--reconcile-seconds", "0.5"), grpc=True) as daemon:
        (mount := daemon.base / "mnt").mkdir()
        with daemon.client() as client:
            mounts = [pb.Mount(source=str(mount), destination="/mnt")]
            id = lives.up(client, mounts=mounts).id
        with between(daemon) as keeper:
            yield Box(daemon, keeper, id, mount)


@contextlib.contextmanager
def nothing_left(box: Box) -> Iterator[None]:
    """After the block the daemon has room again, and nothing of the block's execs is there."""
    try:
        yield
    finally:
        box.keeper.before.clear()
        feed(box.daemon.pid)
    until(lambda: not exec_directories(box.daemon), "the directories of execs")


def words_of_shims(box: Box) -> set[str]:
    """What each shim of a container leaves when it has made it."""
    return set(glob.glob(f"{box.daemon.state}/c/*/*/created"))


def told(box: Box, exec_id: str) -> list[str]:
    with box.daemon.client() as client:
        return [event.type for event in events(client, box.id) if event.exec_id == exec_id]


def test_an_exec_that_began_ends_with_its_code_though_exitd_has_no_descriptor_from_then_on(box: Box) -> None:
    with box.daemon.client() as client, nothing_left(box):
        box.starve_when_begun()
        exec_id = begin(client, box.id, "sh", "-c", "exit 43")
        exit_ = end_of(client, box.id, exec_id)
        assert (word(exit_), exit_.source) == ("exited 43", "record")
        assert _limits(box.daemon.pid)[0] == NOTHING_MORE
    assert told(box, exec_id) == ["exec", "exit"]


def test_an_exec_that_began_without_a_descriptor_is_watched_like_any_other_once_there_is_one(box: Box) -> None:
    waits = "touch /mnt/here; until [ -e /mnt/go ]; do sleep 0.02; done; exit 9"
    with box.daemon.client() as client, ThreadPoolExecutor(1) as caller, nothing_left(box):
        box.starve_when_begun()
        asked = caller.submit(begin, client, box.id, "sh", "-c", waits)
        until((box.mount / "here").exists, "the exec does not begin")
        feed(box.daemon.pid)
        exec_id = asked.result(LIMIT_SECONDS)
        killed(shim_of(box.daemon, exec_id))  # only who watches a shim has it replaced
        until(lambda: shims_of(box.daemon, exec_id), "a replacement")
        (box.mount / "go").touch()
        assert word(end_of(client, box.id, exec_id)) == "exited 9"
    assert told(box, exec_id) == ["exec", "exit"]


def test_a_container_that_was_made_without_a_descriptor_runs_to_its_end(box: Box) -> None:
    with box.daemon.client() as client, ThreadPoolExecutor(1) as caller, nothing_left(box):
        made = words_of_shims(box)
        box.starve_when_begun()
        asked = caller.submit(client.create, spec("sh", "-c", "exit 7"))
        until(lambda: words_of_shims(box) - made, "the container is not made")
        feed(box.daemon.pid)
        id = asked.result(LIMIT_SECONDS).id
        client.start(id)
        exit_ = last_exit(client, id)
        assert (word(exit_), exit_.source) == ("exited 7", "record")
        assert types(client, id) == ["create", "start", "exit"]
        client.remove(id, force=False)


@pytest.mark.parametrize("who", ["daemon", "keeper"])
def test_what_finds_no_descriptor_at_its_beginning_is_refused_and_never_runs(box: Box, who: str) -> None:
    pid, ran = {"daemon": box.daemon.pid, "keeper": box.daemon.keeper_pid()}[who], box.mount / "ran"
    with box.daemon.client() as client, nothing_left(box):
        client.version()
        before = len(ledger(client, box.id))
        with fed_again(pid):
            starve(pid, first_free(pid) if who == "keeper" else NOTHING_MORE)
            with pytest.raises(Busy, match="out of descriptors"):
                client.exec(box.id, pb.ExecSpec(args=["touch", "/mnt/ran"]))
            with pytest.raises(Busy, match="out of descriptors"):
                client.create(spec("true"))
        assert not ran.exists()
        assert word(run(client, box.id, "touch", "/mnt/ran")) == "exited 0"
        assert ran.exists()
        ran.unlink()
        assert len(ledger(client, box.id)) == before + 1
