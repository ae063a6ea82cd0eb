import contextlib
import errno
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from shim import fields, record
from supervisor.model.errors import ShimFailed
from supervisor.model.values import Process
from supervisor.monitor import rundir
from supervisor.monitor.rundir import RunDirectory, path_of
from tests.shim.test_record import PLAIN, written
from tests.supervisor.descriptors import held_now, only, open_now, opened_since


@pytest.fixture
def made(tmp_path: Path) -> Iterator[RunDirectory]:
    directory = rundir.make(str(tmp_path), "c1", 1, b"the plan")
    yield directory
    directory.close()


def descriptors() -> set[str]:
    return set(open_now())


def test_a_run_directory_has_everything_a_shim_needs_and_nothing_for_others(made: RunDirectory, tmp_path: Path) -> None:
    assert made.path == path_of(str(tmp_path), "c1", 1)
    found = {path.name: path.stat() for path in Path(made.path).iterdir()}
    assert set(found) == {"exit_fifo", "exit.json", "lock", "plan", "progress"}
    assert stat.S_ISFIFO(found["exit_fifo"].st_mode)
    assert {stat.S_IMODE(each.st_mode) for each in found.values()} == {0o600}
    assert stat.S_IMODE(os.stat(made.path).st_mode) == 0o700
    assert Path(made.path, "plan").read_bytes() == b"the plan"
    assert not os.get_inheritable(made.fifo_fd) and not os.get_inheritable(made.record_fd)


def test_a_records_room_is_allocated_before_it_is_needed(made: RunDirectory) -> None:
    found = os.fstat(made.record_fd)
    assert (found.st_size, found.st_blocks * 512 >= record.RECORD_BYTES) == (record.RECORD_BYTES, True)


def test_room_for_the_progress_of_the_logs_is_allocated_too(made: RunDirectory) -> None:
    found = os.stat(f"{made.path}/progress")
    assert (found.st_size, found.st_blocks * 512 >= rundir.PROGRESS_BYTES) == (rundir.PROGRESS_BYTES, True)


def test_an_execs_directory_is_made_in_its_runs_and_is_no_run(made: RunDirectory, tmp_path: Path) -> None:
    for exec_id in ("e1", "2"):
        path = path_of(str(tmp_path), "c1", 1, exec_id)
        assert path == f"{made.path}/e/{exec_id}"
        rundir.make_in(path, b"its plan").close()
        assert Path(path, "plan").read_bytes() == b"its plan"
        assert {each.name for each in Path(path).iterdir()} == {"exit_fifo", "exit.json", "lock", "plan", "progress"}
        with pytest.raises(ShimFailed, match="File exists"):
            rundir.make_in(path, b"")
    assert stat.S_IMODE(os.stat(f"{made.path}/e").st_mode) == 0o700
    assert (rundir.runs(str(tmp_path)), sorted(os.listdir(f"{made.path}/e"))) == ([("c1", 1)], ["2", "e1"])
    again = rundir.reopen(str(tmp_path), "c1", 1, "2")
    assert again.path.endswith("/1/e/2") and min(again.fifo_fd, again.record_fd) >= 0
    again.close()


def test_with_its_last_exec_nothing_of_them_is_left_and_with_the_run_they_all_go(
    made: RunDirectory, tmp_path: Path
) -> None:
    paths = [path_of(str(tmp_path), "c1", 1, exec_id) for exec_id in ("a", "b")]
    for path in paths:
        rundir.make_in(path, b"").close()
    rundir.remove(paths[0])
    assert os.listdir(f"{made.path}/e") == ["b"]
    rundir.remove(paths[1])
    assert not os.path.exists(f"{made.path}/e") and os.path.exists(made.path)
    rundir.make_in(paths[0], b"").close()
    rundir.remove(made.path)
    assert list((tmp_path / "c").iterdir()) == []


def test_an_exec_of_a_run_that_is_gone_has_no_place(made: RunDirectory, tmp_path: Path) -> None:
    rundir.remove(made.path)
    with pytest.raises(ShimFailed, match="No such file"):
        rundir.make_in(path_of(str(tmp_path), "c1", 1, "e1"), b"")
    assert list((tmp_path / "c").iterdir()) == []


def test_a_descriptor_with_the_number_0_is_closed_like_any_other(tmp_path: Path) -> None:
    """exitd may have been begun without a standard input."""
    input_fd = os.dup(0)
    try:
        os.close(0)
        made = RunDirectory(str(tmp_path), os.open(os.devnull, os.O_RDONLY))
        assert made.fifo_fd == 0
        made.close()
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(0)
    finally:
        os.dup2(input_fd, 0)
        os.close(input_fd)


