"""What the relay answers while exitd is away or silent: the ends whose record it has read, as exitd judges them."""

import re
import tempfile
import zlib
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protos.containerd import process_pb2
from protos.containerd import task_pb2 as pb
from protos.ttrpc.v1.ttrpc_pb2 import Response
from shim._native import ffi, lib
from shim.fields import encode as encode_fields
from shim.frozen import replace
from shim.record import HEAD_BYTES, RECORD_BYTES
from supervisor.containerd import tasks
from supervisor.model import evidence
from supervisor.model.evidence import Init, Look, Pending
from supervisor.model.taskfacts import Stdio
from supervisor.model.values import Process, Report, Source, fold
from supervisor.monitor import rundir
from tests.shim.relaysession import Session, session
from tests.shim.relaywords import (
    C1,
    C2,
    CACHEABLE,
    EXEC,
    LEAVE,
    PID,
    REQUEST,
    RESPONSE,
    Frame,
    code_of,
    encode,
    failure,
    of_task,
    success,
)

AWAY_MS, OVERDUE_MS, READ_MS, SILENCE_MS = lib.AWAY_MS, lib.OVERDUE_MS, lib.READ_MS, lib.SILENCE_MS
CREATE = pb.CreateTaskRequest(id="c1", bundle="/b/c1", stdout="/f/out", stderr="/f/err", stdin="/f/in", terminal=True)
AT_NS = 1_700_000_000_250_000_000


def record(code: int = 7, signal: int = 0, began: int = 1, oom_kills: int = 0, at_ns: int = AT_NS) -> bytes:
    """What the shim of process 42, started at 99, writes."""
    kept = [ffi.new("char[]", word) for word in (b"c1", b"", b"boot", b"shim")]
    facts = ffi.new("struct exit_facts *")
    facts.id, facts.exec, facts.boot_id, facts.witness = kept
    facts.pid, facts.started, facts.realtime_ns = 42, 99, at_ns
    facts.signaled, facts.value, facts.began = int(signal > 0), signal or code, began
    facts.oom_kills = oom_kills
    out = ffi.new("char[]", RECORD_BYTES)
    assert lib.record_format(out, RECORD_BYTES, facts) > 0
    return bytes(ffi.buffer(out, RECORD_BYTES))


def created(s: Session, request: pb.CreateTaskRequest = CREATE, stream: int = 1) -> None:
    s.up()
    s.ask(stream, "Create", request.SerializeToString())
    s.hear()
    s.answer(stream, PID)
    s.take()


def task(s: Session, payload: bytes = C1) -> Any:
    """The relay's own, or NULL. The caller keeps the payload."""
    return lib.witness_named(s.witness, ffi.new("struct text *", [ffi.from_buffer(payload), len(payload)])[0])


def dies(s: Session) -> None:
    """Its init."""
    lib.witness_watched(s.witness, task(s), 42, 99, -1)
    lib.witness_dead(s.witness, task(s), s.now_ms)


def is_read(s: Session, data: bytes) -> None:
    """READ_MS after that."""
    seen = ffi.new("struct seen *")
    assert lib.evidence_read(seen, ffi.from_buffer(data), len(data)) == 0
    lib.witness_read(s.witness, task(s), seen)


def ended(s: Session, data: bytes = b"") -> None:
    """The whole of it, as the relay's program does it."""
    dies(s)
    s.passes(READ_MS)
    is_read(s, data or record())
    s.passes(0)


def reply(frame: Frame, message: Any) -> Any:
    assert frame.type == RESPONSE
    message.ParseFromString(Response.FromString(frame.data).payload)
    return message


def test_a_wait_is_answered_when_exitd_is_away_and_the_record_read() -> None:
    with session() as s:
        created(s)
        s.ask(3, "Wait", C1)
        s.hear()
        s.down()
        s.passes(60_000)
        assert s.take() == []
        ended(s)
        (frame,) = s.take()
        assert (frame.stream, reply(frame, pb.WaitResponse())) == (
            3,
            tasks.wait_reply(tasks.TaskLook(tasks.STOPPED, 0, 7, AT_NS)),
        )
        s.up()
        assert [frame.stream for frame in s.hear_all()] == [0]  # a hello: exitd is not asked again what was answered


