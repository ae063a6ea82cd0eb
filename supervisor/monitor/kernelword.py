"""What the kernel itself reports about a process's end. Only this module knows which of the two ways is used.

From Linux 6.15 on, a pidfd keeps the wait status of a process that another process has reaped. On older kernels the
process events connector reports ends to its listeners as they happen (`procevents`). For neither does exitd have to be
the parent.

The connector's events come from the kernel's own address: otherwise any process with CAP_NET_ADMIN could send some.
"""

import asyncio
import errno
import functools
import os
import secrets
import select
import socket
import struct
from array import array
from collections.abc import Callable

import structlog

from shim import native
from shim.frozen import frozen
from supervisor.config.settings import KernelWitness
from supervisor.model.values import Process, Source
from supervisor.monitor import epoll, procevents, procfs
from supervisor.monitor.procevents import Answered, Lives, Standing, Threads
from supervisor.system import room

BUFFER_BYTES = 2 << 20  # about five thousand events
ANSWER_SECONDS = 0.2  # the kernel answers before the request returns, or never; the loop waits for it
EVENTS_AT_ONCE = 1024
MOST_DRAINS = 8  # as many events as the socket can hold
REST_SECONDS = 0.05  # after reading: waking up for each event would cost ten times as much as reading it
SEEN_AT_ONCE = 100  # processes whose threads are read in one turn of the loop
SEE_MORE_SECONDS = 0.01  # until the next ones
SEE_AGAIN_SECONDS = 1.0  # between two reads of all held processes, after lost events
MOST_THREADS = 1024  # of a process whose end can be observed
COMPLAINT_SECONDS = 60.0  # between two log lines about lost events
_SO_ATTACH_FILTER, _SO_RCVBUFFORCE = 26, 33

log = structlog.get_logger(__name__)


@frozen
class KernelStatus:
    """A wait status and the process it is of. Without a status: whether it may still come. `executed`: the kernel has
    reported that the process executed a program since it was held."""

    status: int | None = None
    source: Source = Source.NONE
    is_coming: bool = False
    executed: bool = False


NO_WORD = KernelStatus()


class KernelWord:
    """`trouble` says why the kernel is no witness here; empty if it is one. This base class never is."""

    witness = KernelWitness.NONE

    def __init__(self, trouble: str = "") -> None:
        self.trouble = trouble

    def hold(self, process: Process, pidfd: int) -> None:
        """Observe the end of this process from now on. The descriptor stays the caller's, and open until `let_go`."""

    def let_go(self, process: Process, pidfd: int) -> None:
        """Stop observing the process. Repeatable."""

    def of(self, process: Process, pidfd: int) -> KernelStatus:
        """Return the status of a held process that is dead, as its pidfd shows."""
        return NO_WORD

    def close(self) -> None:
        """Repeatable."""


class ByPidfd(KernelWord):
    """By pidfd, from Linux 6.15. It knows reaped processes only. The status is that of the whole process, also if the
    first thread had exited alone and another exited after it (kernel/exit.c: release_task). One exception: if the first
    thread exits alone at the moment in which another thread ends the whole process, and is the last to go, the status
    is its own: 0, unless it calls exit(2) itself, bypassing its C library."""

    witness = KernelWitness.PIDFD

    def of(self, process: Process, pidfd: int) -> KernelStatus:
        try:
            return KernelStatus(native.pidfd_exit_status(pidfd), Source.PIDFD)
        except OSError:  # this kernel does not report it
            return NO_WORD


BY_PIDFD = ByPidfd()


