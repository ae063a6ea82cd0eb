"""What proc(5) says about processes, beyond what shim/native.py needs: the state of one, and its descendants."""

import contextlib
import errno
import os
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import reduce
from operator import or_

from shim import native
from shim.frozen import frozen
from supervisor.model.values import Process
from supervisor.monitor import epoll

# -- one process


SIGKILL_BIT = 1 << (9 - 1)  # in the masks of proc_pid_status(5)
PF_EXITING = 0x4  # include/linux/sched.h; set at the beginning of do_exit, long before the pidfd is readable
STATE, FLAGS, THREADS, STARTED = 0, 6, 17, 19  # fields 3, 9, 20 and 22, counted from behind the name


@frozen
class Thread:
    """`is_ending`: in the kernel's exit path or about to enter it, as all threads of a killed or exiting process
    are."""

    tid: int
    is_dead: bool
    is_ending: bool


def is_ending(process: Process) -> bool:
    """Return whether the process is dead, or in the kernel's exit path: the first process of a pid namespace remains
    there until all others are reaped. A process whose first thread has ended, a zombie in proc(5), lives as long as
    another thread does."""
    fields = _fields(process)
    if fields is None:
        return True
    if not _is_exiting(fields):
        return False
    return int(fields[THREADS]) <= 1 or all(_is_exiting(each) for _, each in _threads(process.pid))


def is_gone(process: Process) -> bool:
    """Return whether it is dead, so that its children already have another parent."""
    fields = _fields(process)
    return fields is None or fields[STATE] in "ZX"


def is_stopped(process: Process) -> bool:
    """Return whether a signal or a tracer has stopped it: until it is continued it does nothing, reaping included."""
    fields = _fields(process)
    return fields is not None and fields[STATE] in "Tt"


def is_killed(process: Process) -> bool:
    """Return whether SIGKILL is pending for it, so that its end is certain; a frozen process may take long to end."""
    pending = _pending(f"/proc/{process.pid}/status", "SigPnd:", "ShdPnd:")
    return bool(pending & SIGKILL_BIT) and _fields(process) is not None


def threads(pid: int, most: int) -> Iterator[Thread]:
    """Yield the present threads of the process that now has this pid. Raises OSError when they cannot be read, E2BIG
    when there are more than `most`."""
    for tid, fields in _threads(pid, most):
        is_killed = bool(_pending(f"/proc/{pid}/task/{tid}/status", "SigPnd:") & SIGKILL_BIT)
        yield Thread(tid, fields[STATE] in "ZX", _is_exiting(fields) or is_killed)


def process_of(thread: int) -> int:
    """Return the pid of the process that a thread belongs to; 0 if it has ended."""
    try:
        with open(f"/proc/{thread}/status", encoding="utf-8", errors="replace") as file:
            return next((int(line.split()[1]) for line in file if line.startswith("Tgid:")), 0)
    except (FileNotFoundError, ProcessLookupError):
        return 0


def program(process: Process) -> str:
    """Return the file that it executes, as `DEVICE:INODE`; empty if it has ended. Changes with execve(2)."""
    try:
        found = os.stat(f"/proc/{process.pid}/exe")
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return ""
    return f"{found.st_dev}:{found.st_ino}" if _fields(process) is not None else ""


def name(pid: int) -> str:
    """Return its comm; empty if it has ended."""
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:
            return file.read().rstrip("\n")
    except (FileNotFoundError, ProcessLookupError):
        return ""


def _is_exiting(fields: list[str]) -> bool:
    return bool(int(fields[FLAGS]) & PF_EXITING) or fields[STATE] in "ZX"


def _threads(pid: int, most: int | None = None) -> Iterator[tuple[int, list[str]]]:
    """Yield number and stat fields of each present thread."""
    try:
        names = os.listdir(f"/proc/{pid}/task")
    except (FileNotFoundError, ProcessLookupError):
        return
    if most is not None and len(names) > most:
        raise OSError(errno.E2BIG, os.strerror(errno.E2BIG))
    for name in names:
        fields = _read(f"/proc/{pid}/task/{name}/stat")
        if fields is not None:
            yield int(name), fields


