"""What the kernel's log says about memory kills, and what others would have it say."""

import dataclasses
from signal import SIGKILL, SIGTERM

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.model.values import Exited, ExitStatus, Process, Report, Signaled, Source
from supervisor.monitor import kernellog
from supervisor.monitor.kernellog import KnownKills, MemoryKill, Reader, Since

INNER = "system.slice/exitd-box.scope"
INIT = Process(28900, 74_000)
BEGAN = Since(earliest_us=700_000_000, about_us=740_000_000)
KILLED = Report(Signaled(SIGKILL), Source.RECORD, INIT, 1, counted=False)
NOT_REPORTED = KnownKills()

NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\n\0/"), min_size=1, max_size=40) | st.sampled_from(
    [",task=x", ",task_memcg=/a", ",pid=1,uid=0", "oom-kill:constraint=", r"a\x2db", "x;y", "=", " "]
)
COMMANDS = st.binary(min_size=1, max_size=15).filter(lambda name: b"\0" not in name) | st.sampled_from(
    [b",pid=1,uid=0", b",task=x", b"tail", b") (", b"\\x0a", b"\n"]
)
PIDS = st.integers(1, 2**22)
TIMES = st.integers(0, 2**62)


def escaped(text: bytes) -> bytes:
    """As the kernel writes a record's text: nothing that is not printable, and no backslash but its own."""
    return b"".join(bytes((c,)) if 32 <= c < 127 and c != 92 else b"\\x%02x" % c for c in text)


def record(text: bytes, at_us: int = 1_063_751_891, priority: int = 6) -> bytes:
    return b"%d,1852,%d,-;" % (priority, at_us) + escaped(text) + b"\n"


def chosen(pid: int, cgroup: str, command: bytes = b"tail") -> bytes:
    path = cgroup.encode(errors="surrogateescape")
    head = b"oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=%s,mems_allowed=0,oom_memcg=%s" % (path, path)
    return head + b",task_memcg=%s,task=%s,pid=%d,uid=0" % (path, command, pid)


def killed(pid: int, command: bytes = b"tail", where: bytes = b"Memory cgroup out of memory") -> bytes:
    return where + b": Killed process %d (%s) total-vm:34520kB, anon-rss:32128kB, UID:0" % (pid, command)


def read(*records: bytes) -> list[MemoryKill]:
    reader = Reader()
    return [kill for each in records if (kill := reader.read(each)) is not None]


@given(st.lists(NAMES, min_size=1, max_size=4), COMMANDS, PIDS, TIMES)
def test_no_name_of_a_cgroup_or_a_program_changes_who_was_killed(
    names: list[str], command: bytes, pid: int, at_us: int
) -> None:
    cgroup = "/" + "/".join(names)
    (kill,) = read(record(chosen(pid, cgroup, command), at_us), record(killed(pid, command), at_us))
    assert (kill.pid, kill.at_us) == (pid, at_us)
    if all(word not in cgroup.encode() + b" " + command for word in (b",task=", b",task_memcg=")):
        assert kill.cgroup == cgroup
    else:
        assert kill.cgroup == ""


@given(st.lists(st.binary(max_size=200) | st.tuples(COMMANDS, PIDS).map(lambda it: record(killed(it[1], it[0])))))
def test_any_bytes_are_read_or_passed_over(records: list[bytes]) -> None:
    for kill in read(*records):
        assert kill.pid >= 0 and kill.at_us >= 0


@given(PIDS, COMMANDS, st.integers(8, 200))
def test_what_programs_write_into_the_log_is_nobodys_evidence(pid: int, command: bytes, priority: int) -> None:
    assert read(record(chosen(pid, "/a"), priority=priority), record(killed(pid, command), priority=priority)) == []


@pytest.mark.parametrize("where", [b"Out of memory", b"Out of memory (oom_kill_allocating_task)"])
def test_a_machine_without_memory_kills_too(where: bytes) -> None:
    assert read(record(chosen(7, "/a")), record(killed(7, where=where))) == [MemoryKill(7, 1_063_751_891, "/a")]


def test_a_kill_whose_first_line_the_kernel_left_out_has_no_cgroup_and_not_anothers() -> None:
    first = (record(chosen(7, "/a")), record(killed(7)))
    assert read(*first, record(killed(8))) == [MemoryKill(7, 1_063_751_891, "/a"), MemoryKill(8, 1_063_751_891)]