def test_an_exitd_that_is_back_soon_answers_itself() -> None:
    with session() as s:
        created(s)
        s.ask(3, "Wait", C1)
        s.hear()
        dies(s)
        s.passes(READ_MS)
        is_read(s, record())
        s.down()
        s.passes(0)
        s.passes(AWAY_MS - 1)
        assert s.take() == []
        s.up()
        s.passes(OVERDUE_MS - 1)
        assert s.take() == []
        s.answer(3, success(b"exitd's"))
        assert s.take() == [Frame(3, RESPONSE, 0, success(b"exitd's"))]


def test_an_exitd_that_is_silent_about_an_end_is_stood_in_for_and_what_it_says_late_is_not_given() -> None:
    with session() as s:
        created(s)
        s.ask(3, "Wait", C1)
        s.hear()
        s.passes(60_000)
        ended(s)
        s.passes(OVERDUE_MS - 1)
        assert s.take() == [] and s.c.overdue_ms == s.now_ms + 1
        s.passes(1)
        (frame,) = s.take()
        assert reply(frame, pb.WaitResponse()).exit_status == 7
        s.answer(3, success(b"late"))
        assert s.take() == [] and s.c.pending.count == 0


@pytest.mark.parametrize("is_cached", [True, False])
def test_a_state_is_that_of_the_end_and_not_the_one_that_exitd_reported_last(is_cached: bool) -> None:
    with session() as s:
        created(s)
        if is_cached:
            s.ask(3, "State", C1)
            s.hear()
            s.answer(3, success(pb.StateResponse(status=process_pb2.RUNNING).SerializeToString()), CACHEABLE)
            s.take()
        s.down()
        ended(s)
        s.ask(5, "State", C1)
        s.passes(0)
        (frame,) = s.take()
        look = tasks.TaskLook(tasks.STOPPED, 42, 7, AT_NS)
        assert reply(frame, pb.StateResponse()) == tasks.state_reply(
            "c1", "", "/b/c1", Stdio("/f/in", "/f/out", "/f/err", True), look
        )


def test_a_state_that_a_silent_exitd_is_asked_for_is_that_of_the_end_after_a_second() -> None:
    with session() as s:
        created(s)
        ended(s)
        s.ask(5, "State", C1)
        s.passes(SILENCE_MS - 1)
        assert s.take() == []
        s.passes(1)
        (frame,) = s.take()
        assert reply(frame, pb.StateResponse()).status == process_pb2.STOPPED


@pytest.mark.parametrize("method", ["Exec", "Start", "Update"])
def test_everything_else_waits_for_exitd(method: str) -> None:
    with session() as s:
        created(s)
        s.down()
        ended(s)
        s.ask(3, method, C1)
        s.passes(60_000)
        assert s.take() == []


@pytest.mark.parametrize("payload", [C2, of_task("c1", "e"), b"", b"\xff"])
def test_others_and_execs_wait_for_exitd(payload: bytes) -> None:
    with session() as s:
        created(s)
        s.down()
        ended(s)
        s.ask(3, "Wait", payload)
        s.ask(5, "State", payload)
        s.passes(60_000)
        assert s.take() == []


