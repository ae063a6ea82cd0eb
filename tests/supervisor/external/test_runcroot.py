"""A runtime's directory with more directories that have no state file than may be watched: real files, real inotify.

Which of them are watched is read where the kernel shows it, in fdinfo of proc(5)."""

import contextlib
import errno
import os
import re
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from supervisor.external import runcroot
from supervisor.external.runcroot import RuncRoot
from supervisor.model.errors import Busy, NoSuchProcess, StoreFailed
from supervisor.model.watched import FoundProcess, Kind, Target
from supervisor.system.inotify import Inotify, InotifyWatches, Listener
from tests.supervisor.fakes import in_loop, until

MOST = 2
WATCHED = re.compile(r"^inotify wd:\w+ ino:(\w+)", re.MULTILINE)


class Runtime:
    """Its state directory, and what is found in it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.found: list[str] = []
        self.refused: list[Exception] = []  # for want of a descriptor
        self.gone = set[str]()  # whose processes have ended
        self.ends: list[str] = []
        self.unstored: list[Exception] = []
        self.changes = Inotify()

    async def observe(self, found: FoundProcess) -> None:
        if self.refused:
            raise self.refused.pop()
        if found.name in self.gone:
            raise NoSuchProcess("gone")
        self.found.append(found.name)

    async def missed(self, found: FoundProcess) -> None:
        if self.unstored:
            raise self.unstored.pop()
        self.ends.append(found.name)

    def make(self, *names: str) -> None:
        for name in names:
            (self.root / name).mkdir()

    def write_state(self, name: str) -> None:
        (new := self.root.parent / "new").write_text('{"init_process_pid": 1, "init_process_start": 1}')
        new.rename(self.root / name / "state.json")

    def watched(self) -> set[str]:
        """The containers' directories that the kernel watches for this process."""
        text = ""
        for path in Path("/proc/self/fdinfo").iterdir():
            with contextlib.suppress(FileNotFoundError):  # the listing's own
                text += path.read_text()
        inodes = {int(number, 16) for number in WATCHED.findall(text)}
        return {path.name for path in self.root.iterdir() if path.stat().st_ino in inodes}

    async def until_watched(self, *names: str) -> None:
        await until(lambda: self.watched() == set(names), f"the watch of {names}, beside {self.watched()},")


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runcroot, "MOST_WATCHES", MOST)
    monkeypatch.setattr(runcroot, "AGAIN_SECONDS", 3600)  # nothing is found by chance


@contextlib.asynccontextmanager
async def looked_at(
    tmp_path: Path, *names: str, prepare: Callable[[Runtime], object] = lambda runtime: None
) -> AsyncIterator[tuple[Runtime, RuncRoot]]:
    """A directory that has these empty ones from before."""
    (root := tmp_path / "root").mkdir()
    runtime = Runtime(root)
    runtime.make(*names)
    prepare(runtime)
    runtime.changes.start()
    made = RuncRoot(Target(Kind.RUNC_ROOT, str(root)), runtime.changes, runtime.observe, runtime.missed)
    try:
        await made.begin()
        yield runtime, made
    finally:
        await made.close()
        runtime.changes.close()


@in_loop
async def test_a_new_directory_takes_the_place_of_the_one_that_was_watched_longest(tmp_path: Path) -> None:
    async with looked_at(tmp_path) as (runtime, _):
        for new, watched in (("a", "a"), ("b", "ab"), ("c", "bc"), ("d", "cd")):
            runtime.make(new)
            await runtime.until_watched(*watched)
        runtime.write_state("a")  # of which nobody hears
        runtime.write_state("c")
        await until(lambda: runtime.found, "the state of c")
        await runtime.until_watched("d")
        assert runtime.found == ["c"]


