"""Which witnesses work on this machine: each is tried on a real child, or looked for.

Children are started with Popen (vfork), never forked: the daemon, which also calls this, has gRPC's threads. It takes
some tens of milliseconds, so the daemon calls it outside of its loop.
"""

import errno
import os
import socket
import struct
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

from shim import native, programs
from shim.frozen import frozen
from supervisor.model.values import Source
from supervisor.monitor import epoll, kernelword, procevents
from supervisor.monitor.procevents import ThreadEnded

TEST_CODE = 43
TEST_STATUS = TEST_CODE << 8  # wait status of an exit with that code, wait(2)
LIMIT_SECONDS = 5.0
RECORD_BYTES = 4096
SUFFICES = "nothing is wrong: the other sources suffice. Linux 6.15 adds this one"


@frozen
class Capability:
    """Whether it works here, what was seen, and what to do if it does not (empty: nothing)."""

    works: bool
    detail: str
    cure: str = ""


def evidence(state: str, tried: Mapping[Source, Capability] = MappingProxyType({})) -> dict[Source, Capability]:
    """Try every source that can be tried, but for those `tried`. Return all of them, in order of trust. `state` is the
    state directory, or its future path."""
    place = existing_parent(state)
    found = dict(tried) if tried else by_one_child()
    return {
        Source.RECORD: record(place),
        Source.FIFO: fifo(place),
        Source.KEEPER: keeper(),
        Source.ZOMBIE: found[Source.ZOMBIE],
        Source.PIDFD: found[Source.PIDFD],
        Source.PROCEVENTS: process_events(),
    }


def by_one_child() -> dict[Source, Capability]:
    """Try what the kernel says of the same child: first its zombie, then, reaped, its pidfd."""
    try:
        with _ending_child() as (pid, fd):
            return {Source.ZOMBIE: _zombie(pid), Source.PIDFD: _pidfd(pid, fd)}
    except (OSError, subprocess.SubprocessError) as error:
        return {Source.ZOMBIE: _no_zombie(error), Source.PIDFD: _no_pidfd(error)}


def existing_parent(path: str) -> str:
    """Return the path itself, or the nearest existing directory above it."""
    found = Path(path).absolute()
    while not os.path.isdir(found) and found != found.parent:
        found = found.parent
    return str(found)


def record(place: str) -> Capability:
    """Try to reserve a record's blocks before the run begins, so that a full file system cannot take them away."""
    cure = "choose a state directory on tmpfs, ext4, xfs or btrfs with free space (exitd --state)"
    try:
        with tempfile.TemporaryFile(dir=place, prefix=".exitd-probe-") as file:
            os.posix_fallocate(file.fileno(), 0, RECORD_BYTES)
    except OSError as error:
        return Capability(False, f"no room can be set aside in {place}: {error.strerror}", cure)
    return Capability(True, f"room for a record can be set aside in {place}")


def fifo(place: str) -> Capability:
    """Try to send four bytes through a fifo that is opened as exitd and its shim open it."""
    cure = "choose another state directory (exitd --state)"
    try:
        with tempfile.TemporaryDirectory(dir=place, prefix=".exitd-probe-") as directory:
            got = _through(os.path.join(directory, "fifo"))
    except OSError as error:
        return Capability(False, f"no fifo can be used in {place}: {error.strerror}", cure)
    if got != struct.pack("i", TEST_CODE):
        return Capability(False, f"a fifo in {place} gave {got!r}", cure)
    return Capability(True, f"a fifo in {place} carries the number")


def _through(path: str) -> bytes:
    os.mkfifo(path, 0o600)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        writer = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            os.write(writer, struct.pack("i", TEST_CODE))
            return os.read(reader, 16)
        finally:
            os.close(writer)
    finally:
        os.close(reader)


def keeper() -> Capability:
    """Look for exitd-keeper. The kernel feature that it needs, PR_SET_CHILD_SUBREAPER, exists since Linux 3.4."""
    try:
        path = programs.find("exitd-keeper")
    except FileNotFoundError as error:
        return Capability(False, "exitd-keeper is not found", str(error))
    if kernel() < (3, 4):
        return Capability(False, f"kernel {os.uname().release} has no subreapers", "run Linux 5.10 or newer")
    return Capability(True, f"{path} can inherit orphans (subreaper)")


def zombie() -> Capability:
    """Try to read the wait status of a real zombie in /proc: without CAP_SYS_PTRACE it reads as 0."""
    return by_one_child()[Source.ZOMBIE]


def _zombie(pid: int) -> Capability:
    try:
        status = native.process_stat(pid)[3]
    except OSError as error:
        return _no_zombie(error)
    if status != TEST_STATUS:
        cure = "run exitd as root with CAP_SYS_PTRACE (in a container: --cap-add SYS_PTRACE)"
        return Capability(False, f"the status of a zombie that exited {TEST_CODE} reads {status}", cure)
    return Capability(True, f"/proc/PID/stat reported {TEST_CODE} for a zombie")