@pytest.mark.parametrize(
    ("turns", "status"),
    [
        ([], process_pb2.CREATED),
        (["Start"], process_pb2.RUNNING),
        (["Start", "Pause"], process_pb2.PAUSED),
        (["Start", "Pause", "Resume"], process_pb2.RUNNING),
    ],
)
def test_of_a_task_that_lives_the_relay_says_what_it_knows_when_exitd_has_said_nothing(
    turns: list[str], status: process_pb2.Status
) -> None:
    with session() as s:
        created(s)
        s.witness.relay_pid = 99
        lib.witness_watched(s.witness, task(s), 42, 99, -1)
        for n, method in enumerate(turns):
            for payload, code in ((C1, 0), (C2, 0), (of_task("c1", "e"), 0), (C1, 2)):
                stream = 101 + 8 * n + 2 * len(payload) + 100 * code
                s.ask(stream, method if not code else "Pause", payload)
                s.hear()
                s.answer(stream, failure(code) if code else success())
        s.take()
        s.down()
        for stream, method in ((3, "State"), (5, "Pids"), (7, "Connect")):
            s.ask(stream, method, C1)
        s.ask(9, "State", of_task("c1", "e"))
        state, pids, connect = s.take()
        assert reply(state, pb.StateResponse()) == tasks.state_reply(
            "c1", "", "/b/c1", Stdio("/f/in", "/f/out", "/f/err", True), tasks.TaskLook(status, 42)
        )
        assert reply(pids, pb.PidsResponse()) == tasks.pids_reply(42, (), {})
        assert reply(connect, pb.ConnectResponse()) == pb.ConnectResponse(shim_pid=99, task_pid=42)


@pytest.mark.parametrize("is_told", [True, False])
def test_of_one_whose_end_is_reported_or_seen_it_is_not_said_that_it_lives(is_told: bool) -> None:
    with session() as s:
        created(s)
        lib.witness_watched(s.witness, task(s), 42, 99, -1)
        s.ask(3, "Wait", C1)
        s.hear()
        if is_told:
            s.answer(3, success())
        else:
            lib.witness_dead(s.witness, task(s), s.now_ms)
        s.take()
        s.down()
        s.ask(5, "State", C1)
        s.passes(AWAY_MS - 1)
        assert s.take() == []


def test_before_its_init_is_known_a_task_is_exitds_alone() -> None:
    with session() as s:
        created(s)
        s.down()
        for stream, method in ((3, "State"), (5, "Pids"), (7, "Connect")):
            s.ask(stream, method, C1)
        assert s.take() == []


def test_what_has_no_record_waits_for_exitd() -> None:
    with session() as s:
        created(s)
        s.ask(3, "Wait", C1)
        s.hear()
        s.down()
        dies(s)
        s.passes(READ_MS)
        lib.witness_unread(s.witness, task(s))
        s.passes(60_000)
        assert s.take() == []


def test_a_task_that_exitd_has_not_made_or_has_deleted_is_none_of_the_relays() -> None:
    with session() as s:
        s.up()
        s.ask(1, "Create", CREATE.SerializeToString())
        s.hear()
        s.answer(1, failure(2))
        assert not task(s)
        created(s, stream=3)
        ended(s)
        s.ask(5, "Delete", C1)
        s.hear()
        s.answer(5, failure(2))
        assert task(s)
        s.ask(7, "Delete", of_task("c1", "e"))
        s.hear()
        s.answer(7, PID)
        assert task(s)
        s.ask(9, "Delete", C1)
        s.hear()
        s.answer(9, PID)
        assert not task(s) and (s.witness.count, s.witness.ended) == (0, 0)


def test_of_two_tasks_of_one_name_the_newer_one_is_meant() -> None:
    with session() as s:
        created(s)
        ended(s)
        created(s, stream=3)
        assert task(s).stage == lib.TASK_MADE and (s.witness.count, s.witness.ended) == (1, 0)


def test_beyond_a_bound_tasks_are_exitds_alone() -> None:
    with session() as s:
        for n in range(lib.TASKS_MAX + 1):
            created(s, pb.CreateTaskRequest(id=f"t{n}", bundle="/b"), 2 * n + 1)
        assert s.witness.count == lib.TASKS_MAX
        assert task(s, of_task("t0")) and not task(s, of_task(f"t{lib.TASKS_MAX}"))


@pytest.mark.parametrize(("everyone", "code"), [(False, 5), (True, 0)])
def test_to_who_has_ended_no_signal_can_be_sent(everyone: bool, code: int) -> None:
    with session() as s:
        created(s)
        s.down()
        ended(s)
        s.ask(3, "Kill", pb.KillRequest(id="c1", signal=9, all=everyone).SerializeToString())
        s.ask(5, "Kill", pb.KillRequest(id="c2", signal=9, all=everyone).SerializeToString())
        s.passes(AWAY_MS)
        assert [(frame.stream, code_of(frame.data)) for frame in s.take()] == [(3, code)]


