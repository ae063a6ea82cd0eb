"""In which state a living task is, as the relay says it: by exitd's word, and never of one who may have ended."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from protos.containerd import process_pb2
from protos.containerd import task_pb2 as pb
from shim._native import ffi, lib
from supervisor.containerd import tasks
from supervisor.model.taskfacts import Stdio
from tests.shim.relaysession import Session, session
from tests.shim.relaywords import C1, C2, CACHEABLE, Frame, code_of, of_task, success
from tests.shim.test_relay_witness import SILENCE_MS, created, reply, task

CREATED, RUNNING, PAUSED = process_pb2.CREATED, process_pb2.RUNNING, process_pb2.PAUSED
ESRCH, UNAVAILABLE = 3, 14
WORDS = {CREATED: b"created", RUNNING: b"running", PAUSED: b"paused"}


class Watched:
    """A task whose init the relay watches. `word`: exitd's, if it keeps one."""

    def __init__(self, s: Session, *, keeps: bool = True) -> None:
        self.session = s
        self.word = b""
        self.lives = True
        self._path = ffi.new("char[]", b"/run/state")
        look = dict(ffi.typeof("struct witness").fields)["look"].type
        self._look = ffi.callback(look, self._looked)
        s.witness.look = self._look
        s.witness.relay_pid = 99
        lib.witness_watched(s.witness, task(s), 42, 99, -1)
        task(s).state_path = self._path if keeps else ffi.NULL

    def _looked(self, t: Any, word: Any, room: int) -> int:
        if not self.lives:
            return -ESRCH
        size = min(len(self.word), room) if t.state_path else 0
        ffi.memmove(word, self.word, size)
        return size

    def close(self) -> None:
        task(self.session).state_path = ffi.NULL


@contextmanager
def watched(*, keeps: bool = True) -> Iterator[tuple[Session, Watched]]:
    with session() as s:
        created(s)
        w = Watched(s, keeps=keeps)
        yield s, w
        w.close()


def replied(s: Session, stream: int, status: int) -> None:
    """exitd has been asked for the state, and its answer may be given again."""
    s.ask(stream, "State", C1)
    s.hear()
    s.answer(stream, success(pb.StateResponse(status=status).SerializeToString()), CACHEABLE)  # type: ignore[arg-type]
    s.take()


def state_in(frame: Frame) -> pb.StateResponse:
    found = reply(frame, pb.StateResponse())
    assert isinstance(found, pb.StateResponse)
    return found


@pytest.mark.parametrize("status", WORDS)
@pytest.mark.parametrize("exitd", ["there", "silent", "away"])
def test_by_exitds_word_a_state_is_said_at_once_in_the_bytes_that_exitd_has_for_it(
    status: process_pb2.Status, exitd: str
) -> None:
    with watched() as (s, w):
        if exitd == "silent":
            s.ask(3, "Exec", C1)
            s.hear()
            s.passes(60_000)
        if exitd == "away":
            s.down()
        w.word = WORDS[status]
        s.ask(5, "State", C1)
        (frame,) = s.take()
        assert reply(frame, pb.StateResponse()) == tasks.state_reply(
            "c1", "", "/b/c1", Stdio("/f/in", "/f/out", "/f/err", True), tasks.TaskLook(status, 42)
        )
        heard = s.hear_all()
        assert [each.stream for each in heard if each.stream == 5] == []


@pytest.mark.parametrize("word", [b"", b"stopped", b"runnin", b"runningrunningrunning"])
@pytest.mark.parametrize("is_up", [True, False])
def test_without_a_word_that_is_one_exitd_is_waited_for_whatever_it_said_before(word: bytes, is_up: bool) -> None:
    with watched() as (s, w):
        replied(s, 3, RUNNING)
        w.word = word
        if not is_up:
            s.down()
        s.ask(5, "State", C1)
        s.passes(60_000)
        assert s.take() == []
        w.word = b"paused"
        s.passes(SILENCE_MS)
        assert state_in(*s.take()).status == PAUSED


@pytest.mark.parametrize("keeps", [True, False])
@pytest.mark.parametrize("is_up", [True, False])
def test_of_who_has_ended_it_is_not_said_that_he_lives(keeps: bool, is_up: bool) -> None:
    with watched(keeps=keeps) as (s, w):
        w.word = b"running"
        replied(s, 3, RUNNING)
        w.lives = False  # and nobody has looked at its pidfd yet
        if not is_up:
            s.down()
        s.ask(5, "State", C1)
        s.passes(60_000)
        lib.witness_dead(s.witness, task(s), s.now_ms)
        s.ask(7, "State", C1)
        s.passes(60_000)
        assert s.take() == []


def test_what_exitd_said_of_an_end_is_said_again() -> None:
    with watched() as (s, w):
        w.lives = False
        replied(s, 3, process_pb2.STOPPED)
        s.down()
        s.ask(5, "State", C1)
        assert state_in(*s.take()).status == process_pb2.STOPPED


def test_connect_is_answered_while_init_lives_and_asked_for_otherwise() -> None:
    with watched(keeps=False) as (s, w):
        s.hear_all()
        s.ask(3, "Connect", C1)
        (frame,) = s.take()
        assert reply(frame, pb.ConnectResponse()) == pb.ConnectResponse(shim_pid=99, task_pid=42)
        assert s.hear_all() == []
        s.ask(5, "Connect", C2)
        w.lives = False
        s.ask(7, "Connect", C1)
        assert [each.stream for each in s.hear_all()] == [5, 7] and s.take() == []


def test_pids_and_the_states_of_execs_are_exitds_while_it_answers() -> None:
    with watched() as (s, w):
        w.word = b"running"
        s.hear_all()
        s.ask(3, "Pids", C1)
        s.ask(5, "State", of_task("c1", "e"))
        assert [each.stream for each in s.hear_all()] == [3, 5] and s.take() == []


STEPS = ("ask", "change", "changed", "replies", "down", "up", "waits", "dies")


@given(
    st.lists(st.sampled_from(STEPS), max_size=40), st.lists(st.sampled_from(sorted(WORDS)), min_size=40, max_size=40)
)
@example(["change", "ask", "down", "up", "down"], [CREATED] * 40)
def test_whatever_happens_in_whatever_order_a_state_that_is_said_is_the_true_one(
    steps: list[str], states: list[process_pb2.Status]
) -> None:
    """exitd takes its word away before each change; what it answered before may be in the relay's memory. A refusal is
    no word of a state."""
    with watched() as (s, w):
        truth: process_pb2.Status | None = CREATED
        w.word = WORDS[CREATED]
        streams = iter(range(101, 10_001, 2))
        for step, state in zip(steps, states, strict=False):
            if step == "ask":
                s.ask(next(streams), "State", C1)
            elif step == "change":
                w.word, truth = b"", None  # anything from now on
            elif step == "changed" and w.lives:
                truth, w.word = state, WORDS[state]
            elif step == "replies" and s.c.is_up and w.lives and truth is not None:
                s.hear_all()
                for each in [each.stream for each in s.told if each.stream > 100]:
                    answer = pb.StateResponse(status=truth).SerializeToString()
                    s.answer(each, success(answer), CACHEABLE)
                s.told.clear()
            elif step == "down":
                s.down()
            elif step == "up" and not s.c.is_up:
                s.up()
            elif step == "waits":
                s.passes(SILENCE_MS)
            elif step == "dies":
                w.lives, truth = False, None
            for frame in s.take():
                if code_of(frame.data) != UNAVAILABLE:  # exitd has ended twice while it answered this
                    assert truth is not None and state_in(frame).status == truth, step
