"""A container's log, read and followed while it grows, is rotated and goes."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from supervisor.model.values import LogDriver
from supervisor.streams import logs
from supervisor.streams.logline import stamp
from supervisor.streams.logs import LogPosition, LogReading, Portion, WantedLog
from supervisor.system.inotify import Inotify
from tests.supervisor.descriptors import held_now, opened_since
from tests.supervisor.fakes import until
from tests.supervisor.streams.test_logline import TIME_NS, json_line, line, text

LIMIT_SECONDS = 10
OURS = True


@pytest.fixture(autouse=True, params=[True, False], ids=["ours", "a caller's"])
def whose(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test twice: on the loop, and in threads."""
    monkeypatch.setitem(globals(), "OURS", request.param)


def wanted_log(path: str, driver: LogDriver = LogDriver.CRI, **more: Any) -> WantedLog:
    return WantedLog(path, driver, is_ours=OURS, **more)


async def collect(source: AsyncIterator[Portion]) -> bytes:
    return b"".join([text(items) async for items in source if not isinstance(items, LogPosition)])


def test_reading_gives_what_is_there_and_a_missing_log_is_empty(tmp_path: Path) -> None:
    lines = [b"%d" % number for number in range(5_000)]
    (tmp_path / "log").write_bytes(b"".join(map(line, lines)))
    assert asyncio.run(collect(LogReading().read(wanted_log(str(tmp_path / "log"))))) == b"".join(
        each + b"\n" for each in lines
    )
    assert asyncio.run(collect(LogReading().read(wanted_log(str(tmp_path / "log"), tail_lines=2)))) == b"4998\n4999\n"
    assert asyncio.run(collect(LogReading().read(wanted_log(str(tmp_path / "none"))))) == b""


class Following:
    """A follower in a task of its own, whose output can be waited for."""

    def __init__(self, path: Path, changes: Inotify, tail_lines: int | None = None) -> None:
        self.done = asyncio.get_running_loop().create_future()
        self.seen = b""
        self._more = asyncio.Event()
        wanted = wanted_log(str(path), tail_lines=tail_lines)
        self.task = asyncio.create_task(self._run(LogReading().follow(wanted, self.done, changes)))

    async def _run(self, source: AsyncIterator[Portion]) -> None:
        async for items in source:
            assert not isinstance(items, LogPosition)
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


def test_a_log_that_is_rotated_while_it_is_followed_arrives_once_and_in_order(tmp_path: Path) -> None:
    async def test(changes: Inotify) -> None:
        path = tmp_path / "log"
        following = Following(path, changes)
        for number in range(300):
            if number % 3 == 0 and path.exists():
                for older in range(200, 0, -1):
                    if (tmp_path / f"log.{older}").exists():
                        (tmp_path / f"log.{older}").rename(tmp_path / f"log.{older + 1}")
                path.rename(tmp_path / "log.1")
            append(path, line(b"%d" % number))
            await asyncio.sleep(0)
        assert await following.end() == b"".join(b"%d\n" % number for number in range(300))
        await _bounded(_reads_the_same(path, following.seen))

    with_inotify(test)


async def _reads_the_same(path: Path, expected: bytes) -> bytes:
    assert await collect(LogReading().read(wanted_log(str(path)))) == expected
    assert await collect(LogReading().read(wanted_log(str(path), tail_lines=7))) == b"".join(
        expected.splitlines(keepends=True)[-7:]
    )
    return b""


def test_a_log_that_the_kubelet_moves_and_has_reopened_is_followed_into_its_new_file(tmp_path: Path) -> None:
    async def test(changes: Inotify) -> None:
        path = tmp_path / "0.log"
        append(path, line(b"one"))
        following = Following(path, changes)
        await following.until(b"one\n")
        moved = tmp_path / "0.log.20261121-230000"
        path.rename(moved)
        append(moved, line(b"two"))  # nobody has told the shim yet
        await following.until(b"one\ntwo\n")
        path.touch()
        append(moved, line(b"three"))
        append(path, line(b"four"))
        await following.until(b"one\ntwo\nthree\nfour\n")
        assert await following.end() == b"one\ntwo\nthree\nfour\n"
        assert await collect(LogReading().read(wanted_log(str(path)))) == following.seen

    with_inotify(test)


def test_a_json_file_is_read_and_a_span_of_time_is_taken_with_times_in_front(tmp_path: Path) -> None:
    path = tmp_path / "log"
    times = [TIME_NS + each * 10**9 for each in range(6)]
    append(path, b"".join(json_line(f"{at}\n", time=stamp(time_ns).decode()) for at, time_ns in enumerate(times)))
    whole = wanted_log(str(path), LogDriver.JSON_FILE)
    assert asyncio.run(collect(LogReading().read(whole))) == b"0\n1\n2\n3\n4\n5\n"
    span = wanted_log(str(path), LogDriver.JSON_FILE, since_ns=times[1], until_ns=times[4], timestamps=True)
    expected = b"".join(stamp(times[at]) + b" %d\n" % at for at in (1, 2, 3))
    assert asyncio.run(collect(LogReading().read(span))) == expected
    last = wanted_log(str(path), LogDriver.JSON_FILE, tail_lines=2, until_ns=times[4])
    assert asyncio.run(collect(LogReading().read(last))) == b"2\n3\n"


