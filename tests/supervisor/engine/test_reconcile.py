import asyncio
import dataclasses
import os
import threading
from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from shim import fields, record
from supervisor.config.settings import Config, Limits
from supervisor.engine import reconcile
from supervisor.engine.operations import Settings
from supervisor.engine.reconcile import ReconcileParts
from supervisor.engine.unknownruns import UnknownRuns
from supervisor.model.errors import ShimFailed
from supervisor.model.values import Phase, RunKey
from supervisor.monitor import epoll, rundir
from supervisor.monitor.orphans import Orphans
from supervisor.runtime.managers import ContainerRuntimes
from tests.shim.test_record import PLAIN, written
from tests.supervisor.children import child, ends_unreaped, name_of
from tests.supervisor.fakes import World, until, world
from tests.supervisor.happenings import container

SLOT = record.ENTRY_BYTES
NOBODY = "0" * 64  # an id of exitd's own kind, which no container has


class Machine:
    """What a round asks of the native manager, besides the seam; and the directories it looks through."""

    def __init__(self, base: Path, w: World) -> None:
        self.settings = Settings(str(base / "r"), str(base / "s"))
        (base / "s").mkdir()
        self.looks = 0
        self.leaked: list[tuple[str, int]] = []
        self.needed: frozenset[RunKey] = frozenset()
        self.fails: list[Exception] = []
        self.world = w
        self.running: set[str] = set()
        self.roots: list[str] = []
        self.parts = ReconcileParts(
            w.runs, cast(ContainerRuntimes, self), self.settings, UnknownRuns(w.runs, self.settings.state)
        )

    async def look_at_memory(self) -> None:
        pass

    def look_at_all(self) -> None:
        self.looks += 1
        if self.fails:
            raise self.fails.pop()

    async def delete_leaked_run(self, container_id: str, run: int, *, stranger: bool) -> None:
        self.leaked.append((container_id, run))
        rundir.remove(rundir.path_of(self.settings.state, container_id, run))

    async def discard(self, container_id: str, *, is_pod: bool = True) -> None:
        await self.world.manager.discard(container_id)

    async def runs_on(self, container_id: str) -> bool:
        return container_id in self.running

    async def discard_root(self, container_id: str) -> None:
        self.roots.append(container_id)

    async def sweep_cgroups(self, known: Collection[str]) -> None:
        self.known = set(known)

    async def acknowledge_strangers(self, needed: Callable[[], frozenset[RunKey]]) -> int:
        self.needed = needed()
        return 0

    def run_directory(self, id: str, run: int) -> None:
        os.makedirs(rundir.path_of(self.settings.state, id, run))

    def bundle(self, id: str) -> None:
        os.makedirs(f"{self.settings.root}/c/{id}/bundle")

    async def round(self) -> None:
        await reconcile.once(self.parts)


def test_what_belongs_to_nobody_is_removed_and_what_belongs_to_somebody_stays(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path) as w:
            m = Machine(tmp_path, w)
            w.node.containers["live"] = replace(container(), id="live", run=2)
            w.node.containers["ended"] = replace(container(Phase.EXITED), id="ended")
            w.node.containers["unclean"] = replace(container(Phase.EXITED, run=3), id="unclean", clean=False)
            for id, run in (("live", 2), ("ended", 1), ("unclean", 2), ("unclean", 3), (NOBODY, 1), ("ended", 0)):
                m.run_directory(id, run)
            for id in ("live", "ended", NOBODY):
                m.bundle(id)
            await m.round()
            assert sorted(m.leaked) == [(NOBODY, 1), ("ended", 0)]
            assert w.manager.discarded == [NOBODY]
            await m.round()
            assert (len(m.leaked), m.looks) == (2, 2)

    asyncio.run(main())


def test_files_of_what_does_not_end_stay_and_roots_that_nothing_leads_to_go(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path) as w:
            m = Machine(tmp_path, w)
            w.node.containers["1" * 64] = replace(container(), id="1" * 64)
            m.bundle(NOBODY)
            for id in ("1" * 64, NOBODY, "strange"):
                os.makedirs(f"{m.settings.state}/roots/{id}")
            m.running = {NOBODY}
            await m.round()
            assert (w.manager.discarded, m.roots) == ([], [])
            m.running = set()
            await m.round()
            assert (w.manager.discarded, m.roots) == ([NOBODY], [NOBODY])

    asyncio.run(main())


def test_what_exitd_did_not_make_is_neither_removed_nor_forgotten_by_the_keeper(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path) as w:
            m = Machine(tmp_path, w)
            m.run_directory("by-hand", 1)
            m.bundle("by-hand")
            await m.round()
            assert (m.leaked, w.manager.discarded) == ([], [])
            assert m.needed == {RunKey("by-hand", 1)}

    asyncio.run(main())


@pytest.mark.parametrize("phase", Phase)
def test_an_acknowledgement_is_kept_back_while_its_exit_may_not_be_stored(tmp_path: Path, phase: Phase) -> None:
    async def main() -> None:
        async with world(tmp_path) as w:
            m = Machine(tmp_path, w)
            w.node.containers["c1"] = container(phase)
            await m.round()
            over = phase in (Phase.EXITED, Phase.RESTARTING, Phase.REMOVING)
            assert m.needed == (frozenset() if over else {RunKey("c1", 1)})

    asyncio.run(main())


