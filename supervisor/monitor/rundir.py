"""Run directories: `<state>/c/<id>/<run>`, the files that two processes share about one run. Made once, never reused.

The directories of a run's execs are in it, `e/<exec>`, and are made in the same way.
"""

import contextlib
import fcntl
import os
import shutil
from collections.abc import Collection, Iterable, Iterator

import structlog

from shim import fields, prepare, record
from shim.frozen import mutable
from shim.names import CREATED, FIFO, LOCK, PLAN
from shim.undo import undone_on_failure
from supervisor.model import errnos
from supervisor.model.errnos import NO_FILE, USED_UP
from supervisor.model.errors import ShimFailed
from supervisor.model.values import Process
from supervisor.system import room

PROGRESS, PROGRESS_BYTES = "progress", 4096  # what the shim is about to write to the logs
EXECS = "e"
REMOVAL_TRIES = 3  # a process that is ending may make a file in a directory that is being removed

log = structlog.get_logger(__name__)


@mutable
class RunDirectory:
    """A run's directory, and the descriptors that the daemon holds of it; -1 if there is none."""

    path: str
    fifo_fd: int = -1
    record_fd: int = -1

    def close(self) -> None:
        """Close the descriptors. Repeatable."""
        for fd in (self.fifo_fd, self.record_fd):
            if fd >= 0:
                os.close(fd)
        self.fifo_fd = self.record_fd = -1


def path_of(state: str, container: str, run: int, exec_id: str = "") -> str:
    """Return the directory of a container's run, or of an exec in it. `state`: exitd's directory of this boot."""
    path = f"{state}/c/{container}/{run}"
    return f"{path}/{EXECS}/{exec_id}" if exec_id else path


def make(state: str, container: str, run: int, plan: bytes) -> RunDirectory:
    """Make a run's directory, and its container's if that is missing. Raises ShimFailed and Busy, see `make_in`."""
    path = path_of(state, container, run)
    try:
        for above in (f"{state}/c", os.path.dirname(path)):  # the mode of makedirs is for the last directory only
            os.makedirs(above, mode=0o700, exist_ok=True)
    except OSError as error:
        raise ShimFailed(f"run directory {path}: {errnos.said(error)}") from error
    return make_in(path, plan)


