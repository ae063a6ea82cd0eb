"""A process and whoever it has started: its session and its descendants, found by the kernel's own words."""

import contextlib
import os
import signal
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from supervisor.model.facts import Process
from supervisor.monitor import epoll

ROUNDS = 20  # of looking for those who were started meanwhile
PARENT, SESSION, STARTED = 1, 3, 19  # fields 4, 6 and 22 of proc_pid_stat(5), counted from behind the name


@dataclass(frozen=True, slots=True)
class Kin:
    parent: int
    session: int
    started_ticks: int


def family(table: Mapping[int, Kin], root: int) -> frozenset[int]:
    """The root, its descendants, and who is in the session that it leads. One that leads none (its session is then
    somebody else's) has descendants only."""
    leads = root not in table or table[root].session == root
    found = {root} & table.keys() | ({pid for pid, kin in table.items() if kin.session == root} if leads else set())
    while more := {pid for pid, kin in table.items() if kin.parent in found or pid == root} - found:
        found |= more
    return frozenset(found)


def look(pids: Iterable[int]) -> dict[int, Kin]:
    """Those of them that there are."""
    table = {}
    for pid in pids:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
                fields = file.read().rpartition(")")[2].split()
            table[pid] = Kin(int(fields[PARENT]), int(fields[SESSION]), int(fields[STARTED]))
    return table


def signal_family(root: Process, number: int, candidates: Callable[[], Iterable[int]]) -> int:
    """Signals the family among `candidates` (and the root); returns how many there were. Blocks for milliseconds.

    Before SIGKILL all are stopped, and looked for again until nobody new is found: what is stopped starts nobody. One
    has left its session and lost its parent is not found; it ends with its container. OSError: for want of descriptors
    not all could be looked for; those who were found have been signalled, and none is left stopped.
    """
    held: dict[int, int] = {}
    try:
        for _ in range(ROUNDS if number == signal.SIGKILL else 1):
            table = look({root.pid, *candidates()})
            if root.pid in table and table[root.pid].started_ticks != root.started_ticks:
                return 0  # somebody else has its number, so nobody is left who knew it by that
            new = family(table, root.pid) - held.keys()
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
    """A pidfd, or -1: it has ended since."""
    fd = epoll.open_process(pid, kin.started_ticks)
    return -1 if fd is None else fd


def _send(fd: int, number: int) -> None:
    if fd >= 0:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(fd, number)