def test_a_delete_is_answered_when_containerd_has_the_exit_and_exitd_has_been_left_word() -> None:
    with session() as s:
        created(s)
        s.down()
        ended(s)
        s.ask(3, "Delete", C1)
        s.passes(60_000)
        assert s.take() == [] and not task(s).is_wanted
        task(s).taken |= lib.NEWS_EXIT
        s.passes(0)
        assert s.take() == [] and task(s).is_wanted
        task(s).is_noted = 1
        s.passes(0)
        (frame,) = s.take()
        assert reply(frame, pb.DeleteResponse()) == tasks.delete_reply(tasks.TaskLook(tasks.STOPPED, 42, 7, AT_NS))
        assert not task(s)
        s.up()
        assert [frame.stream for frame in s.hear_all()] == [0]


def test_a_delete_of_which_exitd_has_been_left_word_is_the_relays_though_exitd_is_back() -> None:
    with session() as s:
        created(s)
        s.down()
        ended(s)
        task(s).taken |= lib.NEWS_EXIT
        s.ask(3, "Delete", C1)
        s.passes(AWAY_MS)
        assert task(s).is_wanted
        s.up()
        s.hear_all()
        task(s).is_noted = 1
        s.passes(0)
        assert [frame.stream for frame in s.take()] == [3]
        s.answer(3, failure(5))
        assert s.take() == []


def test_a_delete_that_exitd_works_on_is_left_to_it_for_long() -> None:
    with session() as s:
        created(s)
        ended(s)
        task(s).taken = lib.NEWS_EXIT
        s.ask(3, "Delete", C1)
        s.hear()
        s.passes(lib.DELETE_MS - 1)
        assert not task(s).is_wanted
        s.passes(1)
        assert task(s).is_wanted
        task(s).is_noted = 1
        s.passes(0)
        assert [frame.stream for frame in s.take()] == [3]
        s.answer(3, PID)
        assert s.take() == []


E = of_task("c1", "e")
BEGUN: dict[str, str | int] = {
    **{"id": "c1", "exec": "e", "bundle": "/b/c1", "stdin": "/f/ein", "stdout": "/f/eout", "stderr": "/f/eerr"},
    **{"terminal": 1, "record": "/r/e/x/exit.json", "pid": 42, "started": 99},
}


def begun(s: Session, **fields: str | int) -> None:
    """An exec of c1: exitd's word, and its answer to the Start."""
    s.ask(51, "Start", E)
    s.hear()
    s.from_exitd(encode(Frame(0, EXEC, 0, encode_fields("exec", (BEGUN | fields).items()))))
    s.answer(51, PID)
    s.take()


def exec_ends(s: Session, data: bytes = b"") -> None:
    found = task(s, E)
    lib.witness_watched(s.witness, found, 42, 99, -1)
    lib.witness_dead(s.witness, found, s.now_ms)
    s.passes(READ_MS)
    seen = ffi.new("struct seen *")
    assert lib.evidence_read(seen, ffi.from_buffer(data or record()), len(data or record())) == 0
    lib.witness_read(s.witness, found, seen)
    s.passes(0)


def test_the_end_of_an_exec_is_reported_while_exitd_is_away_and_its_tasks_life_is_not_touched() -> None:
    with session() as s:
        created(s)
        begun(s)
        s.ask(3, "Wait", E)
        s.ask(5, "Wait", C1)
        s.hear()
        s.down()
        s.passes(AWAY_MS)
        exec_ends(s)
        s.ask(7, "State", E)
        s.ask(9, "Kill", pb.KillRequest(id="c1", exec_id="e", signal=9).SerializeToString())
        s.passes(0)
        wait, state, kill = s.take()
        assert reply(wait, pb.WaitResponse()) == tasks.wait_reply(tasks.TaskLook(tasks.STOPPED, 0, 7, AT_NS))
        assert reply(state, pb.StateResponse()) == tasks.state_reply(
            "c1", "e", "/b/c1", Stdio("/f/ein", "/f/eout", "/f/eerr", True), tasks.TaskLook(tasks.STOPPED, 42, 7, AT_NS)
        )
        assert (kill.stream, code_of(kill.data)) == (9, 5)
        assert task(s).stage == lib.TASK_MADE


