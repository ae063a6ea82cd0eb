"""Words to the service manager, read back from a real datagram socket."""

import socket
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.system import systemd


@pytest.fixture
def manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(tmp_path / "notify"))
        listening.settimeout(5)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        yield listening


def test_each_word_is_one_datagram_the_manager_understands(manager: socket.socket) -> None:
    assert all(said() for said in (systemd.ready, systemd.stopping))
    assert [manager.recv(4096) for _ in range(2)] == [b"READY=1", b"STOPPING=1"]


def test_ready_can_carry_a_status_which_is_kept_to_one_line(manager: socket.socket) -> None:
    systemd.ready("300 containers\nand more")
    assert manager.recv(4096) == b"READY=1\nSTATUS=300 containers and more"


def test_reloading_sends_the_monotonic_time_in_microseconds(manager: socket.socket) -> None:
    before = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
    systemd.reloading()
    word, stamp = manager.recv(4096).decode().split("\n")
    assert word == "RELOADING=1"
    assert before <= int(stamp.removeprefix("MONOTONIC_USEC=")) <= time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000


def test_an_address_with_an_at_sign_is_in_the_abstract_namespace(monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"exitd-{uuid.uuid4()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(f"\0{name}")
        listening.settimeout(5)
        monkeypatch.setenv("NOTIFY_SOCKET", f"@{name}")
        assert systemd.ready()
        assert listening.recv(4096) == b"READY=1"


@pytest.mark.parametrize("address", [None, "", "relative", "/nowhere/at/all", "@nobody-listens-here"])
def test_without_a_listener_nothing_happens(monkeypatch: pytest.MonkeyPatch, address: str | None) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    if address is not None:
        monkeypatch.setenv("NOTIFY_SOCKET", address)
    assert systemd.ready() is False


def test_a_manager_that_does_not_read_does_not_hold_the_daemon_up(manager: socket.socket) -> None:
    began = time.monotonic()
    while systemd.ready():
        assert time.monotonic() - began < 30
    assert time.monotonic() - began < 30
