"""The relay as a program says in which state a task is: by exitd's word in the run directory, while init lives."""

import contextlib
import os
import pathlib
import socket
from collections.abc import Callable, Iterator

import pytest

from protos.containerd import process_pb2
from protos.containerd import task_pb2 as pb
from protos.ttrpc.v1.ttrpc_pb2 import Response
from shim import fields
from supervisor.api.client import Client
from tests.shim.relaywords import (
    C1,
    CACHEABLE,
    EVENT,
    HELLO,
    KEEP,
    PID,
    REQUEST,
    RESPONSE,
    Frame,
    call,
    of_task,
    success,
)
from tests.system import tinyroot
from tests.system.daemons import Daemon
from tests.system.processes import empty_cgroup, stopped
from tests.system.relay import Bundle, Chain, Container, Containerd, Peer, Relays, chain_of, container, ends, is_watched
from tests.system.waits import until

CREATED, RUNNING, STOPPED, PAUSED = process_pb2.CREATED, process_pb2.RUNNING, process_pb2.STOPPED, process_pb2.PAUSED
NAMESPACE = "ns"  # of the relays of these tests


@pytest.fixture
def c(relays: Relays) -> Iterator[Container]:
    with container(relays, "read x; exit 7") as made:
        yield made


def made(c: Container, state: pathlib.Path | None) -> Chain:
    """A task, by exitd, whose init the relay watches."""
    c.write_task(c.started, state)
    chain = chain_of(c.relays, c.bundle)
    create = pb.CreateTaskRequest(id="c1", bundle=str(c.bundle.directory), stdout="/f/out")
    chain.ask(3, "Create", create.SerializeToString(), PID, KEEP)
    assert chain.up.next() is not None  # DONE
    is_watched(chain)
    return chain


def payload(frame: Frame | None) -> bytes:
    assert frame is not None and frame.type == RESPONSE
    response = Response.FromString(frame.data)
    assert not response.status.code
    return response.payload


def state(chain: Chain, stream: int) -> pb.StateResponse:
    """As the relay says it at once, by itself."""
    chain.client.ask(stream, "State", C1)
    found = pb.StateResponse.FromString(payload(chain.client.next()))
    assert chain.up.silent(0.05)
    return found


def is_asked(chain: Chain, stream: int, method: str = "State") -> None:
    """exitd is, and what it says is given."""
    chain.client.ask(stream, method, C1)
    assert chain.up.next() == Frame(stream, REQUEST, 0, call(method, C1))
    chain.answer(stream, success(b"exitd's"), CACHEABLE)
    assert chain.client.next() == Frame(stream, RESPONSE, 0, success(b"exitd's"))


def test_a_state_of_which_there_is_exitds_word_is_not_asked_for(c: Container) -> None:
    word = c.directory / "state"
    chain = made(c, word)
    is_asked(chain, 5)
    for stream, text, status in ((7, "created", CREATED), (9, "running", RUNNING), (11, "paused", PAUSED)):
        word.symlink_to(text)
        found = state(chain, stream)
        assert (found.id, found.status, found.pid, found.stdout) == ("c1", status, c.init.pid, "/f/out")
        word.unlink()
    is_asked(chain, 13)
    for stream, text in ((15, "stopped"), (17, "unheard-of-until-now"), (19, "")):
        if text:
            word.symlink_to(text)
        else:
            word.write_text("running")
        is_asked(chain, stream)
        word.unlink()


def test_the_word_of_one_who_has_ended_is_not_believed(c: Container) -> None:
    word = c.directory / "state"
    chain = made(c, word)
    word.symlink_to("running")
    assert state(chain, 5).status == RUNNING
    ends(c)
    is_asked(chain, 7)
    is_asked(chain, 9, "Connect")
    chain.exitd.end()
    chain.client.ask(11, "State", C1)
    assert chain.client.silent(2.5)


def test_without_a_word_a_state_waits_for_an_exitd_that_is_away_or_silent(c: Container) -> None:
    word = c.directory / "state"
    chain = made(c, word)
    is_asked(chain, 5)
    chain.client.ask(7, "State", C1)
    assert chain.client.silent(1.5), chain.client.next()
    chain.exitd.end()
    assert chain.client.silent(1.5)
    word.symlink_to("paused")
    chain.client.ask(9, "State", C1)
    found = dict((frame.stream, frame) for frame in chain.client.frames(2))  # the other one has waited for this
    for stream in (7, 9):
        assert pb.StateResponse.FromString(payload(found[stream])).status == PAUSED


def test_of_an_exitd_that_keeps_no_word_the_last_reply_stands_while_init_lives(c: Container) -> None:
    chain = made(c, None)
    chain.ask(5, "State", C1, success(pb.StateResponse(status=RUNNING).SerializeToString()), CACHEABLE)
    chain.exitd.end()
    chain.client.ask(7, "State", C1)
    assert pb.StateResponse.FromString(payload(chain.client.next())).status == RUNNING
    ends(c)
    chain.client.ask(9, "State", C1)
    assert chain.client.silent(2.5)


def test_connect_is_the_relays_as_long_as_init_lives(c: Container) -> None:
    chain = made(c, None)
    chain.client.ask(5, "Connect", C1)
    found = pb.ConnectResponse.FromString(payload(chain.client.next()))
    assert (found.shim_pid, found.task_pid) == (chain.pid, c.init.pid) and chain.up.silent(0.05)
    chain.client.ask(7, "Connect", of_task("another"))
    assert chain.up.next() == Frame(7, REQUEST, 0, call("Connect", of_task("another")))


