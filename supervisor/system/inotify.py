"""Changes of files and directories, reported to listeners in the event loop: the only module that uses pyinotify.

pyinotify manages the watches; the descriptor is read here, because its own reader loses the rest of a batch at the
first file name that is not UTF-8, reports an overflow to no listener, and costs thirteen times as much per event.

One instance per process (fs.inotify.max_user_instances is 128 per user). Source: inotify(7).
"""

import asyncio
import contextlib
import ctypes
import errno
import logging
import os
import struct
import types
import warnings
from collections.abc import Callable
from typing import TypeGuard

from shim.frozen import frozen

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # pyinotify imports asyncore
    import pyinotify

# pyinotify writes to stderr with its own handler; the program's logging decides where its lines go.
for _handler in tuple(logging.getLogger("pyinotify").handlers):
    logging.getLogger("pyinotify").removeHandler(_handler)

# It would run ldconfig to find the C library, and takes the one that this process has if there is none to find.
_NOWHERE = types.SimpleNamespace(find_library=lambda name: None)
pyinotify.ctypes = types.SimpleNamespace(**{**vars(ctypes), "util": _NOWHERE})

IN_MODIFY = 0x2
IN_ATTRIB = 0x4
IN_CLOSE_WRITE = 0x8
IN_MOVED_FROM = 0x40
IN_MOVED_TO = 0x80
IN_CREATE = 0x100
IN_DELETE = 0x200
IN_DELETE_SELF = 0x400
IN_MOVE_SELF = 0x800
IN_UNMOUNT = 0x2000
IN_Q_OVERFLOW = 0x4000
IN_IGNORED = 0x8000
IN_ISDIR = 0x40000000

_IN_MASK_ADD = 0x20000000  # a second watch of one inode must not replace the mask of the first one
_ALWAYS = IN_UNMOUNT | IN_IGNORED  # reported to all listeners, asked for or not
_HEADER = struct.Struct("iIII")  # wd, mask, cookie, length of the name
_READ_BYTES = 65536
_MOST_EARLY = 4096  # changes that came before the watch they are of; more count as lost changes


@frozen
class FileChange:
    """One inotify event. `name` is the entry of a watched directory; bytes that are not UTF-8 become surrogates."""

    wd: int
    mask: int
    name: str


@frozen
class Overflow:
    """Changes were lost: look at everything again."""


Item = FileChange | Overflow
Listener = Callable[[Item], None]


def parse(data: bytes) -> tuple[Item, ...]:
    """Return the events of one read(2). The kernel gives whole events only; a torn one counts as lost changes."""
    items: list[Item] = []
    at = 0
    while at < len(data):
        if at + _HEADER.size > len(data):
            return (*items, Overflow())
        wd, mask, _, length = _HEADER.unpack_from(data, at)
        name = data[at + _HEADER.size : at + _HEADER.size + length]
        if len(name) < length:
            return (*items, Overflow())
        items.append(Overflow() if mask & IN_Q_OVERFLOW else FileChange(wd, mask, os.fsdecode(name.rstrip(b"\0"))))
        at += _HEADER.size + length
    return tuple(items)


def is_end(item: Item) -> TypeGuard[FileChange]:
    """Whether it is the end of a watch, which reports nothing more: what was watched has gone, or is to be watched
    anew."""
    return isinstance(item, FileChange) and bool(item.mask & IN_IGNORED)


class InotifyWatch:
    """One listener's interest in one path; `close` ends it. The listener runs in the event loop, not after `close`."""

    def __init__(self, owner: "Inotify", wd: int, mask: int, listener: Listener) -> None:
        self._owner = owner
        self._listener = listener
        self._open = True
        self.wd = wd
        self.mask = mask

    def pass_on(self, item: Item) -> None:
        """Call the listener, unless the watch is closed or the change is none that was asked for."""
        if self._open and (isinstance(item, Overflow) or item.mask & (self.mask | _ALWAYS)):
            self._listener(item)

    def close(self) -> None:
        """Repeatable; also after the path or the whole instance is gone."""
        if self._open:
            self._open = False
            self._owner.forget(self)


class InotifyWatches:
    """Watches that are made in a thread, since a file system on the way may hang, and that go together. `close` ends
    those too which a thread that is not waited for any more makes yet."""

    def __init__(self, owner: "Inotify") -> None:
        self._owner = owner
        self._watches: list[InotifyWatch] = []
        self._open = True

    def add(self, path: str, mask: int, listener: Listener) -> None:
        """As `Inotify.watch`, from any thread, and with its errors. What is looked at after it has returned, and has
        changed since, is reported to `listener`, in the event loop."""
        self._owner.watch_in_thread(path, mask, listener, self._keep)

    def _keep(self, watch: InotifyWatch) -> None:
        if self._open:
            self._watches.append(watch)
        else:
            watch.close()

    def close(self) -> None:
        """In the event loop. Idempotent."""
        self._open = False
        for watch in self._watches:
            watch.close()
        self._watches = []


