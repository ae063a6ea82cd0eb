"""The kernel's process events connector: its messages, the filter for other processes' events, and what they prove.
Pure.

The kernel sends one event for each thread that ends, with that thread's code. wait(2) reports the code of the group,
which exit_group(2) or a fatal signal gives to every thread that still runs. The leader has it, too, unless it had
exited alone before. A thread exits alone with 0 in every C library and in Go. So a life here is a set of threads:
nothing is concluded before the last of them has ended, a leader that leaves others behind is not the end, and if codes
contradict each other there is no verdict.

One case cannot be recognised: a thread ends with 0, then the leader, as the last, with 7. Usually the program has
joined its only other thread and exits with 7, so 7 is believed. A program whose leader calls exit(2) itself with 7,
while another thread calls exit_group(0), leaves the same events, and wait(2) reports 0.

An event may arrive after its process can be seen dead, and after its parent has reaped it. Events sent to a full socket
are lost, and the kernel only says that some were: then nothing is believed about a process that has not been seen alive
since.

Source: drivers/connector/cn_proc.c, kernel/exit.c, Documentation/driver-api/connector.rst; for the filter, socket(7)
and Documentation/networking/filter.rst.
"""

import struct
import sys
from collections.abc import Callable, Collection, Sequence
from enum import Enum
from itertools import islice, starmap

from shim.frozen import field, frozen, mutable
from supervisor.model.values import Process

PROTOCOL = 11  # NETLINK_CONNECTOR
GROUP = CN_IDX_PROC = CN_VAL_PROC = 1
LISTEN, IGNORE = 1, 2  # PROC_CN_MCAST_LISTEN, PROC_CN_MCAST_IGNORE
MESSAGE_BYTES = 512  # more than any message of the connector needs
MOST_CODES = 16  # codes kept for one life; with more, nothing is proven
MOST_LOOKS = 32  # reads of one process's threads because of its events: no program can keep exitd busy with that
MOST_EXACT = 300  # processes that a filter lists by pid
CORE = 0x80  # in a wait status: the process dumped core; only the thread that did so has this bit

_NONE, _FORK, _EXEC, _EXIT = 0, 0x1, 0x2, 0x80000000
_NLMSG_DONE = 3
_HEADER = struct.Struct("=IHHII")  # struct nlmsghdr
_CONNECTOR = struct.Struct("=IIIIHH")  # struct cn_msg
_EVENT = struct.Struct("=IIQ")  # struct proc_event before its union
_FOUR = struct.Struct("=IIII")
_WHAT = _HEADER.size + _CONNECTOR.size
_BODY = _WHAT + _EVENT.size


# -- messages


@frozen
class Forked:
    """A new thread `tid` of the process `pid`; a new process if the two are equal."""

    pid: int
    tid: int


@frozen
class Executed:
    """execve(2): from now on the process has one thread, with the process's own pid."""

    pid: int


@frozen
class ThreadEnded:
    """A thread has ended. `status` is a wait status (wait(2)) of this thread alone."""

    pid: int
    tid: int
    status: int


@frozen
class Answered:
    """The kernel's answer to any listener's request, by the request's number: an errno, or 0."""

    number: int
    error: int


Message = Forked | Executed | ThreadEnded | Answered


def request(operation: int, number: int) -> bytes:
    """Return the message of a listener: LISTEN or IGNORE."""
    body = _CONNECTOR.pack(CN_IDX_PROC, CN_VAL_PROC, 0, number, 4, 0) + struct.pack("=I", operation)
    return _HEADER.pack(_HEADER.size + len(body), _NLMSG_DONE, 0, 0, 0) + body


def parse(data: bytes) -> Message | None:
    """Parse one datagram; None for other events and for anything that the kernel does not send."""
    if len(data) < _BODY + 4:
        return None
    group, kind, _, acknowledged, *_ = _CONNECTOR.unpack_from(data, _HEADER.size)
    if (group, kind) != (CN_IDX_PROC, CN_VAL_PROC):
        return None
    (what,) = struct.unpack_from("=I", data, _WHAT)
    if what == _NONE:
        return Answered(acknowledged - 1, *struct.unpack_from("=I", data, _BODY))
    if len(data) < _BODY + _FOUR.size:
        return None
    one, two, three, four = _FOUR.unpack_from(data, _BODY)
    match what:
        case 0x1:
            return Forked(four, three)
        case 0x2:
            return Executed(two)
        case 0x80000000:
            return ThreadEnded(two, one, three & 0xFFFF)
    return None


# -- the filter

