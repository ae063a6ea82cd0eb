"""The one door to the compiled extension: the C cores' pure parts for tests, and kernel calls Python lacks."""

import errno
import os
from collections.abc import Sequence
from typing import Any

from shim._native import ffi, lib

USERNS_LIMIT = "their number is limited by user.max_user_namespaces of sysctl"  # ENOSPC, user_namespaces(7)


def _check(result: int, what: str) -> int:
    if result < 0:
        raise OSError(-result, f"{os.strerror(-result)}: {what}")
    return result


def number(name: str) -> int:
    """A constant of core/core.h by its name there."""
    return int(getattr(lib, name))


def mount(source: str, target: str, fstype: str, flags: int, data: str) -> None:
    """mount(2). OSError with the target in its text."""
    args = (
        os.fsencode(source),
        os.fsencode(target),
        os.fsencode(fstype),
        flags,
        os.fsencode(data) if data else ffi.NULL,
    )
    _check(lib.exitd_mount(*args), f"mount {fstype or 'flags'} at {target}")


def unmount(target: str, flags: int = 0) -> None:
    """umount2(2). OSError with the target in its text."""
    _check(lib.exitd_unmount(os.fsencode(target), flags), f"unmount {target}")


def bind_network(path: str) -> None:
    """Make a network namespace, with its loopback interface up, and bind it at this empty file. The calling thread is
    in it for a moment. OSError with the path in its text."""
    _check(lib.exitd_bind_network(os.fsencode(path)), f"a network namespace at {path}")


def user_namespace(first: int, count: int) -> int:
    """Make a user namespace whose users and groups 0 to `count` - 1 are those from `first` on. Return its descriptor,
    which the caller closes. Raises OSError."""
    return _check(lib.exitd_user_namespace(first, count, ffi.NULL), f"a user namespace ({USERNS_LIMIT})")


def user_and_network(first: int, count: int) -> tuple[int, int]:
    """As `user_namespace`, with a network namespace that belongs to it, whose loopback interface is up. The caller
    closes both. Raises OSError."""
    network_fd = ffi.new("int *")
    user_fd = _check(
        lib.exitd_user_namespace(first, count, network_fd), f"a user and a network namespace ({USERNS_LIMIT})"
    )
    return user_fd, int(network_fd[0])


def mapped_tree(path: str, user_fd: int) -> int:
    """Return a descriptor of a mount of this directory, mounted nowhere, whose files have the owners that the user
    namespace gives them. The caller closes it. Raises OSError: EINVAL where the file system has no such mounts."""
    return _check(lib.exitd_mapped_tree(os.fsencode(path), user_fd), f"a mount of {path} with other owners")


def set_subreaper(on: bool) -> None:
    """prctl(2) PR_SET_CHILD_SUBREAPER for this process."""
    _check(lib.exitd_set_subreaper(int(on)), "PR_SET_CHILD_SUBREAPER")


def pidfd_exit_status(pidfd: int) -> int | None:
    """The wait status of a process that has ended and was reaped, by any process, while this pidfd was held
    (PIDFD_GET_INFO, Linux 6.15). None: not reaped yet. OSError: this kernel does not report it, or the pidfd is no
    pidfd."""
    status = ffi.new("int *")
    result = lib.exitd_pidfd_exit_status(pidfd, status)
    if result == -errno.EAGAIN:
        return None
    _check(result, "PIDFD_GET_INFO")
    return int(status[0])


def end_cgroup(directories: Sequence[str], limit_ms: int, spared_pid: int = 0) -> None:
    """SIGKILL for everybody in these directories of cgroups and below them, but for one and the caller; returns when
    they are dead. TimeoutError: after `limit_ms` milliseconds one still lives."""
    paths = [ffi.new("char[]", os.fsencode(directory)) for directory in directories]
    _check(lib.cgroup_end(paths, len(paths), spared_pid, limit_ms), f"the end of everybody in {directories}")


def file_system(fd: int) -> int:
    """The kind of file system that an open file (O_PATH will do) is on: f_type of statfs(2)."""
    return _check(lib.exitd_file_system(fd), "fstatfs")


class BlockThread:
    """A thread, in C, that writes one block at a time into an open file: core/blockwrite.c."""

    def __init__(self, fd: int, event_fd: int, most_bytes: int) -> None:
        """`fd`: opened with O_DSYNC. `event_fd`: of eventfd(2), readable when a write has ended. Both stay the
        caller's, and open until `close`. Raises OSError: EAGAIN when there is no room for a thread."""
        made = ffi.new("struct block_writer **")
        _check(lib.block_writer_open(made, fd, event_fd, most_bytes), "a thread for writes")
        self._writer, self._most_bytes = made[0], most_bytes

    def begin(self, data: bytes, offset: int) -> None:
        """Begin to write. The last write has ended."""
        if len(data) > self._most_bytes:
            raise ValueError(f"{len(data)} bytes, and not {self._most_bytes} at most")
        lib.block_write(self._writer, data, len(data), offset)

    def written(self) -> tuple[int, float]:
        """Return the bytes that the write which has ended has written, and the seconds that it took. Raises OSError."""
        took_ns = ffi.new("int64_t *")
        return _check(lib.block_written(self._writer, took_ns), "the write"), took_ns[0] / 1e9

    def close(self) -> None:
        """End the thread. No write is under way."""
        lib.block_writer_close(self._writer)


def has_executed(pid: int, started: int) -> bool | None:
    """Whether the process has executed a program since it was forked; a zombie still knows. None: it is not there."""
    stat = ffi.new("struct proc_stat *")
    if lib.proc_stat_read(stat, pid) or stat.started != started:
        return None
    return bool(stat.began)


def process_origin(pid: int) -> tuple[int, int, bool]:
    """Parent's pid, start time in clock ticks since boot, and whether it has executed a program since it was forked
    (proc(5) stat fields 4, 22 and 9). ProcessLookupError when there is no such process."""
    stat = _stat(pid)
    return stat.ppid, stat.started, bool(stat.began)


def process_stat(pid: int) -> tuple[str, int, int, int]:
    """State letter, parent's pid, start time in clock ticks since boot, and wait status (proc(5) stat fields 3, 4, 22
    and 52; the last one is 0 for a reader without CAP_SYS_PTRACE). ProcessLookupError when there is no such process."""
    stat = _stat(pid)
    return stat.state.decode("ascii", "replace"), stat.ppid, stat.started, stat.exit_status


def _stat(pid: int) -> Any:
    stat = ffi.new("struct proc_stat *")
    result = lib.proc_stat_read(stat, pid)
    if result in (-errno.ENOENT, -errno.ESRCH):
        raise ProcessLookupError(errno.ESRCH, f"no process {pid}")
    _check(result, f"/proc/{pid}/stat")
    return stat