def test_following_until_a_time_ends_then_or_with_the_run(tmp_path: Path) -> None:
    async def test(changes: Inotify) -> None:
        append(tmp_path / "log", line(b"one"))
        wanted = wanted_log(str(tmp_path / "log"))
        for_ever = asyncio.get_running_loop().create_future()
        for until_ns in (time.time_ns() - 10**9, time.time_ns() + 10**7):
            follow = LogReading().follow(wanted, logs.by_then(asyncio.shield(for_ever), until_ns), changes)
            assert await _bounded(collect(follow)) == b"one\n"
        ended = asyncio.sleep(0)
        assert await _bounded(collect(LogReading().follow(wanted, logs.by_then(ended, 2**62), changes))) == b"one\n"
        with pytest.raises(TimeoutError, match="of its own"):
            await _bounded(collect(LogReading().follow(wanted, logs.by_then(_times_out(), 2**62), changes)))

    with_inotify(test)


async def _times_out() -> None:
    raise TimeoutError("of its own")


def test_a_follower_that_goes_away_leaves_no_watch_no_descriptor_and_nobody_waiting(tmp_path: Path) -> None:
    async def test(changes: Inotify) -> None:
        path = tmp_path / "log"
        append(path, line(b"one"))
        before = held_now()
        waiting = asyncio.Event()
        done = asyncio.create_task(waiting.wait())
        source = LogReading().follow(wanted_log(str(path)), done, changes)
        items = await anext(source)
        assert not isinstance(items, LogPosition) and text(items) == b"one\n"
        await source.aclose()
        await until(lambda: not opened_since(before), "the log's files closed")
        assert changes._watches == {}
        async with asyncio.timeout(LIMIT_SECONDS):
            await asyncio.wait([done])
        assert done.cancelled()

    with_inotify(test)


def test_a_run_whose_end_cannot_be_known_is_reported_as_its_error(tmp_path: Path) -> None:
    async def fails() -> None:
        raise LookupError("no such run")

    async def test(changes: Inotify) -> None:
        append(tmp_path / "log", line(b"one"))
        with pytest.raises(LookupError):
            await _bounded(collect(LogReading().follow(wanted_log(str(tmp_path / "log")), fails(), changes)))

    with_inotify(test)


async def _bounded(work: Coroutine[Any, Any, bytes]) -> bytes:
    async with asyncio.timeout(LIMIT_SECONDS):
        return await work


# -- positions


OLD = line(b"old", tag=b"P", stream=b"stderr").replace(b"2026", b"2025", 1)  # the first piece of a line


async def portions(wanted: WantedLog, changes: Inotify) -> list[Portion]:
    """All of a log that is complete, with positions in between."""
    complete = asyncio.sleep(0)
    return [portion async for portion in LogReading().follow(replace(wanted, positions=True), complete, changes)]


def parts(found: list[Portion]) -> tuple[bytes, list[LogPosition]]:
    seen = b"".join(text(each) for each in found if not isinstance(each, LogPosition))
    return seen, [each for each in found if isinstance(each, LogPosition)]


def test_from_each_position_on_the_rest_is_read_also_after_a_rotation(tmp_path: Path) -> None:
    async def test(changes: Inotify) -> None:
        path = tmp_path / "log"
        append(path, b"".join([line(b"one"), line(b"two", tag=b"P")]))
        seen, positions = parts(await portions(wanted_log(str(path)), changes))
        assert (seen, [each.gap for each in positions]) == (b"one\ntwo", [False, False])
        append(path, line(b"three"))
        path.rename(f"{path}.1")
        append(path, line(b"four"))
        whole = b"one\ntwothree\nfour\n"
        for position, rest in zip(positions, (whole, whole[len(seen) :]), strict=True):
            read, after = parts(await portions(wanted_log(str(path), after=position), changes))
            assert (read, after[0].gap, after[0].files) == (rest, False, 2)

    with_inotify(test)


def test_a_position_in_the_middle_of_a_line_puts_no_second_time_before_it_and_keeps_the_choice(tmp_path: Path) -> None:
    async def test(changes: Inotify) -> None:
        path = tmp_path / "log"
        append(path, b"".join([line(b"two", tag=b"P", stream=b"stdout"), OLD]))
        wanted = wanted_log(str(path), timestamps=True, since_ns=TIME_NS - 1)
        seen, positions = parts(await portions(wanted, changes))
        assert seen == stamp(TIME_NS) + b" two"
        assert positions[-1].begun == {"stdout": True, "stderr": False}
        append(
            path,
            b"".join(
                [line(b"err", stream=b"stderr"), line(b"three", stream=b"stdout"), line(b"new", stream=b"stderr")]
            ),
        )
        read, _ = parts(await portions(replace(wanted, after=positions[-1]), changes))
        assert read == b"three\n" + stamp(TIME_NS) + b" new\n"

    with_inotify(test)


def test_a_position_whose_file_is_gone_or_another_one_is_a_gap_and_the_log_is_read_from_its_beginning(
    tmp_path: Path,
) -> None:
    async def test(changes: Inotify) -> None:
        path = tmp_path / "log"
        append(path, line(b"one"))
        _, positions = parts(await portions(wanted_log(str(path)), changes))
        new = tmp_path / "new"
        append(new, line(b"two"))
        new.rename(path)
        changed = replace(positions[-1], place=replace(positions[-1].place, inode=os.stat(path).st_ino))
        for position in (positions[-1], changed):  # deleted; and another file that has its inode
            read, after = parts(await portions(wanted_log(str(path), after=position), changes))
            assert (read, after[0].gap) == (b"two\n", True)
        none, positions = parts(await portions(wanted_log(str(tmp_path / "none")), changes))
        assert (none, positions[0].place.inode) == (b"", 0)
        read, after = parts(await portions(wanted_log(str(path), after=positions[0]), changes))
        assert (read, after[0].gap) == (b"two\n", False)

    with_inotify(test)
