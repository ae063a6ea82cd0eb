"""Sockets of the service manager: by their names, for this process alone, and nothing else under their numbers."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.model.errors import CannotStart
from supervisor.system import systemd

KNOWN = frozenset({"ttrpc"})


@pytest.fixture
def listening(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """Passed as systemd passes it, but for its number."""
    made = socket.socket(socket.AF_UNIX)
    made.bind(str(tmp_path / "s"))
    made.listen()
    passed_fd = os.dup(made.fileno())
    os.set_inheritable(passed_fd, True)
    monkeypatch.setattr(systemd, "FIRST_FD", passed_fd)
    yield made
    made.close()


def environment(**other: str) -> dict[str, str]:
    variables = {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "1", "LISTEN_FDNAMES": "ttrpc", "HOME": "/"}
    return {**variables, **other}


def test_a_socket_is_found_by_its_name_and_no_child_gets_it(listening: socket.socket) -> None:
    variables = environment()
    found = systemd.given(KNOWN, variables)
    assert list(found) == ["ttrpc"]
    assert found["ttrpc"].getsockname() == listening.getsockname()
    assert not found["ttrpc"].get_inheritable()
    assert variables == {"HOME": "/"}
    found["ttrpc"].close()


@pytest.mark.parametrize(
    "other", [{"LISTEN_PID": "1"}, {"LISTEN_FDS": ""}, {"LISTEN_FDS": "-1"}, {"LISTEN_FDS": "0"}, {"LISTEN_PID": ""}]
)
def test_what_is_for_another_process_is_not_taken_and_forgotten(other: dict[str, str]) -> None:
    variables = environment(**other)
    assert systemd.given(KNOWN, variables) == {}
    assert variables == {"HOME": "/"}


@pytest.mark.parametrize("names", ["", "exitd.socket", "grpc"])
def test_a_name_nobody_knows_is_reported(listening: socket.socket, names: str) -> None:
    with pytest.raises(CannotStart, match="known is ttrpc"):
        systemd.given(KNOWN, environment(LISTEN_FDNAMES=names))
    os.close(systemd.FIRST_FD)


@pytest.mark.parametrize("kind", ["file", "datagram", "tcp", "silent", "nothing"])
def test_what_is_no_listening_unix_socket_is_reported(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: str
) -> None:
    families = {"datagram": socket.AF_UNIX, "tcp": socket.AF_INET, "silent": socket.AF_UNIX}
    if kind in families:
        made = socket.socket(families[kind], socket.SOCK_DGRAM if kind == "datagram" else socket.SOCK_STREAM)
        if kind == "tcp":
            made.listen()
        number = os.dup(made.fileno())
        made.close()
    else:
        number = os.open(os.devnull, os.O_RDONLY)
    if kind == "nothing":
        os.close(number)
    monkeypatch.setattr(systemd, "FIRST_FD", number)
    with pytest.raises(CannotStart, match="service manager"):
        systemd.given(KNOWN, environment())