class ByEvents(KernelWord):
    """By the process events connector, which the event loop listens to. One per daemon."""

    witness = KernelWitness.PROCEVENTS

    def __init__(self, watcher: epoll.Monitor, buffer_bytes: int = BUFFER_BYTES) -> None:
        """Raises OSError, with a text that says why, when the connector cannot be listened to."""
        super().__init__()
        self._held: dict[Process, list[int]] = {}
        self._lives = Lives(self._threads_of)
        self._is_behind = False  # some held processes have to be checked for being alive once the socket is empty
        self._is_seeing = False  # some of them have been checked
        self._see_at = 0.0  # loop time of the next check at the earliest
        self._complained_at = -COMPLAINT_SECONDS
        self._accepts_all = False
        self._watcher = watcher
        self._resting: asyncio.TimerHandle | None = None
        self._socket = listen(buffer_bytes)
        self._watch()

    def hold(self, process: Process, pidfd: int) -> None:
        fds = self._held.setdefault(process, [])
        if pidfd not in fds:
            fds.append(pidfd)
        self._lives.add(process)
        try:
            self._filter()
        except OSError as error:
            log.warning("an end may be unknown: no filter for process events", pid=process.pid, why=str(error))
            self._lives.miss(process)
            return
        if self._drain() and not self._is_behind:
            self._lives.see(process)
        else:
            self._is_behind = True

    def let_go(self, process: Process, pidfd: int) -> None:
        fds = self._held.get(process, [])
        if pidfd in fds:
            fds.remove(pidfd)
        if not fds and self._held.pop(process, None) is not None:
            self._lives.remove(process)

    def of(self, process: Process, pidfd: int) -> KernelStatus:
        is_all = self._drain()
        standing, status = self._lives.standing(process)
        executed = bool(self._lives.has_executed(process))
        if not is_all or standing is Standing.GOING_ON:
            return KernelStatus(is_coming=standing is not Standing.LOST, executed=executed)
        if standing is Standing.ENDED:
            return KernelStatus(status, Source.PROCEVENTS, executed=executed)
        return KernelStatus(executed=executed)

    def has_executed(self, process: Process) -> bool | None:
        """Return whether the process executed a program since it was held; None if that is not known. execve(2) itself
        sends the event: of a call that has returned, or a process that has ended, no event is still to come."""
        is_all = any(self._drain() for _ in range(MOST_DRAINS))
        executed = self._lives.has_executed(process)
        return executed if executed or is_all else None

    def close(self) -> None:
        if self._resting is not None:
            self._resting.cancel()
        if self._socket.fileno() >= 0:
            self._watcher.unwatch(self._socket.fileno())
            stop_listening(self._socket)

    def _filter(self) -> None:
        """Attach a filter: ends of other processes do not wake the daemon, unless it has too many of its own. Raises
        OSError."""
        if len(self._held) <= procevents.MOST_EXACT:
            try:
                attach(self._socket, procevents.accepts(self._lives.pids))
                self._accepts_all = False
                return
            except OSError as error:
                if error.errno != errno.ENOMEM:  # net.core.optmem_max
                    raise
        if not self._accepts_all:
            attach(self._socket, procevents.accepts_all())
            self._accepts_all = True

    def _watch(self) -> None:
        self._resting = None
        try:
            self._watcher.watch(self._socket.fileno(), select.EPOLLIN, self._readable)
        except OSError as error:  # ENOSPC: max_user_watches
            log.warning("process events are read late", why=error.strerror)
            self._rest()
        if self._is_behind:
            self._drain()

    def _readable(self, _: int) -> None:
        """Read for a limited time, however many threads begin and end."""
        self._drain()
        self._rest()

    def _rest(self, seconds: float = REST_SECONDS) -> None:
        if self._resting is None:
            self._watcher.unwatch(self._socket.fileno())
            self._resting = asyncio.get_running_loop().call_later(seconds, self._watch)

    def _drain(self) -> bool:
        """Return False if there may be more. After a loss the kernel sends nothing until all has been read."""
        for _ in range(EVENTS_AT_ONCE):
            try:
                data, sender = self._socket.recvfrom(procevents.MESSAGE_BYTES)
            except BlockingIOError:
                if self._is_behind:
                    self._see_some()
                return True
            except OSError as error:
                self._lose(error)
                continue
            if sender[0] == 0:
                self._lives.take(procevents.parse(data))
        return False

    def _see_some(self) -> None:
        """Check some of the held processes. The socket is empty, so every later event will be received."""
        now = asyncio.get_running_loop().time()
        if not self._is_seeing:
            if now < self._see_at:
                self._rest()
                return
            self._is_seeing, self._see_at = True, now + SEE_AGAIN_SECONDS
        if not self._lives.see_some(SEEN_AT_ONCE):
            self._rest(SEE_MORE_SECONDS)
            return
        self._is_behind = self._is_seeing = False
        log.debug("process events come again")

    def _lose(self, error: OSError) -> None:
        """ENOBUFS or any other error: the events so far prove nothing any more."""
        self._is_behind, self._is_seeing = True, False
        self._lives.lose()
        now = asyncio.get_running_loop().time()
        if now >= self._complained_at + COMPLAINT_SECONDS:
            self._complained_at = now
            log.warning("process events were lost; what lives is watched on", why=error.strerror)

    def _threads_of(self, process: Process) -> Threads | None:
        """Check that the process is alive before and after reading, so that the pid was not another's in between."""
        pidfd = self._held[process][-1]
        if epoll.read_ready(pidfd):
            return None
        try:
            found = [each for each in procfs.threads(process.pid, MOST_THREADS) if not each.is_dead]
        except OSError as error:
            log.warning("an end may be unknown: threads cannot be read", pid=process.pid, why=str(error))
            return None
        if epoll.read_ready(pidfd):
            return None
        return Threads(frozenset(each.tid for each in found), all(each.is_ending for each in found))


