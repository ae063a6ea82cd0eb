"""Shims started by hand, before, beside and without exitd: adopted, watched, reported once, and cleaned up after."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.monitor import rundir
from tests.system import byhand, daemons, lives, oracle
from tests.system.byhand import adopted, begun, by_hand, no_cgroup, refusals, run_directory
from tests.system.daemons import Daemon, directory
from tests.system.faultyfs import mounted
from tests.system.oracle import AT_ONCE, BY_KERNEL, Revived, Subject, down, end_and_judge, inspect
from tests.system.processes import children_of, gone, killed, processes_of
from tests.system.waits import LIMIT_SECONDS, until

pytestmark = pytest.mark.observed()

NOBODY = 65534


def test_one_started_before_exitd_is_listed_watched_reported_and_removed(daemon: Daemon) -> None:
    with down(daemon):
        subject = begun(daemon, "echo hello; read line </mnt/go")
    seen = adopted(daemon, subject)
    assert (seen.phase, seen.spec.name, seen.run, seen.monitored_by) == (pb.PHASE_RUNNING, subject.name, 1, "shim")
    assert (seen.spec.restart, list(seen.spec.args)[:2]) == ("no", ["/bin/sh", "-c"])
    assert seen.init.started_ticks in subject.truth()
    assert seen.started_at.ToNanoseconds() >= seen.created_at.ToNanoseconds() > 0
    assert pathlib.Path(seen.log_path).read_text().endswith(" stdout F hello\n")
    with daemon.client() as client:
        assert lives.types(client, subject.id) == ["create", "start"]
    subject.go()
    assert end_and_judge(daemon, subject) == ["exited by record"]
    no_cgroup(daemon, subject)


def test_one_started_beside_exitd_is_adopted_at_once_and_stands_under_the_keeper() -> None:
    with daemons.daemon() as daemon, daemon.client() as client:  # rounds every 30 s: this is inotify's work
        lives.run(client, "true")
        subject = begun(daemon)
        assert adopted(daemon, subject, seconds=5.0).monitored_by == "shim"
        killed(oracle.shim_of(daemon, subject))
        until(lambda: inspect(daemon, subject).monitored_by == "keeper", "not the keeper's")
        until(lambda: inspect(daemon, subject).shim.pid, "no replacement")
        subject.go()
        oracle.over(Revived(daemon), subject)
        assert set(oracle.judge(client, subject)) == {"exited by keeper"}
        oracle.removed(Revived(daemon), subject)
        no_cgroup(daemon, subject)


def test_a_bundle_whose_file_system_hangs_holds_up_its_own_container_alone() -> None:
    with directory() as base, mounted(base) as disk, daemons.daemon() as daemon:
        subject = byhand.begun_on(disk, daemon)
        with disk.failing("read config.json stall"):
            with down(daemon):
                pass
            with daemon.client() as client:
                other, exit_ = lives.run(client, "sh", "-c", "exit 44")
                client.remove(other, force=False)
                assert lives.word(exit_) == "exited 44"
                (waiting,) = [c for c in client.list(all_of_them=True) if c.id == subject.id]
                assert waiting.recovering
        adopted(daemon, subject)
        subject.go()
        assert end_and_judge(daemon, subject) == ["exited by record"]
        no_cgroup(daemon, subject)


def test_one_that_began_and_ended_without_exitd_is_reported_once_with_its_code_and_time(daemon: Daemon) -> None:
    with down(daemon):
        subject = begun(daemon, AT_ONCE, 44)
        record = run_directory(daemon, subject) / "exit.json"
        until(lambda: record.read_bytes().strip(b"\0"), "no record")
        ended_ns = json.loads(record.read_bytes())["realtime_ns"]
    adopted(daemon, subject)
    oracle.over(Revived(daemon), subject)
    with daemon.client() as client:
        (row,) = lives.ledger(client, subject.id)
        assert (row.code, row.at.ToNanoseconds()) == (44, ended_ns)
        assert lives.types(client, subject.id) == ["create", "start", "exit"]
    for _ in range(2):
        with down(daemon):
            pass
    assert end_and_judge(daemon, subject) == ["exited by record"]


def test_one_that_ends_while_exitd_is_dead_after_its_adoption_is_reported_once(daemon: Daemon) -> None:
    subject = begun(daemon)
    seen = adopted(daemon, subject)
    with down(daemon):
        subject.go()
        until(lambda: gone(seen.shim.pid), "the shim does not leave")
    assert end_and_judge(daemon, subject) == ["exited by record"]


def test_without_exitd_a_keeper_that_is_left_reports_the_end_of_one_whose_shim_was_killed(daemon: Daemon) -> None:
    holder = oracle.begun(daemon)  # with no container left the keeper would end
    with down(daemon):
        subject = begun(daemon)
        lock = (run_directory(daemon, subject) / "lock").read_bytes()
        killed(int(lock.split(b"pid=")[1].split(b"\0")[0]))
        init = rundir.created(str(run_directory(daemon, subject)))
        assert init is not None
        subject.go()
        until(lambda: gone(init.pid), "the keeper does not reap")
    adopted(daemon, subject)
    holder.go()
    assert end_and_judge(daemon, subject, holder) == ["exited by keeper", "exited by record"]


def test_without_a_keeper_the_kernel_is_asked_when_the_shim_was_killed() -> None:
    with directory() as base:
        daemon = Daemon(base, extra=("--reconcile-seconds", "0.2"))
        subject = begun(daemon)  # nobody has ever been in this directory
        daemon.start()
        try:
            killed(adopted(daemon, subject).shim.pid)
            subject.go()
            oracle.over(Revived(daemon), subject)
            with daemon.client() as client:
                assert set(oracle.judge(client, subject)) <= BY_KERNEL | {"exited by keeper"}
            oracle.removed(Revived(daemon), subject)
            oracle.nothing_left(daemon)
            no_cgroup(daemon, subject)
        finally:
            daemon.end()
        until(lambda: not processes_of(base), f"still there: {processes_of(base)}")


def test_twenty_at_once_keep_their_own_codes(daemon: Daemon) -> None:
    with ThreadPoolExecutor(4) as pool:
        subjects = list(pool.map(lambda code: begun(daemon, code=code), range(20, 40)))
    for subject in subjects:
        adopted(daemon, subject)
        subject.go()
    assert end_and_judge(daemon, *subjects) == ["exited by record"] * 20
    no_cgroup(daemon, *subjects)


def compared(daemon: Daemon) -> None:
    """exitd has compared what it knows with what is there: a directory without a container goes last."""
    leaked = daemon.root / "c" / ("ab" * 32)
    leaked.mkdir()
    until(lambda: not leaked.exists(), "a leaked directory stays")


def test_one_is_stopped_started_again_and_removed_like_any_other(daemon: Daemon) -> None:
    subject = begun(daemon)
    adopted(daemon, subject)
    with daemon.client() as client:
        client.stop(subject.id, 0)
        first = lives.last_exit(client, subject.id)
        assert (first.signal, first.reason, first.run) == (signal.SIGKILL, "stop", 1)
        assert client.inspect(subject.id).phase == pb.PHASE_EXITED
        client.start(subject.id)
        until(lambda: len(subject.truth()) == 2, "the second run does not begin")
        for _ in range(2):
            compared(daemon)
        assert client.inspect(subject.id).phase == pb.PHASE_RUNNING
        subject.go()
        assert lives.last_exit(client, subject.id).run == 2
        oracle.removed(Revived(daemon), subject)
    oracle.nothing_left(daemon)
    no_cgroup(daemon, subject)


@pytest.fixture
def quick() -> Iterator[Daemon]:
    """Its patience with whoever makes a directory is short."""
    with oracle.warm_daemon(limits={"supervisor.model.adoption.STARTS_SECONDS": 1.0}) as made:
        yield made


def test_one_that_was_made_and_not_started_can_be_started_by_exitd(quick: Daemon) -> None:
    """Its maker died in between."""
    daemon = quick
    subject, bundle = byhand.observed(daemon)
    runtime = daemon.base / "never-starts"
    runtime.write_text('#!/bin/sh\nfor w; do [ "$w" = start ] && exec sleep 1000; done\nexec runc "$@"\n')
    runtime.chmod(0o755)
    process = subprocess.Popen(
        byhand.command(daemon, "--name", subject.name, "--runtime", str(runtime), str(bundle)),
        start_new_session=True,
    )
    created = until(lambda: list((daemon.state / "c").glob("hand-*/1/created")), "not created")
    until(lambda: _starts(daemon, process.pid), "its maker does not come to the start")
    os.killpg(process.pid, signal.SIGKILL)
    process.wait(LIMIT_SECONDS)
    runtime.write_text('#!/bin/sh\nexec runc "$@"\n')
    subject.id = created[0].parent.parent.name
    seen = adopted(daemon, subject)
    assert seen.phase == pb.PHASE_CREATED and not seen.HasField("started_at")
    with daemon.client() as client:
        client.start(subject.id)
    until(subject.truth, "it does not begin")
    subject.go()
    assert end_and_judge(daemon, subject) == ["exited by record"]


def _starts(daemon: Daemon, pid: int) -> bool:
    """The maker waits for the runtime's start."""
    return any(b"sleep\x001000" in pathlib.Path(f"/proc/{child}/cmdline").read_bytes() for child in children_of(pid))


