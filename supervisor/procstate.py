"""What proc(5) says beyond what shim/native.py needs: whether a process is on its way out, or stopped."""

import os
from collections.abc import Iterator

from supervisor.facts import Process

SIGKILL_BIT = 1 << (9 - 1)  # in the masks of proc_pid_status(5)
PF_EXITING = 0x4  # include/linux/sched.h; set at the beginning of do_exit, long before the pidfd tells
STATE, FLAGS, THREADS, STARTED = 0, 6, 17, 19  # fields 3, 9, 20 and 22, counted from behind the name


def is_ending(process: Process) -> bool:
    """It is dead, or in the kernel's exit path: the first of a pid namespace is there until all others are reaped. One
    whose first thread has ended, a zombie in proc(5), lives for as long as another thread does."""
    fields = _fields(process)
    if fields is None:
        return True
    return _is_exiting(fields) and (int(fields[THREADS]) <= 1 or all(map(_is_exiting, _threads(process.pid))))


def is_gone(process: Process) -> bool:
    """It is dead, and its children have another parent by now."""
    fields = _fields(process)
    return fields is None or fields[STATE] in "ZX"


def is_stopped(process: Process) -> bool:
    """Stopped by a signal or a tracer: it does nothing, reaping included, until somebody lets it."""
    fields = _fields(process)
    return fields is not None and fields[STATE] in "Tt"


def is_killed(process: Process) -> bool:
    """SIGKILL is on its way to it, and nothing else can come of that; a frozen one may keep it waiting for long."""
    try:
        with open(f"/proc/{process.pid}/status", encoding="utf-8", errors="replace") as file:
            masks = [int(line.split()[1], 16) for line in file if line.startswith(("SigPnd:", "ShdPnd:"))]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return any(mask & SIGKILL_BIT for mask in masks) and _fields(process) is not None


def process_of(thread: int) -> int:
    """Return the pid of the process that a thread belongs to; 0 when it has ended."""
    try:
        with open(f"/proc/{thread}/status", encoding="utf-8", errors="replace") as file:
            return next((int(line.split()[1]) for line in file if line.startswith("Tgid:")), 0)
    except (FileNotFoundError, ProcessLookupError):
        return 0


def program(process: Process) -> str:
    """Which file it executes, as `DEVICE:INODE`; empty when it is gone. Changes with execve(2)."""
    try:
        found = os.stat(f"/proc/{process.pid}/exe")
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return ""
    return f"{found.st_dev}:{found.st_ino}" if _fields(process) is not None else ""


def name(pid: int) -> str:
    """Its comm; empty when it is gone."""
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:
            return file.read().rstrip("\n")
    except (FileNotFoundError, ProcessLookupError):
        return ""


def _is_exiting(fields: list[str]) -> bool:
    return bool(int(fields[FLAGS]) & PF_EXITING) or fields[STATE] in "ZX"


def _threads(pid: int) -> Iterator[list[str]]:
    """Of each thread that is there: the same fields as of the process."""
    try:
        names = os.listdir(f"/proc/{pid}/task")
    except (FileNotFoundError, ProcessLookupError):
        return
    for name in names:
        fields = _read(f"/proc/{pid}/task/{name}/stat")
        if fields is not None:
            yield fields


def _fields(process: Process) -> list[str] | None:
    """None when there is no such process any more; another with its pid is none."""
    fields = _read(f"/proc/{process.pid}/stat")
    return fields if fields is not None and int(fields[STARTED]) == process.started_ticks else None


def _read(path: str) -> list[str] | None:
    """None when there is nothing (any more): ENOENT; ESRCH where it was open."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
