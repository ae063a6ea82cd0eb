"""A whole exitd where processes are short: numbers that come round again at once, as pids and as threads' ids, and a
limit at which no process and no thread can begin."""

import contextlib
import os
import pathlib
import signal
import time
from collections.abc import Callable, Iterator

import pytest

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.api.client import Client
from supervisor.model.errors import ExitdError
from tests.attack import smallpids
from tests.system import daemons, lives
from tests.system.daemons import Daemon, directory, left, spec
from tests.system.lives import last_exit, ledger, types, word
from tests.system.processes import children_of
from tests.system.slowclients import crowd
from tests.system.waits import LIMIT_SECONDS, until

NUMBERS = 400  # of pids and threads' ids; those below 300 are given once only
ROUND = f'echo {NUMBERS} >/proc/sys/kernel/pid_max || exit 2; exec "$@"'
LIVES, MOST_LIVES = 8, 60
ROOMS = (0, 1, 3, 6, 9, 200)  # for so many more processes and threads


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    """In a pid namespace of its own, as PID 1."""
    assert smallpids.works(os.uname().release), "before Linux 6.14 the limit would be the whole machine's"
    wrapper = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child", "sh", "-c", ROUND, "sh")
    with directory() as base:
        made = Daemon(base, wrapper=wrapper, extra=("--reconcile-seconds", "0.2"))
        made.start()
        first = children_of(made.pid)[0]
        try:
            yield made
            with made.client() as client:
                for container in client.list(all_of_them=True):
                    client.remove(container.id, force=True)
        finally:
            os.kill(first, signal.SIGTERM)
            assert made.process is not None
            made.process.wait(30)  # and with it everything in the namespace ends


def found(daemon: Daemon, pid: int) -> int:
    """What a pid of the daemon's namespace is called here. A list of children that is read while one of them ends may
    leave out another (proc(5)): it is read again."""
    return until(lambda: outside(daemon, pid), f"{pid} is not there")


def outside(daemon: Daemon, pid: int) -> int:
    """The same; 0 where one look does not find it."""
    below = children_of(daemon.pid)
    for each in below:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            below += children_of(each)
            status = pathlib.Path(f"/proc/{each}/status").read_text().splitlines()
            names = next(line.split() for line in status if line.startswith("NSpid:"))
            if names[2] == str(pid):  # of this namespace, of the daemon's, of the container's own
                return each
    return 0


def test_ends_are_reported_once_and_truly_where_numbers_come_round_at_once(daemon: Daemon) -> None:
    seen, come_round = list[int](), False
    with daemon.client() as client:
        for life in range(MOST_LIVES):
            gate = "until [ -e /tmp/exitd-test-go ]; do sleep 0.05; done; exit"
            container = client.start(client.create(spec("sh", "-c", f"{gate} {life}")).id)
            seen.append(container.init.pid)
            come_round |= len(seen) > 1 and seen[-1] < seen[-2]
            init = found(daemon, container.init.pid)
            if life % 3:
                os.kill(found(daemon, container.shim.pid), signal.SIGKILL)
            if life % 3 == 2:  # its numbers are others' by the time it ends
                client.remove(lives.run(client, "true")[0], force=False)
            pathlib.Path(f"/proc/{init}/root/tmp/exitd-test-go").touch()
            assert word(last_exit(client, container.id)) == f"exited {life}"
            assert [word(each) for each in ledger(client, container.id)] == [f"exited {life}"]
            client.remove(container.id, force=False)
            assert types(client, container.id)[-2:] == ["exit", "remove"]
            if come_round and life >= LIVES:
                break
    assert come_round


UNBEGUN = ("unknown never-started", "unknown start-unconfirmed")  # of a start that was refused


class Few:
    """A cgroup of its own for the daemon, in which there can be only so many processes and threads."""

    def __init__(self, daemon: Daemon) -> None:
        top = pathlib.Path("/sys/fs/cgroup/pids")
        self._top = top if top.is_dir() else pathlib.Path("/sys/fs/cgroup")
        self.path = self._top / f"exitd-few-{os.getpid()}"
        self.path.mkdir()
        (self.path / "cgroup.procs").write_text(str(daemon.pid))

    def only(self, more: int) -> None:
        current = int((self.path / "pids.current").read_text())
        (self.path / "pids.max").write_text(str(current + more))

    def many(self) -> None:
        (self.path / "pids.max").write_text("max")

    def close(self) -> None:
        for pid in (self.path / "cgroup.procs").read_text().split():
            with contextlib.suppress(ProcessLookupError):
                (self._top / "cgroup.procs").write_text(pid)
        until(lambda: not (self.path / "cgroup.procs").read_text(), "the cgroup is not empty")
        until(self._removed, "the cgroup is busy")

    def _removed(self) -> bool:
        """The dead are in it until they are reaped."""
        with contextlib.suppress(OSError):
            self.path.rmdir()
        return not self.path.exists()


