"""The lines of a log: both formats in any portions, the span of time, the times in front of them."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.streams import logline
from supervisor.streams.logline import Item, LogEntry, Malformed, Parser, Stamps, Tail, Window

TIME = b"2026-11-20T12:00:00.000000001Z"
TIME_NS = 1795176000_000000001
STREAMS = ("stdout", "stderr")


def line(payload: bytes, tag: bytes = b"F", stream: bytes = b"stdout") -> bytes:
    return b" ".join((TIME, stream, tag, payload)) + b"\n"


def text(items: list[Item]) -> bytes:
    return b"".join(item.data for item in items if isinstance(item, LogEntry))


PIECES = st.lists(
    st.tuples(
        st.sampled_from([b"stdout", b"stderr"]),
        st.sampled_from([b"P", b"F"]),
        st.binary(max_size=40).map(lambda data: data.replace(b"\n", b"")),
    ),
    max_size=20,
)


def test_a_whole_line_gets_its_newline_back_and_a_piece_does_not() -> None:
    items = Parser().feed(line(b"hello") + line(b"prompt> ", b"P", b"stderr"))
    assert items == [LogEntry(TIME_NS, "stdout", b"hello\n"), LogEntry(TIME_NS, "stderr", b"prompt> ")]


@given(PIECES)
def test_portions_make_no_difference(pieces: list[tuple[bytes, bytes, bytes]]) -> None:
    data = b"".join(line(payload, tag, stream) for stream, tag, payload in pieces)
    whole = Parser().feed(data)
    parser = Parser()
    one_by_one = [item for at in range(len(data)) for item in parser.feed(data[at : at + 1])]
    assert whole == one_by_one
    assert len(whole) == len(pieces)
    assert text(whole) == b"".join(payload + (b"\n" if tag == b"F" else b"") for _, tag, payload in pieces)


def test_an_unfinished_line_waits_for_its_rest() -> None:
    parser = Parser()
    assert parser.feed(line(b"one") + line(b"two")[:-3]) == [LogEntry(TIME_NS, "stdout", b"one\n")]
    assert parser.feed(line(b"two")[-3:]) == [LogEntry(TIME_NS, "stdout", b"two\n")]


@pytest.mark.parametrize(
    ("stamp", "time_ns"),
    [
        (b"2026-11-20T12:00:00Z", 1795176000_000000000),
        (b"2026-11-20T12:00:00.5Z", 1795176000_500000000),
        (b"2026-11-20T14:00:00.5+02:00", 1795176000_500000000),
        (b"2026-11-20T06:30:00.123456789-05:30", 1795176000_123456789),
        (b"1970-01-01T00:00:00.000000000Z", 0),
    ],
)
def test_every_form_of_rfc3339_is_understood(stamp: bytes, time_ns: int) -> None:
    assert Parser().feed(stamp + b" stdout F x\n") == [LogEntry(time_ns, "stdout", b"x\n")]


@pytest.mark.parametrize(
    "bad",
    [
        b"",
        b"hello",
        b"2026-11-20T12:00:00Z stdout F",
        b"2026-13-20T12:00:00Z stdout F x",
        TIME + b" stdin F x",
        TIME + b" stdout X x",
        TIME + b"  stdout F x",
        b"2026-11-20T25:00:00Z stdout F x",
        b"2026-11-20T12:00:00.1234567890Z stdout F x",
        b"2026-11-20T12:00:00+99:00 stdout F x",
    ],
)
def test_a_line_of_another_format_is_a_value_and_its_neighbours_are_read(bad: bytes) -> None:
    assert Parser().feed(bad + b"\n" + line(b"x")) == [Malformed(bad), LogEntry(TIME_NS, "stdout", b"x\n")]


@given(st.integers(min_value=1, max_value=300))
def test_a_line_without_end_is_bounded_however_it_comes(portion: int) -> None:
    data = line(b"y" * 200) + line(b"after")
    parser = Parser(max_line_bytes=100)
    items = [item for at in range(0, len(data), portion) for item in parser.feed(data[at : at + portion])]
    assert items == [Malformed(data[:100]), LogEntry(TIME_NS, "stdout", b"after\n")]


# -- json-file


def json_line(text: str, stream: str = "stdout", time: str = TIME.decode()) -> bytes:
    return json.dumps({"log": text, "stream": stream, "time": time}).encode() + b"\n"


@given(st.lists(st.tuples(st.text(st.characters(exclude_categories=["Cs"])), st.sampled_from(STREAMS))), st.booleans())
def test_what_json_file_holds_comes_back_however_it_is_escaped(lines: list[tuple[str, str]], ascii_only: bool) -> None:
    data = b"".join(
        json.dumps({"log": text, "stream": stream, "time": TIME.decode()}, ensure_ascii=ascii_only).encode() + b"\n"
        for text, stream in lines
    )
    expected = [LogEntry(TIME_NS, stream, text.encode()) for text, stream in lines]
    assert Parser(logline.json_file).feed(data) == expected


def test_what_docker_writes_into_a_json_file_is_understood() -> None:
    written = b'{"log":"hello \\u003cyou\\u003e\\n","stream":"stderr","attrs":{},"time":"2026-11-20T12:00:00.5Z"}\n'
    assert Parser(logline.json_file).feed(written) == [LogEntry(1795176000_500000000, "stderr", b"hello <you>\n")]


@pytest.mark.parametrize(
    "bad",
    [
        b"",
        b"hello",
        b"[]",
        b"[" * 100_000,
        b'{"log":"x","stream":"stdout"}',
        b'{"log":"x","time":"2026-11-20T12:00:00Z"}',
        b'{"log":1,"stream":"stdout","time":"2026-11-20T12:00:00Z"}',
        b'{"log":"x","stream":"stdin","time":"2026-11-20T12:00:00Z"}',
        b'{"log":"x","stream":[],"time":"2026-11-20T12:00:00Z"}',
        b'{"log":"x","stream":"stdout","time":"noon"}',
        b'{"log":"x","stream":"stdout","time":"2026-02-30T12:00:00Z"}',
        json_line("x")[:-3],
    ],
)
def test_a_line_that_is_no_json_file_line_is_a_value_and_its_neighbours_are_read(bad: bytes) -> None:
    items = Parser(logline.json_file).feed(bad + b"\n" + json_line("x\n"))
    assert items == [Malformed(bad), LogEntry(TIME_NS, "stdout", b"x\n")]


def test_bytes_that_are_no_utf8_and_half_characters_do_not_end_the_reading() -> None:
    broken = b'{"log":"a\xffb\\ud800c\\n","stream":"stdout","time":"2026-11-20T12:00:00.000000001Z"}\n'
    (item,) = Parser(logline.json_file).feed(broken)
    assert isinstance(item, LogEntry)
    assert item.data == "a\ufffdb?c\n".encode()


# -- a span of time

ENTRIES = st.lists(
    st.builds(LogEntry, st.integers(0, 9), st.sampled_from(STREAMS), st.sampled_from([b"", b"p", b"f\n"])), max_size=15
)
MOMENT = st.none() | st.integers(0, 10)


def lines_of(entries: list[LogEntry]) -> list[list[int]]:
    """The entries' places, line by line, by the end of each; the last of a stream may have none."""
    open_lines: dict[str, list[int]] = {}
    found = []
    for at, entry in enumerate(entries):
        open_lines.setdefault(entry.stream, []).append(at)
        if entry.ends_line:
            found.append(open_lines.pop(entry.stream))
    return [*found, *open_lines.values()]


