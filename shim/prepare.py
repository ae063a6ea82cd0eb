"""What exitd-shim finds when it begins: files in its directory, descriptors at its seats. For whoever starts one."""

import contextlib
import errno
import fcntl
import os
from collections.abc import Iterator, Mapping

from shim import record

# shim/core/shim.h: STATUS_FD, what lies behind all, OUT_FD and on, the first of JOIN_FD, IN_FD and on.
FIRST_SEAT, SEATS_END = 3, 16
OUTPUT_SEATS, OWN_OUTPUT_SEATS, INPUT_SEATS = (4, 5, 6, 7), (8, 9), (12, 13)


@contextlib.contextmanager
def locked(path: str) -> Iterator[bool]:
    """Holds a run's lock, which is made if need be, for the block; yields False when somebody else has it."""
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


def above_seats(fd: int) -> int:
    """A copy that no seat's descriptor can overwrite, which ends with an exec."""
    return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, SEATS_END)


def output_pipes() -> list[int]:
    """Two pipes in the order of their seats: both read ends, both write ends; above all seats, not inherited."""
    (out_fd, out_write_fd), (err_fd, err_write_fd) = one_pipe(), one_pipe()
    return [out_fd, err_fd, out_write_fd, err_write_fd]


def one_pipe() -> tuple[int, int]:
    """Its read end and its write end, above all seats, not inherited."""
    made = os.pipe()
    try:
        return above_seats(made[0]), above_seats(made[1])
    finally:
        for fd in made:
            os.close(fd)


def take_seats(seats: Mapping[int, int]) -> None:
    """For a program that becomes exitd-shim itself: a descriptor for each of these seats, and at the others nothing."""
    for seat in range(FIRST_SEAT, SEATS_END):
        with contextlib.suppress(OSError):  # nothing there
            os.set_inheritable(seat, False)
    for seat, fd in seats.items():
        os.dup2(fd, seat, inheritable=True)
