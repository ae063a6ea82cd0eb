"""The daemon's connection to exitd-keeper: requests in turn, each with a limit, and news in between."""

import asyncio
import contextlib
import errno
import fnmatch
import os
import socket
import subprocess
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import structlog

from shim import fields, journal, launch, prepare
from shim.record import Record
from shim.undo import undone_on_failure
from supervisor.model.errnos import USED_UP
from supervisor.model.errors import ShimFailed
from supervisor.model.values import Process
from supervisor.system import room
from supervisor.system.waitlimit import WaitLimit

ANSWER_SECONDS = 2.0
AT_ONCE = 32  # requests at once: more would overflow the socket, and the loss would look like the keeper's death
REST_SECONDS = 5.0  # for this long no request is sent to a keeper that did not answer

log = structlog.get_logger(__name__)


class KeeperSilent(Exception):
    """The keeper is gone, is stopped, or could not be started. The caller goes on without this witness.

    `is_gone`: it is certain that no keeper is there, not even one that is slow or is being upgraded. `may_be_there`:
    one was connected until now; it does not answer now, or the next one may be there in a moment. `was_closed`: it had
    the request, may have done it, and closed the connection."""

    is_gone = False
    may_be_there = False
    was_closed = False


def _for_now(why: str, *, was_closed: bool = False) -> KeeperSilent:
    silent = KeeperSilent(why)
    silent.may_be_there, silent.was_closed = True, was_closed
    return silent


class JournalUnread(Exception):
    """It is not known whether the keeper has seen an end, because a journal cannot be read."""


def used_up(error: KeeperSilent | launch.KeeperRefused) -> OSError | None:
    """Return what was used up, so that the keeper could not be asked, or could not answer: asked again, it may. None:
    it has refused, is gone, or stands still, of which a full queue of connections (EAGAIN) is a sign."""
    if isinstance(error, launch.KeeperRefused):
        return OSError(error.number, os.strerror(error.number)) if error.number in USED_UP else None
    cause = error.__cause__
    if isinstance(cause, OSError) and room.is_used_up(cause) and cause.errno != errno.EAGAIN:
        return cause
    return None


Answer = tuple[fields.Message, list[int]]