def test_of_an_exec_that_lives_the_relay_says_so() -> None:
    with session() as s:
        created(s)
        begun(s)
        lib.witness_watched(s.witness, task(s, E), 42, 99, -1)
        s.down()
        s.ask(3, "State", E)
        (state,) = s.take()
        assert reply(state, pb.StateResponse()) == tasks.state_reply(
            "c1", "e", "/b/c1", Stdio("/f/ein", "/f/eout", "/f/eerr", True), tasks.TaskLook(process_pb2.RUNNING, 42)
        )


@pytest.mark.parametrize("was_sent", [True, False])
@pytest.mark.parametrize("goes", ["nobody", "containerd"])
def test_a_delete_of_an_exec_is_answered_and_exitd_hears_of_it_when_it_is_back(was_sent: bool, goes: str) -> None:
    with session() as s:
        created(s)
        begun(s)
        if was_sent:
            s.ask(3, "Delete", E)
            s.hear()
        s.down()
        if not was_sent:
            s.ask(3, "Delete", E)
        s.passes(AWAY_MS)
        assert s.take() == []
        exec_ends(s)
        (frame,) = s.take()
        assert reply(frame, pb.DeleteResponse()) == tasks.delete_reply(tasks.TaskLook(tasks.STOPPED, 42, 7, AT_NS))
        assert not task(s, E) and task(s)
        if goes == "containerd":
            s.over()
        for _ in range(2):  # it dies over it, too
            s.up()
            assert [frame.stream for frame in s.hear_all() if frame.type == REQUEST] == [3]
            s.down()
        s.up()
        s.hear_all()
        s.answer(3, PID)
        assert s.take() == [] and s.c.pending.count == 0


def test_an_exec_without_a_record_or_with_a_task_that_is_gone_waits_for_exitd() -> None:
    with session() as s:
        created(s)
        begun(s)
        lib.witness_watched(s.witness, task(s, E), 42, 99, -1)
        lib.witness_dead(s.witness, task(s, E), s.now_ms)
        lib.witness_unread(s.witness, task(s, E))
        s.ask(3, "Wait", E)
        s.down()
        s.passes(60_000)
        assert s.take() == []
        s.up()
        s.ask(5, "Delete", C1)
        s.hear_all()
        s.answer(5, PID)
        assert not task(s, E) and not task(s) and s.witness.count == 0


def test_of_an_exec_that_is_begun_again_under_its_name_the_newer_one_is_meant() -> None:
    with session() as s:
        created(s)
        begun(s)
        exec_ends(s)
        begun(s, pid=43)
        assert (task(s, E).seen.pid, s.witness.count, s.witness.ended) == (43, 2, 0)


@pytest.mark.parametrize(
    "fields",
    [{"pid": 0}, {"pid": 1 << 31}, {"started": "x"}, {"id": ""}, {"exec": ""}, {"record": ""}, {"more": 8192 * "x"}],
)
def test_a_word_about_an_exec_that_makes_no_sense_is_passed_over(fields: dict[str, str | int]) -> None:
    with session() as s:
        created(s)
        begun(s, **fields)
        s.from_exitd(encode(Frame(0, EXEC, 0, b"exec 1")))
        s.from_exitd(encode(Frame(0, EXEC, 0, b"")))
        assert not task(s, E) and s.witness.count == 1


def test_of_a_task_that_has_ended_the_last_statistics_are_given_and_of_one_that_lives_none() -> None:
    with session() as s:
        created(s)
        for stream, reading in ((3, b"older"), (5, b"last")):
            s.ask(stream, "Stats", C1)
            s.hear()
            s.answer(stream, success(reading))
        s.ask(7, "Stats", C1)
        s.hear()
        s.answer(7, failure(5))
        s.take()
        s.down()
        s.ask(9, "Stats", C1)
        s.passes(0)
        s.passes(AWAY_MS)
        assert [(frame.stream, code_of(frame.data)) for frame in s.take()] == [(9, 14)]
        ended(s)
        s.ask(11, "Stats", C1)
        s.ask(13, "Stats", C2)
        s.passes(0)
        assert [(frame.stream, frame.data) for frame in s.take() if not code_of(frame.data)] == [(11, success(b"last"))]