def test_a_run_is_made_once(made: RunDirectory, tmp_path: Path) -> None:
    before = held_now()
    with pytest.raises(ShimFailed, match="File exists"):
        rundir.make(str(tmp_path), "c1", 1, b"another plan")
    assert not opened_since(before)
    assert Path(made.path, "plan").read_bytes() == b"the plan"
    rundir.make(str(tmp_path), "c1", 2, b"").close()


@pytest.mark.parametrize("step", ["mkfifo", "posix_fallocate", "write"])
def test_no_room_leaves_neither_directory_nor_descriptors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Planted: a state file system of one's own, full at just this step, needs root."""

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    before = held_now()
    with monkeypatch.context() as patch:
        patch.setattr(os, step, full)
        with pytest.raises(ShimFailed, match="No space left"):
            rundir.make(str(tmp_path), "c1", 1, b"plan")
    assert not opened_since(before)
    assert rundir.runs(str(tmp_path)) == []
    rundir.make(str(tmp_path), "c1", 1, b"plan").close()


def test_a_plan_that_was_written_in_part_is_no_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda fd, data: len(data) - 1)
        with pytest.raises(ShimFailed, match="No space left"):
            rundir.make(str(tmp_path), "c1", 1, b"plan")
    assert rundir.runs(str(tmp_path)) == []


def test_the_record_is_read_through_the_descriptor_even_when_the_directory_is_gone(made: RunDirectory) -> None:
    assert rundir.read_record(made) is None
    os.pwrite(made.record_fd, written(PLAIN), 0)
    rundir.remove(made.path)
    assert rundir.read_record(made) == PLAIN


def test_half_a_record_is_none(made: RunDirectory) -> None:
    os.pwrite(made.record_fd, written(PLAIN)[:80], 0)
    assert rundir.read_record(made) is None


def test_the_fifo_gives_a_whole_number_or_nothing(made: RunDirectory) -> None:
    assert rundir.read_fifo(made) is None
    writer = os.open(f"{made.path}/exit_fifo", os.O_RDWR)
    try:
        assert rundir.read_fifo(made) is None
        for number in (0, 43, 137, -1):
            os.write(writer, number.to_bytes(4, "little", signed=True))
            assert rundir.read_fifo(made) == number
        os.write(writer, b"\1\2")
        assert rundir.read_fifo(made) is None
    finally:
        os.close(writer)
    assert rundir.read_fifo(made) is None


def test_what_is_left_of_a_directory_is_reopened(made: RunDirectory, tmp_path: Path) -> None:
    os.pwrite(made.record_fd, written(PLAIN), 0)
    again = rundir.reopen(str(tmp_path), "c1", 1)
    assert rundir.read_record(again) == PLAIN
    again.close()
    again.close()
    rundir.remove(made.path)
    nothing = rundir.reopen(str(tmp_path), "c1", 1)
    assert (nothing.fifo_fd, nothing.record_fd) == (-1, -1)
    assert (rundir.read_record(nothing), rundir.read_fifo(nothing)) == (None, None)
    nothing.close()


@pytest.mark.parametrize(
    ("name", "kind", "read"),
    [("created", "exitd-created", rundir.created), ("lock", "exitd-lock", rundir.lock_holder)],
)
def test_a_process_is_read_whole_or_not_at_all(made: RunDirectory, name: str, kind: str, read: object) -> None:
    assert callable(read)
    whole = fields.encode(kind, [("pid", 1234), ("started", 5678)])
    for cut in range(len(whole)):
        Path(made.path, name).write_bytes(whole[:cut])
        assert read(made.path) is None
    Path(made.path, name).write_bytes(whole)
    assert read(made.path) == Process(1234, 5678)
    Path(made.path, name).unlink()
    assert read(made.path) is None