def _no_zombie(error: Exception) -> Capability:
    return Capability(False, f"/proc shows no status of a zombie: {error}", "mount /proc without hidepid for root")


def pidfd() -> Capability:
    """Try to read the status of a reaped child from a pidfd that was held: Linux 6.15 and newer."""
    return by_one_child()[Source.PIDFD]


def _pidfd(pid: int, fd: int) -> Capability:
    try:
        os.waitid(os.P_PID, pid, os.WEXITED)
        status = native.pidfd_exit_status(fd)
    except OSError as error:
        return _no_pidfd(error)
    if status != TEST_STATUS:
        return Capability(False, f"a pidfd of a child that exited {TEST_CODE} reported {status}", SUFFICES)
    return Capability(True, f"PIDFD_GET_INFO reported {TEST_CODE} for a reaped child")


def _no_pidfd(error: Exception) -> Capability:
    if isinstance(error, OSError) and error.errno in (errno.ENOTTY, errno.EINVAL):
        return Capability(False, f"kernel {os.uname().release} does not report exits through pidfds", SUFFICES)
    return Capability(False, f"pidfds do not work here: {error}", "allow pidfd_open (seccomp?), Linux 5.3 or newer")


def process_events() -> Capability:
    """Try to receive the end of a child from the process events connector."""
    cure = "nothing is wrong: the other sources suffice. It matters on kernels before 6.15, where pidfds keep no status"
    try:
        sock = kernelword.listen()
        try:
            kernelword.attach(sock, procevents.accepts_all())
            with _ending_child() as (pid, _):
                status = _status_by_event(sock, pid)
        finally:
            kernelword.stop_listening(sock)
    except (OSError, subprocess.SubprocessError) as error:
        return Capability(False, getattr(error, "strerror", None) or str(error), cure)
    if status != TEST_STATUS:
        return Capability(False, f"the process event of a child that exited {TEST_CODE} reported {status}", cure)
    return Capability(True, f"the process events connector reported {TEST_CODE} for a child")


def _status_by_event(sock: socket.socket, pid: int) -> int:
    """Raises OSError when no event came in time, or some were lost."""
    sock.settimeout(LIMIT_SECONDS)
    while True:
        event = procevents.parse(sock.recv(procevents.MESSAGE_BYTES))
        if isinstance(event, ThreadEnded) and event.pid == event.tid == pid:
            return event.status


def kernel() -> tuple[int, int]:
    """Return the major and minor release of the running kernel."""
    major, minor = os.uname().release.split(".")[:2]
    return int(major), int("".join(char for char in minor if char.isdigit()) or 0)


def cgroup_version(root: str = "/sys/fs/cgroup") -> str:
    """Return v2 | hybrid | v1; empty if no cgroups are mounted."""
    if os.path.exists(f"{root}/cgroup.controllers"):
        return "v2"
    if not os.path.isdir(f"{root}/memory") and not os.path.isdir(f"{root}/pids"):
        return ""
    return "hybrid" if os.path.exists(f"{root}/unified/cgroup.controllers") else "v1"


def file_system(path: str, mountinfo: str | None = None) -> str:
    """Return the type of the file system that `path` is on, as mountinfo (proc(5)) names it."""
    text = Path("/proc/self/mountinfo").read_text() if mountinfo is None else mountinfo
    device = os.stat(path).st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    best, found = -1, "unknown"
    for line in text.splitlines():
        before, _, after = line.partition(" - ")
        fields = before.split()
        point = fields[4].encode().decode("unicode_escape")
        covers = path == point or path.startswith(point.rstrip("/") + "/")
        if covers and fields[2] == number and len(point) >= best:
            best, found = len(point), after.split()[0]
    return found


@contextmanager
def _ending_child() -> Iterator[tuple[int, int]]:
    """Yield pid and pidfd of a child that has exited with 43 and is not reaped. It is reaped after the block at the
    latest."""
    child = subprocess.Popen(
        ["/bin/sh", "-c", f"read line; exit {TEST_CODE}"],
        stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    assert child.stdin is not None
    try:
        fd = os.pidfd_open(child.pid)  # before it may end: a reaped child's pid could already be another's
        try:
            child.stdin.close()
            if not epoll.read_ready(fd, LIMIT_SECONDS):
                raise subprocess.TimeoutExpired("sh", LIMIT_SECONDS)
            yield child.pid, fd
        finally:
            os.close(fd)
    finally:
        child.stdin.close()
        child.kill()  # Popen knows whether it has been reaped
        child.wait(LIMIT_SECONDS)