def test_what_the_keeper_has_of_execs_is_kept_as_long_as_they_are_not_stored(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path) as w:
            m = Machine(tmp_path, w)
            m.parts = replace(m.parts, execs=lambda: [RunKey("c1", 1, "e1")])
            await m.round()
            assert m.needed == {RunKey("c1", 1, "e1")}

    asyncio.run(main())


def journal_of(path: Path, pid: int, started: int, *entries: record.Record) -> Path:
    head: list[tuple[str, str | int]] = [
        ("instance", "i"),
        ("boot_id", "boot"),
        ("pid", pid),
        ("started", started),
        ("slot_size", SLOT),
    ]
    blocks = [fields.encode("exitd-journal", head), *(written(entry, SLOT) for entry in entries)]
    path.write_bytes(b"".join(block.ljust(SLOT, b"\0") for block in blocks))
    return path


def test_a_dead_keepers_journal_goes_once_everything_in_it_is_stored(tmp_path: Path) -> None:
    entry = dataclasses.replace(PLAIN, id="c1", run=1)

    async def main() -> None:
        async with world(tmp_path) as w:
            m = Machine(tmp_path, w)
            state = tmp_path / "s"
            with child() as process:
                name = name_of(process)
                alive = journal_of(state / "keeper-1.journal", name.pid, name.started_ticks)
                dead = journal_of(state / "keeper-2.journal", name.pid, name.started_ticks + 1, entry)
                damaged = state / "keeper-3.journal"
                damaged.write_bytes(b"half")
                w.node.containers["c1"] = container()
                await m.round()
                assert alive.exists() and dead.exists() and damaged.exists()
                w.node.containers["c1"] = container(Phase.EXITED)
                await m.round()
                assert alive.exists() and not dead.exists()
                ends_unreaped(process)
            await m.round()
            assert not alive.exists()

    asyncio.run(main())


@pytest.mark.parametrize("written", [b"", bytes(4096)])
def test_a_journal_without_a_header_goes_once_its_keeper_has_ended(tmp_path: Path, written: bytes) -> None:
    async def main() -> None:
        async with world(tmp_path) as w:
            m = Machine(tmp_path, w)
            with child() as process:
                empty = tmp_path / f"s/keeper-8a-{process.pid}.journal"
                half = tmp_path / f"s/keeper-8b-{process.pid}.journal"
                empty.write_bytes(written)
                half.write_bytes(b"half")
                await m.round()
                assert empty.exists()
            await m.round()
            assert not empty.exists() and half.exists()

    asyncio.run(main())


def test_a_dead_keeper_whose_pid_is_a_threads_by_now_keeps_no_journal_from_going(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path) as w:
            m = Machine(tmp_path, w)
            over = threading.Event()
            thread = threading.Thread(target=over.wait)
            thread.start()
            try:
                journals = [journal_of(tmp_path / f"s/keeper-{n}.journal", thread.native_id or 0, n) for n in (1, 2)]
                await m.round()
                assert not [path for path in journals if path.exists()]
            finally:
                over.set()
                thread.join()

    asyncio.run(main())


def test_what_a_keeper_wrote_between_a_look_at_its_journal_and_its_death_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with world(tmp_path) as w:
            m = Machine(tmp_path, w)
            path = journal_of(tmp_path / "s/keeper-1.journal", 4711, 1)

            def writes_and_dies(pid: int, started: int) -> None:
                journal_of(path, pid, started, dataclasses.replace(PLAIN, id="c1", run=1))

            monkeypatch.setattr(epoll, "open_process", writes_and_dies)
            w.node.containers["c1"] = container()
            await m.round()
            assert path.exists()

    asyncio.run(main())


def test_a_round_that_fails_does_not_end_the_loop(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path) as w:
            m = Machine(tmp_path, w)
            m.fails = [ShimFailed("busy"), OSError(5, "io")]
            now = Config(limits=Limits(reconcile_seconds=0.001))
            parts = replace(m.parts, settings=replace(m.settings, now=lambda: now))
            loop = asyncio.create_task(reconcile.forever(parts))
            await until(lambda: m.looks >= 4)
            loop.cancel()

    asyncio.run(main())


def test_as_pid_1_a_look_for_orphans_that_fails_does_not_end_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class NoDescriptors:
        looks = 0

        def reap(self, spared: Collection[int]) -> int:
            self.looks += 1
            raise OSError(24, "Too many open files")

    async def main() -> None:
        async with world(tmp_path) as w:
            monkeypatch.setattr(os, "getpid", lambda: 1)
            m, orphans = Machine(tmp_path, w), NoDescriptors()
            now = Config(limits=Limits(reconcile_seconds=0.001))
            settings = replace(m.settings, now=lambda: now)
            loop = asyncio.create_task(
                reconcile.forever(replace(m.parts, settings=settings, orphans=cast(Orphans, orphans)))
            )
            await until(lambda: orphans.looks >= 3)
            loop.cancel()

    asyncio.run(main())
