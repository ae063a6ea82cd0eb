"""What daemon, keeper and shim say to each other, with a keeper made of a socket pair."""

import os
import socket
from collections.abc import Generator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shim import fields, launch
from tests.supervisor.descriptors import held_now, opened_since

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def pair() -> Generator[Pair]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.settimeout(5)
    with ours, theirs:
        yield ours, theirs


def test_created_carries_init_and_its_descriptor(pair: Pair) -> None:
    ours, theirs = pair
    status: list[tuple[str, str | int]] = [
        ("kind", "created"),
        ("pid", 12),
        ("started", 34),
        ("shim_pid", 5),
        ("shim_started", 6),
        ("keeper", "yes"),
    ]
    with open("/dev/null") as file:
        socket.send_fds(theirs, [fields.encode("exitd-status", status)], [file.fileno()])
        got = launch.parse_status(*launch.receive(ours))
        assert isinstance(got, launch.Created)
        assert os.path.sameopenfile(got.pidfd, file.fileno()) or os.fstat(got.pidfd) == os.fstat(file.fileno())
        assert not os.get_inheritable(got.pidfd)
        os.close(got.pidfd)
    assert (got.pid, got.started, got.shim_pid, got.shim_started, got.keeper_knows) == (12, 34, 5, 6, True)


def test_a_failure_carries_stage_and_the_runtimes_words_whatever_their_bytes() -> None:
    status: list[tuple[str, str | int]] = [
        ("kind", "failed"),
        ("stage", "runtime"),
        ("errno", 10),
        ("wait_status", 256),
        ("text", "\udcff oops"),
    ]
    got = launch.parse_status(fields.encode("exitd-status", status), [])
    assert got == launch.Failed("runtime", 10, 256, "\udcff oops")


@given(st.binary(max_size=200))
def test_bytes_that_are_no_status_are_refused_as_bad(data: bytes) -> None:
    with pytest.raises(fields.BadMessage):
        launch.parse_status(data, [])


def test_news_between_question_and_answer_are_passed_over(pair: Pair) -> None:
    ours, theirs = pair
    theirs.send(fields.encode("exitd-news", []))
    theirs.send(fields.encode("exitd-ok", [("n", 1)]))
    answer, descriptors = launch.ask(ours, b"question", [])
    assert (answer.kind, answer.number("n"), descriptors) == ("exitd-ok", 1, [])
    assert theirs.recv(100) == b"question"


def test_a_refusal_is_an_exception_with_its_number(pair: Pair) -> None:
    ours, theirs = pair
    theirs.send(fields.encode("exitd-refused", [("why", "no room"), ("errno", 28)]))
    with pytest.raises(launch.KeeperRefused, match="no room") as caught:
        launch.ask(ours, b"question", [])
    assert caught.value.number == 28


def test_a_keeper_that_has_gone_and_one_that_is_silent_are_told_apart(pair: Pair) -> None:
    ours, theirs = pair
    ours.settimeout(0.01)
    with pytest.raises(TimeoutError):
        launch.ask(ours, b"question", [])
    theirs.recv(100)
    theirs.close()
    with pytest.raises((ConnectionResetError, BrokenPipeError)):
        launch.ask(ours, b"question", [])


def test_no_keeper_is_an_oserror_and_leaves_no_descriptor(tmp_path: os.PathLike[str]) -> None:
    before = held_now()
    with pytest.raises(FileNotFoundError):
        launch.connect(str(tmp_path))
    assert not opened_since(before)


def test_a_spawn_request_reads_as_it_was_meant() -> None:
    message = fields.decode(launch.spawn_request("box", 3, "e1", "/run/d", "/bin/shim", adopt=True), "exitd-spawn")
    assert message.pairs == (
        ("id", "box"),
        ("run", "3"),
        ("exec", "e1"),
        ("dir", "/run/d"),
        ("program", "/bin/shim"),
        ("adopt", "1"),
    )


def test_a_spawn_request_says_where_each_descriptor_is_to_sit() -> None:
    request = launch.spawn_request("box", 3, "", "/run/d", "/bin/shim", adopt=False, slots=[3, 14, 15])
    assert fields.decode(request, "exitd-spawn").pairs[5:] == (
        ("adopt", "0"),
        ("seat", "3"),
        ("seat", "14"),
        ("seat", "15"),
    )
