"""supervisor/monitor/procevents.py: messages and filters by the bytes, and lives against a model of the kernel."""

import struct
from dataclasses import dataclass, field
from enum import Enum

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from supervisor.model.values import Process
from supervisor.monitor import procevents
from supervisor.monitor.procevents import Answered, Executed, Forked, Lives, Message, Standing, ThreadEnded, Threads

NONE, FORK, EXEC, COMM, EXIT = 0, 1, 2, 0x200, 0x80000000
PID = 1000
PROCESS = Process(PID, 77)
OTHER = Process(2000, 78)


def datagram(what: int, *words: int, index: int = 1, ack: int = 0) -> bytes:
    """As the kernel sends it (include/uapi/linux/cn_proc.h), padded to the size of a proc_event."""
    body = struct.pack("=IIQ", what, 0, 123) + struct.pack(f"={len(words)}I", *words).ljust(24, b"\0")
    connector = struct.pack("=IIIIHH", index, 1, 99, ack, len(body), 0)
    return struct.pack("=IHHII", 36 + len(body), 3, 0, 99, 0) + connector + body


def forked(pid: int, tid: int) -> bytes:
    return datagram(FORK, 1, 1, tid, pid)


def executed(pid: int) -> bytes:
    return datagram(EXEC, pid, pid)


def ended(pid: int, tid: int, status: int = 0) -> bytes:
    return datagram(EXIT, tid, pid, status, 17, 1, 1)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (forked(7, 9), Forked(7, 9)),
        (executed(7), Executed(7)),
        (ended(7, 9, 7 << 8), ThreadEnded(7, 9, 7 << 8)),
        (datagram(NONE, 1, ack=6), Answered(5, 1)),
        (datagram(COMM, 7, 7), None),
        (datagram(EXIT, 7, 7, index=2), None),
        (b"", None),
    ],
)
def test_a_datagram_is_read_as_what_it_is(data: bytes, message: Message | None) -> None:
    assert procevents.parse(data) == message


@given(st.binary(max_size=100))
def test_whatever_comes_is_read_or_is_nothing(data: bytes) -> None:
    procevents.parse(data)


@given(st.integers(0, 70))
def test_half_a_datagram_is_nothing(length: int) -> None:
    assert procevents.parse(ended(7, 7)[: min(length, 67)]) is None


def test_a_request_is_a_netlink_message_of_the_connector() -> None:
    data = procevents.request(procevents.LISTEN, 5)
    assert struct.unpack_from("=IHHII", data) == (len(data), 3, 0, 0, 0)
    assert struct.unpack_from("=IIIIHHI", data, 16) == (1, 1, 0, 5, 4, 0, 1)


# -- the filter, run by an interpreter of its own


def lets_through(program: bytes, packet: bytes) -> bool:
    """Classic BPF as linux/filter.h defines it, for the few instructions that are used."""
    instructions = [struct.unpack_from("=HBBI", program, at) for at in range(0, len(program), 8)]
    at, a, x = 0, 0, 0
    constant: int
    while True:
        code, if_true, if_false, constant = instructions[at]
        at += 1
        match code:
            case 0x20:
                a = struct.unpack_from(">I", packet, constant)[0]
            case 0x07:
                x = a
            case 0x05:
                at += constant
            case 0x15:
                at += if_true if a == constant else if_false
            case 0x35:
                at += if_true if a >= constant else if_false
            case 0x1D:
                at += if_true if a == x else if_false
            case 0x06:
                return constant != 0
            case _:
                raise AssertionError(f"instruction {code:#x}")


pids = st.integers(1, 4_194_304)


@given(st.sets(pids, max_size=procevents.MOST_EXACT), pids)
def test_a_filter_lets_through_what_concerns_its_processes_and_nothing_else(watched: set[int], other: int) -> None:
    program = procevents.accepts(watched)
    assert len(program) <= 4096 * 8
    for pid in [*watched, other]:
        for packet in (forked(pid, pid + 1), executed(pid), ended(pid, pid + 1), ended(pid, pid)):
            assert lets_through(program, packet) == (pid in watched)
        assert not lets_through(program, forked(pid, pid))
        assert not lets_through(program, datagram(COMM, pid, pid))
    assert lets_through(program, datagram(NONE, 0))


