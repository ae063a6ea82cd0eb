"""Memory kills are reported while init lives: the kernel's own counter with v1, a made-up tree with v2."""

import asyncio
import contextlib
import os
import pathlib
import resource
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator

import pytest

from supervisor.model.values import RunKey
from supervisor.monitor.epoll import Monitor
from supervisor.runtime.oci import cgroups, oomwatch
from supervisor.runtime.oci.oomwatch import OomWatch
from supervisor.system.inotify import Inotify, Overflow
from tests.supervisor.children import descriptors
from tests.supervisor.descriptors import held_now, opened_since
from tests.supervisor.fakes import in_loop, until
from tests.supervisor.runtime.oci.test_cgroups import needs_cgroups, put

KEY = RunKey("c1", 1)
PATH = "/exitd/c1"
LIMIT_BYTES = 16 << 20


class Bench:
    """An OomWatch and what it has reported. `dying` are the runs whose init is."""

    def __init__(self, root: str) -> None:
        self.monitor, self.changes = Monitor(), Inotify()
        self.changes.start()
        self.dying: set[RunKey] = set()
        self.asked = 0
        self.reported: list[tuple[str, int]] = []
        self.watch = OomWatch(self.monitor, self.changes, lives=self.lives, report=self.report, root=root)

    def lives(self, key: RunKey) -> bool:
        self.asked += 1
        return key not in self.dying

    def report(self, key: RunKey, kills: int) -> None:
        self.reported.append((key.container, kills))


@contextlib.asynccontextmanager
async def bench(root: pathlib.Path | str = cgroups.ROOT) -> AsyncIterator[Bench]:
    before = held_now()
    made = Bench(str(root))
    try:
        yield made
    finally:
        made.watch.close()
        assert len(made.watch) == 0 and len(made.monitor) == 0
        made.changes.close()
        made.monitor.close()
    assert not opened_since(before)


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oomwatch, "PATIENCE_SECONDS", 0.05)


@pytest.fixture
def v2(tmp_path: pathlib.Path) -> pathlib.Path:
    put(tmp_path / "cgroup.controllers", "memory\n")
    counted(tmp_path, 0)
    return tmp_path


def counted(root: pathlib.Path, kills: int, container: str = "c1") -> None:
    put(root / f"exitd/{container}/memory.events", f"low 0\nhigh 0\nmax 9\noom 3\noom_kill {kills}\n")


@in_loop
async def test_each_new_count_is_reported_once_while_init_lives(v2: pathlib.Path) -> None:
    async with bench(v2) as b:
        b.watch.begin(KEY, PATH)
        counted(v2, 1)
        await until(lambda: b.reported == [("c1", 1)])
        counted(v2, 1)  # an event of the file that was no kill
        counted(v2, 3)
        await until(lambda: b.reported == [("c1", 1), ("c1", 3)])


@in_loop
async def test_a_kill_that_init_does_not_outlive_is_left_to_its_end(v2: pathlib.Path) -> None:
    async with bench(v2) as b:
        b.dying.add(KEY)
        b.watch.begin(KEY, PATH)
        counted(v2, 1)
        await until(lambda: b.asked)
        b.watch.end(KEY)
        assert b.reported == []


@in_loop
async def test_init_has_the_whole_patience_to_die_even_when_somebody_looks_in_between(v2: pathlib.Path) -> None:
    loop = asyncio.get_running_loop()
    async with bench(v2) as b:
        b.watch.begin(KEY, PATH)
        counted(v2, 1)
        await until(lambda: b.watch._runs[KEY].seen == 1)
        for kills in (2, 3, 4):
            counted(v2, kills)
            began = loop.time()
            await b.watch.look_at_all()
            before = len(b.reported)
            await until(lambda: len(b.reported) > before)  # noqa: B023
            assert b.reported[-1] == ("c1", kills) and loop.time() - began >= oomwatch.PATIENCE_SECONDS


@in_loop
async def test_what_happened_before_anybody_watched_is_reported_too(v2: pathlib.Path) -> None:
    counted(v2, 2)
    async with bench(v2) as b:
        b.watch.begin(KEY, PATH)
        await until(lambda: b.reported == [("c1", 2)])


@in_loop
async def test_a_kill_that_no_cgroup_here_counts_is_reported_like_the_others_and_counted_on_by_the_next_daemon(
    v2: pathlib.Path,
) -> None:
    async with bench(v2) as b:
        b.watch.begin(KEY, PATH)
        b.watch.note(KEY)
        assert b.watch.seen(KEY) == 1
        await until(lambda: b.reported == [("c1", 1)])
        b.watch.begin(KEY, PATH, noted=1)
        b.watch.note(KEY)
        await until(lambda: b.reported[-1] == ("c1", 2))
        b.watch.note(RunKey("nobody", 1))


@in_loop
async def test_a_change_that_got_lost_is_found_by_the_slow_loop_and_by_an_overflow(v2: pathlib.Path) -> None:
    async with bench(v2) as b:
        b.watch.begin(KEY, PATH)
        b.changes._watches.clear()  # nothing wakes it any more
        counted(v2, 1)
        await b.watch.look_at_all()
        await until(lambda: b.reported == [("c1", 1)])
        await b.watch.look_at_all()  # reported again: perhaps it could not be stored
        await until(lambda: b.reported == [("c1", 1), ("c1", 1)])
    async with bench(v2) as b:
        b.watch.begin(KEY, PATH)
        await until(lambda: b.reported)
        counted(v2, 5)
        b.changes.dispatch(Overflow())
        await until(lambda: b.reported[-1] == ("c1", 5))


