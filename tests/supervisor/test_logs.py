"""The CRI log: parsed in any portions, cut to its last lines, followed while it grows."""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor import logs
from supervisor.inotify import Inotify
from supervisor.logs import Entry, Item, Malformed, Parser

LIMIT_SECONDS = 10
TIME = b"2026-11-20T12:00:00.000000001Z"
TIME_NS = 1795176000_000000001


def line(payload: bytes, tag: bytes = b"F", stream: bytes = b"stdout") -> bytes:
    return b" ".join((TIME, stream, tag, payload)) + b"\n"


def text(items: list[Item]) -> bytes:
    return b"".join(item.data for item in items if isinstance(item, Entry))


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
    assert items == [Entry(TIME_NS, "stdout", b"hello\n"), Entry(TIME_NS, "stderr", b"prompt> ")]


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
    assert parser.feed(line(b"one") + line(b"two")[:-3]) == [Entry(TIME_NS, "stdout", b"one\n")]
    assert parser.feed(line(b"two")[-3:]) == [Entry(TIME_NS, "stdout", b"two\n")]


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
    assert Parser().feed(stamp + b" stdout F x\n") == [Entry(time_ns, "stdout", b"x\n")]


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
    assert Parser().feed(bad + b"\n" + line(b"x")) == [Malformed(bad), Entry(TIME_NS, "stdout", b"x\n")]


@given(st.integers(min_value=1, max_value=300))
def test_a_line_without_end_is_bounded_however_it_comes(portion: int) -> None:
    data = line(b"y" * 200) + line(b"after")
    parser = Parser(max_line_bytes=100)
    items = [item for at in range(0, len(data), portion) for item in parser.feed(data[at : at + portion])]
    assert items == [Malformed(data[:100]), Entry(TIME_NS, "stdout", b"after\n")]


def offset(path: Path, lines: int) -> int:
    fd = os.open(path, os.O_RDONLY)
    try:
        return logs.tail_offset(fd, lines)
    finally:
        os.close(fd)


def tail(path: Path, lines: int) -> bytes:
    return text(Parser().feed(path.read_bytes()[offset(path, lines) :]))


@given(PIECES, st.integers(min_value=0, max_value=25))
def test_the_tail_is_what_the_last_lines_are_made_of(
    tmp_path_factory: pytest.TempPathFactory, pieces: list[tuple[bytes, bytes, bytes]], lines: int
) -> None:
    path = tmp_path_factory.mktemp("log") / "log"
    path.write_bytes(b"".join(line(payload, tag) for _, tag, payload in pieces))
    # One stream: the output is a text, and its last lines are known. A last piece may be empty: still a line begun.
    parts = [payload + (b"\n" if tag == b"F" else b"") for _, tag, payload in pieces]
    groups: list[bytes] = []
    fresh = True
    for (_, tag, _), part in zip(pieces, parts, strict=True):
        if fresh:
            groups.append(b"")
        groups[-1] += part
        fresh = tag == b"F"
    assert tail(path, lines) == b"".join(groups[len(groups) - lines :] if lines <= len(groups) else groups)


