"""Rows of the database, and files of the state directory, that are damaged between two lives of exitd: each costs its
own container, which is shown as what it is, and no other; and no end that anybody saw."""

import contextlib
import json
import os
import pathlib
import shutil
import signal
import sqlite3
from collections.abc import Iterator

import pytest

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.api.client import Client
from supervisor.model.errors import WrongState
from tests.system import daemons, execs, lives
from tests.system.daemons import Daemon, left, remove_all, spec, warm_up
from tests.system.exitctl import Cli
from tests.system.lives import last_exit, ledger, word
from tests.system.processes import commands, cwd_of
from tests.system.waits import LIMIT_SECONDS, until

PATIENT = "while [ -e /mnt/{} ]; do sleep 0.01; done; exit 7"  # until the file has gone


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    with daemons.daemon(extra=("--reconcile-seconds", "0.2")) as made:
        yield made


@pytest.fixture
def go(tmp_path: pathlib.Path) -> pathlib.Path:
    path = tmp_path / "go"
    path.mkdir()
    return path


def patient(client: Client, go: pathlib.Path, **fields: object) -> str:
    """The id of a container that exits with 7 once the directory has gone."""
    mounts = [pb.Mount(source=str(go.parent), destination="/mnt", read_only=True)]
    return client.start(client.create(spec("sh", "-c", PATIENT.format(go.name), mounts=mounts, **fields)).id).id


@contextlib.contextmanager
def damaging(daemon: Daemon) -> Iterator[sqlite3.Connection]:
    """The database, while exitd is away; exitd is up again afterwards. It ended in order: the newest ends of one that
    was killed may be in its ring alone."""
    daemon.kill(signal.SIGTERM)
    try:
        with contextlib.closing(sqlite3.connect(daemon.root / "exitd.db")) as database, database:
            yield database
    finally:
        daemon.start()


def field(database: sqlite3.Connection, id: str, name: str, value: object) -> None:
    """One field of a container's row is something else."""
    (body,) = database.execute("SELECT body FROM containers WHERE id = ?", (id,)).fetchone()
    changed = json.dumps({**json.loads(body), name: value})
    database.execute("UPDATE containers SET body = ? WHERE id = ?", (changed, id))


def unreadable(database: sqlite3.Connection, id: str) -> None:
    database.execute("UPDATE containers SET body = CAST(x'7b22ff' AS TEXT) WHERE id = ?", (id,))