@in_loop
async def test_nothing_is_reported_after_the_end_and_a_new_run_begins_at_its_own_count(
    v2: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with bench(v2) as b:
        with monkeypatch.context() as patient:
            patient.setattr(oomwatch, "PATIENCE_SECONDS", 60.0)  # the end comes first, however slow the machine is
            b.watch.begin(KEY, PATH)
            counted(v2, 4)
            await until(lambda: b.watch._runs[KEY].seen == 4)
        b.watch.end(KEY)
        b.watch.end(KEY)
        counted(v2, 0)
        b.watch.begin(RunKey("c1", 2), PATH)
        counted(v2, 1)
        await until(lambda: b.reported)
        assert b.reported == [("c1", 1)]


@in_loop
async def test_a_cgroup_that_is_not_there_or_goes_away_is_no_error(v2: pathlib.Path) -> None:
    async with bench(v2) as b:
        b.watch.begin(KEY, "/exitd/nobody")
        b.watch.begin(RunKey("c1", 2), PATH)
        (v2 / "exitd/c1/memory.events").unlink()
        await b.watch.look_at_all()
        assert b.reported == []


@in_loop
async def test_what_was_counted_is_still_known_when_the_cgroup_has_gone(v2: pathlib.Path) -> None:
    async with bench(v2) as b:
        b.dying.add(KEY)
        b.watch.begin(KEY, PATH)
        assert b.watch.seen(KEY) == 0
        counted(v2, 2)
        await until(lambda: b.watch.seen(KEY) == 2)
        (v2 / "exitd/c1/memory.events").unlink()
        await until(lambda: b.asked)
        assert b.watch.seen(KEY) == 2
        b.watch.end(KEY)
        assert b.watch.seen(KEY) == 0


@in_loop
async def test_a_thousand_containers_take_one_inotify_instance(tmp_path: pathlib.Path) -> None:
    """fs.inotify.max_user_instances is 128 for all that a user runs."""
    put(tmp_path / "cgroup.controllers", "memory\n")
    names = [f"c{number}" for number in range(1000)]
    for name in names:
        counted(tmp_path, 0, name)
    async with bench(tmp_path) as b:
        for name in names:
            b.watch.begin(RunKey(name, 1), f"/exitd/{name}")
        assert inotify_instances() == 1
        for name in names[::100]:
            counted(tmp_path, 1, name)
        await until(lambda: len(b.reported) >= 10)
        assert sorted(b.reported) == [(name, 1) for name in names[::100]]


def inotify_instances() -> int:
    links = [os.readlink(f"/proc/self/fd/{fd}") for fd in descriptors() if os.path.exists(f"/proc/self/fd/{fd}")]
    return links.count("anon_inode:inotify")


@pytest.fixture
def limited() -> Iterator[str]:
    """A cgroup of the kernel's, with a limit."""
    path = f"/exitd-test-oom-{os.getpid()}"
    cgroups.limit_memory(path, LIMIT_BYTES)
    yield path
    cgroups.remove(path)


def bomb_in(path: str) -> None:
    """A process that goes into the cgroup, and is killed there."""
    script = "import os,sys; open(sys.argv[1], 'w').write(str(os.getpid())); x = b'x' * (1 << 28)"
    procs = f"{cgroups.paths(path)['memory']}/cgroup.procs"
    bomb = subprocess.run([sys.executable, "-c", script, procs], check=False, timeout=20)
    assert bomb.returncode == -9


@needs_cgroups
@pytest.mark.skipif(cgroups.mode() is cgroups.Mode.V2, reason="the kernel has no v1 hierarchies here")
@in_loop
async def test_the_kernel_wakes_us_when_memory_runs_out_in_a_v1_cgroup_or_above_it(limited: str) -> None:
    below = f"{limited}/member"
    os.makedirs(cgroups.paths(below)["memory"])
    async with bench() as b:
        b.watch.begin(KEY, limited)
        b.watch.begin(RunKey("member", 1), below)
        await asyncio.to_thread(bomb_in, below)  # the limit is its parent's, the victim is counted where it was
        await until(lambda: b.reported == [("member", 1)])
        await asyncio.to_thread(bomb_in, limited)
        await until(lambda: ("c1", 1) in b.reported)
        await asyncio.to_thread(bomb_in, below)
        await until(lambda: ("member", 2) in b.reported)
        os.rmdir(cgroups.paths(below)["memory"])  # the kernel wakes us for that as well
        await until(lambda: b.watch._runs[RunKey("member", 1)].timer is not None)
        assert b.reported == [("member", 1), ("c1", 1), ("member", 2)]


@needs_cgroups
@in_loop
async def test_where_no_descriptor_can_be_had_the_slow_loop_still_reports(limited: str) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    async with bench() as b:
        taken = len(descriptors())
        resource.setrlimit(resource.RLIMIT_NOFILE, (taken, hard))
        try:
            b.watch.begin(KEY, limited)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        await asyncio.to_thread(bomb_in, limited)
        await b.watch.look_at_all()
        await until(lambda: b.reported == [("c1", 1)])
