"""Root and state directory on a file system that fails on command: what is reported is true, reported once, and not
before it is stored; what cannot be read now is read when it can be."""

import contextlib
import os
import pathlib
import signal
import sqlite3
import subprocess
import threading
import time
from collections.abc import Iterator

import pytest

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.api.client import Client
from supervisor.model.errors import ExitdError
from tests.system import daemons, lives
from tests.system.daemons import Daemon, directory, spec
from tests.system.faultyfs import Faulty, mounted
from tests.system.lives import last_exit, ledger, types, word
from tests.system.processes import processes_of
from tests.system.waits import LIMIT_SECONDS, until

GO = "tmp/exitd-test-go"
GATE = f"until [ -e /{GO} ]; do sleep 0.05; done; exit 43"
UNREAD = {"record": "an exit record cannot be read", "keeper": "a keeper's journal cannot be read"}
FILES = {"record": "exit.json", "keeper": "keeper-*.journal"}


@pytest.fixture(scope="module")
def disk() -> Iterator[Faulty]:
    with directory() as base, mounted(base) as made:
        yield made


@pytest.fixture(scope="module")
def daemon(disk: Faulty) -> Iterator[Daemon]:
    made = Daemon(disk.path, extra=("--reconcile-seconds", "0.2"))
    try:
        yield made.start()
    finally:
        made.end()
    until(lambda: not processes_of(made.root) + processes_of(made.state), "processes")


def end(container: pb.Container) -> None:
    """Its program goes on to its end, and is seen to have ended."""
    pathlib.Path(f"/proc/{container.init.pid}/root/{GO}").touch()
    until(lambda: not _runs(container.init.pid), "its end")


def _runs(pid: int) -> bool:
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def told(client: Client, container: str) -> str:
    """The word of its end, which is in the ledger once, and its source."""
    exit_ = last_exit(client, container)
    assert [word(each) for each in ledger(client, container)] == [word(exit_)]
    client.remove(container, force=False)
    assert types(client, container) == ["create", "start", "exit", "remove"]
    return f"{word(exit_)} by {exit_.source}"


@pytest.mark.parametrize(
    "rules",
    [["read exit.json EIO"], ["write exit.json ENOSPC", "write keeper-*.journal EIO"]],
    ids=["record unread", "neither record nor journal written"],
)
def test_while_a_record_cannot_be_read_or_written_the_next_witness_is_believed(
    disk: Faulty, client: Client, rules: list[str]
) -> None:
    container = lives.up(client, "sh", "-c", GATE)
    with disk.failing(*rules):
        end(container)
        heard = last_exit(client, container.id).source
        assert heard in ("fifo", "pidfd", "procevents", "zombie")  # which of them is the first
    assert told(client, container.id).startswith("exited 43")


@pytest.mark.parametrize("evidence", ["keeper", "record"])
def test_evidence_that_the_next_exitd_cannot_read_at_first_is_waited_for(
    disk: Faulty, killable: Daemon, evidence: str
) -> None:
    with killable.client() as client:
        container = lives.up(client, "sh", "-c", GATE)
    if evidence == "keeper":
        os.kill(container.shim.pid, signal.SIGKILL)
        until(lambda: not _runs(container.shim.pid), "the shim's end")
    killable.kill()
    end(container)
    until(lambda: not os.path.exists(f"/proc/{container.init.pid}"), "it is reaped")
    until(lambda: not _runs(container.shim.pid), "the shim's end")
    with disk.failing(f"read {FILES[evidence]} EIO"):
        before = killable.log.read_text().count(UNREAD[evidence])
        killable.start()
        until(lambda: killable.log.read_text().count(UNREAD[evidence]) > before, "it is looked at")
        with killable.client() as client:
            assert ledger(client, container.id) == []
    with killable.client() as client:
        assert told(client, container.id) == f"exited 43 by {evidence}"


@pytest.mark.parametrize("rule", ["write *.db-wal ENOSPC", "fsync *.db-wal stall"])
def test_an_end_is_not_reported_before_the_disk_has_it(disk: Faulty, killable: Daemon, rule: str) -> None:
    """Neither the ring, which exitd gives up until its next start, nor the database."""
    with killable.restart().client() as client:
        container = lives.up(client, "sh", "-c", GATE)
        with disk.failing("write *.ring EIO", rule):
            end(container)
            until(lambda: client.inspect(container.id).phase == pb.PHASE_RUNNING, "exitd answers")
            assert ledger(client, container.id) == [] and types(client, container.id) == ["create", "start"]
        assert told(client, container.id) == "exited 43 by record"


@pytest.mark.parametrize("rule", ["fallocate exit.json ENOSPC", "write plan ENOSPC"])
def test_without_room_for_a_run_it_is_refused_and_nothing_stays(disk: Faulty, client: Client, rule: str) -> None:
    with disk.failing(rule), pytest.raises(ExitdError) as refused:
        client.create(spec("true"))
    assert refused.value.reason != "INTERNAL"
    assert word(lives.run(client, "sh", "-c", "exit 7")[1]) == "exited 7"


FLUSH_SECONDS = 5.0
QUICK_SECONDS = 4.5  # for a call that needs no disk: one that does waits for a flush, or as long as the disk stalls


