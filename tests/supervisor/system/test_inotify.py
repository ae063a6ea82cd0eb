"""Changes of real files, and the pure parser fed with what no file can be made to produce."""

import asyncio
import errno
import fcntl
import logging
import os
import struct
import subprocess
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.system import inotify
from supervisor.system.inotify import FileChange, Inotify, Item, Overflow, parse

LIMIT_SECONDS = 10


def raw(wd: int, mask: int, name: bytes = b"", cookie: int = 0) -> bytes:
    padded = name + b"\0" * (-len(name) % 16 or 16) if name else b""
    return struct.pack("iIII", wd, mask, cookie, len(padded)) + padded


class Heard:
    """A listener that keeps what was reported and can be waited for."""

    def __init__(self) -> None:
        self.items: list[Item] = []
        self._more = asyncio.Event()

    def __call__(self, item: Item) -> None:
        self.items.append(item)
        self._more.set()

    async def until(self, enough: Callable[[list[Item]], bool]) -> list[Item]:
        async with asyncio.timeout(LIMIT_SECONDS):
            while not enough(self.items):
                self._more.clear()
                await self._more.wait()
        return self.items

    def names(self) -> list[str]:
        return [item.name for item in self.items if isinstance(item, FileChange)]


def with_inotify(test: Callable[[Inotify], Awaitable[None]]) -> None:
    async def main() -> None:
        changes = Inotify()
        changes.start()
        try:
            await test(changes)
        finally:
            changes.close()

    asyncio.run(main())


def test_several_events_of_one_read_are_told_apart() -> None:
    data = raw(1, inotify.IN_CREATE, b"a") + raw(2, inotify.IN_MODIFY) + raw(1, inotify.IN_MOVED_TO, b"x" * 16, 7)
    assert parse(data) == (
        FileChange(1, inotify.IN_CREATE, "a"),
        FileChange(2, inotify.IN_MODIFY, ""),
        FileChange(1, inotify.IN_MOVED_TO, "x" * 16),
    )


def test_a_name_that_is_no_utf8_keeps_its_bytes_and_its_neighbours() -> None:
    before, after = parse(raw(1, inotify.IN_CREATE, b"\xff\xfe") + raw(1, inotify.IN_CREATE, b"next"))
    assert isinstance(before, FileChange) and os.fsencode(before.name) == b"\xff\xfe"
    assert isinstance(after, FileChange) and after.name == "next"


def test_an_overflow_of_the_queue_is_a_value() -> None:
    data = raw(1, inotify.IN_CREATE, b"a") + raw(-1, inotify.IN_Q_OVERFLOW)
    assert parse(data) == (FileChange(1, inotify.IN_CREATE, "a"), Overflow())


