"""What a container writes last is in its log, and `logs -f` ends with it, whatever becomes of its shim then."""

import os
import pathlib
import signal
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.api.client import Client
from tests.system import daemons, lives
from tests.system.daemons import Daemon, remove_all
from tests.system.lives import last_exit, word
from tests.system.waits import LIMIT_SECONDS, until

LINES = 5000  # less than a pipe holds: nobody needs to read for the program to end
WHOLE = "".join(f"{i}\n" for i in range(1, LINES + 1)) + "last"
WRITES_AND_ENDS = f"until [ -e /mnt/end ]; do sleep 0.02; done; seq 1 {LINES}; printf last; exit 3"


@dataclass
class Following:
    """`logs -f` from the first line, in a thread of its own."""

    client: Client
    id: str
    data: bytes = b""
    failed: list[Exception] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._stream = self.client.logs(pb.LogsRequest(id=self.id, follow=True))
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        try:
            for reply in self._stream:
                self.data += reply.data
        except Exception as error:  # shown by `whole`
            self.failed.append(error)

    def whole(self) -> None:
        """It has ended by itself, with every byte."""
        self._thread.join(LIMIT_SECONDS)
        assert not self._thread.is_alive() and not self.failed, self.failed
        missing(self.data)


@dataclass
class Subject:
    """A container that is about to write and to end, and is followed."""

    daemon: Daemon
    client: Client
    shared: pathlib.Path
    made: pb.Container
    following: Following

    def end(self) -> None:
        """Init has written everything and has ended when this returns; who reaps it does not matter."""
        (self.shared / "end").touch()
        until(lambda: state_of(self.made.init.pid) in ("Z", ""), "init does not end")

    def shim(self) -> int:
        return int(self.client.inspect(self.made.id).shim.pid)

    def is_whole(self, source: str) -> None:
        exit_ = last_exit(self.client, self.made.id)
        assert (word(exit_), exit_.source) == ("exited 3", source)
        self.following.whole()
        later = self.client.logs(pb.LogsRequest(id=self.made.id))
        missing(b"".join(reply.data for reply in later))


def missing(data: bytes) -> None:
    """Nothing is: compared by lengths and ends first, for a message that can be read."""
    text = data.decode()
    assert (len(text), text[-20:]) == (len(WHOLE), WHOLE[-20:])
    assert text == WHOLE


def state_of(pid: int) -> str:
    try:
        text = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""
    return text.rpartition(")")[2].split()[0]


def killed(pid: int) -> None:
    """Its children have another parent when this returns."""
    os.kill(pid, signal.SIGKILL)
    until(lambda: state_of(pid) in ("Z", ""), f"{pid} lives")


def up(client: Client, shared: pathlib.Path) -> pb.Container:
    mounts = [pb.Mount(source=str(shared), destination="/mnt")]
    return lives.up(client, "sh", "-c", WRITES_AND_ENDS, mounts=mounts)


@pytest.fixture
def subject(daemon: Daemon, client: Client, tmp_path: pathlib.Path) -> Iterator[Subject]:
    made = up(client, tmp_path)
    yield Subject(daemon, client, tmp_path, made, Following(client, made.id))


def test_its_shim_dies_and_it_ends_before_exitd_looks(subject: Subject) -> None:
    os.kill(subject.daemon.pid, signal.SIGSTOP)
    try:
        killed(subject.made.shim.pid)
        subject.end()
        until(lambda: not state_of(subject.made.init.pid), "the keeper does not reap it")
    finally:
        os.kill(subject.daemon.pid, signal.SIGCONT)
    subject.is_whole("keeper")


def test_it_ends_while_a_replacement_is_waited_for(subject: Subject) -> None:
    """The second one comes a second after the first: that is the time in which it ends."""
    first = subject.made.shim.pid
    killed(first)
    second = until(lambda: (now := subject.shim()) != first and now, "another shim")
    killed(second)
    subject.end()
    subject.is_whole("keeper")


def test_its_shim_stands_still(subject: Subject) -> None:
    os.kill(subject.made.shim.pid, signal.SIGSTOP)
    subject.end()
    subject.is_whole("zombie")


def test_its_shim_dies_and_it_ends_while_exitd_is_away(tmp_path: pathlib.Path) -> None:
    with daemons.daemon() as daemon:
        with daemon.client() as client:
            made = up(client, tmp_path)
        daemon.kill()
        killed(made.shim.pid)
        (tmp_path / "end").touch()
        until(lambda: not state_of(made.init.pid), "the keeper does not reap it")
        daemon.start()
        with daemon.client() as client:
            Subject(daemon, client, tmp_path, made, Following(client, made.id)).is_whole("keeper")
            remove_all(client)
