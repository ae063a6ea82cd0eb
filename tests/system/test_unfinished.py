"""gRPC's messages that have begun and do not come to their end: the memory of a real exitd is counted from outside."""

import contextlib
import pathlib
import signal
import time
from collections.abc import Iterator

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc  # type: ignore[import-untyped]  # ships no py.typed

from supervisor.api import unfinished
from tests.system.daemons import Daemon, directory
from tests.system.processes import descriptors_of, private_kb
from tests.system.slowclients import MESSAGE_BYTES, REFLECT, Deaf, crowd
from tests.system.waits import until

PAGE = (pathlib.Path(__file__).resolve().parents[2] / "docs/security.md").read_text()
MOST_KB = 160 << 10  # what docs/security.md promises
WAIT, ATTACH = b"/exitd.v1.Exitd/Wait", b"/exitd.v1.Exitd/Attach"
CHECK = b"/grpc.health.v1.Health/Check"
LOOKS_SECONDS = 0.2
ANSWERS, LEAST_BYTES = 200, 100_000  # of more megabytes than a socket holds, and what of them shows that it is full


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    with started() as made:
        yield made


@pytest.fixture(scope="module")
def survivor() -> Iterator[Daemon]:
    """One for all tests that it has to survive."""
    with started() as made:
        yield made


@contextlib.contextmanager
def started() -> Iterator[Daemon]:
    with directory() as base:
        made = Daemon(base, forked=False, grpc=True)
        made.start()
        try:
            yield made
        finally:
            made.end()


@contextlib.contextmanager
def deafened(daemon: Daemon) -> Iterator[Deaf]:
    """A connection in which nothing more can be written to its client."""
    with contextlib.closing(Deaf(f"{daemon.state}/exitd.sock")) as deaf:
        deaf.ask(b"exitd.v1.Exitd", ANSWERS)
        until(lambda: deaf.unread_bytes() > LEAST_BYTES, "the answers fill no socket")
        yield deaf


@pytest.mark.parametrize(("method", "count", "streams"), [(WAIT, 150, 1), (WAIT, 2, 100), (ATTACH, 60, 1)])
def test_messages_that_lack_their_end_have_a_bound_together_and_the_daemon_serves_others(
    daemon: Daemon, method: bytes, count: int, streams: int
) -> None:
    before, peak, look_at = private_kb(daemon.pid), 0, 0.0
    with daemon.client() as client, crowd(f"{daemon.state}/exitd.sock", count, streams, method) as clients:

        def refused() -> bool:
            nonlocal peak, look_at
            left = clients.turn()
            if time.monotonic() >= look_at:
                peak, look_at = max(peak, private_kb(daemon.pid)), time.monotonic() + LOOKS_SECONDS
                client.version()
            return left <= unfinished.MOST

        until(refused, "no room is made", 60)
        assert any(b"others wait to send theirs" in answer for answer in clients.answers)
        assert not any(b"internal error" in answer for answer in clients.answers)
        print(f"{count * streams} messages of {MESSAGE_BYTES} bytes: {before} kB before, {peak} kB at most")
        assert peak - before < MOST_KB
    assert "internal error" not in daemon.log.read_text()


@pytest.mark.parametrize("method", [CHECK, REFLECT])
def test_the_services_beside_exitds_own_have_that_bound_too(daemon: Daemon, method: bytes) -> None:
    before = private_kb(daemon.pid)
    with crowd(f"{daemon.state}/exitd.sock", 60, 1, method) as clients:
        until(lambda: clients.turn() <= unfinished.MOST, "no room is made", 60)
        assert private_kb(daemon.pid) - before < MOST_KB


def test_a_client_that_does_not_read_its_refusals_costs_the_others_their_connections_and_no_more(
    daemon: Daemon,
) -> None:
    """What each such call holds is given back."""
    before = descriptors_of(daemon.pid)
    with daemon.client() as other, deafened(daemon) as deaf:
        other.version()
        deaf.begin(WAIT, 2 * unfinished.MOST + 2 * unfinished.MOST_STUCK)
        until(deaf.is_over, "the connection of a client that reads nothing goes on")
        until(daemon.answers, "gRPC is gone")
        other.version()
    until(lambda: descriptors_of(daemon.pid) <= before, "descriptors are left")
    assert "internal error" not in daemon.log.read_text()


def test_a_client_that_does_not_read_keeps_exitd_from_no_end(daemon: Daemon) -> None:
    with deafened(daemon):
        daemon.kill(signal.SIGTERM)
    assert daemon.process is not None and daemon.process.poll() == 0


@pytest.mark.parametrize("method", [b"/\xff\xfe", b"\xff", b"/", b"", b"/exitd.v1.Exitd/\xed\xa0\x80", b"/a/b/c\0d"])
def test_a_method_that_is_no_text_ends_its_call_alone(survivor: Daemon, method: bytes) -> None:
    with crowd(f"{survivor.state}/exitd.sock", 2, 2, method) as clients:
        until(lambda: not clients.turn(), "no answer")
    until(survivor.answers, "gRPC is gone")
    assert survivor.process is not None and survivor.process.poll() is None


def test_a_method_that_is_no_text_is_survived_also_while_another_call_waits(survivor: Daemon) -> None:
    """grpc.aio's server does not come to its end by itself while a call lives."""
    path = f"{survivor.state}/exitd.sock"
    with grpc.insecure_channel(f"unix:{path}") as channel:
        watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
        assert next(watch).status == health_pb2.HealthCheckResponse.SERVING
        with crowd(path, 1, 1, b"/\xff\xfe") as clients:
            until(lambda: not clients.turn(), "no answer")
        with pytest.raises(grpc.RpcError):
            next(watch)
    until(survivor.answers, "gRPC is gone")


def test_the_page_says_what_is_measured_here() -> None:
    assert f"{unfinished.MOST} messages" in PAGE and f"{MOST_KB >> 10} MiB" in PAGE
    assert f"{unfinished.MOST_CALLS:,} calls" in PAGE and f"{unfinished.MOST_STREAMS} streams" in PAGE
