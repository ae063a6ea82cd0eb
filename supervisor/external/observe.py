"""Watches one process of another program until its end, by what the kernel reports and nothing else. The process is
left alone.

    with Sight.of(pid) as sight:          # in a program without a daemon
        report = sight.wait(30)           # Report(status=Exited(code=7), source=PIDFD, ...); None: it lives on

The kernel keeps the status of a reaped process for holders of its pidfd (Linux 6.15, PIDFD_GET_INFO); `probe.pidfd`
says whether this one does. exitd has another way on older kernels (`kernelword`); without either, the end comes out as
unknown. A process that its parent does not reap is a zombie: its status is read from /proc once it has been one for a
while. A process's own child may be watched, too; reaping it remains the parent's task.
"""

import contextlib
import fcntl
import os
import select
import sys
import time
from typing import Self

from shim import native
from shim.frozen import replace
from shim.undo import undone_on_failure
from supervisor.model import evidence, foreign
from supervisor.model.errors import BadRequest, Busy, NoSuchProcess, NotPermitted
from supervisor.model.evidence import Init, Look, Pending
from supervisor.model.values import Process, Report, Source, Unknown
from supervisor.model.whose import Owners
from supervisor.monitor import epoll
from supervisor.monitor.kernelword import BY_PIDFD, NO_WORD, KernelStatus, KernelWord
from supervisor.runtime.oci import cgroups

COMMAND_BYTES = 16  # TASK_COMM_LEN
NS_GET_OWNER_UID = 0xB704  # ioctl_ns(2)
TICKS = os.sysconf("SC_CLK_TCK")


class Sight:
    """A pidfd, and what was seen through it. Close it with `close`, or use it as a context manager."""

    def __init__(
        self, pidfd: int, process: Process, *, zombie_readable: bool = True, kernel: KernelWord = BY_PIDFD
    ) -> None:
        """Takes ownership of the descriptor. `zombie_readable`: what `probe.zombie` says."""
        self.pidfd = pidfd
        self.process = process
        self.dead_ns: int | None = None  # CLOCK_MONOTONIC when it was first seen dead
        self._zombie_readable = zombie_readable
        self._kernel = kernel
        kernel.hold(process, pidfd)

    @classmethod
    def of(
        cls,
        pid: int,
        started_ticks: int | None = None,
        *,
        zombie_readable: bool = True,
        kernel: KernelWord = BY_PIDFD,
    ) -> Self:
        """Open the process with this pid. Raises BadRequest when that cannot be a pid, NoSuchProcess when the process
        has ended or was started at another time, NotPermitted when /proc does not show it, Busy or OSError when there
        is no room to look."""
        pidfd = _opened(pid, is_known=started_ticks is not None)
        with undone_on_failure(lambda: os.close(pidfd)):
            try:
                started = native.process_stat(pid)[2]
            except ProcessLookupError as error:
                if not epoll.read_ready(pidfd):
                    raise NotPermitted(f"process {pid} is not shown by /proc here (hidepid?)", pid=str(pid)) from error
                raise _gone(pid) from error
            # Not reaped even now: so the start time read before is the descriptor's own, and no later process's.
            if _is_reaped(pidfd) or (started_ticks is not None and started != started_ticks):
                raise _gone(pid)
            return cls(pidfd, Process(pid, started), zombie_readable=zombie_readable, kernel=kernel)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Repeatable."""
        if self.pidfd >= 0:
            self._kernel.let_go(self.process, self.pidfd)
            os.close(self.pidfd)
            self.pidfd = -1

    def fileno(self) -> int:
        """Readable when the process is dead; edge-triggered epoll reports it again when it has been reaped."""
        return self.pidfd

    def look(self) -> Report | Pending:
        """Return what is known now. Pending: it lives, or is a zombie that may still be reaped; look again then. Raises
        OSError when there is no room to look, which says nothing about the process."""
        init, word, zombie_status = self._states()
        now_ns = time.monotonic_ns()
        if init is not Init.ALIVE and self.dead_ns is None:
            self.dead_ns = now_ns
        seen = Look(
            init=init,
            process=self.process,
            zombie_status=zombie_status if self._zombie_readable else None,
            pidfd_status=word.status if word.source is Source.PIDFD else None,
            event_status=word.status if word.source is Source.PROCEVENTS else None,
            event_is_coming=word.is_coming,
            dead_seconds=(now_ns - self.dead_ns) / 1e9 if self.dead_ns is not None else 0.0,
            now_ns=time.time_ns(),
        )
        verdict = evidence.judge(seen)
        if isinstance(verdict, Report) and verdict.source is Source.NONE:
            return replace(verdict, status=Unknown(foreign.UNTOLD))
        return verdict

    def wait(self, seconds: float) -> Report | None:
        """Block until the end is known, at most `seconds`. None: it has not ended by then."""
        deadline = time.monotonic() + seconds
        poll = select.epoll(flags=select.EPOLL_CLOEXEC)
        try:
            poll.register(self.pidfd, epoll.PIDFD)
            while isinstance(seen := self.look(), Pending):
                left = deadline - time.monotonic()
                if left <= 0:
                    return None
                poll.poll(left if seen.seconds is None else min(left, seen.seconds))
            return seen
        finally:
            poll.close()

    def _states(self) -> tuple[Init, KernelStatus, int | None]:
        """Return its state, the kernel's status, and the status of a zombie that the kernel reports none for."""
        if not epoll.read_ready(self.pidfd):  # state Z alone is not dead: other threads may live
            return Init.ALIVE, NO_WORD, None
        word = self._kernel.of(self.process, self.pidfd)
        if word.status is not None:
            return Init.REAPED, word, None
        try:
            _, _, started, zombie_status = native.process_stat(self.process.pid)
        except ProcessLookupError:
            started = zombie_status = -1
        if started == self.process.started_ticks:
            return Init.ZOMBIE, NO_WORD, zombie_status
        return Init.REAPED, self._kernel.of(self.process, self.pidfd), None  # since the first question