def test_a_name_that_is_taken_is_no_reason_not_to_watch(daemon: Daemon) -> None:
    first = begun(daemon)
    adopted(daemon, first)
    subject, bundle = byhand.observed(daemon)
    done = by_hand(daemon, "--name", first.name, str(bundle))
    subject.id = done.stdout.strip()
    assert adopted(daemon, subject).spec.name == subject.id
    for each in (first, subject):
        each.go()
    assert end_and_judge(daemon, first, subject) == ["exited by record"] * 2


def test_a_run_directory_removed_under_an_adopted_container_is_reported_and_its_exit_too() -> None:
    with daemons.daemon() as daemon, daemon.client() as client:
        lives.run(client, "true")
        subject, own = begun(daemon), lives.up(client)
        adopted(daemon, subject)
        for id in (subject.id, own.id):
            shutil.rmtree(daemon.state / "c" / id)
            until(lambda id=id: "directory-lost" in lives.types(client, id), "no word", seconds=5.0)  # type: ignore[misc]
        subject.go()
        oracle.over(Revived(daemon), subject)
        assert set(oracle.judge(client, subject)) == {"exited by record"}
        assert lives.types(client, subject.id).count("directory-lost") == 1
        client.remove(subject.id, force=False)
        client.remove(own.id, force=True)
        no_cgroup(daemon, subject)