class Inotify:
    """The process's inotify instance. Several watches may share a path: each receives what its own mask asks for."""

    def __init__(self) -> None:
        """Raises OSError when the user's instances are used up (EMFILE) or inotify is missing."""
        self._manager = pyinotify.WatchManager()
        self._fd: int = self._manager.get_fd()
        os.set_inheritable(self._fd, False)  # pyinotify calls inotify_init without flags
        os.set_blocking(self._fd, False)
        self._watches: dict[int, list[InotifyWatch]] = {}
        self._on_the_way: set[object] = set()  # from threads: watches that the kernel may have already, and we have not
        self._early: list[Item] = []  # what comes meanwhile
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False

    def start(self) -> None:
        """Read in the running event loop from now on."""
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._fd, self._readable)

    def watch(self, path: str, mask: int, listener: Listener) -> InotifyWatch:
        """Call `listener` for changes of `path` in `mask`, and always for IN_UNMOUNT, IN_IGNORED and Overflow.

        Raises OSError: ENOENT, EACCES, ENOSPC when fs.inotify.max_user_watches is reached, EILSEQ for a path that is
        not UTF-8 (pyinotify cannot pass it on).
        """
        wd = self._add(path, mask)
        watch = InotifyWatch(self, wd, mask, listener)
        self._watches.setdefault(wd, []).append(watch)
        return watch

    def watch_in_thread(self, path: str, mask: int, listener: Listener, keep: Callable[[InotifyWatch], None]) -> None:
        """What `InotifyWatches.add` calls. `keep` is given the watch in the event loop, before whatever the thread has
        the loop do next. Nothing is missed in between: the changes are kept that come before their watch does. Another
        listener's leave, which ends the kernel's watch of this path too, is reported as IN_IGNORED."""
        assert self._loop is not None, "not started"
        mark = object()
        self._on_the_way.add(mark)
        try:
            wd = self._add(path, mask)
        except BaseException:
            self._on_the_way.discard(mark)
            raise
        with contextlib.suppress(RuntimeError):  # the loop is closed: the daemon ends
            self._loop.call_soon_threadsafe(self._arrived, mark, InotifyWatch(self, wd, mask, listener), keep)

    def _arrived(self, mark: object, watch: InotifyWatch, keep: Callable[[InotifyWatch], None]) -> None:
        self._on_the_way.discard(mark)
        self._watches.setdefault(watch.wd, []).append(watch)
        keep(watch)
        for item in self._early:
            if isinstance(item, Overflow) or item.wd == watch.wd:
                self._call(watch, item)
        if any(is_end(item) and item.wd == watch.wd for item in self._early):
            self._gone(watch.wd)
        if not self._on_the_way:
            self._early = []

    def _add(self, path: str, mask: int) -> int:
        try:
            found: dict[str, int] = self._manager.add_watch(path, mask | _IN_MASK_ADD, quiet=False)
        except pyinotify.WatchManagerError as refused:
            number = self._manager._inotify_wrapper.get_errno()  # its exception has the number only as text
            raise OSError(number, os.strerror(number), path) from refused
        except UnicodeEncodeError as refused:
            raise OSError(errno.EILSEQ, os.strerror(errno.EILSEQ), path) from refused
        return next(iter(found.values()))

    def forget(self, watch: InotifyWatch) -> None:
        """Called by `InotifyWatch.close`. The kernel's watch is removed with its last listener."""
        watches = self._watches.get(watch.wd)
        if watches is None or watch not in watches:
            return
        watches.remove(watch)
        if not watches:
            del self._watches[watch.wd]
            self._manager.rm_watch(watch.wd, quiet=True)

    def _readable(self) -> None:
        """Read once, bounded, in each turn of the loop; the descriptor is level-triggered, so the rest comes next
        turn."""
        try:
            data = os.read(self._fd, _READ_BYTES)
        except BlockingIOError:
            return
        for item in parse(data):
            self.dispatch(item)

    def dispatch(self, item: Item) -> None:
        """Fans one item out. Each listener is a callback of its own, so that one that fails takes no other with it."""
        for watch in self._meant(item):
            self._call(watch, item)
        if self._on_the_way:
            self._early = self._early if len(self._early) < _MOST_EARLY else [Overflow()]
            self._early.append(item)
        if is_end(item):
            self._gone(item.wd)

    def _call(self, watch: InotifyWatch, item: Item) -> None:
        (self._loop or asyncio.get_running_loop()).call_soon(watch.pass_on, item)

    def _gone(self, wd: int) -> None:
        """The kernel has dropped it: path deleted or unmounted."""
        if self._watches.pop(wd, None) is not None and self._manager.get_path(wd) is not None:
            self._manager.del_watch(wd)

    def _meant(self, item: Item) -> tuple[InotifyWatch, ...]:
        if isinstance(item, FileChange):
            return tuple(self._watches.get(item.wd, ()))
        return tuple(watch for watches in self._watches.values() for watch in watches)

    def close(self) -> None:
        """End all watches. Repeatable."""
        if self._closed:
            return
        self._closed = True
        if self._loop is not None and not self._loop.is_closed():
            self._loop.remove_reader(self._fd)
        self._watches.clear()
        self._manager.close()
