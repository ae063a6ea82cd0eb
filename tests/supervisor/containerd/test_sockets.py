"""A dead relay's socket goes, and no other."""

import contextlib
import fcntl
import os
import socket
import threading
from pathlib import Path

import pytest

from shim import native
from supervisor.containerd import sockets
from supervisor.model.values import Process


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (path := tmp_path / "s").mkdir()
    monkeypatch.setattr(sockets, "SOCKETS", str(path))
    return path


def bundle(tmp_path: Path, text: str) -> str:
    (tmp_path / "address").write_text(text)
    return str(tmp_path)


def test_the_bundle_names_the_socket(directory: Path, tmp_path: Path) -> None:
    assert sockets.of_bundle(bundle(tmp_path, f"unix://{directory}/abc\n")) == f"{directory}/abc"


ELSEWHERE = ("", "unix:///etc/passwd", "unix://{}/", "unix://{}/..", "unix://{}/a/b", "unix://{}/a\0b", "\0", "x" * 999)


@pytest.mark.parametrize("text", ELSEWHERE)
def test_what_lies_elsewhere_is_none(directory: Path, tmp_path: Path, text: str) -> None:
    assert sockets.of_bundle(bundle(tmp_path, text.format(directory))) == ""


def test_neither_is_what_a_link_a_fifo_or_nothing_names(directory: Path, tmp_path: Path) -> None:
    assert sockets.of_bundle(str(tmp_path)) == ""
    os.mkfifo(tmp_path / "address")
    assert sockets.of_bundle(str(tmp_path)) == ""
    (tmp_path / "address").unlink()
    (tmp_path / "text").write_text(f"unix://{directory}/abc")
    (tmp_path / "address").symlink_to("text")
    assert sockets.of_bundle(str(tmp_path)) == ""


def test_the_socket_of_a_relay_that_lives_stays_and_that_of_a_dead_one_goes(directory: Path) -> None:
    path = str(directory / "abc")
    with socket.socket(socket.AF_UNIX) as relay:
        relay.bind(path)
        relay.listen()
        assert sockets.remove_stale(path) == Process(os.getpid(), native.process_stat(os.getpid())[2])
        assert os.path.exists(path)
    assert sockets.remove_stale(path) is None
    assert not os.path.exists(path)
    assert sockets.remove_stale(path) is None


def test_a_full_queue_is_somebodys_and_nothing_is_removed(directory: Path) -> None:
    path = str(directory / "abc")
    with contextlib.ExitStack() as stack:
        relay = stack.enter_context(socket.socket(socket.AF_UNIX))
        relay.bind(path)
        relay.listen(0)
        with pytest.raises(BlockingIOError):
            for _ in range(3):
                one = stack.enter_context(socket.socket(socket.AF_UNIX))
                one.setblocking(False)
                one.connect(path)
        with pytest.raises(BlockingIOError):
            sockets.remove_stale(path)
        assert os.path.exists(path)


def test_where_the_lock_is_not_to_be_had_nothing_is_removed(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sockets, "LOCK_SECONDS", 0.0)
    path = directory / "abc"
    with socket.socket(socket.AF_UNIX) as relay:
        relay.bind(str(path))
    lock_fd = os.open(directory, os.O_RDONLY)
    fcntl.flock(lock_fd, fcntl.LOCK_EX)
    with pytest.raises(BlockingIOError):
        sockets.remove_stale(str(path))
    os.close(lock_fd)
    assert path.exists()


def test_it_is_not_looked_at_while_a_relay_begins(directory: Path) -> None:
    path = str(directory / "abc")
    with socket.socket(socket.AF_UNIX) as relay:
        relay.bind(path)  # and does not listen yet
        lock_fd = os.open(directory, os.O_RDONLY)
        fcntl.flock(lock_fd, fcntl.LOCK_EX)
        removing = threading.Thread(target=sockets.remove_stale, args=[path])
        removing.start()
        relay.listen()
        os.close(lock_fd)
        removing.join(30)
        assert os.path.exists(path)