def _pending(path: str, *names: str) -> int:
    """Return the pending signals, by the masks of these names in proc_pid_status(5); 0 if the file is gone."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            masks = [int(line.split()[1], 16) for line in file if line.startswith(names)]
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return reduce(or_, masks, 0)


def _fields(process: Process) -> list[str] | None:
    """Return None if the process has ended, or its pid is another's."""
    fields = _read(f"/proc/{process.pid}/stat")
    return fields if fields is not None and int(fields[STARTED]) == process.started_ticks else None


def _read(path: str) -> list[str] | None:
    """Return None if the process is gone: ENOENT, or ESRCH if the file was open."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None


# -- its family

# A process and what it started: its session and its descendants, as the kernel lists them.


ROUNDS = 20  # of looking for processes that were started meanwhile
PARENT, SESSION = 1, 3  # fields 4 and 6 of proc_pid_stat(5), counted from behind the name


@frozen
class Kin:
    """A process's parent, session and start time, to find families."""

    parent: int
    session: int
    started_ticks: int


def family(table: Mapping[int, Kin], root: int, session: int) -> frozenset[int]:
    """Return the root, its descendants, and the members of the session that is its own (0: none is)."""
    found = {root} & table.keys() | {pid for pid, kin in table.items() if session and kin.session == session}
    while more := {pid for pid, kin in table.items() if kin.parent in found or pid == root} - found:
        found |= more
    return frozenset(found)


def own_session(root: Process) -> int:
    """Return the root's own session: one that it leads, as runc makes an exec, or one whose leader has ended, as crun
    (1.8) does; 0 if it is in another's. Of a root that is gone it is the one that it would
    have led."""
    kin = look([root.pid]).get(root.pid)
    if kin is None:
        return root.pid
    return 0 if is_led(root.pid, kin.session, kin.started_ticks) else kin.session


def is_led(pid: int, session: int, started_ticks: int) -> bool:
    """Return whether the leader of this process's session is another one, which has not ended. It is older than the
    others: a younger process has only its pid. Of a session that began outside of this pid namespace (0) nothing is
    known. Raises OSError when, for lack of descriptors, the leader cannot be looked at."""
    if session == pid:
        return False
    try:
        state, _, started, _ = native.process_stat(session)
    except (FileNotFoundError, ProcessLookupError):
        return session == 0
    return state not in "ZX" and started <= started_ticks


def look(pids: Iterable[int]) -> dict[int, Kin]:
    """Return the entries of those that exist."""
    table = {}
    for pid in pids:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
                fields = file.read().rpartition(")")[2].split()
            table[pid] = Kin(int(fields[PARENT]), int(fields[SESSION]), int(fields[STARTED]))
    return table


def signal_family(root: Process, number: int, candidates: Callable[[], Iterable[int]]) -> int:
    """Signal the root and its family among `candidates`; return their number. Blocks for milliseconds.

    For SIGKILL all are stopped first, and looked for again until no new one is found: a stopped process starts no
    other. A process that has left the session and lost its parent is not found; it ends with its container. Raises
    OSError when, for lack of descriptors, not all could be looked for; those found have been signalled, and none is
    left stopped.
    """
    held: dict[int, int] = {}
    session = own_session(root)
    try:
        for _ in range(ROUNDS if number == signal.SIGKILL else 1):
            table = look({root.pid, *candidates()})
            if root.pid in table and table[root.pid].started_ticks != root.started_ticks:
                return 0  # its pid is another's, so the family can no longer be found by it
            new = family(table, root.pid, session) - held.keys()
            for pid in new:
                held[pid] = _open(pid, table[pid])
                _send(held[pid], signal.SIGSTOP if number == signal.SIGKILL else number)
            if not new:
                break
        return len(held)
    finally:
        for fd in held.values():
            if number == signal.SIGKILL:
                _send(fd, number)
            if fd >= 0:
                os.close(fd)


def _open(pid: int, kin: Kin) -> int:
    """Return a pidfd, or -1 if it has ended since."""
    fd = epoll.open_process(pid, kin.started_ticks)
    return -1 if fd is None else fd


def _send(fd: int, number: int) -> None:
    if fd >= 0:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(fd, number)
