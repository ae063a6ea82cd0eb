"""What is shown and sent again when exitd comes back: positions in a log, and counts of bytes. All of it pure."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.cli.logfollow import Progress
from supervisor.cli.missed import MissedOutput, Stretch
from supervisor.cli.sending import PIPE_BYTES, SentInput

STREAM = st.sampled_from(["stdout", "stderr"])
ENTRIES = st.lists(st.tuples(STREAM, st.binary(min_size=1, max_size=6)), min_size=1, max_size=20)


def replies(entries: list[tuple[str, bytes]], begin: int, portion: int) -> list[pb.LogsReply]:
    """As exitd sends them from entry `begin` on: a position first, and one behind each portion."""
    found = [pb.LogsReply(position=pb.LogPosition(inode=1, offset=begin))]
    for at in range(begin, len(entries)):
        stream, data = entries[at]
        found.append(pb.LogsReply(stream=stream, data=data))
        if (at + 1 - begin) % portion == 0:
            found.append(pb.LogsReply(position=pb.LogPosition(inode=1, offset=at + 1)))
    return found


@given(ENTRIES, st.lists(st.tuples(st.integers(0, 40), st.integers(1, 5)), max_size=4), st.integers(1, 5))
def test_whenever_the_calls_break_everything_is_shown_once(
    entries: list[tuple[str, bytes]], breaks: list[tuple[int, int]], portion: int
) -> None:
    progress = Progress()
    shown = {"stdout": b"", "stderr": b""}
    for count, size in [*breaks, (10_000, portion)]:
        begin = progress.position.offset if progress.position is not None else 0
        assert progress.may_go_on
        for reply in replies(entries, begin, size)[: count + 1]:  # the first position has come
            if (taken := progress.take(reply)) is not None:
                shown[taken.stream] += taken.data
        progress.begin_again()
    for stream, data in shown.items():
        assert data == b"".join(data for name, data in entries if name == stream)


def test_without_a_position_it_goes_on_only_if_nothing_was_shown() -> None:
    progress = Progress()
    assert progress.may_go_on
    progress.take(pb.LogsReply(stream="stdout", data=b"x"))
    assert not progress.may_go_on


def test_where_the_place_is_gone_nothing_is_skipped() -> None:
    progress = Progress()
    progress.take(pb.LogsReply(position=pb.LogPosition(offset=1)))
    progress.take(pb.LogsReply(stream="stdout", data=b"abc"))
    progress.begin_again()
    progress.give_up_skipping()
    taken = progress.take(pb.LogsReply(stream="stdout", data=b"xyz"))
    assert taken is not None and taken.data == b"xyz"


# -- input


@given(st.data())
def test_whatever_exitd_had_when_it_was_killed_each_byte_is_typed_once(data: st.DataObject) -> None:
    """Others may have typed before. Of what is sent a part is written to the shim's pipe, and of that a part is passed
    on; the rest goes with exitd."""
    others = data.draw(st.integers(0, 100))
    text = data.draw(st.binary(min_size=1, max_size=200))
    sent = SentInput()
    assert sent.begin(others) == b""
    typed, at, pending = b"", 0, b""
    for _ in range(data.draw(st.integers(0, 5))):
        size = data.draw(st.integers(0, len(text) - at))
        sent.send(text[at : at + size])
        pending, at = pending + text[at : at + size], at + size
        written = data.draw(st.integers(0, len(pending)))
        sent.taken(written)
        passed = data.draw(st.integers(0, written))
        typed += pending[:passed]
        again = sent.begin(others + len(typed))
        assert again is not None
        pending = again
    typed += pending + text[at:]
    assert typed == text


def test_only_what_may_be_in_the_pipe_is_kept() -> None:
    sent = SentInput()
    sent.begin(0)
    for _ in range(10):
        sent.send(bytes(PIPE_BYTES))
    sent.taken(10 * PIPE_BYTES)
    assert sent.begin(9 * PIPE_BYTES) == bytes(PIPE_BYTES)
    sent.taken(PIPE_BYTES)
    assert sent.begin(8 * PIPE_BYTES) is None  # a shim that has passed on less than what is known to be in its pipe


@pytest.mark.parametrize(("first", "second"), [(None, 5), (5, None)])
def test_a_shim_that_does_not_count_makes_what_was_on_its_way_lost_and_the_rest_go_on(
    first: int | None, second: int | None
) -> None:
    sent = SentInput()
    assert sent.begin(first) == b""
    assert sent.begin(second) == b""  # nothing was on its way
    sent.send(b"abc")
    assert sent.begin(second) is None
    sent.send(b"def")
    assert sent.begin(None) is None


def test_where_another_client_has_typed_meanwhile_nothing_is_said_to_have_come_for_certain() -> None:
    sent = SentInput()
    sent.begin(10)
    assert sent.begin(15) == b""  # nothing was on its way
    sent.send(b"abc")
    assert sent.begin(19) is None  # four have come, and three were sent here
    sent.send(b"def")
    assert sent.begin(20) == b"ef"


# -- output


def started(out: int, err: int = 0, *, counted: bool = True) -> pb.AttachStarted:
    return pb.AttachStarted(counted=counted, stdout_bytes=out, stderr_bytes=err)


def test_what_was_missed_lies_between_what_has_come_and_where_the_next_attachment_begins() -> None:
    missed = MissedOutput()
    missed.begin(started(10, 1))
    missed.count(pb.AttachReply(stdout=b"abc"))
    missed.count(pb.AttachReply(stderr=b"d"))
    assert missed.until(started(20, 2)) == Stretch({"stdout": 13, "stderr": 2}, {"stdout": 20, "stderr": 2})
    missed.count(pb.AttachReply(stdout=b"x"))
    assert missed.until(None) == Stretch({"stdout": 21, "stderr": 2})
    missed.begin(started(5))
    assert missed.until(started(3)) == Stretch({"stdout": 5, "stderr": 0}, {"stdout": 5, "stderr": 0})


def test_what_was_missed_is_not_known_where_bytes_were_dropped_or_a_shim_does_not_count() -> None:
    missed = MissedOutput()
    missed.begin(started(0))
    missed.lose_count()
    assert missed.until(started(5)) is None
    assert missed.until(started(7)) == Stretch({"stdout": 5, "stderr": 0}, {"stdout": 7, "stderr": 0})
    assert missed.until(started(9, counted=False)) is None
    assert missed.until(None) is None


@given(st.binary(max_size=40), st.integers(0, 40), st.integers(0, 40), st.integers(1, 7))
def test_a_stretch_is_cut_from_a_log_whatever_its_portions(data: bytes, begin: int, end: int, size: int) -> None:
    begin, end = sorted((min(begin, len(data)), min(end, len(data))))
    stretch = Stretch({"stdout": begin, "stderr": 0}, {"stdout": end, "stderr": 0})
    parts = [(at, data[at : at + size]) for at in range(0, len(data), size)]
    assert b"".join(stretch.cut("stdout", at, part) for at, part in parts) == data[begin:end]
    assert stretch.size_bytes == end - begin
    assert stretch.is_behind({"stdout": end, "stderr": 0})
    assert not end or not stretch.is_behind({"stdout": end - 1, "stderr": 0})
    rest = Stretch({"stdout": begin, "stderr": 0})
    assert b"".join(rest.cut("stdout", at, part) for at, part in parts) == data[begin:]
    assert rest.size_bytes is None and not rest.is_behind({"stdout": 99, "stderr": 99})