# -- against exitd itself


class Exitd(Peer):
    """exitd asked as the relay asks it, by a connection beside the relay's."""

    def __init__(self, daemon: Daemon, relay_pid: int) -> None:
        sock = socket.socket(socket.AF_UNIX)
        sock.connect(f"{daemon.state}/shimv2.sock")
        super().__init__(sock)
        words: list[tuple[str, str | int]] = [("relay", "beside"), ("connection", 1), ("live", "1"), ("address", "")]
        words += [("pid", relay_pid), ("started", 1), ("namespace", NAMESPACE), ("group", ""), ("socket", "/none")]
        self.send(Frame(0, HELLO, 0, fields.encode("relay-hello", words)))


def asked(peer: Peer, stream: int, method: str, message: bytes) -> Frame:
    peer.send(Frame(stream, REQUEST, 0, call(method, message)))
    while (frame := peer.next()) is not None and frame.type == EVENT:
        pass
    assert frame is not None
    return frame._replace(flags=0)


@contextlib.contextmanager
def bundle_of(relays: Relays, daemon: Daemon, cgroup: str) -> Iterator[Bundle]:
    """A task's, of a relay whose exitd is the daemon."""
    relays.state = daemon.state
    directory = tinyroot.bundle(relays.directory / "box", ["/bin/sleep", "1000"], f"{cgroup}/box")
    os.mkfifo(directory / "log", 0o700)
    relays.bundles.append(Bundle(directory, os.open(directory / "log", os.O_RDWR | os.O_NONBLOCK)))
    relays.sockets.add(relays.socket("box"))
    try:
        yield relays.bundles[-1]
    finally:
        empty_cgroup(cgroup)


KILL = pb.KillRequest(id="box", signal=9).SerializeToString()


def create_in(bundle: Bundle) -> bytes:
    """A Create of a task without streams."""
    create = pb.CreateTaskRequest(
        id="box", bundle=str(bundle.directory), stdin="", stdout="", stderr="", terminal=False
    )
    return create.SerializeToString()


def test_what_the_relay_says_is_byte_for_byte_what_exitd_says(daemon: Daemon, client: Client, relays: Relays) -> None:
    request, streams = pb.StateRequest(id="box").SerializeToString(), iter(range(101, 1001, 2))

    def own(verb: str) -> Callable[[Containerd], object]:
        """exitd does it for a client of its own."""

        def turn(relay: Containerd) -> None:
            (found,) = (one.id for one in client.list(all_of_them=True) if one.spec.name == "box")
            getattr(client, verb)(found)

        return turn

    def through(method: str, message: bytes = request) -> Callable[[Containerd], object]:
        return lambda relay: payload(asked(relay, next(streams), method, message))

    with bundle_of(relays, daemon, f"/exitd-{os.path.basename(relays.directory)}") as bundle:
        relay = relays.connect(relays.start(bundle))
        turns: list[tuple[Callable[[Containerd], object], int]] = [
            (through("Create", create_in(bundle)), CREATED),
            (through("Start"), RUNNING),
            (through("Pause"), PAUSED),
            (through("Resume"), RUNNING),
            (own("pause"), PAUSED),
            (own("resume"), RUNNING),
        ]
        for turn, status in turns:
            turn(relay)
            exitd = Exitd(daemon, relay.relay())
            for method in ("State", "Connect"):
                wanted = asked(exitd, stream := next(streams), method, request)
                assert asked(relay, stream, method, request) == wanted
                with stopped(daemon.pid):
                    assert asked(relay, stream + 1000, method, request)._replace(stream=stream) == wanted
                if method == "State":
                    assert pb.StateResponse.FromString(payload(wanted)).status == status
            exitd.close()
        payload(asked(relay, next(streams), "Kill", KILL))
        ended = Exitd(daemon, relay.relay())
        until(lambda: _ended(ended, next(streams), request), "it has not ended")
        payload(asked(relay, next(streams), "Delete", request))
        ended.close()


@pytest.mark.parametrize("is_clean", [False, True], ids=["not cleaned up", "cleaned up"])
def test_how_a_task_ended_is_known_to_its_relay_whenever_exitd_stops(
    daemon: Daemon, relays: Relays, is_clean: bool
) -> None:
    request, streams = pb.StateRequest(id="box").SerializeToString(), iter(range(101, 100001, 2))
    with bundle_of(relays, daemon, f"/exitd-{os.path.basename(relays.directory)}") as bundle:
        relay = relays.connect(relays.start(bundle))
        for method, message in (("Create", create_in(bundle)), ("Start", request), ("Kill", KILL)):
            payload(asked(relay, next(streams), method, message))
        ended = Exitd(daemon, relay.relay())
        found = until(lambda: _ended(ended, next(streams), request), "it has not ended")
        if is_clean:  # its record has gone with its run directory then
            run = fields.decode((bundle.directory / "exitd.task").read_bytes(), "task").get("directory")
            until(lambda: not os.path.exists(run), f"{run} is there still")
        with stopped(daemon.pid):
            assert payload(asked(relay, next(streams), "State", request)) == found
        payload(asked(relay, next(streams), "Delete", request))
        ended.close()


def _ended(exitd: Peer, stream: int, request: bytes) -> bytes:
    found = payload(asked(exitd, stream, "State", request))
    return found if pb.StateResponse.FromString(found).status == STOPPED else b""
