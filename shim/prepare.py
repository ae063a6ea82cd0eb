"""What exitd-shim finds when it begins: files in its directory, descriptors in their slots."""

import contextlib
import errno
import fcntl
import os
from collections.abc import Iterator, Mapping

from shim import record
from shim.slots import SLOTS_END, STATUS_FD


@contextlib.contextmanager
def locked(path: str) -> Iterator[bool]:
    """Holds a run's lock, which is made if need be, for the block; yields False when another process has it."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(fd)


def make_record(path: str) -> None:
    """So that no full file system takes the exit away later."""
    allocate(path, record.RECORD_BYTES)


def allocate(path: str, size_bytes: int) -> None:
    """A file that was not there, of this size, with all its blocks."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        os.posix_fallocate(fd, 0, size_bytes)
    finally:
        os.close(fd)


def write_new(path: str, data: bytes) -> None:
    """All of it, in a file that was not there."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        if os.write(fd, data) != len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
    finally:
        os.close(fd)


def above_slots(fd: int) -> int:
    """A copy that no slot's descriptor can overwrite, which ends with an exec."""
    return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, SLOTS_END)


def output_pipes() -> list[int]:
    """Two pipes in the order of slots.OUTPUT: both read ends, both write ends; above all slots, not inherited."""
    (out_fd, out_write_fd), (err_fd, err_write_fd) = one_pipe(), one_pipe()
    return [out_fd, err_fd, out_write_fd, err_write_fd]


def one_pipe() -> tuple[int, int]:
    """Its read end and its write end, above all slots, not inherited."""
    made = os.pipe()
    try:
        return above_slots(made[0]), above_slots(made[1])
    finally:
        for fd in made:
            os.close(fd)


def take_slots(descriptors: Mapping[int, int]) -> None:
    """Put a descriptor in each of these slots, and none in the others; for a program that becomes exitd-shim itself."""
    for slot in range(STATUS_FD, SLOTS_END):
        with contextlib.suppress(OSError):  # nothing there
            os.set_inheritable(slot, False)
    for slot, fd in descriptors.items():
        os.dup2(fd, slot, inheritable=True)