def test_the_filter_for_all_leaves_out_what_is_no_end_no_thread_and_no_execve() -> None:
    program = procevents.accepts_all()
    assert all(lets_through(program, each) for each in (forked(7, 8), executed(7), ended(7, 8), datagram(NONE, 0)))
    assert not any(lets_through(program, each) for each in (forked(7, 7), datagram(COMM, 7, 7)))


# -- lives


class Kernel:
    """What a test says of threads."""

    def __init__(self, *running: int, all_ending: bool = False) -> None:
        self.threads: Threads | None = Threads(frozenset(running), all_ending)
        self.looks = 0

    def __call__(self, process: Process) -> Threads | None:
        self.looks += 1
        return self.threads

    def dies(self) -> None:
        self.threads = None


def watched(kernel: Kernel) -> Lives:
    lives = Lives(kernel)
    lives.add(PROCESS)
    lives.see(PROCESS)
    return lives


def test_a_process_with_one_thread_ends_with_its_code() -> None:
    kernel = Kernel(PID)
    lives = watched(kernel)
    kernel.dies()
    assert lives.standing(PROCESS) == (Standing.GOING_ON, None)
    lives.take(ThreadEnded(PID, PID, 7 << 8))
    assert lives.standing(PROCESS) == (Standing.ENDED, 7 << 8)


def test_events_of_before_and_of_strangers_are_no_evidence() -> None:
    kernel = Kernel(PID)
    lives = Lives(kernel)
    lives.take(ThreadEnded(PID, PID, 3 << 8))
    lives.add(PROCESS)
    lives.take(ThreadEnded(PID, PID, 4 << 8))  # of who had the pid before: this one is alive
    assert lives.standing(PROCESS) == (Standing.LOST, None)
    lives.see(PROCESS)
    lives.take(ThreadEnded(PID, PID, 5 << 8))
    lives.take(ThreadEnded(2000, 2000, 6 << 8))
    assert lives.standing(PROCESS) == (Standing.GOING_ON, None)
    assert lives.standing(Process(PID, 99)) == (Standing.LOST, None)
    assert lives.standing(OTHER) == (Standing.LOST, None)


def test_what_is_dead_when_it_is_first_seen_stays_unknown() -> None:
    kernel = Kernel()
    kernel.dies()
    lives = watched(kernel)
    lives.take(ThreadEnded(PID, PID, 7 << 8))
    assert lives.standing(PROCESS) == (Standing.LOST, None)


def test_a_leader_that_leaves_alone_is_not_the_end_and_its_code_not_the_process_s() -> None:
    kernel = Kernel(PID, 1001)
    lives = watched(kernel)
    kernel.threads = Threads(frozenset({1001}))
    lives.take(ThreadEnded(PID, PID, 0))
    assert lives.standing(PROCESS) == (Standing.GOING_ON, None)
    lives.take(Forked(PID, 1002))
    kernel.dies()
    lives.take(ThreadEnded(PID, 1001, 7 << 8))
    assert lives.standing(PROCESS) == (Standing.GOING_ON, None)
    lives.take(ThreadEnded(PID, 1002, 7 << 8))
    assert lives.standing(PROCESS) == (Standing.ENDED, 7 << 8)


def test_threads_that_left_before_say_nothing() -> None:
    kernel = Kernel(PID, 1001)
    lives = watched(kernel)
    lives.take(ThreadEnded(PID, 1001, 0))
    kernel.dies()
    lives.take(ThreadEnded(PID, PID, 9))
    assert lives.standing(PROCESS) == (Standing.ENDED, 9)


def test_a_thread_that_dies_alone_of_a_signal_says_nothing() -> None:
    """As a seccomp filter ends one."""
    kernel = Kernel(PID, 1001)
    lives = watched(kernel)
    kernel.threads = Threads(frozenset({PID}))
    lives.take(ThreadEnded(PID, 1001, 31))
    kernel.dies()
    lives.take(ThreadEnded(PID, PID, 0))
    assert lives.standing(PROCESS) == (Standing.ENDED, 0)