def is_live(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    return False


def test_a_row_that_cannot_be_read_costs_its_own_container_alone(daemon: Daemon, go: pathlib.Path) -> None:
    cli = Cli(daemon)
    with daemon.client() as client:
        warm_up(client)
        before = left(daemon)
        good, field_, whole = (patient(client, go, name=name) for name in ("good", "field", "whole"))
        always = patient(client, go, name="always", restart="always")
        over = lives.run(client, "sh", "-c", "exit 3", name="over")[0]
        pause = client.run_pod(pb.ContainerSpec(image="pause", pod=pb.PodSpec(name="p"))).pause.id
        member = lives.up(client, name="m", sandbox=pause)
    with damaging(daemon) as database:
        field(database, field_, "phase", "dreaming")
        field(database, always, "created_ns", 2**63)
        for id in (whole, over, pause):
            unreadable(database, id)
        for table, columns in (("task_execs", 3), ("tombstones", 6), ("watches", 2), ("observed", 3)):
            words = ", ".join(["'x'"] * columns)
            database.execute(f"INSERT INTO {table} VALUES ({words})")
    with daemon.client() as client:
        shown = client.list(all_of_them=True)
        assert {c.id for c in shown if c.damaged} == {field_, whole, always, over, pause}
        assert len(shown) == len({c.id for c in shown}) == 7
        assert "dreaming" in client.inspect(field_).damaged
        for id, name in ((field_, "field"), (whole, "whole")):
            assert client.inspect(name).id == id
            assert client.inspect(id).phase == pb.PHASE_RUNNING
            with pytest.raises(WrongState, match="its row cannot be read"):
                client.pause(id)
        assert client.inspect(over).phase == pb.PHASE_EXITED
        with pytest.raises(WrongState, match="exitctl rm -f"):
            client.start(over)
        assert [line for line in cli.ok("ps", "-a").splitlines() if "(damaged)" in line and "whole" in line]
        assert "(damaged)" not in cli.ok("ps", "-a", "--filter", "name=good")
        assert "its row cannot be read" in cli.ok("why", "over")
        assert json.loads(cli.ok("inspect", "whole"))[0]["Exitd"]["Damaged"]
        # What runs goes on, and its end is known as ever; nothing comes after it that its policy would have wanted.
        assert is_live(client.inspect(member.id).init.pid) and is_live(client.inspect(pause).init.pid)
        go.rmdir()
        for id in (good, field_, whole, always):
            exit_ = last_exit(client, id)
            assert (word(exit_), exit_.source) == ("exited 7", "record")
        assert [word(each) for each in ledger(client, over)] == ["exited 3"]
        until(lambda: client.inspect(always).phase == pb.PHASE_EXITED, "the damaged one does not rest")
    daemon.restart()  # what was made of the rows is stored: the next exitd finds the same
    with daemon.client() as client:
        assert client.inspect("whole").damaged
        told = [event.id for event in lives.events(client) if event.type == "damaged"]
        assert sorted(told) == sorted([field_, always, whole, over, pause])
        assert [word(each) for id in (good, field_, whole, always) for each in ledger(client, id)] == ["exited 7"] * 4
        remove_all(client)
        warm_up(client)  # which opens the line to the keeper again
        until(lambda: left(daemon) == before, f"left behind: {left(daemon)}, not {before}")
    with contextlib.closing(sqlite3.connect(daemon.root / "exitd.db")) as database:
        assert database.execute("SELECT count(*) FROM meta WHERE key LIKE 'damaged/%'").fetchone() == (0,)


def test_an_exec_whose_row_cannot_be_read_ends_with_its_code(daemon: Daemon, go: pathlib.Path) -> None:
    with daemon.client() as client:
        container = lives.up(client, mounts=[pb.Mount(source=str(go.parent), destination="/mnt", read_only=True)]).id
        mine, other = (execs.begin(client, container, "sh", "-c", PATIENT.format(go.name)) for _ in range(2))
    with damaging(daemon) as database:
        database.execute("UPDATE execs SET body = '{\"key\":5}' WHERE exec = ?", (mine,))
        database.execute("INSERT INTO execs VALUES ('nobody', 1, 'e', 'x')")
    with daemon.client() as client:
        assert {e.id for e in client.inspect(container).execs} == {mine, other}
        go.rmdir()
        assert [word(execs.end_of(client, container, each)) for each in (mine, other)] == ["exited 7"] * 2
        assert {e.exec_id for e in ledger(client, container)} == {mine, other}
        client.remove(container, force=True)


@pytest.mark.parametrize("by_itself", [False, True])
def test_what_nothing_names_any_more_runs_on_until_its_end(daemon: Daemon, by_itself: bool) -> None:
    """Row, run directory and keeper are lost: whether it runs, its cgroup alone says."""
    with daemon.client() as client:
        warm_up(client)
        before = left(daemon)
        container = lives.up(client, name="nameless")
        pid = container.init.pid
    with damaging(daemon) as database:
        unreadable(database, container.id)
        os.kill(daemon.keeper_pid(), signal.SIGKILL)
        until(lambda: not daemon.keeper_pid(), "the keeper")
        shutil.rmtree(daemon.state / "c" / container.id)
    with daemon.client() as client:
        shown = client.inspect("nameless")
        assert (shown.phase, shown.id) == (pb.PHASE_RUNNING, container.id)
        assert "its row cannot be read" in shown.damaged
        assert is_live(pid)
        if by_itself:
            os.kill(pid, signal.SIGKILL)
            until(lambda: ledger(client, container.id), "its end")
        client.remove(container.id, force=True)
        assert not is_live(pid)
        (exit_,) = ledger(client, container.id)
        assert (word(exit_), exit_.reason) == ("unknown row-damaged", "unknown" if by_itself else "kill")
        warm_up(client)  # which opens the line to the keeper again
        until(lambda: left(daemon) == before, f"left behind: {left(daemon)}, not {before}")


def test_lines_of_ledger_and_event_log_that_cannot_be_read_keep_their_places(daemon: Daemon) -> None:
    cli = Cli(daemon)
    with daemon.client() as client:
        one, two = (lives.run(client, "sh", "-c", f"exit {n}")[0] for n in (5, 6))
        last = lives.events(client)[-1].seq
    with damaging(daemon) as database:
        database.execute("UPDATE exits SET body = 'x' WHERE container = ?", (one,))
        database.execute("UPDATE events SET body = x'00' WHERE seq = ?", (last - 1,))
    with daemon.client() as client:
        assert [word(each) for id in (one, two) for each in ledger(client, id)] == ["unknown row-damaged", "exited 6"]
        told = lives.events(client)
        assert [event.seq for event in told] == list(range(told[0].seq, told[-1].seq + 1))
        assert [event.seq for event in told if event.type == "unreadable"] == [last - 1]
        assert one[:12] in cli.ok("exits") and "unreadable" in cli.ok("events", "--from-seq", "1", "--no-follow")
        remove_all(client)


def test_lines_whose_key_or_number_cannot_be_read_are_put_aside_and_stop_no_list(daemon: Daemon) -> None:
    """SQLite keeps in a column what cannot become of its type."""
    with daemon.client() as client:
        ids = [lives.run(client, "sh", "-c", "exit 6")[0] for _ in range(6)]
        last = lives.events(client)[-1].seq
    keys: dict[str, object] = {"run": "x", "container": b"\xff\x00", "exec": b"", "at_ns": "yesterday"}
    with damaging(daemon) as database:
        for id, (name, value) in zip(ids, keys.items(), strict=False):
            database.execute(f"UPDATE exits SET {name} = ? WHERE container = ?", (value, id))
        database.execute("UPDATE exits SET run = 1e308 WHERE container = ?", (ids[4],))
        (oldest,) = database.execute("SELECT min(seq) FROM events").fetchone()
        for number, row in ((-(2**63), oldest), (2**63 - 1, last)):
            database.execute("UPDATE events SET seq = ? WHERE seq = ?", (number, row))
    with daemon.client() as client:
        listed = [id for id in ids if ledger(client, id)]
        assert listed == ids[5:]
        assert {each.container_id for each in client.exits(pb.ExitsRequest())} >= {ids[5]}
        again = lives.run(client, "sh", "-c", "exit 9")[0]
        assert [word(each) for each in ledger(client, again)] == ["exited 9"]
        assert all(oldest < event.seq < 1 << 62 for event in lives.events(client))
        remove_all(client)
    assert "internal error" not in daemon.log.read_text()
    with damaging(daemon) as database:
        assert database.execute("SELECT count(*) FROM meta WHERE key LIKE 'aside/%'").fetchone() == (7,)


def works_below(directory: pathlib.Path) -> list[int]:
    return [pid for pid, _ in commands() if cwd_of(pid).startswith(f"{directory}/")]


def test_a_run_directory_that_cannot_be_looked_at_keeps_exitd_from_nothing(daemon: Daemon, go: pathlib.Path) -> None:
    with daemon.client() as client:
        good, bad = patient(client, go), patient(client, go)
    daemon.kill()
    place = daemon.state / "c" / bad
    aside = daemon.base / "aside"
    place.rename(aside)
    place.symlink_to(bad)  # ELOOP, whatever is asked of it
    leaked = daemon.state / "c" / ("f" * 64)
    leaked.symlink_to("f" * 64)
    daemon.start()
    with daemon.client() as client:
        assert client.inspect(good).phase == pb.PHASE_RUNNING
        waiting = client.begin_wait(good)
        go.rmdir()
        assert word(lives.ended(waiting.result(LIMIT_SECONDS))) == "exited 7"
        for path in (place, leaked):
            path.unlink()
        until(lambda: not works_below(aside), "the shim that nobody hears of has not ended")
        shutil.rmtree(aside)
        remove_all(client)