class Questions:
    """A client that asks without a pause, and how long each answer took."""

    def __init__(self, daemon: Daemon) -> None:
        self.took: list[float] = []
        self._daemon, self._over = daemon, threading.Event()
        self._thread = threading.Thread(target=self._ask, daemon=True)

    def __enter__(self) -> "Questions":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(LIMIT_SECONDS)
        assert not self._thread.is_alive()

    def _ask(self) -> None:
        with self._daemon.client() as client:
            while not self._over.wait(0.01):
                began = time.monotonic()
                client.version()
                self.took.append(time.monotonic() - began)

    @property
    def late(self) -> list[float]:
        return [seconds for seconds in self.took if seconds > QUICK_SECONDS]


def test_a_disk_that_flushes_in_5_seconds_holds_up_nobody_else_and_what_is_answered_is_on_it(
    disk: Faulty, daemon: Daemon
) -> None:
    with daemon.client() as client:
        boxes = [lives.up(client, "sh", "-c", GATE) for _ in range(4)]
        waits = [client.begin_wait(box.id) for box in boxes]
        slow = f"{FLUSH_SECONDS:g}s"
        with disk.failing(f"write *.ring {slow}", f"fsync *.db-wal {slow}"), Questions(daemon) as questions:
            for box, waiting in zip(boxes, waits, strict=True):
                began = time.monotonic()
                end(box)
                answer = lives.ended(waiting.result(LIMIT_SECONDS))
                assert time.monotonic() - began > FLUSH_SECONDS, "it is answered before it is on the disk"
                assert word(answer) == "exited 43"
                assert on_disk(daemon, box.id) == 1
        assert len(questions.took) > 10 and not questions.late, questions.late
        for box in boxes:
            assert told(client, box.id) == "exited 43 by record"


class Writer:
    """Who changes a file on that file system again and again. `waits`: for a second by now."""

    def __init__(self, place: pathlib.Path) -> None:
        self._file, self._over = place / "changed", threading.Event()
        self._began = time.monotonic()
        self._thread = threading.Thread(target=self._change, daemon=True)

    def __enter__(self) -> "Writer":
        self._file.touch()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()

    def _change(self) -> None:
        while not self._over.wait(0.01):
            self._began = time.monotonic()
            os.utime(self._file)

    @property
    def waits(self) -> bool:
        return time.monotonic() - self._began > 1.0


@pytest.fixture
def device(disk: Faulty) -> Iterator[pathlib.Path]:
    """An ext4 of its own, mounted, on a block device which is a file of that disk, `device`."""
    image, mountpoint = disk.path / "device", disk.path.parent / "ext4"
    mountpoint.mkdir()
    with image.open("wb") as made:
        made.truncate(64 << 20)
    subprocess.run(["mkfs.ext4", "-q", "-F", str(image)], check=True, timeout=LIMIT_SECONDS)
    mounting = ["mount", "-o", "loop,commit=1", str(image), str(mountpoint)]
    subprocess.run(mounting, check=True, timeout=LIMIT_SECONDS)
    try:
        yield mountpoint
    finally:
        subprocess.run(["umount", str(mountpoint)], check=True, timeout=LIMIT_SECONDS)
        mountpoint.rmdir()
        image.unlink()


def test_a_block_device_that_hangs_holds_up_nobody_but_who_waits_for_an_end(disk: Faulty, device: pathlib.Path) -> None:
    """One end at once, and another one when ext4 has begun to commit its journal (`commit` of ext4(5)): all that write
    wait for that then. So may a read of the database, by which its time of access changes; it is asked nothing."""
    with daemons.daemon(extra=("--root", str(device))) as daemon, daemon.client() as client:
        # Ended by a signal: their files are on that device.
        boxes = [
            lives.up_trapping(client, "trap 'exit 43' USR1; while :; do sleep 1 & wait; done", signal.SIGUSR1)
            for _ in range(2)
        ]
        waits = [client.begin_wait(box.id) for box in boxes]
        stalls = disk.failing("write device stall", "fsync device stall")
        with stalls, Questions(daemon) as questions, Writer(device) as writer:
            for box in boxes:
                os.kill(box.init.pid, signal.SIGUSR1)
                until(lambda: not _runs(box.init.pid), "its end")  # noqa: B023
                before = len(questions.took)
                until(lambda: len(questions.took) > before + 50, "exitd does not answer")  # noqa: B023
                assert client.inspect(box.id).phase == pb.PHASE_RUNNING, "it is reported before it is on the disk"
                until(lambda: writer.waits, "no journal is committed")
        assert not questions.late
        for box, waiting in zip(boxes, waits, strict=True):
            assert word(lives.ended(waiting.result(LIMIT_SECONDS))) == "exited 43"
            assert told(client, box.id) == "exited 43 by record"


def on_disk(daemon: Daemon, id: str) -> int:
    """How many ends of it the ring or the database has."""
    if id.encode() in (daemon.root / "exitd.ring").read_bytes():
        return 1
    with contextlib.closing(sqlite3.connect(f"file:{daemon.root}/exitd.db?mode=ro", uri=True)) as database:
        (count,) = database.execute("SELECT count(*) FROM exits WHERE container = ?", (id,)).fetchone()
    return int(count)