def test_codes_that_contradict_each_other_are_none() -> None:
    for first, second in (((1001, 7 << 8), (PID, 0)), ((PID, 0), (1001, 7 << 8)), ((PID, 9), (1001, 7 << 8))):
        kernel = Kernel(PID, 1001)
        lives = watched(kernel)
        kernel.dies()
        for tid, status in (first, second):
            lives.take(ThreadEnded(PID, tid, status))
        assert lives.standing(PROCESS) == (Standing.LOST, None)


def test_a_core_is_known_from_whichever_thread_dumped_it() -> None:
    for first, second in ((11, 11 | 0x80), (11 | 0x80, 11)):
        kernel = Kernel(PID, 1001)
        lives = watched(kernel)
        kernel.dies()
        lives.take(ThreadEnded(PID, PID, first))
        lives.take(ThreadEnded(PID, 1001, second))
        assert lives.standing(PROCESS) == (Standing.ENDED, 11 | 0x80)


def test_execve_leaves_one_thread_whichever_called_it() -> None:
    kernel = Kernel(PID, 1001)
    lives = watched(kernel)
    kernel.threads = Threads(frozenset({1001}))  # which calls it, and ends the leader for that
    lives.take(ThreadEnded(PID, PID, 0))
    lives.take(Executed(PID))
    kernel.dies()
    lives.take(ThreadEnded(PID, PID, 7 << 8))
    assert lives.standing(PROCESS) == (Standing.ENDED, 7 << 8)


def test_the_old_leader_s_event_may_come_after_that_of_execve() -> None:
    kernel = Kernel(PID, 1001)
    lives = watched(kernel)
    lives.take(Executed(PID))
    kernel.threads = Threads(frozenset({PID}))
    lives.take(ThreadEnded(PID, PID, 0))
    assert lives.standing(PROCESS) == (Standing.GOING_ON, None)
    kernel.dies()
    lives.take(ThreadEnded(PID, PID, 7 << 8))
    assert lives.standing(PROCESS) == (Standing.ENDED, 7 << 8)


def test_after_a_loss_nothing_is_believed_but_of_what_is_seen_alive() -> None:
    kernel = Kernel(PID)
    lives = watched(kernel)
    lives.lose()
    lives.take(ThreadEnded(PID, PID, 7 << 8))
    assert lives.standing(PROCESS) == (Standing.LOST, None)
    lives.see_some(99)  # it lives: the event was another's, of before
    kernel.dies()
    lives.see_some(99)
    assert lives.standing(PROCESS) == (Standing.GOING_ON, None)
    lives.take(ThreadEnded(PID, PID, 9))
    assert lives.standing(PROCESS) == (Standing.ENDED, 9)


def test_after_a_loss_so_many_are_looked_at_in_one_turn_and_each_once() -> None:
    looked, dead = list[int](), set[int]()

    def threads_of(process: Process) -> Threads | None:
        looked.append(process.pid)
        return None if process.pid in dead else Threads(frozenset({process.pid}))

    lives = Lives(threads_of)
    for pid in range(1, 8):
        lives.add(Process(pid, 1))
    lives.see(Process(7, 1))
    assert [lives.see_some(3), lives.see_some(3), lives.see_some(3)] == [False, True, True]
    assert looked == [7, 1, 2, 3, 4, 5, 6]
    lives.lose()
    lives.remove(Process(2, 1))
    assert not lives.see_some(3)
    dead |= {1, 6}
    lives.take(ThreadEnded(1, 1, 9))
    lives.take(ThreadEnded(6, 6, 9))
    assert lives.standing(Process(1, 1)) == (Standing.ENDED, 9)
    assert lives.standing(Process(6, 1)) == (Standing.LOST, None)  # not seen since the loss
    assert lives.see_some(3)


def test_what_died_around_a_loss_stays_unknown() -> None:
    kernel = Kernel(PID)
    lives = watched(kernel)
    lives.lose()
    kernel.dies()
    lives.see_some(99)
    lives.take(ThreadEnded(PID, PID, 7 << 8))
    assert lives.standing(PROCESS) == (Standing.LOST, None)


