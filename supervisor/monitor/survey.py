"""Inspects run directories before they are trusted: by descriptors, level by level, without following links."""

import contextlib
import os
import stat
import time
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from shim import fields, record
from shim.mark import MARK, STARTED, decode_mark, decode_started
from shim.names import CREATED, LOCK, PLAN
from supervisor.model.adoption import DirectoryEntry, EntryKind, UnknownRun
from supervisor.model.values import Process
from supervisor.monitor import epoll
from supervisor.monitor.rundir import decode_process

T = TypeVar("T")
MOST_BYTES = 65536  # of a file that is read here; the largest, a plan, has at most half of it
MOST_ENTRIES = 1000  # of a run directory; a full one has twelve
KINDS = {
    stat.S_IFDIR: EntryKind.DIRECTORY,
    stat.S_IFREG: EntryKind.FILE,
    stat.S_IFIFO: EntryKind.FIFO,
    stat.S_IFLNK: EntryKind.LINK,
}


def ids(state: str) -> list[str]:
    """Return every name below `<state>/c`, whatever kind of file it is; bytes that are not UTF-8 become surrogates."""
    try:
        return os.listdir(f"{state}/c")
    except FileNotFoundError:
        return []


def look(state: str, container_id: str) -> list[UnknownRun]:
    """Return what exists under this id: one item for each run, or one without a run; none if it is gone. Raises
    OSError."""
    with contextlib.ExitStack() as stack:
        try:
            top_fd = _open(stack, f"{state}/c", None)
            top = DirectoryEntry(EntryKind.DIRECTORY, *_owner(os.fstat(top_fd)))
            own = _entry(container_id, top_fd)
            way = (("c", top), (container_id, own))
            if own.kind is not EntryKind.DIRECTORY:
                return [UnknownRun(container_id, "", way)]
            own_fd = _open(stack, container_id, top_fd)
            runs = [name for name in _names(own_fd) if name.isascii() and name.isdigit()]
            if not runs:
                return [UnknownRun(container_id, "", way, quiet_seconds=_quiet(own_fd))]
            return [_run(own_fd, container_id, run, way) for run in runs]
        except FileNotFoundError:  # removed while it was inspected
            return []


def _run(own_fd: int, container_id: str, run: str, way: tuple[tuple[str, DirectoryEntry], ...]) -> UnknownRun:
    entry = _entry(run, own_fd)
    way = (*way, (run, entry))
    if entry.kind is not EntryKind.DIRECTORY:
        return UnknownRun(container_id, run, way)
    with contextlib.ExitStack() as stack:
        run_fd = _open(stack, run, own_fd)
        entries = tuple((name, _entry(name, run_fd)) for name in sorted(_names(run_fd)))
        reader = _Reader(run_fd, dict(entries))
        init = reader.read(CREATED, partial(decode_process, "exitd-created"))
        signed = reader.read(LOCK, partial(decode_process, "exitd-lock"))
        return UnknownRun(
            container_id,
            run,
            way,
            entries,
            mark=reader.read(MARK, decode_mark),
            planned=reader.read(PLAN, _planned),
            init=init,
            shim=signed if signed is not None and _lives(signed) else None,
            started=reader.read(STARTED, decode_started),
            init_alive=init is not None and _lives(init),
            recorded=reader.read(record.NAME, record.parse) is not None,
            quiet_seconds=_quiet(run_fd),
            unreadable=reader.unreadable,
        )


class _Reader:
    """The files of one run directory, each read as the kind it should be, or noted as unreadable."""

    def __init__(self, run_fd: int, entries: dict[str, DirectoryEntry]) -> None:
        self._fd = run_fd
        self._entries = entries
        self.unreadable: dict[str, str] = {}

    def read(self, name: str, decode: Callable[[bytes], T]) -> T | None:
        """Return None if the file does not exist, must not be read, or cannot be decoded."""
        entry = self._entries.get(name)
        if entry is None or entry.kind is not EntryKind.FILE:
            return None
        try:
            fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=self._fd)
            with open(fd, "rb") as file:
                data = file.read(MOST_BYTES)
            return decode(data) if data else None
        except OSError as error:
            self.unreadable[name] = str(error.strerror)
        except (fields.BadMessage, record.BadRecord) as error:
            self.unreadable[name] = str(error)
        return None


def _planned(data: bytes) -> tuple[str, int]:
    message = fields.decode(data, "exitd-plan")
    return message.get("id"), message.number("run")


def _open(stack: contextlib.ExitStack, name: str, dir_fd: int | None) -> int:
    fd = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=dir_fd)
    stack.callback(os.close, fd)
    return fd


def _names(fd: int) -> list[str]:
    """At most MOST_ENTRIES: a directory with more was not made for a run."""
    with os.scandir(fd) as found:
        return [entry.name for entry, _ in zip(found, range(MOST_ENTRIES), strict=False)]


def _entry(name: str, dir_fd: int) -> DirectoryEntry:
    found = os.stat(name, dir_fd=dir_fd, follow_symlinks=False)
    return DirectoryEntry(KINDS.get(stat.S_IFMT(found.st_mode), EntryKind.OTHER), *_owner(found))


def _owner(found: os.stat_result) -> tuple[int, bool]:
    """The mode of a link has no meaning."""
    writable = not stat.S_ISLNK(found.st_mode) and bool(found.st_mode & (stat.S_IWGRP | stat.S_IWOTH))
    return found.st_uid, writable


def _quiet(fd: int) -> float:
    """At least 0, whatever happened to the clock."""
    return max(0.0, time.time() - os.fstat(fd).st_mtime)


def _lives(process: Process) -> bool:
    return epoll.lives(epoll.open_process(process.pid, process.started_ticks))