@in_loop
async def test_a_new_directory_that_cannot_be_watched_takes_no_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where the user's watches are used up, or it has gone again."""
    add, refused = InotifyWatches.add, list[str]()

    def watch_all_but_c(self: InotifyWatches, path: str, mask: int, listener: Listener) -> None:
        if path.endswith("/c"):
            refused.append(path)
            raise OSError(errno.ENOSPC, "No space left on device")
        add(self, path, mask, listener)

    monkeypatch.setattr(InotifyWatches, "add", watch_all_but_c)
    async with looked_at(tmp_path) as (runtime, _):
        for new, watched in (("a", "a"), ("b", "ab")):
            runtime.make(new)
            await runtime.until_watched(*watched)
        runtime.make("c")
        await until(lambda: refused, "the look at c")
        assert runtime.watched() == {"a", "b"}
        runtime.write_state("a")
        await until(lambda: runtime.found == ["a"], "the state of a")


@in_loop
async def test_what_was_known_before_a_listing_that_failed_is_not_new_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would take the places of those that are new."""
    add, listdir, fails = InotifyWatches.add, os.listdir, True

    def watch_in_vain(self: InotifyWatches, path: str, mask: int, listener: Listener) -> None:
        if path == str(tmp_path / "root") and fails:
            raise OSError(errno.ENOSPC, "No space left on device")
        add(self, path, mask, listener)

    monkeypatch.setattr(os, "listdir", lambda path: sorted(listdir(path), reverse=True))
    async with looked_at(tmp_path, "a", "b", "c") as (runtime, root):
        await runtime.until_watched("a", "b")  # the last two of the list
        monkeypatch.setattr(InotifyWatches, "add", watch_in_vain)
        root._everything()
        await until(lambda: "No space left" in root.trouble, "the listing that fails")
        fails = False
        runtime.make("d", "0")
        runtime.write_state("0")
        root._everything()
        await until(lambda: runtime.found == ["0"], "the last of the list")
        assert runtime.watched() == {"c", "d"}  # there was room for c


@in_loop
async def test_what_cannot_be_looked_at_for_want_of_a_descriptor_is_watched_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runcroot, "AGAIN_SECONDS", 0.02)
    async with looked_at(tmp_path, "web") as (runtime, made):
        runtime.refused = [OSError(errno.EMFILE, "Too many open files")] * 2
        runtime.write_state("web")
        await until(lambda: runtime.found == ["web"])
        assert not runtime.refused
        await until(lambda: not made.trouble)


def no_room() -> OSError:
    return OSError(errno.EMFILE, "Too many open files")


def busy() -> Busy:
    error = Busy("process 1 cannot be held: Too many open files")
    error.__cause__ = no_room()
    return error


@pytest.mark.parametrize("refusal", [no_room, busy])
@in_loop
async def test_a_container_for_which_there_was_no_room_is_looked_at_again_soon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refusal: Callable[[], Exception]
) -> None:
    """Its end must not come before."""
    monkeypatch.setattr(runcroot, "ROOM_SECONDS", 0.01)
    async with looked_at(tmp_path, "web") as (runtime, made):
        runtime.refused = [refusal() for _ in range(3)]
        runtime.write_state("web")
        await until(lambda: "Too many open files" in made.trouble, "the trouble")
        await until(lambda: runtime.found == ["web"], "the container")


@in_loop
async def test_what_was_there_before_and_could_not_be_looked_at_at_once_is_not_reported_as_missed(
    tmp_path: Path,
) -> None:
    """It may have ended long ago: its files can outlive it."""

    def leave_one(runtime: Runtime) -> None:
        runtime.write_state("old")
        runtime.refused, runtime.gone = [no_room()], {"old", "new"}

    async with looked_at(tmp_path, "old", prepare=leave_one) as (runtime, made):
        assert not runtime.refused
        runtime.make("new")
        runtime.write_state("new")
        made._everything()
        await until(lambda: runtime.ends and not made._old, "the end of the new one, and the look at the old one")
        assert runtime.ends == ["new"]


@pytest.mark.parametrize("error", [StoreFailed("full"), no_room()])
@in_loop
async def test_an_end_that_was_missed_and_cannot_be_stored_is_reported_later(tmp_path: Path, error: Exception) -> None:
    async with looked_at(tmp_path) as (runtime, made):
        runtime.unstored, runtime.gone = [error], {"web"}
        runtime.make("web")
        runtime.write_state("web")
        await until(lambda: made.trouble, "the refusal")
        made._everything()
        await until(lambda: runtime.ends == ["web"], "its end")