def test_one_that_is_let_go_is_forgotten_and_another_with_its_pid_is_not() -> None:
    lives = watched(Kernel(PID))
    lives.remove(Process(PID, 99))
    assert set(lives.pids) == {PID}
    lives.remove(PROCESS)
    lives.remove(PROCESS)
    assert len(lives) == 0
    lives.take(ThreadEnded(PID, PID, 7 << 8))
    assert lives.standing(PROCESS) == (Standing.LOST, None)


def test_a_story_that_is_too_long_proves_nothing() -> None:
    kernel = Kernel(PID, all_ending=True)
    lives = watched(kernel)
    for number in range(procevents.MOST_CODES + 1):
        lives.take(ThreadEnded(PID, 1001 + number, (1 + number) << 8))
    kernel.dies()
    lives.take(ThreadEnded(PID, PID, 0))
    assert lives.standing(PROCESS) == (Standing.LOST, None)


def test_a_program_whose_events_ask_for_too_many_looks_is_given_up() -> None:
    kernel = Kernel(PID, 1001)
    lives = watched(kernel)
    for _ in range(procevents.MOST_LOOKS):
        lives.take(ThreadEnded(PID, 1001, 31))
    assert lives.standing(PROCESS) == (Standing.GOING_ON, None)
    lives.take(ThreadEnded(PID, 1001, 31))
    kernel.dies()
    lives.take(ThreadEnded(PID, PID, 0))
    assert lives.standing(PROCESS) == (Standing.LOST, None)


@pytest.mark.parametrize("is_dead", [False, True])
@pytest.mark.parametrize("status", [9, 7 << 8])
def test_many_threads_that_end_together_are_looked_at_once(is_dead: bool, status: int) -> None:
    tids = range(PID, PID + 100)
    kernel = Kernel(*tids)
    lives = watched(kernel)
    kernel.threads, before = (None if is_dead else Threads(frozenset(tids), all_ending=True)), kernel.looks
    for tid in [*tids[1:50], PID, *tids[50:]]:
        lives.take(ThreadEnded(PID, tid, status))
    assert lives.standing(PROCESS) == (Standing.ENDED, status)
    assert kernel.looks - before == 1


def test_after_execve_a_thread_s_end_is_looked_at_again() -> None:
    kernel = Kernel(PID)
    lives = watched(kernel)
    kernel.threads = Threads(frozenset({PID}), all_ending=True)
    lives.take(ThreadEnded(PID, PID, 9))
    lives.take(Executed(PID))
    lives.take(Forked(PID, 1001))
    kernel.threads = Threads(frozenset({PID}))
    lives.take(ThreadEnded(PID, 1001, 9))
    kernel.dies()
    lives.take(ThreadEnded(PID, PID, 0))
    assert lives.standing(PROCESS) == (Standing.ENDED, 0)


# -- against a model


class State(Enum):
    RUNNING = "running"
    KILLED = "SIGKILL waits"
    WOKEN = "it has taken the SIGKILL, and is not yet in the exit path"
    EXITING = "in the exit path"
    DEAD = "past exit_notify(), its event not sent"
    SENT = "its event is sent"


@dataclass
class Thread:
    tid: int
    state: State = State.RUNNING
    status: int = 0