class Executions:
    """Which processes that wait for their start have executed a program since, by the process events; also after the
    parent has reaped them. One per daemon.

    If the kernel's reports do not come from these events, exitd listens to them only while a process is held here: the
    kernel makes no events without a listener.
    """

    def __init__(self, kernel: KernelWord, listening: Callable[[], ByEvents] | None = None) -> None:
        """`kernel` also holds every process that is held here. `listening` begins to listen and raises OSError; None:
        not wanted."""
        self._kernel = kernel if isinstance(kernel, ByEvents) else None
        self._listening = listening
        self._own: ByEvents | None = None
        self._held: dict[Process, int] = {}  # with its pidfd

    def hold(self, process: Process, pidfd: int) -> None:
        """Watch a process that has executed nothing yet. The descriptor stays the caller's, and open until `let_go`."""
        if self._kernel is None and self._own is None and self._listening is not None:
            try:
                self._own = self._listening()
            except OSError as error:
                log.info("a program that the kernel refuses under another's shim is not seen", why=str(error))
                if not room.is_used_up(error):  # otherwise the next attempt may succeed
                    self._listening = None
        self._held[process] = pidfd
        if self._own is not None:
            self._own.hold(process, pidfd)

    @property
    def are_reported(self) -> bool:
        """Return whether the kernel reports executions of what is held."""
        return self._kernel is not None or self._own is not None

    def of(self, process: Process) -> bool | None:
        """Return whether it has executed a program since it was held; None if it is not held, or if that is not
        known."""
        events = self._kernel or self._own
        return events.has_executed(process) if events is not None and process in self._held else None

    def let_go(self, process: Process) -> None:
        """Stop watching the process. Repeatable."""
        pidfd = self._held.pop(process, None)
        if self._own is None or pidfd is None:
            return
        self._own.let_go(process, pidfd)
        if not self._held:
            self._own.close()
            self._own = None

    def close(self) -> None:
        """Repeatable."""
        for process in list(self._held):
            self.let_go(process)


def chosen(wanted: KernelWitness, watcher: epoll.Monitor, pidfd_trouble: str) -> KernelWord:
    """Return the best available way that the configuration permits. `pidfd_trouble`: why pidfds keep no status here;
    empty if they do."""
    trouble = [f"the configuration says kernel_witness = {wanted.value}"] if wanted is not KernelWitness.AUTO else []
    if wanted in (KernelWitness.AUTO, KernelWitness.PIDFD):
        if not pidfd_trouble:
            return BY_PIDFD
        trouble.append(pidfd_trouble)
    if wanted in (KernelWitness.AUTO, KernelWitness.PROCEVENTS):
        try:
            return ByEvents(watcher)
        except OSError as error:
            trouble.append(error.strerror or str(error))
    if wanted is not KernelWitness.NONE:
        log.warning("the kernel is no witness of ends here", why="; ".join(trouble))
    return KernelWord("; ".join(trouble))


def executions(wanted: KernelWitness, watcher: epoll.Monitor, kernel: KernelWord) -> Executions:
    """Return what observes starts. `kernel` is the result of `chosen`. A configuration that names a way to observe ends
    names it for starts, too."""
    return Executions(kernel, functools.partial(ByEvents, watcher) if wanted is KernelWitness.AUTO else None)


# -- the connector's socket


def listen(buffer_bytes: int = BUFFER_BYTES) -> socket.socket:
    """Return a non-blocking socket that gets no events before a filter that admits them is attached. Raises OSError
    with a text that says what is missing."""
    try:
        sock = socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC, procevents.PROTOCOL)
    except OSError as error:
        raise OSError(error.errno, f"the kernel has no connector: {error.strerror}") from error
    try:
        attach(sock, procevents.accepts(()))
        sock.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, buffer_bytes)
        sock.bind((0, procevents.GROUP))
        _ask_for_events(sock)
    except BaseException as error:
        sock.close()
        if isinstance(error, PermissionError):
            raise PermissionError(error.errno, "the process events connector needs CAP_NET_ADMIN") from error
        if isinstance(error, ConnectionRefusedError):
            text = "no process events connector in this network namespace, or in this kernel"
            raise ConnectionRefusedError(error.errno, text) from error
        raise
    sock.setblocking(False)
    return sock


def _ask_for_events(sock: socket.socket) -> None:
    number = secrets.randbits(31)
    sock.settimeout(ANSWER_SECONDS)
    sock.sendto(procevents.request(procevents.LISTEN, number), (0, 0))
    try:
        while True:
            data, sender = sock.recvfrom(procevents.MESSAGE_BYTES)
            answer = procevents.parse(data)
            if sender[0] == 0 and isinstance(answer, Answered) and answer.number == number:
                break
    except TimeoutError as error:
        text = "the kernel reports no process events here: no CONFIG_PROC_EVENTS, or not in its first pid namespace"
        raise OSError(errno.EOPNOTSUPP, text) from error
    if answer.error:
        raise OSError(answer.error, os.strerror(answer.error))


def stop_listening(sock: socket.socket) -> None:
    """Unsubscribe: a kernel before 6.6 would go on making events for a socket that was merely closed."""
    try:
        sock.sendto(procevents.request(procevents.IGNORE, 0), (0, 0))
    except OSError as error:
        log.debug("not unsubscribed from process events", why=str(error))
    sock.close()


def attach(sock: socket.socket, program: bytes) -> None:
    """Replace the socket's filter. Raises OSError."""
    held = array("B", program)  # struct sock_fprog holds its address
    count = len(program) // procevents.INSTRUCTION_BYTES
    sock.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, struct.pack("@HP", count, held.buffer_info()[0]))