def make_in(path: str, plan: bytes) -> RunDirectory:
    """Make the directory with all files that a shim needs. The record's blocks are allocated now, so that neither a
    full file system nor a deleted directory takes them away later; the fifo has its reader before it can have a writer.

    The directory of an exec needs its run's. Raises ShimFailed when the directory exists (a run is made once) or the
    disk is full, Busy for lack of descriptors or memory.
    """
    directory = RunDirectory(path)
    try:
        with contextlib.suppress(FileExistsError):
            os.mkdir(os.path.dirname(path), mode=0o700)
        os.mkdir(path, mode=0o700)
        os.mkfifo(f"{path}/{FIFO}", mode=0o600)
        directory.fifo_fd = os.open(f"{path}/{FIFO}", os.O_RDONLY | os.O_NONBLOCK)
        directory.record_fd = os.open(f"{path}/{record.NAME}", os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        os.posix_fallocate(directory.record_fd, 0, record.RECORD_BYTES)
        prepare.allocate(f"{path}/{PROGRESS}", PROGRESS_BYTES)
        prepare.write_new(f"{path}/{LOCK}", b"")
        prepare.write_new(f"{path}/{PLAN}", plan)
    except OSError as error:
        directory.close()
        if not isinstance(error, FileExistsError):
            shutil.rmtree(path, ignore_errors=True)
        if room.is_used_up(error):
            raise room.busy(f"the run directory {path}", error.strerror) from error
        raise ShimFailed(f"run directory {path}: {errnos.said(error)}") from error
    return directory


def reopen(state: str, container: str, run: int, exec_id: str = "") -> RunDirectory:
    """Open what is left of the directory of a run or an exec, which may be nothing. Raises OSError when it cannot be
    opened now, for lack of descriptors or memory."""
    directory = RunDirectory(path_of(state, container, run, exec_id))
    with undone_on_failure(directory.close):
        directory.fifo_fd = _open_again(f"{directory.path}/{FIFO}", os.O_RDONLY | os.O_NONBLOCK)
        directory.record_fd = _open_again(f"{directory.path}/{record.NAME}", os.O_RDWR)
    return directory


def _open_again(path: str, flags: int) -> int:
    """Return -1 if it does not exist, or can never be opened."""
    try:
        return os.open(path, flags)
    except OSError as error:
        if error.errno in USED_UP:
            raise
        return -1


def read_record(directory: RunDirectory) -> record.Record | None:
    """Return the exit record; None if it was not written, or not whole. Raises OSError when it cannot be read."""
    if directory.record_fd < 0:
        return None
    try:
        return record.parse(os.pread(directory.record_fd, record.RECORD_BYTES, 0))
    except record.BadRecord:
        return None


def read_fifo(directory: RunDirectory) -> int | None:
    """Return the number in the fifo; None if there is none, only a part of one, or if it cannot be read."""
    if directory.fifo_fd < 0:
        return None
    try:
        data = os.read(directory.fifo_fd, 4)
    except OSError:
        return None
    return int.from_bytes(data, "little", signed=True) if len(data) == 4 else None


def created(path: str) -> Process | None:
    """Return init, as the shim noted it in the directory. Raises OSError when that cannot be read now."""
    return _process(f"{path}/{CREATED}", "exitd-created")


def named(path: str) -> Process | None:
    """Return init, as the shim noted it in the directory or, for lack of space, in the record of its end. Raises
    OSError when that cannot be read now."""
    return created(path) or _recorded(path)


def _recorded(path: str) -> Process | None:
    try:
        with open(f"{path}/{record.NAME}", "rb") as file:
            found = record.parse(file.read(record.RECORD_BYTES))
    except record.BadRecord:
        return None
    except OSError as error:
        if error.errno in NO_FILE:
            return None
        raise
    return Process(found.pid, found.started) if found is not None else None


def leave_created(path: str, init: Process) -> None:
    """Note init for a shim that was killed before it could. Without space on the disk only this daemon knows it."""
    said = fields.encode("exitd-created", [("pid", init.pid), ("started", init.started_ticks)])
    with contextlib.suppress(OSError):
        prepare.write_new(f"{path}/{CREATED}", said)


def lock_holder(path: str) -> Process | None:
    """Return the shim that last signed the lock; it may be dead. Raises OSError when that cannot be read now."""
    return _process(f"{path}/{LOCK}", "exitd-lock")


@contextlib.contextmanager
def locked(path: str) -> Iterator[bool]:
    """Hold the run's lock for the block. Yields False if a shim holds it; a directory that is gone has no shim."""
    try:
        fd = os.open(f"{path}/{LOCK}", os.O_RDWR)
    except FileNotFoundError:
        yield True
        return
    try:
        yield _try_lock(fd)
    finally:
        os.close(fd)


def _try_lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def give_up(path: str) -> None:
    """Have a shim that comes later find no plan, and end: a keeper that stood still begins one late. Call it with the
    run's lock held, which no shim has signed. Raises OSError."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(f"{path}/{PLAN}")


def remove(path: str) -> None:
    """Remove the directory, and its parent if it was the container's last run, or the run's last exec. Repeatable. What
    cannot be removed is logged, and left to the next look at all run directories."""
    for _ in range(REMOVAL_TRIES):
        shutil.rmtree(path, ignore_errors=True)
        if not os.path.lexists(path):
            break
    else:
        log.warning("a run directory cannot be removed now", path=path)
    with contextlib.suppress(OSError):
        os.rmdir(os.path.dirname(path))


def runs(state: str, containers: Iterable[str] | None = None) -> list[tuple[str, int]]:
    """Return every existing run directory, of these containers or of all, as (container, run). Raises OSError when
    there is no room to look."""
    found = []
    with contextlib.suppress(FileNotFoundError):
        for container in os.listdir(f"{state}/c") if containers is None else containers:
            try:
                found += [(container, int(run)) for run in os.listdir(f"{state}/c/{container}") if _is_run(run)]
            except OSError as error:  # one unreadable directory must not hide the others
                if room.is_used_up(error):
                    raise
    return found


def execs(path: str, but: Collection[str] = ()) -> list[str]:
    """Return the execs that have a directory in this run's, without those in `but`."""
    try:
        return [name for name in os.listdir(f"{path}/{EXECS}") if name not in but]
    except FileNotFoundError:
        return []


def _is_run(name: str) -> bool:
    return name.isascii() and name.isdigit()


def decode_process(kind: str, data: bytes) -> Process:
    """Raises BadMessage."""
    message = fields.decode(data, kind)
    return Process(message.number("pid"), message.number("started"))


def _process(path: str, kind: str) -> Process | None:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return decode_process(kind, os.read(fd, 4096))
        finally:
            os.close(fd)
    except fields.BadMessage:
        return None
    except OSError as error:
        if error.errno in NO_FILE:
            return None
        raise
