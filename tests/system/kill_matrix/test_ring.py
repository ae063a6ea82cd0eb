"""exitd is killed around the one write by which an ordinary end comes onto the disk: before it, when it is done and
nobody has an answer, when the clients have theirs and the database has nothing, and when that has it, too. What the
shim recorded is lost with exitd, as in a power cut: what is on the disk has to do."""

import contextlib
import pathlib
import sqlite3
import tempfile
from collections.abc import Iterator

import pytest

from protos.exitd.v1 import exitd_pb2 as pb
from shim import record
from supervisor.api.answers import Waiting
from supervisor.api.client import Client, Unreachable
from tests.system import lives, oracle
from tests.system.daemons import Daemon
from tests.system.kill_matrix.calls import traced
from tests.system.kill_matrix.table import Case, cases, row
from tests.system.oracle import Revived, Subject
from tests.system.processes import killed
from tests.system.waits import LIMIT_SECONDS, until

HALT_MS = 4000  # that a write is held up: long enough to be seen there, and killed


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    """No flush is too slow for the ring, whatever else this machine does."""
    with tempfile.TemporaryDirectory() as directory:
        config = pathlib.Path(directory) / "config.toml"
        config.write_text("[limits]\nring_flush_seconds = 60\n")
        with oracle.warm_daemon("--config", str(config)) as made:
            yield made


@contextlib.contextmanager
def at_write(daemon: Daemon, file: str, what: str) -> Iterator[None]:
    """For the block: what strace does to exitd's first write to this file in its root directory."""
    path = str(daemon.root / file)
    with traced(daemon, "-o", "/dev/null", "-P", path, "-e", "trace=pwrite64", "-e", f"inject=pwrite64:{what}:when=1"):
        yield


def in_ring(daemon: Daemon, subject: Subject) -> bool:
    return subject.id.encode() in (daemon.root / "exitd.ring").read_bytes()


def in_database(daemon: Daemon, subject: Subject) -> bool:
    with contextlib.closing(sqlite3.connect(f"file:{daemon.root}/exitd.db?mode=ro", uri=True)) as database:
        (count,) = database.execute("SELECT count(*) FROM exits WHERE container = ?", (subject.id,)).fetchone()
    return bool(count)


def kill_with_record(daemon: Daemon, subject: Subject) -> None:
    killed(daemon.pid)
    (daemon.state / "c" / subject.id / "1" / record.NAME).unlink(missing_ok=True)


def die(daemon: Daemon, subject: Subject, client: Client, moment: str) -> tuple[pb.Exit, pb.Event] | None:
    """The container ends and exitd is killed at this moment. What its clients were told by then, if anything."""
    waiting = client.begin_wait(subject.id)
    match moment:
        case "before the write":
            with at_write(daemon, "exitd.ring", "signal=KILL"):
                subject.go()
                assert daemon.process is not None
                daemon.process.wait(LIMIT_SECONDS)
        case "after the write":
            with at_write(daemon, "exitd.ring", f"delay_exit={HALT_MS * 1000}"):
                subject.go()
                until(lambda: in_ring(daemon, subject), "it does not come into the ring")
                kill_with_record(daemon, subject)
        case "after the answer":
            with at_write(daemon, "exitd.db-wal", f"delay_enter={HALT_MS * 1000}"):
                subject.go()
                told = the_exit(waiting), end_in_log(client, subject)
                kill_with_record(daemon, subject)
                assert not in_database(daemon, subject)
            return told
        case "after the database":
            subject.go()
            told = the_exit(waiting), end_in_log(client, subject)
            until(lambda: in_database(daemon, subject), "it does not come into the database")
            kill_with_record(daemon, subject)
            return told
    with pytest.raises(Unreachable):
        waiting.result(LIMIT_SECONDS)
    return None


def the_exit(waiting: Waiting) -> pb.Exit:
    answer = waiting.result(LIMIT_SECONDS)
    assert answer is not None
    return answer


def end_in_log(client: Client, subject: Subject) -> pb.Event:
    (event,) = [event for event in lives.events(client, subject.id) if event.type == "exit"]
    return event


@pytest.mark.parametrize("case", cases("container, its end in the ring"), ids=str)
def test_exitd_killed_around_the_write_of_an_end_reports_it_once_and_never_otherwise(
    daemon: Daemon, case: Case
) -> None:
    subject = oracle.begun(daemon)
    with daemon.client() as client:
        told = die(daemon, subject, client, case.moment)
    up = Revived(daemon)
    up.revive()
    oracle.over(up, subject)
    with daemon.client() as client:
        assert set(oracle.judge(client, subject, str(case))) == {"exited by record"}
        assert told is None or (lives.ledger(client, subject.id), end_in_log(client, subject)) == ([told[0]], told[1])
        seen_once(client)
    oracle.removed(up, subject)
    oracle.nothing_left(daemon)


def seen_once(client: Client) -> None:
    """No number of the event log is given twice, and none comes back."""
    numbers = [event.seq for event in lives.events(client)]
    assert numbers == sorted(set(numbers))


@pytest.mark.parametrize("case", cases("container, its end in the ring while exitd stands still"), ids=str)
def test_ends_while_exitd_stands_still_are_reported_when_it_goes_on(daemon: Daemon, case: Case) -> None:
    """The write of the first end is held up; the others end meanwhile."""
    subjects = [oracle.begun(daemon) for _ in range(4)]
    assert case.moment == "at the write" and row("container, its end in the ring while exitd stands still").deed
    with daemon.client() as client:
        waiting = [client.begin_wait(subject.id) for subject in subjects]
        with at_write(daemon, "exitd.ring", f"delay_enter={HALT_MS * 250}"):
            for subject in subjects:
                subject.go()
            answers = [each.result(LIMIT_SECONDS) for each in waiting]
        for subject, answer in zip(subjects, answers, strict=True):
            assert set(oracle.judge(client, subject, str(case))) == {"exited by record"}
            assert lives.ledger(client, subject.id) == [answer]
    for subject in subjects:
        oracle.removed(Revived(daemon), subject)
    oracle.nothing_left(daemon)
