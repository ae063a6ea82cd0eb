"""The shim's look into the kernel's log: memory kills of one cgroup, and what others would have it read."""

import os
import pathlib
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shim._native import ffi, lib
from supervisor.monitor import kernellog
from tests.supervisor.monitor.test_kernellog import COMMANDS, NAMES, PIDS, chosen, killed, record

CGROUP = "/system.slice/exitd-a\\x2db.scope"
INIT = 28900


def begun(cgroup: str = CGROUP, path: bytes = b"/nowhere") -> Any:
    """The struct, and what it points to."""
    log, text = ffi.new("struct kmsg *"), ffi.new("char[]", cgroup.encode(errors="surrogateescape"))
    lib.kmsg_begin(log, path, text, INIT)
    return log, text


def taken(*records: bytes, cgroup: str = CGROUP) -> int:
    log, _keep = begun(cgroup)
    for each in records:
        lib.kmsg_take(log, each, len(each))
    return int(log.kills)


@pytest.mark.parametrize(
    ("records", "kills"),
    [
        ([chosen(INIT, CGROUP), killed(INIT)], 1),
        ([chosen(7, CGROUP), killed(7)], 1),  # a child
        ([chosen(7, f"{CGROUP}/below"), killed(7)], 1),
        ([chosen(7, CGROUP), killed(9)], 1),  # another of its threads
        ([chosen(7, CGROUP), killed(7), chosen(INIT, CGROUP), killed(INIT)], 2),
        ([killed(INIT)], 1),  # the kernel names ten cgroups in five seconds
        ([killed(INIT, where=b"Out of memory (oom_kill_allocating_task)")], 1),
        ([killed(7)], 0),
        ([chosen(7, f"{CGROUP}x"), killed(7)], 0),
        ([chosen(INIT, "/other.scope"), killed(INIT)], 0),  # a number that is used again
        ([chosen(7, "/other.scope"), killed(INIT)], 0),
        ([chosen(INIT, CGROUP)], 0),  # chosen, and not killed yet
        ([chosen(7, CGROUP), b"Memory cgroup out of memory: OOM victim 7 (a) is already exiting. Skip", killed(9)], 0),
        ([chosen(INIT, "/a,task_memcg=/b"), killed(INIT)], 1),  # no cgroup is named: the number decides
        ([chosen(7, f"/a,task_memcg={CGROUP}"), killed(7)], 0),
        ([chosen(7, "/other.scope", b",task=x"), killed(7)], 0),
        ([b"oom-kill:constraint=", killed(INIT)], 1),
        ([chosen(7, CGROUP) + b"x", killed(7)], 0),  # no such line
        ([b"Killed process 28900 (tail)"], 0),
        ([b"Out of memory: Killed process 99999999999 (tail)"], 0),
    ],
)
def test_a_kill_counts_by_its_cgroup_or_by_inits_number(records: list[bytes], kills: int) -> None:
    assert taken(*(record(each) for each in records)) == kills


@pytest.mark.parametrize("priority", [8, 14, 30, 100, 190])
def test_what_programs_write_counts_for_nothing(priority: int) -> None:
    assert taken(record(chosen(INIT, CGROUP), priority=priority), record(killed(INIT), priority=priority)) == 0


@given(st.lists(NAMES, min_size=1, max_size=3), COMMANDS, PIDS | st.just(INIT))
def test_it_reads_what_the_daemon_reads(names: list[str], command: bytes, pid: int) -> None:
    cgroup = "/" + "/".join(names)
    records = record(chosen(pid, cgroup, command)), record(killed(pid, command))
    reader = kernellog.Reader()
    (kill,) = [kill for each in records if (kill := reader.read(each)) is not None]
    ours = kill.pid == INIT if not kill.cgroup else kernellog.is_within(kill.cgroup, cgroup[1:])
    assert taken(*records, cgroup=cgroup) == ours
    assert taken(*records) == (kill.pid == INIT and not kill.cgroup)


@given(st.lists(st.binary(max_size=300), max_size=4))
def test_any_bytes_are_read_or_passed_over(records: list[bytes]) -> None:
    assert taken(*records, *(b"6,1,1,-;" + each for each in records)) >= 0


@pytest.fixture
def log(tmp_path: pathlib.Path) -> Iterator[tuple[Any, pathlib.Path]]:
    """The path is a file with an old kill in it."""
    path = tmp_path / "kmsg"
    path.write_bytes(record(killed(INIT)))
    made, keep = begun(path=bytes(path))
    yield made, path
    lib.kmsg_end(made)
    assert made.fd == -1
    ffi.release(keep)


def test_what_was_written_before_the_beginning_is_not_read(log: tuple[Any, pathlib.Path]) -> None:
    assert lib.kmsg_look(log[0]) == -1


def test_what_was_written_since_is_counted(log: tuple[Any, pathlib.Path]) -> None:
    made, path = log
    with path.open("ab") as file:
        file.write(record(killed(INIT)))  # of a file a read takes more than one record, so there is one
    assert lib.kmsg_look(made) == 1
    assert lib.kmsg_look(made) == 1


def test_the_second_line_of_a_kill_is_waited_for(tmp_path: pathlib.Path) -> None:
    """Between the two is the kill itself. A fifo is as empty as the log is then."""
    os.mkfifo(tmp_path / "kmsg")
    made, _keep = begun(path=bytes(tmp_path / "kmsg"))
    fd = os.open(tmp_path / "kmsg", os.O_WRONLY)
    try:
        os.write(fd, record(chosen(INIT, CGROUP)))
        assert lib.kmsg_look(made) == -1  # within its limit
        os.write(fd, record(killed(INIT)))
        assert lib.kmsg_look(made) == 1
    finally:
        os.close(fd)
        lib.kmsg_end(made)


@pytest.mark.parametrize("kind", ["none", "absent", "no cgroup"])
def test_without_a_log_or_a_cgroup_nothing_is_known(tmp_path: pathlib.Path, kind: str) -> None:
    (tmp_path / "kmsg").write_bytes(b"")
    path = tmp_path / ("kmsg" if kind == "no cgroup" else "absent")
    made, _keep = begun("" if kind != "absent" else CGROUP, bytes(path))
    assert (made.fd, lib.kmsg_look(made)) == (-1, -1)