HOLDER = """
import fcntl, sys
file = open(sys.argv[1], "r+")
fcntl.flock(file, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""


def test_the_runs_lock_belongs_to_one_process_and_dies_with_it(made: RunDirectory) -> None:
    with rundir.locked(made.path) as free:
        assert free
        with rundir.locked(made.path) as twice:
            assert not twice
    command = [sys.executable, "-c", HOLDER, f"{made.path}/lock"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == b"held\n"
        with rundir.locked(made.path) as free:
            assert not free
        holder.send_signal(signal.SIGKILL)
        holder.wait(20)
        with rundir.locked(made.path) as free:
            assert free


def test_a_lock_is_let_go_when_the_block_fails_and_a_directory_that_is_gone_has_no_shim(made: RunDirectory) -> None:
    before = held_now()
    with contextlib.suppress(ZeroDivisionError), rundir.locked(made.path):
        raise ZeroDivisionError
    assert not opened_since(before)
    rundir.remove(made.path)
    with rundir.locked(made.path) as free:
        assert free


def test_removing_is_repeatable_and_takes_the_containers_directory_with_its_last_run(tmp_path: Path) -> None:
    for run in (1, 2):
        rundir.make(str(tmp_path), "c1", run, b"").close()
    rundir.remove(path_of(str(tmp_path), "c1", 1))
    assert rundir.runs(str(tmp_path)) == [("c1", 2)]
    for _ in range(2):
        rundir.remove(path_of(str(tmp_path), "c1", 2))
        assert list((tmp_path / "c").iterdir()) == []


def test_only_numbers_are_runs(tmp_path: Path) -> None:
    assert rundir.runs(str(tmp_path)) == []
    for name in ("c1/1", "c1/12", "c1/e", "c1/-1", "c1/²", "c2/3"):
        (tmp_path / "c" / name).mkdir(parents=True)
    (tmp_path / "c" / "file").touch()
    assert sorted(rundir.runs(str(tmp_path))) == [("c1", 1), ("c1", 12), ("c2", 3)]
    assert rundir.runs(str(tmp_path), ["c2", "none"]) == [("c2", 3)] and rundir.runs(str(tmp_path), []) == []


@pytest.mark.parametrize("name", ["c", "c/c1"])
def test_a_directory_of_runs_that_cannot_be_read_now_is_not_taken_for_absent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    (tmp_path / "c/c1/1").mkdir(parents=True)
    listdir = os.listdir

    def listed(path: str) -> list[str]:
        if path == f"{tmp_path}/{name}":
            raise OSError(errno.EMFILE, "Too many open files")
        return listdir(path)

    with monkeypatch.context() as patch:
        patch.setattr(os, "listdir", listed)
        with pytest.raises(OSError, match="Too many open files"):
            rundir.runs(str(tmp_path))
    assert rundir.runs(str(tmp_path)) == [("c1", 1)]


def test_what_is_there_and_cannot_be_opened_now_is_not_taken_for_absent(made: RunDirectory, tmp_path: Path) -> None:
    os.pwrite(made.record_fd, written(PLAIN), 0)
    Path(made.path, "created").write_bytes(fields.encode("exitd-created", [("pid", 1234), ("started", 5678)]))
    for room in (0, 1):
        before = held_now()
        with only(room), pytest.raises(OSError, match="Too many open files"):
            rundir.reopen(str(tmp_path), "c1", 1)
        assert not opened_since(before)
    for read in (rundir.created, rundir.lock_holder):
        with only(0), pytest.raises(OSError, match="Too many open files"):
            read(made.path)
    again = rundir.reopen(str(tmp_path), "c1", 1)
    assert rundir.read_record(again) == PLAIN
    assert rundir.created(made.path) == Process(1234, 5678)
    again.close()


def test_a_record_that_cannot_be_read_is_not_taken_for_an_empty_one(made: RunDirectory) -> None:
    directory_fd = os.open(made.path, os.O_RDONLY | os.O_DIRECTORY)
    os.dup2(directory_fd, made.record_fd)
    os.close(directory_fd)
    with pytest.raises(IsADirectoryError):
        rundir.read_record(made)


@pytest.mark.parametrize("times", [1, rundir.REMOVAL_TRIES - 1, rundir.REMOVAL_TRIES])
def test_a_file_that_a_dying_process_makes_meanwhile_does_not_keep_the_directory(
    made: RunDirectory, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    """It is made when the others have been removed, that many times."""
    late, rmdir = iter(range(times)), os.rmdir

    def removed(path: str, *, dir_fd: int | None = None) -> None:
        if os.path.abspath(path) == made.path and next(late, None) is not None:
            Path(made.path, "late").touch()
        rmdir(path, dir_fd=dir_fd)

    monkeypatch.setattr(os, "rmdir", removed)
    with structlog.testing.capture_logs() as logs:
        rundir.remove(made.path)
    is_left = times == rundir.REMOVAL_TRIES
    assert os.path.exists(made.path) is is_left
    assert [entry["path"] for entry in logs] == [made.path] * is_left
    rundir.remove(made.path)
    assert not os.path.exists(os.path.dirname(made.path))
