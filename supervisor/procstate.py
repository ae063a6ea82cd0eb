"""What proc(5) says beyond what shim/native.py needs: whether a process is on its way out, or stopped."""

import os

from supervisor.facts import Process

SIGKILL_BIT = 1 << (9 - 1)  # in the masks of proc_pid_status(5)
PF_EXITING = 0x4  # include/linux/sched.h; set at the beginning of do_exit, long before the pidfd tells
STATE, FLAGS, STARTED = 0, 6, 19  # fields 3, 9 and 22, counted from behind the name


def is_ending(process: Process) -> bool:
    """It is dead, or in the kernel's exit path: the first of a pid namespace is there until all others are reaped."""
    fields = _fields(process)
    return fields is None or bool(int(fields[FLAGS]) & PF_EXITING) or fields[STATE] in "ZX"


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


def program(process: Process) -> str:
    """Which file it executes, as `DEVICE:INODE`; empty when it is gone. Changes with execve(2)."""
    try:
        found = os.stat(f"/proc/{process.pid}/exe")
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return ""
    return f"{found.st_dev}:{found.st_ino}" if _fields(process) is not None else ""


def _fields(process: Process) -> list[str] | None:
    """None when there is no such process any more; another with its pid is none."""
    try:
        with open(f"/proc/{process.pid}/stat", encoding="utf-8", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return fields if int(fields[STARTED]) == process.started_ticks else None