@pytest.mark.parametrize("is_away", [True, False])
def test_statistics_do_not_hang(is_away: bool) -> None:
    with session() as s:
        created(s)
        if is_away:
            s.down()
        s.passes(0)
        s.ask(3, "Stats", C1)
        s.hear()
        s.passes(999)
        assert s.take() == []
        s.passes(lib.STATS_MS - 999)
        assert [(frame.stream, code_of(frame.data)) for frame in s.take()] == [(3, 14)]
        if not is_away:
            s.answer(3, PID)
            assert s.take() == []


def test_statistics_of_an_exitd_that_is_known_to_take_nothing_in_are_not_waited_for() -> None:
    with session() as s:
        created(s)
        assert lib.session_owes(s.c) == 0
        s.passes(10)
        s.ask(3, "State", C1)
        assert lib.session_owes(s.c) == 0
        since_ms = s.now_ms
        s.ask(5, "Stats", C1)
        s.passes(10)
        s.ask(7, "Stats", C2)
        assert lib.session_owes(s.c) == since_ms
        lib.session_silent(s.c)
        assert sorted((frame.stream, code_of(frame.data)) for frame in s.take()) == [(5, 14), (7, 14)]
        assert lib.session_owes(s.c) == 0
        s.hear()
        s.answer(5, PID)
        assert s.take() == []
        s.ask(9, "Stats", C1)
        s.down()
        assert lib.session_owes(s.c) == 0


def test_a_shutdown_is_answered_and_exitd_hears_of_it_all_the_same_and_may_end_the_relay_by_it() -> None:
    with session() as s:
        created(s)
        s.down()
        s.passes(0)
        s.ask(3, "Shutdown")
        s.passes(AWAY_MS)
        assert [(frame.stream, code_of(frame.data)) for frame in s.take()] == [(3, 0)]
        s.over()
        s.up()
        assert [frame.stream for frame in s.hear_all()] == [0, 3]
        s.answer(3, success(), LEAVE)
        assert s.c.is_leaving and s.take() == []


def test_a_shutdown_that_a_silent_exitd_answers_late_may_end_the_relay_too() -> None:
    with session() as s:
        created(s)
        s.ask(3, "Shutdown")
        s.hear()
        s.passes(lib.SHUTDOWN_MS)
        assert [frame.stream for frame in s.take()] == [3]
        s.answer(3, success(), LEAVE)
        assert s.c.is_leaving and s.take() == []


def sealed(data: bytes, **numbers: int) -> bytes:
    """The record with other numbers in it, also those that no shim can write, and the checksum of that."""
    body = data[HEAD_BYTES : int(data[23:27])]
    for name, value in numbers.items():
        body, count = re.subn(rb'"%s":-?\d+' % name.encode(), b'"%s":%d' % (name.encode(), value), body)
        assert count == 1
    head = b'{"version":1,"length":"%04d","crc":"%08x",' % (HEAD_BYTES + len(body), zlib.crc32(body))
    return (head + body).ljust(RECORD_BYTES - 1) + b"\n"


Harm = Callable[[bytes], bytes]
WHOLE: Harm = bytes
HEAD, BODY, REST = (st.integers(*of) for of in ((0, HEAD_BYTES - 1), (HEAD_BYTES, 300), (300, RECORD_BYTES - 1)))


def turned_over(places: st.SearchStrategy[int]) -> st.SearchStrategy[Harm]:
    """One bit of the record is another one, as a disk or a memory may have it."""

    def at(place: int, bit: int) -> Harm:
        return lambda data: data[:place] + bytes([data[place] ^ 1 << bit]) + data[place + 1 :]

    return st.builds(at, places, st.integers(0, 7))


