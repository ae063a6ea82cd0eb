"""supervisor/api/client.py: the way to the daemon, and its errors by their names."""

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.api.client import REASONS, Client, Unreachable, socket_path, ttrpc_beside
from supervisor.cli.__main__ import run
from supervisor.model import errors
from supervisor.ttrpc.frames import MAX_DATA
from tests.supervisor.cli.fake_daemon import FakeDaemon, nobody
from tests.supervisor.descriptors import open_now


@pytest.fixture(params=["ttrpc", "grpc"])
def daemon(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[FakeDaemon]:
    fake = FakeDaemon(tmp_path, request.param)
    yield fake
    fake.stop()


@pytest.fixture
def grpc_daemon(tmp_path: Path) -> Iterator[FakeDaemon]:
    fake = FakeDaemon(tmp_path, "grpc")
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
    with daemon.client() as client, pytest.raises(kind) as caught:
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
    with daemon.client() as client, pytest.raises(errors.ExitdError) as caught:
        client.version()
    assert caught.value.reason == "MELTED"


@pytest.mark.parametrize("ttrpc", [None, "none.ttrpc"])
def test_nobody_there_is_unreachable_with_the_next_step(tmp_path: Path, ttrpc: str | None) -> None:
    socket = ttrpc and str(tmp_path / ttrpc)
    with Client(str(tmp_path / "none.sock"), socket) as client, pytest.raises(Unreachable, match="start exitd"):
        client.version()


def test_an_exit_that_does_not_come_in_time_is_timed_out(daemon: FakeDaemon) -> None:
    with daemon.client() as client, pytest.raises(errors.TimedOut):
        client.begin_wait("web").result(0.05)
    daemon.started.set()


def test_the_callers_token_is_sent_and_its_connection_stays_open(grpc_daemon: FakeDaemon, tmp_path: Path) -> None:
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
        with Client(grpc_daemon.path) as client:
            greeter.join(10)
            client.version()
            assert grpc_daemon.metadata["exitd-caller"] == "c0ffee"
            accepted[0].setblocking(False)
            with pytest.raises(BlockingIOError):
                accepted[0].recv(1)
        accepted[0].setblocking(True)
        assert accepted[0].recv(1) == b""
        accepted[0].close()


def test_without_a_caller_socket_no_token_is_sent(grpc_daemon: FakeDaemon) -> None:
    with Client(grpc_daemon.path) as client:
        client.version()
    assert "exitd-caller" not in grpc_daemon.metadata


# -- which transport


def test_the_ttrpc_socket_is_taken_where_it_stands_beside_the_daemons(tmp_path: Path) -> None:
    path, beside = tmp_path / "exitd.sock", tmp_path / "exitd.ttrpc"
    assert ttrpc_beside(str(path)) == str(beside)  # nobody is there: the sooner that is known the better
    path.touch()
    assert ttrpc_beside(str(path)) is None
    beside.touch()
    assert ttrpc_beside(str(path)) == str(beside)
    assert ttrpc_beside(str(tmp_path / "forwarded.sock")) is None
    assert ttrpc_beside(str(beside)) == str(beside)


def test_what_fits_in_no_frame_is_asked_for_over_grpc(tmp_path: Path) -> None:
    fake = FakeDaemon(tmp_path, "grpc", "ttrpc")
    name = "x" * MAX_DATA
    fake.answers.List = lambda _: pb.ListReply(containers=[pb.Container(id="c1", spec=pb.ContainerSpec(name=name))])
    with fake.client() as client:
        (found,) = client.list(all_of_them=True)
    assert found.spec.name == name
    assert len(fake.asked) == 2
    fake.stop()


def test_a_client_goes_on_when_its_daemon_is_back(tmp_path: Path) -> None:
    before = FakeDaemon(tmp_path, "ttrpc")
    with before.client() as client:
        client.version()
        before.stop()
        with pytest.raises(Unreachable):
            client.version()
        after = FakeDaemon(tmp_path, "ttrpc")
        assert client.version().version == "9.9"
        after.stop()


def test_calls_of_many_threads_do_not_wait_for_each_other(daemon: FakeDaemon) -> None:
    together = threading.Barrier(4, timeout=10)

    def version(_: object) -> pb.VersionReply:
        together.wait()
        return pb.VersionReply(version="9.9")

    daemon.answers.Version = version
    with daemon.client() as client, ThreadPoolExecutor(4) as pool:
        assert {reply.version for reply in pool.map(lambda _: client.version(), range(8))} == {"9.9"}


def test_a_wait_that_failed_does_so_whenever_it_is_asked(daemon: FakeDaemon) -> None:
    daemon.answers.Wait = nobody
    with daemon.client() as client:
        waiting = client.begin_wait("web")
        for _ in range(2):
            with pytest.raises(errors.NoSuchContainer):
                waiting.result(10)


def test_what_is_still_open_ends_with_its_client(daemon: FakeDaemon) -> None:
    before = len(open_now())
    with daemon.client() as client:
        waiting = client.begin_wait("web")
        logs = client.logs(pb.LogsRequest(id="web", follow=True))
        waiting.cancel()
        assert waiting.reply() == pb.WaitReply()
    with pytest.raises((errors.ExitdError, StopIteration)):
        next(logs)
    assert len(open_now()) <= before + 4  # gRPC's own
    daemon.started.set()


def test_exitctl_on_ttrpc_needs_neither_grpc_nor_an_event_loop(tmp_path: Path) -> None:
    fake = FakeDaemon(tmp_path, "ttrpc")
    program = """
import sys
from supervisor.cli.__main__ import run
fake = sys.argv[1]
assert run(["-a", fake, "ps", "-a"]) == 0
assert run(["-a", fake, "events", "--no-follow"]) == 0
print(sorted({"grpc", "asyncio", "structlog"} & set(sys.modules)))
"""
    done = subprocess.run(
        [sys.executable, "-c", program, fake.path], capture_output=True, text=True, timeout=60, cwd=Path.cwd()
    )
    fake.stop()
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "[]"), done.stderr


def test_exitctl_speaks_grpc_when_it_is_told_to(tmp_path: Path) -> None:
    fake = FakeDaemon(tmp_path, "ttrpc", "grpc")
    assert run(["-a", fake.path, "version"]) == 0
    assert fake.metadata == {}
    assert run(["--grpc", "-a", fake.path, "version"]) == 0
    assert "user-agent" in fake.metadata
    fake.stop()