# -- what is left alone


def planted(daemon: Daemon, subject: Subject, id: str, spoil: Callable[[pathlib.Path], object]) -> pathlib.Path:
    """A copy of a whole directory under another id, with something spoiled before it appears."""
    target = daemon.base / "planting" / id / "1"
    target.mkdir(parents=True, mode=0o700)
    for path in run_directory(daemon, subject).iterdir():
        if path.is_file():
            shutil.copy2(path, target / path.name)
    os.mkfifo(target / "exit_fifo", 0o600)
    plan = (target / "plan").read_bytes()
    (target / "plan").write_bytes(plan.replace(f"id={subject.id}\0".encode(), f"id={id}\0".encode(), 1))
    spoil(target)
    for each in (target, target.parent):
        os.utime(each, (1, 1))  # nobody is at it any more
    return target.parent.rename(daemon.state / "c" / id)


def link(path: pathlib.Path) -> None:
    (path / "lock").rename(path.parent / "lock")
    (path / "lock").symlink_to("../lock")


def half(path: pathlib.Path) -> None:
    (path / "created").unlink()
    (path / "lock").write_bytes(b"")


SPOILED: dict[str, tuple[Callable[[pathlib.Path], object], str]] = {
    "foreign": (lambda path: os.chown(path.parent, NOBODY, NOBODY), "'foreign' belongs to uid 65534, not to root"),
    "foreign-plan": (lambda path: os.chown(path / "plan", NOBODY, 0), "'plan' belongs to uid 65534, not to root"),
    "loose": (lambda path: (path / "exit.json").chmod(0o666), "'exit.json' can be written by others than its owner"),
    "linked": (link, "'lock' is a link; nothing here may be one"),
    "torn": (
        lambda path: (path / "byhand").write_bytes(b"exitd-byhand 1\0name=torn"),
        "byhand cannot be read: incomplete exitd-byhand of 24 bytes",
    ),
    "half": (half, "no shim has made a container in it"),
    "unmarked": (lambda path: (path / "byhand").unlink(), "byhand is missing: it was made by half, or not for exitd"),
}