_LOAD, _STORE_X, _EQUAL, _AT_LEAST, _SAME, _JUMP, _RETURN = 0x20, 0x07, 0x15, 0x35, 0x1D, 0x05, 0x06
_LEAF = 4  # numbers compared one after the other
_KEEP, _DROP = 0xFFFFFFFF, 0
_INSTRUCTION = struct.Struct("=HBBI")
INSTRUCTION_BYTES = _INSTRUCTION.size
_THREAD, _PROCESS, _CHILD, _CHILDS_PROCESS = _BODY, _BODY + 4, _BODY + 8, _BODY + 12

Instruction = tuple[int, int, int, int]  # code, jump if true, jump if false, constant


def accepts(pids: Collection[int]) -> bytes:
    """Return a classic BPF program (a sequence of struct sock_filter) that admits events about these processes, and
    answers to requests."""
    return _program(_search(sorted(_swapped(pid) for pid in pids)))


def accepts_all() -> bytes:
    """Return a BPF program that admits the ends, execve(2) calls and new threads of every process."""
    return _program([(_RETURN, 0, 0, _KEEP)])


def _program(search: Sequence[Instruction]) -> bytes:
    program = [
        (_LOAD, 0, 0, _WHAT),
        (_EQUAL, 5, 0, _swapped(_EXIT)),
        (_EQUAL, 4, 0, _swapped(_EXEC)),
        (_EQUAL, 5, 0, _swapped(_FORK)),
        (_EQUAL, 1, 0, _NONE),
        (_RETURN, 0, 0, _DROP),
        (_RETURN, 0, 0, _KEEP),
        (_LOAD, 0, 0, _PROCESS),
        (_JUMP, 0, 0, 5),
        (_LOAD, 0, 0, _CHILD),
        (_STORE_X, 0, 0, 0),
        (_LOAD, 0, 0, _CHILDS_PROCESS),
        (_SAME, 0, 1, 0),  # a process and not a thread
        (_RETURN, 0, 0, _DROP),
        *search,
    ]
    return b"".join(starmap(_INSTRUCTION.pack, program))


def _search(numbers: Sequence[int]) -> list[Instruction]:
    """Search for the value of the accumulator. Conditional jumps reach 255 instructions, the unconditional one any."""
    if len(numbers) <= _LEAF:
        tests = [each for number in numbers for each in ((_EQUAL, 0, 1, number), (_RETURN, 0, 0, _KEEP))]
        return [*tests, (_RETURN, 0, 0, _DROP)]
    middle = len(numbers) // 2
    below, above = _search(numbers[:middle]), _search(numbers[middle:])
    return [(_AT_LEAST, 0, 1, numbers[middle]), (_JUMP, 0, 0, len(below)), *below, *above]


def _swapped(number: int) -> int:
    """Swap the bytes: a filter loads words in network byte order."""
    return int.from_bytes(number.to_bytes(4, sys.byteorder), "big")


# -- what they prove


class Standing(Enum):
    """How much is known about one life."""

    GOING_ON = "going on"  # or its last events have not arrived yet
    ENDED = "ended"
    LOST = "lost"  # events were lost, or contradict each other: the end will not be known


@frozen
class Threads:
    """The threads of a process that was still alive after they were read: those that have not ended, and whether each
    of them is exiting, alone or with the others."""

    running: frozenset[int]
    all_ending: bool = False


@mutable
class Life:
    """What has been seen of one process since it was last known to be alive."""

    process: Process
    threads: set[int] = field(default_factory=set)
    codes: list[tuple[bool, int]] = field(default_factory=list)  # (of the leader?, status), without repetitions
    leader_left: int | None = None  # the leader's own code, if it has left others behind
    is_lost: bool = True  # until it has been seen alive
    looks: int = 0
    going: int | None = None  # the status of the end that all threads were approaching at the last look
    executed: bool = False  # has executed a program since it was added; stays true whatever is lost
    missed: bool = False  # events were lost since it was added, perhaps that of an execve(2)


