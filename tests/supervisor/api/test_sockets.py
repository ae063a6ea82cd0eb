"""supervisor/api/sockets.py: connections that end although another library holds them."""

import contextlib
import errno
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.api import sockets
from tests.supervisor.descriptors import held_now, only, opened_since

LIMIT_SECONDS = 10


@contextlib.contextmanager
def connected(path: Path) -> Iterator[tuple[socket.socket, socket.socket, socket.socket]]:
    """A listener, one that has connected to it, and the other end, which the listener's process has."""
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as client:
        listener.bind(str(path))
        listener.listen()
        client.settimeout(LIMIT_SECONDS)
        client.connect(str(path))
        with listener.accept()[0] as accepted:
            yield listener, client, accepted


def test_who_was_accepted_at_the_path_is_hung_up_on_and_nobody_else(tmp_path: Path) -> None:
    with connected(tmp_path / "a") as (listener, client, _), connected(tmp_path / "b") as (_, other, theirs):
        before = held_now()
        assert sockets.hang_up(str(tmp_path / "a")) == 1
        assert client.recv(1) == b""
        theirs.send(b"x")
        assert other.recv(1) == b"x"
        with socket.socket(socket.AF_UNIX) as late:  # who listens goes on
            late.connect(str(tmp_path / "a"))
            listener.accept()[0].close()
        assert not opened_since(before)
    assert sockets.hang_up(str(tmp_path / "a")) == 0


def test_a_client_that_reads_nothing_is_hung_up_on_and_what_was_to_be_written_fails(tmp_path: Path) -> None:
    with connected(tmp_path / "a") as (_, _, accepted):
        accepted.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                accepted.send(bytes(1 << 16))
        sockets.hang_up(str(tmp_path / "a"))
        with contextlib.suppress(BrokenPipeError):
            os.write(accepted.fileno(), b"x")
            raise AssertionError("it is written")


def test_a_path_is_listened_at_while_somebody_accepts_there(tmp_path: Path) -> None:
    path = str(tmp_path / "s")
    assert not sockets.is_listened_at(path)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(path)
        assert not sockets.is_listened_at(path)
        listening.listen(0)
        assert sockets.is_listened_at(path)
        assert sockets.is_listened_at(path)  # the queue is full of those that have ended
    assert not sockets.is_listened_at(path)


def test_without_a_descriptor_nobody_knows_whether_a_path_is_listened_at(tmp_path: Path) -> None:
    with only(0), pytest.raises(OSError) as refused:
        sockets.is_listened_at(str(tmp_path / "s"))
    assert refused.value.errno == errno.EMFILE