@given(st.integers(min_value=0, max_value=200))
def test_a_torn_batch_gives_what_is_whole_and_counts_the_rest_as_lost(length: int) -> None:
    whole = raw(1, inotify.IN_CREATE, b"a") + raw(2, inotify.IN_CREATE, b"b") + raw(3, inotify.IN_CREATE, b"c")
    items = parse(whole[:length])
    expected = parse(whole)[: min(length, len(whole)) // 32]
    assert items == (expected if length % 32 == 0 or length >= len(whole) else (*expected, Overflow()))


def test_no_bytes_are_no_events() -> None:
    assert parse(b"") == ()


def test_a_file_moved_into_a_watched_directory_is_reported_by_name(tmp_path: Path) -> None:
    async def test(changes: Inotify) -> None:
        heard = Heard()
        (tmp_path / "in").mkdir()
        changes.watch(str(tmp_path / "in"), inotify.IN_MOVED_TO, heard)
        (tmp_path / "new").write_text("")
        (tmp_path / "new").rename(tmp_path / "in" / "arrived")
        await heard.until(lambda items: len(items) == 1)
        assert heard.names() == ["arrived"]

    with_inotify(test)


def test_real_names_that_are_no_utf8_do_not_stop_the_reading(tmp_path: Path) -> None:
    async def test(changes: Inotify) -> None:
        heard = Heard()
        changes.watch(str(tmp_path), inotify.IN_CREATE, heard)
        for name in (b"a", b"\xff\xfe", b"b"):
            os.close(os.open(os.fsencode(tmp_path) + b"/" + name, os.O_CREAT | os.O_WRONLY))
        await heard.until(lambda items: len(items) == 3)
        assert [os.fsencode(name) for name in heard.names()] == [b"a", b"\xff\xfe", b"b"]

    with_inotify(test)


def test_two_watches_of_one_path_hear_each_what_they_asked_for(tmp_path: Path) -> None:
    async def test(changes: Inotify) -> None:
        made, gone = Heard(), Heard()
        first = changes.watch(str(tmp_path), inotify.IN_CREATE, made)
        second = changes.watch(str(tmp_path), inotify.IN_DELETE, gone)
        assert first.wd == second.wd
        (tmp_path / "a").write_text("")
        (tmp_path / "a").unlink()
        await gone.until(lambda items: len(items) == 1)
        assert [item.mask for item in made.items if isinstance(item, FileChange)] == [inotify.IN_CREATE]
        assert [item.mask for item in gone.items if isinstance(item, FileChange)] == [inotify.IN_DELETE]

    with_inotify(test)


def test_closing_one_watch_leaves_the_other_of_the_same_path_alone(tmp_path: Path) -> None:
    async def test(changes: Inotify) -> None:
        closed, kept = Heard(), Heard()
        first = changes.watch(str(tmp_path), inotify.IN_CREATE, closed)
        changes.watch(str(tmp_path), inotify.IN_CREATE, kept)
        first.close()
        first.close()
        (tmp_path / "a").write_text("")
        await kept.until(lambda items: len(items) == 1)
        assert closed.items == []

    with_inotify(test)


def test_a_path_can_be_watched_again_after_its_last_watch_was_closed(tmp_path: Path) -> None:
    async def test(changes: Inotify) -> None:
        changes.watch(str(tmp_path), inotify.IN_CREATE, Heard()).close()
        heard = Heard()
        changes.watch(str(tmp_path), inotify.IN_CREATE, heard)
        (tmp_path / "a").write_text("")
        await heard.until(lambda items: len(items) == 1)
        assert heard.names() == ["a"]

    with_inotify(test)


def test_the_end_of_a_watched_path_is_reported_and_closing_afterwards_is_no_error(tmp_path: Path) -> None:
    async def test(changes: Inotify) -> None:
        heard = Heard()
        (tmp_path / "d").mkdir()
        watch = changes.watch(str(tmp_path / "d"), inotify.IN_CREATE, heard)
        (tmp_path / "d").rmdir()
        (ignored,) = await heard.until(lambda items: len(items) == 1)
        assert isinstance(ignored, FileChange) and ignored.mask & inotify.IN_IGNORED
        watch.close()

    with_inotify(test)


def test_an_overflow_reaches_every_watch(tmp_path: Path) -> None:
    async def test(changes: Inotify) -> None:
        one, other = Heard(), Heard()
        (tmp_path / "d").mkdir()
        changes.watch(str(tmp_path), inotify.IN_CREATE, one)
        changes.watch(str(tmp_path / "d"), inotify.IN_DELETE, other)
        changes.dispatch(Overflow())
        assert await one.until(lambda items: len(items) == 1) == [Overflow()]
        assert await other.until(lambda items: len(items) == 1) == [Overflow()]

    with_inotify(test)


def flood(directory: Path) -> None:
    """More changes than the kernel's queue holds; equal ones in a row would be one."""
    most = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    files = [directory / "one", directory / "other"]
    for file in files:
        file.touch()
    for number in range(most):
        files[number % 2].chmod(0o600)


def test_a_queue_that_the_kernel_really_let_overflow_is_reported_after_what_was_in_it(tmp_path: Path) -> None:
    async def test(changes: Inotify) -> None:
        heard = Heard()
        changes.watch(str(tmp_path), inotify.IN_ATTRIB | inotify.IN_CREATE, heard)
        flood(tmp_path)
        (tmp_path / "lost").touch()
        items = await heard.until(lambda items: Overflow() in items)
        assert items.index(Overflow()) > 1000
        assert "lost" not in heard.names()
        (tmp_path / "next").touch()
        await heard.until(lambda items: "next" in heard.names())

    with_inotify(test)


def test_a_listener_that_fails_takes_no_other_with_it(tmp_path: Path) -> None:
    async def test(changes: Inotify) -> None:
        failures: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context["exception"]))

        def broken(item: Item) -> None:
            raise ValueError("a bug")

        heard = Heard()
        changes.watch(str(tmp_path), inotify.IN_CREATE, broken)
        changes.watch(str(tmp_path), inotify.IN_CREATE, heard)
        (tmp_path / "a").write_text("")
        await heard.until(lambda items: len(items) == 1)
        assert len(failures) == 1

    with_inotify(test)


