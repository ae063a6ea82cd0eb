"""`python -m shim ID BUNDLE RUNTIME info [TIMEOUT]`: what iSulad's daemon may start as its isulad-shim.

Prepares the working directory, which is the container's state directory, and becomes exitd-shim. Exit status 1: nothing
was made, the reason is on stderr and in the daemon's log fifo; otherwise exitd-shim's own.
"""

import contextlib
import os
import shutil
import stat
import sys
from typing import NoReturn

from shim import isulad, names, plan, prepare, programs, record, slots
from shim.isulad import Refused

DOCUMENT_MAX_BYTES = 16 * 1024 * 1024


def main() -> NoReturn:
    try:
        log_fd = open_log(isulad.log_fifo_of(os.environ))
    except Refused as error:
        sys.exit(f"shim-error: {error}")
    try:
        call = isulad.call_of(sys.argv[1:])
        process = isulad.process_of(read_document())
        wanted = isulad.plan_of(call, process, os.environ, os.getcwd(), which)
        begin(wanted, isulad.encoded(wanted), process)
    except OSError as error:
        text = f"shim-error: {error.filename or call.id}: {error.strerror}; nothing was started"
    except Refused as error:
        text = f"shim-error: {error}"
    write_line(log_fd, f"{text}\n")
    sys.exit(text)


def open_log(path: str) -> int:
    """iSulad's log fifo: both ways, so that opening it and writing to it works with the daemon gone."""
    try:
        low_fd = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_NOFOLLOW)
    except OSError as error:
        raise Refused(f"{isulad.LOG_PATH}: {path}: {error.strerror}") from error
    try:
        found = os.fstat(low_fd)
        if not stat.S_ISFIFO(found.st_mode) or stat.S_IMODE(found.st_mode) != 0o600:
            raise Refused(f"{isulad.LOG_PATH}: {path} must be a fifo of mode 0600")
        return prepare.above_slots(low_fd)
    finally:
        os.close(low_fd)


def write_line(log_fd: int, text: str) -> None:
    """Write a line into the daemon's log. A daemon that does not read costs it the line; stderr has it too."""
    with contextlib.suppress(BlockingIOError):
        os.write(log_fd, text.encode("utf-8", "surrogateescape"))


def which(command: str) -> str | None:
    """A program by its name on PATH or its path, absolute."""
    found = shutil.which(command)
    return os.path.abspath(found) if found else None


def read_document() -> bytes:
    with open(isulad.DOCUMENT, "rb") as file:
        data = file.read(DOCUMENT_MAX_BYTES + 1)
    if len(data) > DOCUMENT_MAX_BYTES:
        raise Refused(f"{isulad.DOCUMENT}: more than {DOCUMENT_MAX_BYTES} bytes")
    return data


def pipes_of(process: isulad.Process) -> dict[int, int]:
    """The container's ends and the shim's, by their slots. With a terminal there are none; without a client that could
    write to it, stdin is at its end from the first."""
    if process.terminal:
        return {}
    pipes = dict(zip(slots.OUTPUT, prepare.output_pipes(), strict=True))
    if process.open_stdin or os.path.exists(process.stdin):
        pipes.update(zip(slots.INPUT, prepare.one_pipe(), strict=True))
    for fd in pipes.values():
        os.fchown(fd, *process.owner)
    return pipes


def begin(wanted: plan.Plan, data: bytes, process: isulad.Process) -> NoReturn:
    """The directory, the descriptors, and exitd-shim in this program's place. OSError, Refused."""
    if process.exec:  # iSulad has no use for one, exitd-shim does
        with contextlib.suppress(FileExistsError):
            os.mkfifo(isulad.FIFO, 0o600)
    if not stat.S_ISFIFO(os.lstat(isulad.FIFO).st_mode):
        raise Refused(f"{os.getcwd()}/{isulad.FIFO} must be a fifo")
    try:
        program = programs.find("exitd-shim")
    except FileNotFoundError as error:
        raise Refused(str(error)) from error
    with prepare.locked(names.LOCK) as free:
        if not free:
            raise Refused(f"{os.getcwd()}: another shim runs in this directory")
        # Of an earlier run in the same directory: a stale pid would be believed.
        for name in (names.PLAN, names.CREATED, record.NAME, wanted.pid_file, isulad.PID_FILE):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name)
        prepare.make_record(record.NAME)
        prepare.write_new(names.PLAN, data)
    # exitd-shim takes the lock as its first act: of two that come at once one finds it taken, and ends.
    pipes = pipes_of(process)
    own = (prepare.above_slots(fd) for fd in (1, 2))
    prepare.take_slots(pipes | dict(zip(slots.OWN_OUTPUT, own, strict=True)))
    os.execve(program, ["exitd-shim", wanted.id], isulad.environment_of(os.environ))


if __name__ == "__main__":
    main()