class Lives:
    """The watched processes, and their events in order of arrival.

    `threads_of` reads the present threads of a process; None: it is dead, or they cannot be read. It is called whenever
    an event might be the end of the whole process, or the exit of one thread.
    """

    def __init__(self, threads_of: Callable[[Process], Threads | None]) -> None:
        self._threads_of = threads_of
        self._lives: dict[int, Life] = {}
        self._unseen: dict[int, None] = {}  # the processes to look at once events arrive again, in this order

    def __len__(self) -> int:
        return len(self._lives)

    @property
    def pids(self) -> Collection[int]:
        return self._lives.keys()

    def add(self, process: Process) -> None:
        """Add a process; nothing is believed about it before `see`. Has no effect if it is watched already."""
        life = self._lives.get(process.pid)
        if life is None or life.process != process:
            self._lives[process.pid] = Life(process)
            self._unseen[process.pid] = None

    def remove(self, process: Process) -> None:
        """Remove a process, but not another one with its pid. Repeatable."""
        life = self._lives.get(process.pid)
        if life is not None and life.process == process:
            del self._lives[process.pid]
            self._unseen.pop(process.pid, None)

    def see(self, process: Process) -> None:
        """Look at a process. Call this when all later events are certain to arrive: if it is alive, its end will be
        known."""
        life = self._lives.get(process.pid)
        if life is not None and life.process == process and life.is_lost:
            self._see(life)

    def lose(self) -> None:
        """Note that events were lost. Call `see_some` as soon as later ones arrive again."""
        for life in self._lives.values():
            life.is_lost = life.missed = True
        self._unseen = dict.fromkeys(self._lives)

    def miss(self, process: Process) -> None:
        """Note that not all events of the process are received."""
        life = self._lives.get(process.pid)
        if life is not None and life.process == process:
            life.missed = True

    def see_some(self, most: int) -> bool:
        """Do as `see` for at most `most` processes that were lost, or added and not seen. Return whether that was all
        of them; the end of a process is not believed before it is seen."""
        for pid in tuple(islice(self._unseen, most)):
            del self._unseen[pid]
            if self._lives[pid].is_lost:
                self._see(self._lives[pid])
        return not self._unseen

    def take(self, message: Message | None) -> None:
        """Take one event. Ignored if it is about a process that is not watched."""
        match message:
            case Forked(pid, tid) if pid in self._lives and tid != pid:
                self._lives[pid].threads.add(tid)
            case Executed(pid) if pid in self._lives:
                life = self._lives[pid]
                life.threads, life.codes, life.leader_left, life.going = {pid}, [], None, None
                life.executed = True
            case ThreadEnded(pid) if pid in self._lives:
                self._ended(self._lives[pid], message)

    def standing(self, process: Process) -> tuple[Standing, int | None]:
        """Return what is known about a dead process, and its wait status if it has ended. Only ask about dead
        processes: a leader that has left others behind looks ended until the others are seen alive."""
        life = self._lives.get(process.pid)
        if life is None or life.process != process or life.is_lost:
            return Standing.LOST, None
        if life.threads:
            return Standing.GOING_ON, None
        status = _status(life)
        return (Standing.LOST, None) if status is None else (Standing.ENDED, status)

    def has_executed(self, process: Process) -> bool | None:
        """Return whether it has executed a program since it was added; None if that cannot be known. Call this when all
        events that were sent have been taken."""
        life = self._lives.get(process.pid)
        if life is None or life.process != process:
            return None
        return True if life.executed else None if life.missed else False

    def _see(self, life: Life) -> None:
        """What is ending already stays lost: one that has ended all others may be gone, its event among those that were
        lost, and of those that are left each may have begun to exit alone before."""
        self._unseen.pop(life.process.pid, None)
        threads = self._threads_of(life.process)
        if threads is None or not threads.running or threads.all_ending:
            return
        life.is_lost, life.going = False, None
        life.threads, life.codes = set(threads.running), []
        life.leader_left = None if life.process.pid in threads.running else (life.leader_left or 0)

    def _ended(self, life: Life, ended: ThreadEnded) -> None:
        is_leader = ended.tid == life.process.pid
        life.threads.discard(ended.tid)
        if (is_leader, ended.status) not in life.codes[-1:]:
            life.codes.append((is_leader, ended.status))
        life.is_lost = life.is_lost or len(life.codes) > MOST_CODES
        if life.is_lost or not (is_leader or ended.status):
            return
        if life.going is not None and is_same(life.going, ended.status):
            return  # one of many threads that end together
        life.looks += 1
        if life.looks > MOST_LOOKS:
            life.is_lost = True
            return
        threads = self._threads_of(life.process)
        life.going = ended.status if threads is None or threads.all_ending else None
        if threads is not None and not threads.all_ending:  # it exited alone: its code is not the process's
            life.threads, life.codes = set(threads.running), []
            if is_leader:
                life.leader_left = None if ended.tid in threads.running else ended.status


def _status(life: Life) -> int | None:
    """Return the wait status of a process whose threads have all ended; None if their codes contradict each other."""
    leaders = [index for index, (is_leader, _) in enumerate(life.codes) if is_leader]
    if not life.codes or (life.leader_left is None and not leaders):
        return None
    at = leaders[-1] if leaders else len(life.codes) - 1
    status = life.codes[at][1]
    for index, (_, other) in enumerate(life.codes):
        if not is_same(status, other) and not (other == 0 and index < at):
            return None
        status |= other if is_same(status, other) else 0
    if life.leader_left and not is_same(life.leader_left, status):  # before Linux 6.0 it might have been the leader's
        return None
    return status


def is_same(one: int, other: int) -> bool:
    """Compare two statuses, ignoring the core bit, which only one thread has."""
    return one == other or (bool(one & 0x7F) and one & ~CORE == other & ~CORE)
