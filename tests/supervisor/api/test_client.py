"""supervisor/api/client.py: the way to the daemon, and its errors by their names."""

import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor import errors
from supervisor.api.client import REASONS, Client, Unreachable, socket_path
from tests.supervisor.cli.fake_daemon import FakeDaemon


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[FakeDaemon]:
    fake = FakeDaemon(tmp_path)
    yield fake
    fake.stop()


@pytest.mark.parametrize(
    ("address", "environment", "path"),
    [
        (None, {}, "/run/exitd/exitd.sock"),
        (None, {"EXITD_STATE": "/s"}, "/s/exitd.sock"),
        (None, {"EXITD_STATE": "/s", "EXITD_ADDRESS": "unix:///a"}, "/a"),
        ("/b", {"EXITD_STATE": "/s", "EXITD_ADDRESS": "/a"}, "/b"),
        ("unix:/b", {}, "/b"),
        ("unix:b", {}, os.path.abspath("b")),
        ("b:c/d", {"x": "y"}, None),
    ],
)
def test_the_address_wins_over_the_environment_and_that_over_the_default(
    address: str | None, environment: dict[str, str], path: str | None
) -> None:
    if path is None:
        with pytest.raises(errors.BadRequest):
            socket_path(address, environment)
    else:
        assert socket_path(address, environment) == path


def test_a_path_no_socket_can_have_is_refused_before_anything_is_tried() -> None:
    with pytest.raises(errors.BadRequest, match="107"):
        socket_path("/" + "x" * 120, {})


@pytest.mark.parametrize("kind", list(REASONS.values()))
def test_every_error_comes_back_as_its_own_class_with_text_and_metadata(
    daemon: FakeDaemon, kind: type[errors.ExitdError]
) -> None:
    def refuse(_: object) -> None:
        raise kind("text of it: ä", id="abc")

    daemon.answers.Version = refuse
    with Client(daemon.path) as client, pytest.raises(kind) as caught:
        client.version()
    assert (str(caught.value), caught.value.reason, caught.value.metadata) == (
        "text of it: ä",
        kind.reason,
        {"id": "abc"},
    )


def test_a_reason_from_a_newer_daemon_is_kept(daemon: FakeDaemon) -> None:
    class Melted(errors.ExitdError):
        reason = "MELTED"

    def refuse(_: object) -> None:
        raise Melted("too warm")

    daemon.answers.Version = refuse
    with Client(daemon.path) as client, pytest.raises(errors.ExitdError) as caught:
        client.version()
    assert caught.value.reason == "MELTED"


def test_nobody_there_is_unreachable_with_the_next_step(tmp_path: Path) -> None:
    with Client(str(tmp_path / "none.sock")) as client, pytest.raises(Unreachable, match="start exitd"):
        client.version()


def test_an_exit_that_does_not_come_in_time_is_timed_out(daemon: FakeDaemon) -> None:
    with Client(daemon.path) as client, pytest.raises(errors.TimedOut):
        client.begin_wait("web").result(0.05)
    daemon.started.set()


def test_the_callers_token_is_sent_and_its_connection_stays_open(daemon: FakeDaemon, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "caller.sock"))
        listener.listen()
        accepted: list[socket.socket] = []

        def greet() -> None:
            connection, _ = listener.accept()
            connection.sendall(b"c0ff")  # a line may come in pieces
            connection.sendall(b"ee\n")
            accepted.append(connection)

        greeter = threading.Thread(target=greet)
        greeter.start()
        with Client(daemon.path) as client:
            greeter.join(10)
            client.version()
            assert daemon.metadata["exitd-caller"] == "c0ffee"
            accepted[0].setblocking(False)
            with pytest.raises(BlockingIOError):
                accepted[0].recv(1)
        accepted[0].setblocking(True)
        assert accepted[0].recv(1) == b""
        accepted[0].close()


def test_without_a_caller_socket_no_token_is_sent(daemon: FakeDaemon) -> None:
    with Client(daemon.path) as client:
        client.version()
    assert "exitd-caller" not in daemon.metadata
