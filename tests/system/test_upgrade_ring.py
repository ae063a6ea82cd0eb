"""An earlier exitd is killed when it has reported ends that only its ring has: the next exitd, this one, has them all,
each once, and both kinds of numbers go on, those of events and those of the ring's blocks."""

import contextlib
import os
import pathlib
import sqlite3
from collections.abc import Iterator

import pytest

from protos.exitd.v1 import exitd_pb2 as pb
from shim import record
from supervisor.api.client import Client
from supervisor.store import ring, ringends
from tests.system import lives
from tests.system.daemons import Daemon, remove_all
from tests.system.lives import word
from tests.system.processes import killed
from tests.system.test_upgrade import TODAY, WAIT, daemon, go, is_of, short, version
from tests.system.versions import VERSIONS
from tests.system.waits import LIMIT_SECONDS, until

WITH_RING = VERSIONS[3:]
pytestmark = pytest.mark.timeout(1200)  # both are built, if no test has done it yet


@contextlib.contextmanager
def database_held(d: Daemon) -> Iterator[None]:
    """For the block: no other program gets anything into the database. Everybody can read it."""
    with contextlib.closing(sqlite3.connect(d.root / "exitd.db", isolation_level=None)) as holder:
        holder.execute("BEGIN IMMEDIATE")
        yield
        holder.execute("ROLLBACK")


def stored(d: Daemon) -> set[tuple[str, int]]:
    """The ends that the database has."""
    with contextlib.closing(sqlite3.connect(f"file:{d.root}/exitd.db?mode=ro", uri=True)) as database:
        return set(database.execute("SELECT container, run FROM exits").fetchall())


def block_of(d: Daemon, container: str) -> int:
    """The number of the one block in which this end is."""
    with contextlib.closing(sqlite3.connect(f"file:{d.root}/exitd.db?mode=ro", uri=True)) as database:
        (identity,) = database.execute("SELECT value FROM meta WHERE key = ?", (ringends.IDENTITY,)).fetchone()
    found = ring.blocks((d.root / "exitd.ring").read_bytes(), bytes.fromhex(identity))
    (number,) = [block.number for block in found if container.encode() in block.payload]
    return number


class Ends:
    """Containers that end one after the other, each in a block of its own, while nothing gets into the database."""

    def __init__(self, d: Daemon, client: Client, place: pathlib.Path) -> None:
        place.mkdir()
        self._daemon, self._place = d, place
        mounts = [pb.Mount(source=str(place), destination="/mnt")]

        def up(name: str, code: int, **fields: object) -> pb.Container:
            os.mkfifo(place / name)
            return lives.up(client, "sh", "-c", WAIT.format(name, code), mounts=mounts, **fields)

        self.code = up("code", 43)
        self.again = up("again", 9, restart="on-failure:1")
        self.gone = up("gone", 5, auto_remove=True)
        self.all = (self.code, self.again, self.gone)

    def end(self, client: Client) -> dict[str, pb.Exit]:
        """What the clients are told, when exitd has been killed over it. What the shims have recorded is lost with it,
        where exitd has not cleaned it up already: the ring alone has these ends."""
        waits = {each.id: client.begin_wait(each.id, run=1) for each in self.all}
        before = stored(self._daemon)
        told = dict[str, pb.Exit]()
        with database_held(self._daemon):
            for name, each in zip(("code", "again", "gone"), self.all, strict=True):
                go(self._place / name)
                told[each.id] = lives.ended(waits[each.id].result(LIMIT_SECONDS))
            self.events = lives.events(client)
            killed(self._daemon.pid)
            assert stored(self._daemon) == before
        self.blocks = [block_of(self._daemon, each.id) for each in self.all]
        assert self.blocks == sorted(set(self.blocks))
        for each in self.all:
            (self._daemon.state / "c" / each.id / "1" / record.NAME).unlink(missing_ok=True)
        return told

    def judge(self, client: Client, told: dict[str, pb.Exit]) -> None:
        """Each is there as it was told, once, and what it had decided is done."""
        assert [word(told[each.id]) for each in self.all] == ["exited 43", "exited 9", "exited 5"]
        assert {(exit.source, exit.decision) for exit in told.values()} == {
            ("record", decision) for decision in ("ended", "restart", "remove")
        }
        for each in self.all:
            assert lives.ledger(client, each.id)[0] == told[each.id]
            assert lives.ended(client.begin_wait(each.id, run=1).result(LIMIT_SECONDS)) == told[each.id]
        go(self._place / "again")
        second = lives.ended(client.begin_wait(self.again.id, run=2).result(LIMIT_SECONDS))
        assert lives.ledger(client, self.again.id) == [told[self.again.id], second] and word(second) == "exited 9"
        until(lambda: self.gone.id not in {c.id for c in client.list(all_of_them=True)}, "it does not remove itself")
        now = lives.events(client)
        assert now[: len(self.events)] == self.events
        assert [event.seq for event in now] == list(range(1, len(now) + 1))
        ended = [(e.exit.container_id, e.exit.run) for e in now if e.type == "exit"]
        rows = [(row.container_id, row.run) for row in client.exits(pb.ExitsRequest())]
        assert sorted(ended) == sorted(rows) == sorted(set(rows))


@pytest.mark.parametrize("commit", WITH_RING, ids=short)
def test_ends_that_only_an_earlier_exitds_ring_has_are_there_under_this_one_each_once(
    commit: str, tmp_path: pathlib.Path
) -> None:
    """This one is killed over such ends, too: the blocks that it writes are newer than those that it has found."""
    config = tmp_path / "config.toml"
    config.write_text("[limits]\nring_flush_seconds = 60\n")  # no flush is too slow for the ring
    with daemon(version(commit), "--config", str(config)) as (d, installed):
        with d.client() as client:
            lives.run(client, "true")
            first = Ends(d, client, d.base / "first")
            told = first.end(client)
        installed.put(TODAY)
        d.start()
        assert is_of(d.pid, TODAY)
        with d.client() as client:
            first.judge(client, told)
            second = Ends(d, client, d.base / "second")
            told_now = second.end(client)
        assert min(second.blocks) > max(first.blocks)
        d.start()
        with d.client() as client:
            second.judge(client, told_now)
            assert [lives.ledger(client, each.id)[0] for each in first.all] == [told[each.id] for each in first.all]
            assert word(lives.run(client, "sh", "-c", "exit 3")[1]) == "exited 3"
            remove_all(client)