class Keeper:
    """One connection, opened when it is needed; if no keeper runs, one is started."""

    def __init__(
        self,
        state: str,
        program: str,
        on_news: Callable[[], None],
        *,
        may_start: bool = True,
        on_lost: Callable[[], None] = lambda: None,
    ) -> None:
        """`may_start` False: the service manager starts keepers; one that exitd started would be in the wrong cgroup.
        `on_lost` is called when the connection breaks, for instance because the keeper has died."""
        self.state = state
        self.program = program
        self.process: Process | None = None
        self._on_news = on_news
        self._on_lost = on_lost
        self._may_start = may_start
        self._socket: socket.socket | None = None
        self._waiting: deque[asyncio.Future[Answer]] = deque()
        self._answers = WaitLimit(ANSWER_SECONDS)
        self._opening = asyncio.Lock()
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._rest_until = 0.0
        self._renewed = False
        self._closed = False
        self._gives_no_copies = False  # logged already
        self._unread: set[Path] = set()

    @property
    def connected(self) -> bool:
        return self._socket is not None

    async def greet(self) -> None:
        """Connect to the keeper that runs, so that it is known before it is needed. None is started for this."""
        with contextlib.suppress(KeeperSilent, launch.KeeperRefused):
            await self._open(may_start=False)

    async def ask(self, request: bytes, descriptors: Sequence[int] = ()) -> Answer:
        """Return the keeper's answer and the descriptors that came with it, which the caller closes. Raises
        KeeperSilent, or launch.KeeperRefused when the keeper refuses."""
        if self._socket is None:
            await self._open()
        async with self._turns:
            future = self._send(request, descriptors)
            try:
                return await self._answers.of(future)
            except TimeoutError as error:
                self._rest_until = asyncio.get_running_loop().time() + REST_SECONDS
                self._drop("no answer")
                raise _for_now(f"no answer in {ANSWER_SECONDS} s") from error
            except asyncio.CancelledError:
                _disown(future)
                raise

    def _send(self, request: bytes, descriptors: Sequence[int]) -> asyncio.Future[Answer]:
        if self._socket is None:  # lost since it was opened
            raise _for_now("connection lost")
        try:
            socket.send_fds(self._socket, [request], list(descriptors))
        except OSError as error:
            if error.errno in USED_UP:  # nothing was sent, and the keeper is unaffected
                raise launch.KeeperRefused("the request cannot be passed on now", error.errno or 0) from error
            self._drop(f"send: {error.strerror}")
            raise _for_now(str(error)) from error
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        return future

    async def spawn(self, request: bytes, descriptors: Sequence[int]) -> tuple[int, int, int]:
        """Return pid, start time and pidfd of a new shim. The pidfd is -1 if this process had no room for a descriptor;
        the shim has begun nevertheless. Raises KeeperRefused when it has not begun, KeeperSilent."""
        message, passed = await self.ask(request, descriptors)
        return message.number("pid"), message.number("started"), passed[0] if passed else -1

    async def acknowledge(self, container: str, run: int, exec_id: str = "") -> None:
        """Report that the exit is stored, so that the keeper may forget the run. If the keeper is silent, the reconcile
        loop repeats this."""
        with contextlib.suppress(KeeperSilent, launch.KeeperRefused):
            await self.ask(fields.encode("exitd-ack", launch.key(container, run, exec_id)))

    async def copies(self, container: str, run: int, exec_id: str = "") -> dict[int, int]:
        """Return copies of the descriptors that a replacement shim of this run needs, by slot, except the input's. The
        caller closes them. Empty if not all of them came through, or if the keeper is of a version that gives none.
        Raises KeeperSilent, KeeperRefused."""
        try:
            message, passed = await self.ask(fields.encode("exitd-copies", launch.key(container, run, exec_id)))
        except launch.KeeperRefused as error:
            if error.number != errno.ENOSYS:
                raise
            self._miss_copies()
            return {}
        slots = [int(value) for name, value in message.pairs if name == "seat" and value.isdecimal()]
        if len(slots) != len(passed):
            _close_all(passed)
            return {}
        return dict(zip(slots, passed, strict=True))

    def _miss_copies(self) -> None:
        """Log once that the keeper is of a version that does not know the request."""
        if not self._gives_no_copies:
            log.warning("the keeper gives exitd no copies of the output until it is upgraded", state=self.state)
        self._gives_no_copies = True

    def is_there(self) -> bool:
        """Return whether some keeper holds the socket, however silent it is. Blocks for a moment."""
        try:
            launch.connect(self.state, timeout_seconds=0).close()
        except (FileNotFoundError, ConnectionRefusedError):
            return False
        except OSError:  # its queue is full, or there is no descriptor to ask with
            return True
        return True

    async def run_count(self) -> int:
        """Return how many runs the keeper knows, execs included. Raises KeeperSilent, launch.KeeperRefused; BadMessage
        when the answer has no number."""
        return (await self._greeting()).number("runs")

    async def runs(self) -> list[fields.Message]:
        """Return every run that the keeper knows. Raises KeeperSilent."""
        found: list[fields.Message] = []
        while True:
            message, _ = await self.ask(fields.encode("exitd-list", [("at", len(found))]))
            if message.kind != "exitd-run":
                return found
            found.append(message)

    def entry(self, container: str, run: int, exec_id: str = "") -> Record | None:
        """Return the exit of this run from the journal of any keeper, dead ones included; None if it is in no journal.
        Raises JournalUnread when it is in none of the readable ones, and others cannot be read."""
        found, unread = self.entries()
        entry = found.get((container, run, exec_id))
        if entry is None and unread:
            raise JournalUnread(f"{unread[0]} cannot be read")
        return entry

    def entries(self) -> tuple[dict[tuple[str, int, str], Record], list[Path]]:
        """Return all unacknowledged exits from the journals of all keepers, dead ones included, by (container, run,
        exec); and the journals that cannot be read and may have more. Raises OSError when there are no descriptors or
        memory to look."""
        found: dict[tuple[str, int, str], Record] = {}
        unread: list[Path] = []
        try:
            paths = _journals(self.state)
        except OSError as error:  # the exit may be in there, and cannot be read even later
            if room.is_used_up(error):
                raise
            paths, unread = [], [Path(self.state)]
            self._complain(unread[0], error)
        for path in paths:
            try:
                for entry in _journalled(path):
                    found[entry.id, entry.run, entry.exec_id] = entry
            except (OSError, journal.BadJournal) as error:
                if room.is_used_up(error):
                    raise
                unread.append(path)
                self._complain(path, error)
        return found, unread

    def _complain(self, path: Path, error: Exception) -> None:
        """Log it once for each journal."""
        if path not in self._unread:
            log.warning("a keeper's journal cannot be read", path=str(path), why=str(error))
        self._unread.add(path)

    def close(self) -> None:
        """A later request finds it silent, and starts none."""
        self._closed = True
        self._on_lost = lambda: None
        self._drop("closing")

    async def _open(self, *, may_start: bool = True) -> None:
        async with self._opening:
            if self._socket is not None:
                return
            if self._closed:
                raise KeeperSilent("closed")
            if asyncio.get_running_loop().time() < self._rest_until:
                raise _for_now("it did not answer a moment ago")
            try:
                self._attach(self._connect() or await self._start(may_start=may_start and self._may_start))
            except OSError as error:
                silent = KeeperSilent(f"{self.state}/{launch.SOCKET_NAME}: {error}")
                silent.is_gone = error.errno in (errno.ENOENT, errno.ECONNREFUSED)
                raise silent from error
        message = await self._greeting()
        if message.kind == "exitd-keeper" and not message.get("seats") and not self._renewed:
            message = await self._renew()
        try:
            process = Process(message.number("pid"), 0)
        except fields.BadMessage as error:
            self._drop(f"not understood: {error}")
            raise KeeperSilent(str(error)) from error
        if self.connected:  # it may be lost again by now
            self.process = process

    async def _greeting(self) -> fields.Message:
        return (await self.ask(fields.encode("exitd-hello", [])))[0]

    async def _renew(self) -> fields.Message:
        """Ask a keeper from before the slots had names to execute the program that is installed now. Tried once."""
        self._renewed = True
        log.warning("the keeper is of an older version, renewing it", state=self.state)
        await self.ask(fields.encode("exitd-upgrade", []))
        self._drop("it is being renewed")
        return await self._greeting()

    def _connect(self) -> socket.socket | None:
        try:
            return launch.connect(self.state)
        except (FileNotFoundError, ConnectionRefusedError):
            return None

    async def _start(self, *, may_start: bool) -> socket.socket:
        """Start a keeper. Its first process ends once it listens; exit status 4 means that another keeper was
        quicker."""
        if not may_start:
            raise FileNotFoundError("exitd-keeper is not running, and starting it is not this daemon's")
        status = await asyncio.to_thread(_run_to_its_background, [self.program, "--state", self.state])
        log.info("keeper started", state=self.state, status=status)
        if status not in (0, 4):
            raise OSError(f"exitd-keeper ended with {status}")
        return launch.connect(self.state)

    def _attach(self, sock: socket.socket) -> None:
        """Raises OSError when there is no room to listen to its answers; the connection is closed then."""
        with undone_on_failure(sock.close):
            sock.setblocking(False)
            asyncio.get_running_loop().add_reader(sock.fileno(), self._readable)
        self._socket = sock

    def _readable(self) -> None:
        while self._socket is not None:
            try:
                data, descriptors = launch.receive(self._socket)
            except BlockingIOError:
                return
            except OSError as error:
                return self._drop(str(error), was_closed=True)
            if not data:
                return self._drop("it closed the connection", was_closed=True)
            try:
                self._dispatch(fields.decode(data), descriptors)
            except fields.BadMessage as error:  # it is no longer known which answer belongs to which request
                _close_all(descriptors)
                return self._drop(f"not understood: {error}")

    def _dispatch(self, message: fields.Message, descriptors: list[int]) -> None:
        if message.kind == "exitd-news":
            return self._on_news()
        refusal = None
        if message.kind == "exitd-refused":
            refusal = launch.KeeperRefused(message.get("why"), message.number("errno"))
        future = self._waiting.popleft() if self._waiting else None
        if future is None or future.done():  # the request was given up: close the descriptors of the answer
            _close_all(descriptors)
        elif refusal is not None:
            future.set_exception(refusal)
        else:
            future.set_result((message, descriptors))

    def _drop(self, why: str, *, was_closed: bool = False) -> None:
        """End the connection, and all requests that wait for an answer. A keeper that stands still has what was sent to
        it in its queue, descriptors included: it may do all that yet."""
        if self._socket is None:
            return
        log.warning("keeper connection lost", why=why)
        asyncio.get_running_loop().remove_reader(self._socket.fileno())
        self._socket.close()
        self._socket = None
        self.process = None
        waiting, self._waiting = self._waiting, deque()
        for future in waiting:
            if not future.done():
                future.set_exception(_for_now(why, was_closed=was_closed))
        self._on_lost()