def test_a_path_that_cannot_be_watched_is_an_error_with_its_number(tmp_path: Path) -> None:
    async def test(changes: Inotify) -> None:
        with pytest.raises(FileNotFoundError) as refused:
            changes.watch(str(tmp_path / "none"), inotify.IN_CREATE, Heard())
        assert refused.value.filename == str(tmp_path / "none")
        with pytest.raises(OSError) as unencodable:
            changes.watch(os.fsdecode(os.fsencode(tmp_path) + b"/\xff"), inotify.IN_CREATE, Heard())
        assert unencodable.value.errno == errno.EILSEQ

    with_inotify(test)


def test_the_descriptor_does_not_block_and_does_not_leak_into_children() -> None:
    changes = Inotify()
    try:
        links = {os.readlink(f"/proc/self/fd/{fd}"): int(fd) for fd in os.listdir("/proc/self/fd") if _is_open(fd)}
        fd = next(number for link, number in links.items() if "inotify" in link)
        assert fcntl.fcntl(fd, fcntl.F_GETFD) & fcntl.FD_CLOEXEC
        assert fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_NONBLOCK
        child = subprocess.run(
            ["ls", "-l", "/proc/self/fd"], capture_output=True, text=True, check=True, close_fds=False
        )
        assert "inotify" not in child.stdout
    finally:
        changes.close()
        changes.close()


def _is_open(fd: str) -> bool:
    return os.path.lexists(f"/proc/self/fd/{fd}")


def test_no_process_is_started_to_find_the_c_library(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*words: object, **more: object) -> None:
        raise AssertionError(words)

    monkeypatch.setattr(subprocess, "Popen", refuse)
    Inotify().close()


def test_pyinotify_does_not_write_to_stderr_by_itself() -> None:
    assert logging.getLogger("pyinotify").handlers == []


def test_what_changes_before_a_watch_made_in_a_thread_has_arrived_is_reported(tmp_path: Path) -> None:
    """The kernel has it, and the loop reads a change of it, and only then learns of it."""

    async def test(changes: Inotify) -> None:
        heard, watches = Heard(), inotify.InotifyWatches(changes)
        in_thread(lambda: watches.add(str(tmp_path), inotify.IN_CREATE, heard))
        (tmp_path / "early").touch()
        changes._readable()
        assert heard.items == []
        await heard.until(lambda items: len(items) == 1)
        assert heard.names() == ["early"]
        watches.close()
        assert changes._watches == {} and changes._early == []

    with_inotify(test)


def test_lost_changes_are_told_to_a_watch_that_arrives_after_them(tmp_path: Path) -> None:
    async def test(changes: Inotify) -> None:
        heard, watches = Heard(), inotify.InotifyWatches(changes)
        in_thread(lambda: watches.add(str(tmp_path), inotify.IN_CREATE, heard))
        for item in [FileChange(-2, inotify.IN_CREATE, "nobody's")] * (inotify._MOST_EARLY + 1):
            changes.dispatch(item)
        await heard.until(lambda items: items == [Overflow()])

    with_inotify(test)


def test_a_watch_that_arrives_when_anothers_end_has_ended_it_is_told_its_end(tmp_path: Path) -> None:
    """The kernel has one watch for both, and the loop gave it up when the other left."""

    async def test(changes: Inotify) -> None:
        for is_read in (True, False):
            heard, watches = Heard(), inotify.InotifyWatches(changes)
            other = changes.watch(str(tmp_path), inotify.IN_CREATE, Heard())
            in_thread(lambda: watches.add(str(tmp_path), inotify.IN_CREATE, heard))  # noqa: B023 - it has ended
            other.close()
            if is_read:
                changes._readable()
            (reported,) = await heard.until(lambda items: len(items) == 1)
            assert inotify.is_end(reported) and changes._watches == {}

    with_inotify(test)


def test_watches_that_were_closed_take_in_none_that_a_thread_makes_yet(tmp_path: Path) -> None:
    async def test(changes: Inotify) -> None:
        watches = inotify.InotifyWatches(changes)
        in_thread(lambda: watches.add(str(tmp_path), inotify.IN_CREATE, Heard()))
        watches.close()
        await asyncio.sleep(0)
        assert changes._watches == {}
        with pytest.raises(FileNotFoundError):
            watches.add(str(tmp_path / "none"), inotify.IN_CREATE, Heard())
        assert changes._on_the_way == set()

    with_inotify(test)


def in_thread(work: Callable[[], None]) -> None:
    """To its end, while the loop stands still."""
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
