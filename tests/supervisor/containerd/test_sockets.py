"""A dead relay's socket goes, and no other."""

import fcntl
import os
import socket
import threading
from pathlib import Path

import pytest

from supervisor.containerd import sockets


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


ELSEWHERE = ("", "unix:///etc/passwd", "unix://{}/", "unix://{}/..", "unix://{}/a/b", "\0", "x" * 999)


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
        sockets.remove_stale(path)
        assert os.path.exists(path)
    sockets.remove_stale(path)
    assert not os.path.exists(path)
    sockets.remove_stale(path)


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
