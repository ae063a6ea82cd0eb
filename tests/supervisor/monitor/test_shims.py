"""What exitd holds of a new shim's streams; and a replacement for a lost shim: tried for as long as the run lives, and
for a limit after its end."""

import asyncio
import contextlib
import errno
import os
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from shim import fields, launch, native, slots
from supervisor.model.errors import Busy, ShimFailed
from supervisor.model.values import Process, RunKey
from supervisor.monitor import epoll, keeper, rundir, shims
from supervisor.monitor.shims import Shims
from supervisor.monitor.witness import ShimWatch, Watch
from tests.supervisor.descriptors import held_now, opened_since
from tests.supervisor.fakes import in_loop, until


class Full(Shims):
    """There is no room for any."""

    def __init__(self) -> None:
        self.tries = 0

    async def begin(self, *args: Any, **options: Any) -> launch.Created | launch.Failed | None:
        self.tries += 1
        raise Busy("full")


@in_loop
async def test_a_replacement_is_given_up_after_the_end_when_there_is_no_room_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shims, "ADOPT_REST_SECONDS", 0.001)
    monkeypatch.setattr(shims, "ROOM_SECONDS", 0.05)
    senses: Any = None
    full, watch = Full(), Watch(RunKey("c1", 1), rundir.RunDirectory(str(tmp_path)), senses)
    replacing = asyncio.ensure_future(full.replace(watch))
    await until(lambda: full.tries > 100)  # for as long as it lives
    assert not replacing.done()
    watch.reported = True
    async with asyncio.timeout(30):
        assert await replacing is False
    tries = full.tries
    assert await full.replace(watch) is False  # the limit has passed for all who ask
    assert full.tries == tries + 1


class Silent(keeper.Keeper):
    """Does not answer now, or has just died and the next one is about to listen; or cannot be started."""

    def __init__(self, state: str, *, may_be_there: bool, was_closed: bool) -> None:
        super().__init__(state, "no program", lambda: None)
        self.silent = keeper.KeeperSilent("it did not answer a moment ago")
        self.silent.may_be_there, self.silent.was_closed = may_be_there, was_closed

    async def spawn(self, request: bytes, descriptors: Sequence[int]) -> tuple[int, int, int]:
        raise self.silent


@pytest.mark.parametrize(
    ("may_be_there", "was_closed", "error"), [(True, False, Busy), (True, True, Busy), (False, False, ShimFailed)]
)
@in_loop
async def test_a_keeper_that_is_silent_for_a_moment_is_asked_again_since_it_may_have_the_only_end_of_the_output(
    tmp_path: Path, may_be_there: bool, was_closed: bool, error: type[Exception]
) -> None:
    """`replace` repeats what is Busy; exitd has no copy of the output here."""
    monitor = epoll.Monitor()
    senses: Any = Senses(monitor)
    watch = Watch(RunKey("c1", 1), rundir.RunDirectory(str(tmp_path)), senses)
    try:
        with pytest.raises(error, match="it did not answer a moment ago"):
            line = Silent(str(tmp_path), may_be_there=may_be_there, was_closed=was_closed)
            await Shims(monitor, line).begin(watch, 0.1, adopt=True)
    finally:
        watch.close()
        monitor.close()


class Taken(Shims):
    """Each shim that is begun finds another at work, and ends at once."""

    def __init__(self) -> None:
        self.begun = 0

    async def begin(self, *args: Any, **options: Any) -> launch.Created | launch.Failed | None:
        self.begun += 1
        await asyncio.sleep(0)
        return launch.Failed(shims.LOCK_STAGE, errno.EWOULDBLOCK, 0, "")

    def find(self, watch: ShimWatch) -> None:
        watch.watch_shim(Process(os.getpid(), STARTED), os.pidfd_open(os.getpid()))


@in_loop
async def test_a_replacement_whose_end_is_seen_before_the_shim_at_work_is_found_is_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shims, "ADOPT_REST_SECONDS", 0.05)
    with begins(tmp_path) as (_, watch, _):
        taken = Taken()
        assert all(await asyncio.gather(taken.replace(watch), taken.replace(watch)))
        assert taken.begun == 1


class Senses:
    """All that a shim's watch asks of them here."""

    def __init__(self, monitor: epoll.Monitor) -> None:
        self.monitor = monitor

    def on_over(self, key: RunKey) -> None:
        pass


class Begins(keeper.Keeper):
    """Says of this process that it is the shim, and that it has created this process."""

    def __init__(self, state: str) -> None:
        super().__init__(state, "no program", lambda: None)
        self.asked: list[str] = []
        self.files: dict[int, tuple[int, int]] = {}  # by slot: what came with the request

    async def spawn(self, request: bytes, descriptors: Sequence[int]) -> tuple[int, int, int]:
        numbers = [int(value) for name, value in fields.decode(request).pairs if name == "seat"]
        self.files = {slot: file(fd) for slot, fd in zip(numbers, descriptors, strict=True)}
        me = [("pid", os.getpid()), ("started", STARTED), ("shim_pid", os.getpid()), ("shim_started", STARTED)]
        created = fields.encode("exitd-status", [("kind", "created"), *me, ("keeper", "yes")])
        with socket.socket(fileno=os.dup(descriptors[0])) as status:
            status.send(created)
        return os.getpid(), STARTED, os.pidfd_open(os.getpid())

    async def copies(self, container: str, run: int, exec_id: str = "") -> dict[int, int]:
        self.asked.append(container)
        raise keeper.KeeperSilent("not now")


STARTED = native.process_stat(os.getpid())[2]


def file(fd: int) -> tuple[int, int]:
    found = os.fstat(fd)
    return found.st_dev, found.st_ino


@contextlib.contextmanager
def begins(tmp_path: Path) -> Iterator[tuple[Begins, Watch, Shims]]:
    before = held_now()
    monitor, line = epoll.Monitor(), Begins(str(tmp_path))
    senses: Any = Senses(monitor)
    watch = Watch(RunKey("c1", 1), rundir.RunDirectory(str(tmp_path)), senses)
    try:
        yield line, watch, Shims(monitor, line)
    finally:
        watch.close()
        monitor.close()
    assert not opened_since(before)


@in_loop
async def test_exitd_holds_copies_of_a_new_shims_output_without_asking_the_keeper_for_them(tmp_path: Path) -> None:
    with begins(tmp_path) as (line, watch, some):
        assert isinstance(await some.begin(watch, 30, adopt=False, stdin=True), launch.Created)
        held = {slot: file(fd) for slot, fd in watch.copies.items()}
        assert held == {slot: line.files[slot] for slot in slots.KEPT_OUTPUT}  # the input's end would keep it open
        await some._background.settled()
        assert line.asked == []


@in_loop
async def test_a_terminals_master_comes_into_being_with_init_and_the_keeper_is_asked_for_it(tmp_path: Path) -> None:
    with begins(tmp_path) as (line, watch, some):
        assert isinstance(await some.begin(watch, 30, adopt=False, tty=True), launch.Created)
        await until(lambda: line.asked == ["c1"])
        assert watch.copies == {}