def cgroup_of(pid: int) -> str:
    """As foreign.cgroup_of; also empty for a process that has ended. Raises OSError when there is no room to look."""
    return foreign.cgroup_of(_text(f"/proc/{pid}/cgroup"))


def owners_of(pid: int, cgroup: str) -> Owners:
    """Return what the kernel says about the process's owner; less if it has ended meanwhile. Raises OSError as
    `cgroup_of`."""
    uid = next((line.split()[1] for line in _text(f"/proc/{pid}/status").splitlines() if line[:4] == "Uid:"), "")
    return Owners(int(uid) if uid.isdecimal() else None, _namespace_owner(pid), _cgroup_owner(cgroup))


def _namespace_owner(pid: int) -> int | None:
    """Return None for a zombie, which has no namespaces any more."""
    with contextlib.suppress(OSError):
        fd = os.open(f"/proc/{pid}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
        try:
            return int.from_bytes(fcntl.ioctl(fd, NS_GET_OWNER_UID, bytes(4)), sys.byteorder)
        finally:
            os.close(fd)
    return None


def _cgroup_owner(cgroup: str) -> int | None:
    if not cgroup:
        return None
    with contextlib.suppress(OSError, ValueError):
        return next((os.stat(path).st_uid for path in cgroups.existing(cgroup)), None)
    return None


def command_of(pid: int) -> str:
    """Return the kernel's name of the process, which the process can change itself. Raises OSError as `cgroup_of`."""
    text = _text(f"/proc/{pid}/comm").removesuffix("\n")[:COMMAND_BYTES]
    return "".join(char if char.isprintable() else "?" for char in text)


def memory_kills(cgroup: str) -> int | None:
    """Return the present count; None if the cgroup has no counter."""
    return cgroups.oom_kills(cgroup) if cgroup else None


def started_ns(process: Process, now_ns: int, boottime_ns: int) -> int:
    """Return the wall time of its start in ns, with the precision of clock ticks."""
    return now_ns - boottime_ns + process.started_ticks * 10**9 // TICKS


def _opened(pid: int, *, is_known: bool) -> int:
    """Return a pidfd. `is_known`: it was a process's pid; if it is a thread's by now, that process has ended. Raises as
    Sight.of."""
    if pid <= 0:
        raise BadRequest(f"{pid} is no process id")
    leader = next((line.split()[1] for line in _text(f"/proc/{pid}/status").splitlines() if line[:5] == "Tgid:"), "")
    if leader and leader != str(pid):
        if is_known:
            raise _gone(pid)
        raise BadRequest(f"{pid} is a thread of process {leader}; a process ends as a whole, name that one")
    try:
        fd = epoll.open_pid(pid)
    except OverflowError as error:
        raise BadRequest(f"{pid} is no process id") from error
    except OSError as error:
        raise Busy(f"process {pid} cannot be held: {error.strerror}", pid=str(pid)) from error
    if fd is None:
        raise _gone(pid)
    return fd


def _gone(pid: int) -> NoSuchProcess:
    return NoSuchProcess(f"process {pid} does not exist, or no longer", pid=str(pid))


def _is_reaped(pidfd: int) -> bool:
    """Return whether it is reaped, so that its pid may be another's (proc_pid_fdinfo(5): Pid is -1 then)."""
    return "\nPid:\t-1\n" in _text(f"/proc/self/fdinfo/{pidfd}")


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except (FileNotFoundError, ProcessLookupError):
        return ""