def test_a_process_is_named_by_its_leader_whichever_thread_the_kernel_killed() -> None:
    assert read(record(chosen(7, "/a")), record(killed(9))) == [MemoryKill(7, 1_063_751_891, "/a")]


def test_a_process_that_was_ending_already_was_not_killed_for_memory() -> None:
    spared = record(b"Memory cgroup out of memory: OOM victim 7 (tail) is already exiting. Skip killing the task")
    assert read(record(chosen(7, "/a")), spared, record(killed(8))) == [MemoryKill(8, 1_063_751_891)]


# -- what it means for an end


def weighed(report: Report, *kills: MemoryKill, known: KnownKills = NOT_REPORTED) -> int:
    return kernellog.with_kills(report, kills, INIT, INNER, known, BEGAN).oom_kills


def kill(pid: int = INIT.pid, at_us: int = BEGAN.about_us + 5, cgroup: str = f"/{INNER}") -> MemoryKill:
    return MemoryKill(pid, at_us, cgroup)


@pytest.mark.parametrize("cgroup", [f"/{INNER}", f"/{INNER}/below", ""])
def test_an_init_whom_the_log_names_was_killed_for_memory(cgroup: str) -> None:
    assert weighed(KILLED, kill(cgroup=cgroup)) == 1
    assert weighed(KILLED, kill(cgroup=cgroup), known=KnownKills(reported=3)) == 4


@pytest.mark.parametrize(
    "other",
    [
        kill(pid=1),
        kill(at_us=BEGAN.earliest_us - 1),
        kill(cgroup="/system.slice/exitd-other.scope"),
        kill(cgroup=f"/{INNER}2"),
        kill(cgroup=f"/other/{INNER}"),
    ],
    ids=["another process", "before it began", "in another cgroup", "one with a longer name", "one of the same name"],
)
def test_an_init_whom_the_log_does_not_name_ended_for_reasons_unknown(other: MemoryKill) -> None:
    assert weighed(KILLED, other) == 0


def test_a_child_that_was_killed_is_counted_where_init_ended_by_itself() -> None:
    ended = dataclasses.replace(KILLED, status=Exited(7))
    assert weighed(ended, kill(pid=5), kill(pid=6), kill(pid=9, cgroup=""), kill(pid=8, cgroup="/other")) == 2
    assert weighed(ended, kill(pid=5, at_us=BEGAN.about_us - 1)) == 0, "of the run before, perhaps"
    assert weighed(ended, kill(pid=5), known=KnownKills(reported=2, before=2)) == 3, (
        "an exec's: on top of those before it"
    )


@given(
    st.integers(0, 5), st.lists(st.builds(kill, pid=PIDS, at_us=TIMES)), st.sampled_from([Exited(0), Signaled(SIGKILL)])
)
def test_the_log_never_takes_away_from_a_count(kills: int, found: list[MemoryKill], status: ExitStatus) -> None:
    report = dataclasses.replace(KILLED, status=status, oom_kills=kills)
    assert weighed(report, *found) >= kills


@pytest.mark.parametrize(
    ("status", "kills", "counted", "known", "wanted"),
    [
        (Signaled(SIGKILL), 0, True, NOT_REPORTED, True),
        (Signaled(SIGKILL), 1, True, NOT_REPORTED, False),
        (Signaled(SIGKILL), 1, True, KnownKills(reported=1), True),
        (Signaled(SIGKILL), 0, True, KnownKills(asked_kill=True), False),
        (Signaled(SIGTERM), 0, True, NOT_REPORTED, False),
        (Exited(0), 0, True, NOT_REPORTED, False),
        (Exited(0), 0, False, NOT_REPORTED, True),
    ],
)
def test_the_log_is_asked_only_where_the_count_leaves_something_open(
    status: ExitStatus, kills: int, counted: bool, known: KnownKills, wanted: bool
) -> None:
    report = dataclasses.replace(KILLED, status=status, oom_kills=kills, counted=counted)
    assert kernellog.is_wanted(report, known) is wanted


@given(st.floats(0, 1e7), st.lists(st.integers(0, 10**13), min_size=2, max_size=2))
def test_a_run_began_at_the_earliest_before_it_began_about(age_seconds: float, clocks: list[int]) -> None:
    began = kernellog.since(age_seconds, iter(clocks))
    assert began.earliest_us < began.about_us <= max(clocks)