def over_ttrpc(daemon: Daemon) -> Client:
    """grpc begins threads when it likes, and ends a daemon that cannot have one."""
    return Client(f"{daemon.state}/exitd.sock", f"{daemon.state}/exitd.ttrpc")


@pytest.fixture
def few() -> Iterator[tuple[Daemon, Few]]:
    with daemons.daemon(extra=("--reconcile-seconds", "0.2")) as made:
        found = Few(made)
        try:
            yield made, found
        finally:
            found.many()
            made.end()
            found.close()


def attempt(call: Callable[[], object]) -> bool:
    """Whether it was done; refused by name otherwise."""
    try:
        call()
    except ExitdError as error:
        assert error.reason != "INTERNAL", error
        return False
    return True


@pytest.mark.parametrize("moment", ["create", "start"])
def test_whenever_no_process_can_begin_what_was_made_ends_truly_and_the_rest_is_refused(
    few: tuple[Daemon, Few], moment: str
) -> None:
    daemon, limit = few
    with over_ttrpc(daemon) as client:
        daemon.warm(client)
        before = left(daemon)
        done = []
        for room in ROOMS:
            name, wanted = f"box{room}", spec("sh", "-c", f"exit {room}")
            wanted.name = name
            if moment == "create":
                limit.only(room)
                made = attempt(lambda: client.create(wanted))  # noqa: B023
                limit.many()
                done.append(made)
                if not made:
                    assert [c for c in client.list(all_of_them=True) if c.spec.name == name] == []
                    continue
                client.start(name)
            else:
                client.create(wanted)
                limit.only(room)
                done.append(attempt(lambda: client.start(name)))  # noqa: B023
                limit.many()
            container = client.inspect(name).id
            told = word(last_exit(client, container))
            assert told == f"exited {room}" or (not done[-1] and told in UNBEGUN), (room, told)
            assert [word(each) for each in ledger(client, container)] == [told]
            client.remove(container, force=True)
        assert (done[0], done[-1]) == (False, True)
        until(lambda: left(daemon) == before, f"left behind: {left(daemon)}, not {before}")


@pytest.mark.parametrize("killed", [("shim",), ("shim", "keeper")])
def test_an_end_is_reported_truly_while_no_process_can_begin(few: tuple[Daemon, Few], killed: tuple[str, ...]) -> None:
    daemon, limit = few
    with over_ttrpc(daemon) as client:
        daemon.warm(client)
        before = left(daemon)
        container = lives.up(client, "sh", "-c", "until [ -e /tmp/exitd-test-go ]; do sleep 0.05; done; exit 43")
        keeper = daemon.keeper_pid()
        limit.only(0)
        for name in killed:
            os.kill(container.shim.pid if name == "shim" else keeper, signal.SIGKILL)
        pathlib.Path(f"/proc/{container.init.pid}/root/tmp/exitd-test-go").touch()
        with over_ttrpc(daemon) as another:
            assert word(last_exit(another, container.id)) in (
                "exited 43",
                *(["unknown monitors-killed"] * len(killed[1:])),
            )
        limit.many()
        client.remove(container.id, force=False)
        assert types(client, container.id) == ["create", "start", "exit", "remove"]
        until(lambda: left(daemon) == before, f"left behind: {left(daemon)}, not {before}")


GATE = "until [ -e /mnt/go ]; do sleep 0.05; done; exit 7"
GRPC_SECONDS = 5.0  # for grpc to want a thread


def test_an_exitd_that_grpc_ends_for_want_of_a_thread_loses_no_end(
    few: tuple[Daemon, Few], tmp_path: pathlib.Path
) -> None:
    """grpc core aborts where it wants a thread and pthread_create(3) fails, and nothing in its process can keep it from
    that. Where it wants none within the time, the test aborts in its place."""
    daemon, found = few
    mounts = [pb.Mount(source=str(tmp_path), destination="/mnt")]
    with over_ttrpc(daemon) as client:
        early, late = (lives.up(client, "sh", "-c", GATE, mounts=mounts).id for _ in range(2))
        done = lives.run(client, "sh", "-c", "exit 3")[0]
    found.only(0)
    deadline = time.monotonic() + GRPC_SECONDS
    assert daemon.process is not None
    with crowd(f"{daemon.state}/exitd.sock", 60, 4, b"/exitd.v1.Exitd/Wait") as clients:
        while daemon.process.poll() is None and time.monotonic() < deadline:
            clients.turn()
    by_itself = daemon.process.poll() is not None
    if not by_itself:
        daemon.process.send_signal(signal.SIGABRT)  # as abort(3) does
    assert daemon.process.wait(LIMIT_SECONDS) == -signal.SIGABRT
    print(f"ended by grpc: {by_itself}")
    (tmp_path / "go").touch()
    found.many()
    daemon.start()
    with daemon.client() as client:
        for id, said in ((early, "exited 7"), (late, "exited 7"), (done, "exited 3")):
            assert word(last_exit(client, id)) == said
            assert [word(each) for each in ledger(client, id)] == [said]
            client.remove(id, force=False)