def test_the_tail_of_a_big_log_reads_only_its_end(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with path.open("wb") as log:
        log.write(line(b"first"))
        log.truncate(1 << 40)  # a hole that nobody could read through
        log.seek(1 << 40)
        log.write(b"\n" + b"".join(line(b"%d" % number) for number in range(20_000)))
    assert tail_from(path, offset(path, 3)) == b"19997\n19998\n19999\n"
    assert tail_from(path, offset(path, 15_000)).startswith(b"5000\n5001\n")


def tail_from(path: Path, start: int) -> bytes:
    with path.open("rb") as log:
        log.seek(start)
        return text(Parser().feed(log.read()))


def test_a_line_still_being_written_is_no_line_of_the_tail(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(line(b"one") + line(b"two") + line(b"three")[:-2])
    assert tail(tmp_path / "log", 1) == b"two\n"


def test_an_empty_log_has_an_empty_tail(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"")
    assert offset(tmp_path / "log", 5) == 0


async def collect(source: AsyncIterator[list[Item]]) -> bytes:
    return b"".join([text(items) async for items in source])


def test_reading_gives_what_is_there_and_a_missing_log_is_empty(tmp_path: Path) -> None:
    lines = [b"%d" % number for number in range(5_000)]
    (tmp_path / "log").write_bytes(b"".join(map(line, lines)))
    assert asyncio.run(collect(logs.read(str(tmp_path / "log")))) == b"".join(each + b"\n" for each in lines)
    assert asyncio.run(collect(logs.read(str(tmp_path / "log"), 2))) == b"4998\n4999\n"
    assert asyncio.run(collect(logs.read(str(tmp_path / "none")))) == b""


class Following:
    """A follower in a task of its own, whose output can be waited for."""

    def __init__(self, path: Path, changes: Inotify, tail_lines: int | None = None) -> None:
        self.done = asyncio.get_running_loop().create_future()
        self.seen = b""
        self._more = asyncio.Event()
        self.task = asyncio.create_task(self._run(logs.follow(str(path), self.done, changes, tail_lines)))

    async def _run(self, source: AsyncIterator[list[Item]]) -> None:
        async for items in source:
            self.seen += text(items)
            self._more.set()

    async def until(self, output: bytes) -> None:
        async with asyncio.timeout(LIMIT_SECONDS):
            while self.seen != output:
                self._more.clear()
                await self._more.wait()

    async def end(self) -> bytes:
        self.done.set_result(None)
        async with asyncio.timeout(LIMIT_SECONDS):
            await self.task
        return self.seen


def with_inotify(test: Callable[[Inotify], Awaitable[None]]) -> None:
    async def main() -> None:
        changes = Inotify()
        changes.start()
        try:
            await test(changes)
        finally:
            changes.close()

    asyncio.run(main())


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as log:
        log.write(data)


def test_following_shows_what_is_added_and_ends_with_the_run(tmp_path: Path) -> None:
    async def test(changes: Inotify) -> None:
        path = tmp_path / "log"
        append(path, line(b"old"))
        following = Following(path, changes)
        await following.until(b"old\n")
        append(path, line(b"new"))
        await following.until(b"old\nnew\n")
        append(path, line(b"last", b"P"))  # nobody looks before the end of the run is known
        assert await following.end() == b"old\nnew\nlast"

    with_inotify(test)


def test_following_can_begin_with_the_last_lines(tmp_path: Path) -> None:
    async def test(changes: Inotify) -> None:
        path = tmp_path / "log"
        append(path, line(b"one") + line(b"two") + line(b"three"))
        following = Following(path, changes, tail_lines=1)
        await following.until(b"three\n")
        append(path, line(b"four"))
        assert await following.end() == b"three\nfour\n"

    with_inotify(test)


def test_a_log_that_does_not_exist_yet_is_waited_for(tmp_path: Path) -> None:
    async def test(changes: Inotify) -> None:
        following = Following(tmp_path / "log", changes)
        await asyncio.sleep(0)
        append(tmp_path / "log", line(b"here"))
        await following.until(b"here\n")
        append(tmp_path / "log", line(b"more"))
        await following.until(b"here\nmore\n")
        await following.end()

    with_inotify(test)


def test_a_replaced_log_is_read_to_its_end_and_its_successor_from_the_beginning(tmp_path: Path) -> None:
    async def test(changes: Inotify) -> None:
        path = tmp_path / "log"
        append(path, line(b"one"))
        following = Following(path, changes)
        await following.until(b"one\n")
        append(path, line(b"two"))
        path.rename(tmp_path / "log.1")
        append(path, line(b"three"))
        await following.until(b"one\ntwo\nthree\n")
        append(path, line(b"four"))
        await following.until(b"one\ntwo\nthree\nfour\n")
        await following.end()

    with_inotify(test)


def test_a_deleted_log_is_read_to_its_end(tmp_path: Path) -> None:
    async def test(changes: Inotify) -> None:
        path = tmp_path / "log"
        append(path, line(b"one"))
        following = Following(path, changes)
        await following.until(b"one\n")
        append(path, line(b"two"))
        path.unlink()
        assert await following.end() == b"one\ntwo\n"

    with_inotify(test)


def test_a_log_cut_short_is_read_from_its_new_beginning(tmp_path: Path) -> None:
    async def test(changes: Inotify) -> None:
        path = tmp_path / "log"
        append(path, line(b"a long first line"))
        following = Following(path, changes)
        await following.until(b"a long first line\n")
        path.write_bytes(line(b"short"))
        assert await following.end() == b"a long first line\nshort\n"

    with_inotify(test)


def test_a_log_whose_directory_is_gone_ends_with_the_run(tmp_path: Path) -> None:
    async def test(changes: Inotify) -> None:
        assert await Following(tmp_path / "none" / "log", changes).end() == b""

    with_inotify(test)


def test_a_megabyte_written_in_a_hurry_arrives_byte_for_byte(tmp_path: Path) -> None:
    async def test(changes: Inotify) -> None:
        path = tmp_path / "log"
        following = Following(path, changes)
        for number in range(64):
            append(path, b"".join(line(b"%d:%d" % (number, each) + b"x" * 100) for each in range(150)))
            await asyncio.sleep(0)
        expected = b"".join(b"%d:%d" % (n, e) + b"x" * 100 + b"\n" for n in range(64) for e in range(150))
        assert await following.end() == expected

    with_inotify(test)


def test_a_follower_that_goes_away_leaves_no_watch_no_descriptor_and_nobody_waiting(tmp_path: Path) -> None:
    async def test(changes: Inotify) -> None:
        path = tmp_path / "log"
        append(path, line(b"one"))
        before = sorted(os.listdir("/proc/self/fd"))
        waiting = asyncio.Event()
        done = asyncio.create_task(waiting.wait())
        source = logs.follow(str(path), done, changes)
        assert text(await anext(source)) == b"one\n"
        await source.aclose()
        assert sorted(os.listdir("/proc/self/fd")) == before
        assert changes._watches == {}
        async with asyncio.timeout(LIMIT_SECONDS):
            await asyncio.wait([done])
        assert done.cancelled()

    with_inotify(test)


def test_a_run_whose_end_cannot_be_known_is_told_as_its_error(tmp_path: Path) -> None:
    async def fails() -> None:
        raise LookupError("no such run")

    async def test(changes: Inotify) -> None:
        append(tmp_path / "log", line(b"one"))
        with pytest.raises(LookupError):
            await _bounded(collect(logs.follow(str(tmp_path / "log"), fails(), changes)))

    with_inotify(test)


async def _bounded(work: Coroutine[Any, Any, bytes]) -> bytes:
    async with asyncio.timeout(LIMIT_SECONDS):
        return await work