@given(ENTRIES, MOMENT, MOMENT)
def test_a_line_is_taken_by_the_time_of_its_beginning_with_all_its_pieces(
    entries: list[LogEntry], since: int | None, until: int | None
) -> None:
    wanted = {
        at
        for pieces in lines_of(entries)
        if (since is None or entries[pieces[0]].time_ns >= since)
        and (until is None or entries[pieces[0]].time_ns < until)
        for at in pieces
    }
    assert Window(since, until).take(entries) == [entry for at, entry in enumerate(entries) if at in wanted]


@given(ENTRIES, st.integers(0, 15))
def test_portions_make_no_difference_to_a_span_of_time(entries: list[LogEntry], cut: int) -> None:
    window = Window(3, 7)
    assert [*window.take(entries[:cut]), *window.take(entries[cut:])] == Window(3, 7).take(entries)


def test_the_tail_of_a_span_of_time_is_counted_within_it() -> None:
    entries = [LogEntry(at, "stdout", b"%d\n" % at) for at in range(10)]
    answers = [tail.wants(each) for tail in (Tail(2, Window(3, 7)),) for each in reversed(entries)]
    assert answers == [None] * 3 + [True, True] + [False] * 5  # 6 and 5
    assert [Tail(9, Window(8)).wants(each) for each in (entries[9], entries[8], entries[7])] == [True, True, False]


# -- times in front of the lines


def test_every_line_has_its_time_in_front_and_a_line_of_pieces_that_of_the_first() -> None:
    items: list[Item] = [
        LogEntry(TIME_NS, "stdout", b"a "),
        LogEntry(0, "stderr", b"e\n"),
        LogEntry(TIME_NS + 1, "stdout", b"line\n"),
        Malformed(b"?"),
        LogEntry(TIME_NS + 2, "stdout", b"\n"),
    ]
    stamps = Stamps()
    shown = [*stamps.put(items[:2]), *stamps.put(items[2:])]
    assert [shown[3], text(shown)] == [
        Malformed(b"?"),
        TIME + b" a 1970-01-01T00:00:00.000000000Z e\nline\n2026-11-20T12:00:00.000000003Z \n",
    ]


@given(st.integers(0, 4102444800_000000000))
def test_a_time_reads_back_as_it_was_written(time_ns: int) -> None:
    assert Parser().feed(logline.stamp(time_ns) + b" stdout F \n") == [LogEntry(time_ns, "stdout", b"\n")]