def half(place: int, filled: bool) -> Harm:
    """In the middle of being written: what is behind it is missing, or has never been anything."""
    return lambda data: data[:place].ljust(RECORD_BYTES if filled else 0, b"\0")


LAST = 2**63 - 1  # what C has room for where a start is read
OWN, LATEST = Process(42, 99), Process(42, LAST)
TIMES = st.integers(1, LAST)
# By what it is: the process, and its record's pid, start, time of the end and what has become of it on the disk.
FOUND = {
    "its own": (OWN, 42, 99, TIMES, st.just(WHOLE)),
    "its own, of the last moment": (LATEST, 42, LAST, TIMES, st.just(WHOLE)),
    "of before 1970": (OWN, 42, 99, st.integers(-LAST, 0), st.just(WHOLE)),
    "of another pid": (OWN, 41, 99, TIMES, st.just(WHOLE)),
    "of no pid": (OWN, -42, 99, TIMES, st.just(WHOLE)),
    "of a pid that there cannot be": (OWN, 2**32 + 42, 99, TIMES, st.just(WHOLE)),
    "of another start": (OWN, 42, 98, TIMES, st.just(WHOLE)),
    "of a start that there cannot be": (LATEST, 42, LAST + 1, TIMES, st.just(WHOLE)),
    "of a start with too many digits": (OWN, 42, 2**64 + 99, TIMES, st.just(WHOLE)),
    "half of it": (OWN, 42, 99, TIMES, st.builds(half, HEAD | BODY | REST, st.booleans())),
    "another bit in its head": (OWN, 42, 99, TIMES, turned_over(HEAD)),
    "another bit in its body": (OWN, 42, 99, TIMES, turned_over(BODY)),
    "another bit behind it": (OWN, 42, 99, TIMES, turned_over(REST)),
}
Found = tuple[Process, int, int, st.SearchStrategy[int], st.SearchStrategy[Harm]]


def exitds(look: Look, data: bytes) -> Report:
    """exitd's verdict of what is in the file, read as it reads it; nothing else is a witness."""
    with tempfile.TemporaryFile() as file:
        file.write(data)
        file.flush()
        found = rundir.read_record(rundir.RunDirectory("", record_fd=file.fileno()))
    verdict = evidence.judge(replace(look, record=found))
    assert not isinstance(verdict, Pending)
    return verdict


@pytest.mark.parametrize("found", FOUND.values(), ids=FOUND.keys())
@given(
    code=st.integers(0, 255),
    signal=st.integers(0, 64),
    began=st.sampled_from([1, 1, 0, -1]),
    kills=st.integers(-1, 5),
    executes=st.booleans(),
    executed=st.booleans(),
    drawn=st.data(),
)
def test_of_every_record_the_relay_says_what_exitd_says_or_nothing(
    found: Found, code: int, signal: int, began: int, kills: int, executes: bool, executed: bool, drawn: st.DataObject
) -> None:
    """What it may say it says."""
    process, pid, started, times, harms = found
    data = drawn.draw(harms)(sealed(record(code, signal, began, kills, drawn.draw(times)), pid=pid, started=started))
    verdict = exitds(Look(Init.REAPED, process, executes=executes, executed=executed), data)
    seen = ffi.new("struct seen *")
    with session() as s:
        created(s)
        s.ask(3, "Wait", C1)
        s.down()
        dies(s)
        s.passes(READ_MS)
        if lib.evidence_of(seen, ffi.from_buffer(data), len(data), process.pid, process.started_ticks):
            lib.witness_unread(s.witness, task(s))
        else:
            lib.witness_read(s.witness, task(s), seen)
        s.passes(60_000)
        given = s.take()
        if began != 1 or verdict.source is not Source.RECORD or verdict.at_ns <= 0:
            assert given == []
            return
        expected = tasks.wait_reply(tasks.TaskLook(tasks.STOPPED, 0, fold(verdict.status), verdict.at_ns))
        assert reply(given[0], pb.WaitResponse()) == expected
        assert verdict.init == process and not verdict.unseen
        assert task(s).seen.oom_kills == kills and verdict.oom_kills == max(kills, 0)