def _journals(state: str) -> list[Path]:
    """Return the journals of all keepers there were. Raises OSError for lack of descriptors, where glob would find
    none."""
    try:
        names = os.listdir(state)
    except FileNotFoundError:
        return []
    return [Path(state, name) for name in names if fnmatch.fnmatch(name, "keeper-*.journal")]


def _journalled(path: Path) -> tuple[Record, ...]:
    """Return the exits in a journal; none if it was removed or has no header yet. Raises OSError, BadJournal."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return ()
    return journal.read(data).entries if data.strip(b"\0") else ()


def _disown(future: asyncio.Future[Answer]) -> None:
    """Give up a request, whose answer may have arrived at the same moment."""
    if not future.cancel() and not future.cancelled() and future.exception() is None:
        _close_all(future.result()[1])


def _close_all(descriptors: Sequence[int]) -> None:
    for fd in descriptors:
        os.close(fd)


def _run_to_its_background(command: list[str]) -> int:
    """Return the exit status of a program that daemonizes. It is run in a thread: a keeper is no runtime command and
    must not die with the process that started it."""
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        cwd="/",
    )
    try:
        return process.wait(ANSWER_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


def spawn_directly(program: str, container: str, directory: str, fds: Mapping[int, int], *, adopt: bool) -> int:
    """Return the pid of a shim that is the daemon's own child, for when there is no keeper; that witness is then
    missing.

    `fds` maps each slot to a descriptor. The sources are copies above the slots, so that none is overwritten before
    its turn. posix_spawn cannot change the directory: the daemon, whose own is / and which uses no relative paths,
    steps into the run directory for the length of the call. Raises ShimFailed when the program or the directory is
    gone, Busy when there is no room for the copies.
    """
    argv = ["exitd-shim", container, *(["--adopt"] if adopt else [])]
    copies: list[int] = []
    try:
        for fd in fds.values():
            copies.append(prepare.above_slots(fd))
        actions = [(os.POSIX_SPAWN_DUP2, fd, slot) for slot, fd in zip(fds, copies, strict=True)]
        os.chdir(directory)
        return os.posix_spawn(program, argv, {"PATH": os.defpath}, file_actions=actions)
    except OSError as error:
        if room.is_used_up(error):
            raise room.busy(f"a shim in {directory}", error.strerror) from error
        raise ShimFailed(f"{program} in {directory}: {error.strerror}") from error
    finally:
        os.chdir("/")
        _close_all(copies)