@dataclass
class Model:
    """One process as kernel/exit.c ends it (6.0 and newer): threads that spawn others, leave with 0, or end all."""

    threads: list[Thread] = field(default_factory=lambda: [Thread(PID)])
    status: int | None = None  # of the group
    queue: list[Message] = field(default_factory=list)

    @property
    def is_dead(self) -> bool:
        return all(each.state in (State.DEAD, State.SENT) for each in self.threads)

    def threads_of(self, process: Process) -> Threads | None:
        if self.is_dead:
            return None
        live = [each for each in self.threads if each.state not in (State.DEAD, State.SENT)]
        ending = all(each.state in (State.KILLED, State.EXITING) for each in live)
        return Threads(frozenset(each.tid for each in live), ending)

    def spawn(self, thread: Thread) -> None:
        if thread.state is State.RUNNING:
            self.threads.append(Thread(PID + len(self.threads)))
            self.queue.append(Forked(PID, self.threads[-1].tid))

    def leave(self, thread: Thread) -> None:
        if thread.state is State.RUNNING:
            thread.state, thread.status = State.EXITING, 0
            if all(each.state in (State.EXITING, State.DEAD, State.SENT) for each in self.threads):
                self.status = 0 if self.status is None else self.status

    def end_all(self, thread: Thread, status: int) -> None:
        if thread.state is not State.RUNNING:
            return
        self.status = status if self.status is None else self.status
        thread.state, thread.status = State.EXITING, self.status
        for each in self.threads:
            if each.state is State.RUNNING:
                each.state = State.KILLED

    def go_on(self, thread: Thread) -> None:
        match thread.state:
            case State.KILLED:
                thread.state = State.WOKEN
            case State.WOKEN:
                assert self.status is not None
                thread.state, thread.status = State.EXITING, self.status
            case State.EXITING:
                thread.state = State.DEAD
            case State.DEAD:
                thread.state = State.SENT
                self.queue.append(ThreadEnded(PID, thread.tid, thread.status))
            case _:
                pass


acts = st.lists(st.tuples(st.sampled_from("llegggggtttv!s"), st.integers(0, 2)), max_size=25)


@settings(max_examples=600)
@given(acts, st.integers(0, 2), st.sampled_from((0, 7 << 8, 9)))
@example([("l", 1), ("e", 0), ("g", 0), ("g", 0), ("!", 0)], 1, 7 << 8)  # who ended all is gone, and its event is lost
@example([("l", 0), ("e", 1), ("g", 1), ("g", 1), ("!", 0)], 1, 7 << 8)
def test_whatever_threads_do_the_status_is_the_true_one_or_none(
    acts: list[tuple[str, int]], others: int, status: int
) -> None:
    model = Model()
    lives = Lives(model.threads_of)
    lives.add(PROCESS)
    for _ in range(others):
        model.spawn(model.threads[0])
    model.queue.clear()
    lives.see(PROCESS)
    rest = [("e", 0), ("e", 1), ("e", 2), *(("g", index) for index in (2, 1, 0, 4, 3) for _ in range(5))]
    for act, which in [*acts, *rest, *(("t", 0) for _ in range(10))]:
        thread = model.threads[which % len(model.threads)]
        match act:
            case "s" if len(model.threads) < 5:
                model.spawn(thread)
            case "l":
                model.leave(thread)
            case "e":
                model.end_all(thread, status)
            case "g":
                model.go_on(thread)
            case "t" if model.queue:
                lives.take(model.queue.pop(0))
            case "v":
                lives.see(PROCESS)
            case "!":  # the socket was full: all that is in flight is lost, and it is noticed
                lives.lose()
                model.queue.clear()
                lives.see_some(99)
        if model.is_dead:
            believed(lives, model)


def believed(lives: Lives, model: Model) -> None:
    standing, status = lives.standing(PROCESS)
    assert standing is not Standing.ENDED or status == model.status


@given(st.integers(0, 4), st.sampled_from((0, 7 << 8, 9)), st.booleans(), st.integers(0, 3))
def test_what_ends_one_thing_after_the_other_is_known(others: int, status: int, leader_leaves: bool, who: int) -> None:
    """Nothing is lost and nothing happens at the same moment: so the status is known."""
    model = Model()
    lives = Lives(model.threads_of)
    lives.add(PROCESS)
    lives.see(PROCESS)

    def settle() -> None:
        for _ in range(5):
            for thread in model.threads:
                model.go_on(thread)
        while model.queue:
            lives.take(model.queue.pop(0))

    for _ in range(others):
        model.spawn(model.threads[0])
    settle()
    if leader_leaves and others:
        model.leave(model.threads[0])
        settle()
        assert lives.standing(PROCESS) == (Standing.GOING_ON, None)
    live = [each for each in model.threads if each.state is State.RUNNING]
    model.end_all(live[who % len(live)], status)
    settle()
    assert lives.standing(PROCESS) == (Standing.ENDED, model.status)