def untouched(base: pathlib.Path) -> dict[pathlib.Path, tuple[int, ...]]:
    """What would be another if somebody had changed something. Having been read is no change."""
    found = {path: path.lstat() for id in SPOILED for path in (base / id).rglob("*")}
    return {path: (s.st_ino, s.st_mode, s.st_uid, s.st_size, s.st_mtime_ns, s.st_ctime_ns) for path, s in found.items()}


def test_what_belongs_to_others_is_a_link_or_broken_is_refused_by_name_once_and_never_touched(daemon: Daemon) -> None:
    subject = begun(daemon)
    adopted(daemon, subject)
    base, said = daemon.state / "c", {id: why for id, (_, why) in SPOILED.items()}
    for id, (spoil, _) in SPOILED.items():
        planted(daemon, subject, id, spoil)
    before = untouched(base)
    (base / "link").symlink_to(subject.id)
    said["link"] = "'link' is a link, not a directory"
    for id in said:
        until(lambda id=id: refusals(daemon, id), f"{id} is not refused")  # type: ignore[misc]
    later = begun(daemon)
    adopted(daemon, later)  # rounds have gone by
    assert {id: refusals(daemon, id) for id in said} == {id: [why] for id, why in said.items()}
    with daemon.client() as client:
        assert not {c.id for c in client.list(all_of_them=True)} & set(said)
    assert untouched(base) == before
    os.unlink(base / "link")
    for id in SPOILED:
        shutil.rmtree(base / id)
    subject.go()
    later.go()
    assert end_and_judge(daemon, subject, later) == ["exited by record"] * 2


def test_a_name_that_is_no_utf_8_beside_it_stops_nobody(daemon: Daemon) -> None:
    strange = os.fsencode(daemon.state / "c") + b"/\xff\xfe"
    os.mkdir(strange)
    subject = begun(daemon)
    adopted(daemon, subject)
    subject.go()
    oracle.over(Revived(daemon), subject)
    with daemon.client() as client:
        assert set(oracle.judge(client, subject)) == {"exited by record"}
    oracle.removed(Revived(daemon), subject)
    until(lambda: refusals(daemon, "\udcff\udcfe"), "not refused")
    os.rmdir(strange)
    oracle.nothing_left(daemon)


def test_the_ledgers_exit_of_a_removed_one_does_not_swallow_that_of_another_with_its_id(daemon: Daemon) -> None:
    first = begun(daemon, AT_ONCE, 43, "--id", "again")
    adopted(daemon, first)
    assert end_and_judge(daemon, first) == ["exited by record"]
    second = begun(daemon, oracle.WHEN_TOLD, 44, "--id", "again")
    until(lambda: refusals(daemon, "again"), "not refused")
    assert "the ledger has an exit of run 1 of again already" in refusals(daemon, "again")[0]
    second.go()
    until(lambda: (run_directory(daemon, second) / "exit.json").read_bytes().strip(b"\0"), "no record")
    until(lambda: not list(run_directory(daemon, second).glob("rt/*")), "the shim does not delete")
    with daemon.client() as client:
        assert [row.code for row in lives.ledger(client, "again")] == [43]
    shutil.rmtree(daemon.state / "c" / "again")
    shutil.rmtree(daemon.root / "c" / "again")
    oracle.nothing_left(daemon)
