"""The files of containers for the event loop: copied, exported and compared in threads, while the container stays.

A container is removed only after the last of these works has ended, and none begins once its removal has; so none sees
half a tree. A work ends when its client takes or sends nothing for a while, and one that goes on for a minute beside a
removal is broken off, so that no container stays for ever.
"""

import asyncio
import contextlib
import os
import stat
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterator
from contextlib import AbstractContextManager, aclosing
from datetime import UTC, datetime
from functools import partial
from typing import Protocol, TypeVar

import structlog

from supervisor.engine.containers import is_over
from supervisor.engine.ending import made
from supervisor.engine.imageservice import ImageService
from supervisor.engine.node import GONE_SECONDS, Node
from supervisor.engine.operations import Operations, Settings
from supervisor.engine.participants import Participant
from supervisor.images import changes, extract, instructions, pack, tar
from supervisor.images.facts import Image
from supervisor.model import lifecycle
from supervisor.model.errors import ExitdError, NoSuchContainer, ShimFailed, TimedOut, WrongState
from supervisor.model.files import LayerChange, PathStat
from supervisor.model.health import is_being_ended
from supervisor.model.ownaddress import as_run
from supervisor.model.values import LIVE, By, Container, Phase, RunKey
from supervisor.monitor import epoll
from supervisor.runtime.oci import bundle, namefiles, rootfs, view
from supervisor.runtime.oci.view import FilesView
from supervisor.system.aside import Aside
from supervisor.system.background import retry
from supervisor.system.conduit import Inflow, Outflow, StreamOver

log = structlog.get_logger(__name__)

MOST_AT_ONCE = 16
WORK_SECONDS = 86_400.0  # its clients' and file systems' stalls end a work long before
LOOK_SECONDS = 30.0
END_SECONDS = 10.0  # from the end of an init that is known to be over until it is stored
FREEZE_SECONDS = 60.0  # that a thread waits until its container is frozen
FROZEN_SECONDS = 600.0  # that a layer may take to be read while its container is frozen
LAST_SECONDS = 60.0  # that works go on beside a removal which waits for them
# What a runtime makes in the root to mount on; nothing of it is the container's.
MADE_PLACES = frozenset({*namefiles.PLACES.values(), "/dev", "/proc", "/sys", "/dev/pts", "/dev/shm", "/dev/mqueue"})
FROZEN = "frozen-for-commit"  # a file in the container's directory
THAW = By(policy="commit")
RESTS = frozenset({Phase.EXITED, Phase.RESTARTING})

T = TypeVar("T")
Parts = Generator[bytes, None, None]  # to be closed: it holds descriptors
Opened = Callable[[], AbstractContextManager[FilesView]]


class FileService(Participant):
    """Implements `supervisor.api.files.FileCalls`."""

    def __init__(self, node: Node, operations: Operations, images: ImageService, settings: Settings) -> None:
        self._node, self._operations, self._images = node, operations, images
        self._containers, self._now = node.containers, settings.now
        self._root, self._state = settings.root, settings.state
        self._works = Aside(MOST_AT_ONCE, WORK_SECONDS)
        self._looks = Aside(MOST_AT_ONCE, LOOK_SECONDS)
        self._users: dict[str, set[_Use]] = {}  # works under way, by container
        self._unused: dict[str, list[asyncio.Event]] = {}
        self._turns: dict[str, asyncio.Lock] = {}  # of mounting a root that no run has
        self._commits: dict[str, asyncio.Lock] = {}  # of freezing one and reading its layer
        self._left: asyncio.Future[tuple[str, ...]] | None = None  # those with a mark of an earlier exitd
        self._thaws: dict[str, asyncio.Event] = {}  # set at the end of the one that is under way

    # -- a participant of the containers' life

    async def before_make(self, container_id: str) -> None:
        """A mount that is being made comes first, so that no overlay is mounted twice."""
        if (turn := self._turns.get(container_id)) is not None:
            await _taken(turn, "the mount of its files")
            turn.release()

    async def before_find(self, container_id: str) -> None:
        """An end that is taken up waits for `thaw_left`."""
        if self._left is None:  # one look for all that an earlier exitd had
            self._left = asyncio.ensure_future(self._marked())
        if container_id in await asyncio.shield(self._left):
            self._node.frozen.add(container_id)

    async def removing(self, container_id: str) -> None:
        """Wait for the works on it; those that go on for long are broken off."""
        if users := self._users.get(container_id):
            unused = asyncio.Event()
            self._unused.setdefault(container_id, []).append(unused)
            try:
                async with asyncio.timeout(LAST_SECONDS):
                    await unused.wait()
            except TimeoutError:
                log.warning("works on the files of a container are broken off for its removal", container=container_id)
                for use in tuple(users):
                    use.break_off(WrongState(f"{use.container.spec.name} is being removed", id=container_id))
                await unused.wait()
        self._turns.pop(container_id, None)
        self._commits.pop(container_id, None)

    # -- what callers ask

    async def stat_path(self, id: str, path: str, follow: bool) -> PathStat:
        """Return what the path is, as the container sees it. `follow`: of a link at its end, what the link leads to.
        Raises NoSuchPath; WrongState when the container ends or is removed meanwhile; Unsupported where its root is
        this machine's own; TimedOut, Busy."""
        use = await self._use(id)
        opened = await self._opened(use)
        work = use.until_done(lambda: _stat(opened, path, follow=follow))
        return await self._looks.run(f"looking at {path}", work, late=use.end)

    async def copy_from(self, id: str, path: str, follow: bool, name: str) -> AsyncGenerator[bytes, None]:
        """Yield a tar of the path, in pieces. `follow`: as in `stat_path`. `name`: of the path in the tar; empty: its
        last part. Raises NoSuchPath; WrongState when the container ends or is removed meanwhile; Unsupported where its
        root is this machine's own; TimedOut, Busy."""
        use = await self._use(id)
        ids = use.container.spec.ids

        def send(seen: FilesView) -> Parts:
            fd = seen.open(path, follow=follow)
            try:
                yield from pack.pack(fd, name or last_part(path), cross=seen.cross, fuse=seen.on_fuse, ids=ids)
            finally:
                os.close(fd)

        async with aclosing(self._stream(use, f"copying {path}", send)) as parts:
            async for part in parts:
                yield part

    async def copy_to(
        self, id: str, directory: str, keep_owner: bool, begun: Callable[[], None], parts: AsyncIterator[bytes]
    ) -> "extract.ExtractedCounts":
        """`begun` is called once the directory is found. Raises what `extract` does, NoSuchPath, TimedOut."""
        use = await self._use(id)
        opened = await self._opened(use)
        what, keeping = f"copying to {directory}", extract.Keeping(keep_owner, xattrs=True, ids=use.container.spec.ids)
        inflow = use.broken_off_by(Inflow(what))
        ready = asyncio.Event()
        loop = asyncio.get_running_loop()

        def receive() -> "extract.ExtractedCounts":
            try:
                with opened() as seen, _directory(seen, directory) as into_fd:
                    loop.call_soon_threadsafe(ready.set)
                    made = _put(inflow, into_fd, keeping, seen.cross_to_write)
                    seen.check()
                    return made
            finally:
                with contextlib.suppress(StreamOver):
                    inflow.taken()

        work = asyncio.ensure_future(self._works.run(what, use.until_done(receive), late=use.end))
        waiting = asyncio.ensure_future(ready.wait())
        try:
            await asyncio.wait((waiting, work), return_when=asyncio.FIRST_COMPLETED, timeout=LOOK_SECONDS)
            if work.done():
                return work.result()
            if not ready.is_set():
                raise TimedOut(f"{what}: not begun after {LOOK_SECONDS:g} s; does a file system hang?")
            begun()
            async for part in parts:
                if not await inflow.put(part):
                    break
            inflow.finish()
            return await work
        finally:
            inflow.close()
            waiting.cancel()
            work.cancel()

    async def export(self, id: str) -> AsyncGenerator[bytes, None]:
        """Yield a tar of the root file system, in pieces. A directory over which something is mounted is there, and
        empty. Raises as `copy_from`."""
        use = await self._use(id)
        ids = use.container.spec.ids

        def send(seen: FilesView) -> Parts:
            device = os.fstat(seen.root_fd).st_dev

            def shape(found: "pack.FoundEntry") -> "tuple[tar.TarEntry, ...] | None":
                is_mounted = stat.S_ISDIR(found.status.st_mode) and found.status.st_dev != device
                return (pack.entry_of(found.name, found.status, ids=ids),) if is_mounted else None

            return pack.pack(seen.root_fd, ".", fuse=seen.on_fuse, shape=shape, ids=ids)

        async with aclosing(self._stream(use, "the export", send, root_only=True)) as parts:
            async for part in parts:
                yield part

    async def changes(self, id: str) -> AsyncGenerator[LayerChange, None]:
        """Yield what the container has changed of its image, from its layer. Raises as `copy_from`; WrongState for a
        pause container, which has no layer of its own."""

        def send(seen: FilesView) -> Parts:
            spec, upper = use.container.spec, self._upper(use.container)
            with _opened_directory(upper) as upper_fd:
                for each in changes.changes(upper_fd, spec.layers or (spec.rootfs,), MADE_PLACES, spec.ids):
                    yield os.fsencode(f"{each.kind} {each.path}\0")

        use = await self._use(id)
        held = b""
        async with aclosing(self._stream(use, "the look at the changes", send, root_only=True)) as parts:
            async for part in parts:
                *whole, held = (held + part).split(b"\0")
                for line in whole:
                    kind, _, path = os.fsdecode(line).partition(" ")
                    yield LayerChange(kind, path)

    async def commit(self, id: str, words: "instructions.CommitWords", name: str, pause: bool, by: By) -> Image:
        """Make an image of the container's image and its layer, which is read while the container is frozen. Thawed
        again whatever happens: see `thaw_left`. Raises WrongState for one that stands on no image of the store."""
        instructions.check(words.changes)
        use = await self._use(id)
        reading = use.broken_off_by(_Reading(f"the commit of {use.container.spec.name}", use.end))
        try:
            return await self._commit(use.container, reading, words, name, by, pause=pause)
        finally:
            if not reading.close():
                use.end()

    async def _commit(
        self,
        container: Container,
        reading: "_Reading",
        words: "instructions.CommitWords",
        name: str,
        by: By,
        *,
        pause: bool,
    ) -> Image:
        """A container is frozen only when a thread is at work that will read it: others' commits may take long."""
        spec = as_run(container)
        if not spec.image_id:
            way = f"exitctl export {spec.name} | exitctl image import - NAME"
            raise WrongState(f"{spec.name} stands on no image of exitd's store; {way} makes one", id=container.id)
        opened = await self._root_way(container)

        def layer() -> Parts:
            with opened(), _opened_directory(self._upper(container)) as upper_fd:
                yield from changes.layer_tar(upper_fd, spec.layers, MADE_PLACES, spec.ids)

        def document(base: bytes, diff_id: str) -> bytes:
            return instructions.document(base, spec, words, diff_id, _utc_text(self._node.clock.now_ns()))

        async with self._commits.setdefault(container.id, asyncio.Lock()):
            work = asyncio.ensure_future(
                self._images.commit(lambda: reading.parts(layer), spec.image_id, document, name)
            )
            try:
                await _first(work, reading.at_work)
                if not work.done():
                    async with self._frozen(container, by) if pause else contextlib.nullcontext():
                        await self._read(reading, work, FROZEN_SECONDS if pause else None)
            except BaseException:
                work.cancel()
                raise
        return await work

    async def _read(self, reading: "_Reading", work: "asyncio.Future[Image]", seconds: float | None) -> None:
        """What is read after this does not count: the container goes on."""
        try:
            reading.begin()
            if not await _first(work, reading.over, seconds):
                raise TimedOut(
                    f"{reading.what}: its layer was not read in {seconds:g} s, and it was not left frozen for longer; "
                    "exitctl commit --no-pause has no such limit"
                )
        finally:
            reading.close()

    @contextlib.asynccontextmanager
    async def _frozen(self, container: Container, by: By) -> AsyncIterator[None]:
        """Freeze a container that runs, for the length of the block. A mark says so on the disk, for the next exitd.
        One that is being ended goes on: frozen, it would not hear its stop signal."""
        if (thaw := self._thaws.get(container.id)) is not None:  # of an earlier commit, whose mark it takes away
            await _set(thaw, "its thaw after another commit")
        now = self._containers.known(container.id)
        if now.phase is not Phase.RUNNING or is_being_ended(now) or self._node.is_ending(now):
            yield
            return
        self._node.frozen.add(container.id)
        pausing: asyncio.Future[None] | None = None
        try:
            await asyncio.to_thread(_mark, self._marks_of(container.id))
            pausing = asyncio.ensure_future(self._operations.pause(container.id, by))
            await asyncio.shield(pausing)  # a caller that goes away does not cut it off
            yield
        finally:
            thawed = self._thaws[container.id] = asyncio.Event()
            self._node.spawn(self._thaw_after(pausing, container.id, by, thawed))
            await self._containers.until(container.id, _is_thawed, GONE_SECONDS, "its thaw")

    async def _thaw_after(self, pausing: "asyncio.Future[None] | None", id: str, by: By, thawed: asyncio.Event) -> None:
        """Thaw what `pausing` has frozen, however that ends: not before it has."""
        try:
            if pausing is not None:
                await asyncio.wait((pausing,))
                if not pausing.cancelled():
                    pausing.exception()  # its caller has it, or has gone
            await retry(lambda: self._thaw(id, by), "thaw after a commit", id)
        finally:
            thawed.set()
            if self._thaws.get(id) is thawed:
                del self._thaws[id]

    async def _thaw(self, container_id: str, by: By) -> None:
        """Thaw what a commit has frozen, and take its mark away. Repeatable. Raises ExitdError, OSError while it is not
        known whether it is frozen: a pause may have worked and said that it failed."""
        with contextlib.suppress(WrongState, NoSuchContainer):  # it has ended, or another has thawed it
            container = await self._containers.find(container_id)
            if container.phase is Phase.RUNNING:
                await self._node.settle_pause(container)
            if (await self._containers.find(container_id)).phase is Phase.PAUSED:
                await self._operations.resume(container_id, by)
        await asyncio.to_thread(_unmark, self._marks_of(container_id))
        self._node.frozen.discard(container_id)
        self._containers.changes.notify(container_id, self._containers.get(container_id))  # to its end, which waits

    async def thaw_left(self) -> None:
        """After a start: thaw what an earlier daemon has frozen for a commit, and been killed."""
        for id in await self._marked():
            log.warning("to be thawed after a commit that was broken off", container=id)
            await retry(partial(self._thaw, id, THAW), "thaw after a commit", id)

    async def _marked(self) -> tuple[str, ...]:
        """Return the containers that have a mark."""
        ids = tuple(container.id for container in self._containers.values())
        return await asyncio.to_thread(lambda: tuple(each for each in ids if os.path.lexists(self._marks_of(each))))

    def _marks_of(self, container_id: str) -> str:
        return f"{bundle.directory_of(self._root, container_id)}/{FROZEN}"

    # -- how

    def _upper(self, container: Container) -> str:
        if rootfs.is_shared(container.spec):
            raise WrongState(f"{container.spec.name} has no layer of its own: it is the pause program's")
        return rootfs.upper_of(f"{bundle.directory_of(self._root, container.id)}/rootfs")

    async def _stream(
        self, use: "_Use", what: str, send: Callable[[FilesView], Parts], *, root_only: bool = False
    ) -> AsyncGenerator[bytes, None]:
        """Yield what `send` yields in a thread. `root_only`: without what is mounted in the container."""
        opened = await self._opened(use, root_only=root_only)
        outflow = use.broken_off_by(Outflow(what))

        def work() -> None:
            error: BaseException | None = None
            try:
                with opened() as seen, contextlib.closing(send(seen)) as parts:
                    for part in parts:
                        outflow.put(part)
                    seen.check()
            except (StreamOver, ExitdError) as failed:
                error = failed
            except OSError as failed:
                error = WrongState(f"{what}: {failed.strerror or failed}")
            finally:
                with contextlib.suppress(StreamOver):
                    outflow.end(error)

        under_way = asyncio.ensure_future(self._works.run(what, use.until_done(work), late=use.end))
        under_way.add_done_callback(partial(_end_failed, outflow))
        try:
            async for part in outflow.parts():
                yield part
        finally:
            outflow.close()
            under_way.cancel()

    async def _use(self, id: str) -> "_Use":
        """Return a use of the container, which is not removed before its end."""
        container = await self._containers.find(id)
        lifecycle.refuse_damaged(container)
        container = await made(self._containers, container)
        if container.phase is Phase.REMOVING:
            raise WrongState(f"{container.spec.name} is being removed", id=container.id)
        return self._used(container)

    def _used(self, container: Container, end: Callable[[], None] = lambda: None) -> "_Use":
        """`end`: what is to be done at its end, too."""

        def ended() -> None:
            end()
            users.discard(use)
            if not users:
                del self._users[container.id]
                for waiter in self._unused.pop(container.id, ()):
                    waiter.set()

        use = _Use(container, ended)
        users = self._users.setdefault(container.id, set())
        users.add(use)
        return use

    async def _opened(self, use: "_Use", *, root_only: bool = False) -> Opened:
        """Return what opens the container's files, in a thread. The use ends if that raises."""
        try:
            return await (self._root_way if root_only else self._way)(use.container)
        except BaseException:
            use.end()
            raise

    async def _root_way(self, found: Container) -> Opened:
        """As `_way`, to the root file system alone; of a container with one of exitd's it is mounted while it runs."""
        container = self._containers.known(found.id)
        if container.phase not in LIVE or container.spec.bundle or container.spec.task is not None:
            return await self._way(found)
        merged = rootfs.merged_of(f"{bundle.directory_of(self._root, container.id)}/rootfs")
        if rootfs.is_shared(container.spec):
            merged = container.spec.layers[0]
        return partial(view.of_root, merged)

    async def _way(self, found: Container) -> Opened:
        container = self._containers.known(found.id)
        run = RunKey(container.id, container.run)
        if container.phase in LIVE and container.init is not None:
            if await self._lives(container):
                return partial(view.of_running, container.init)
            await self._containers.until(run.container, is_over(run.run), END_SECONDS, "its end")
        merged = await self._mounted(container)
        return partial(view.of_stopped, self._containers.known(container.id), self._root, merged)

    async def _mounted(self, found: Container) -> str:
        """Return where its root is mounted. Its thread has the turn, and uses the container, until its own end: it goes
        on when no caller waits for it any more."""
        turn, what = self._turns.setdefault(found.id, asyncio.Lock()), f"mounting the files of {found.spec.name}"
        await _taken(turn, what)
        use = self._used(found, turn.release)
        try:
            container = self._containers.known(found.id)
            if container.phase not in RESTS:
                raise WrongState(f"{container.spec.name} is {container.phase.value}; try again", id=container.id)
            root, state, limits = self._root, self._state, self._now().limits
        except BaseException:
            use.end()
            raise
        work = use.until_done(lambda: view.mounted_root(container, root, state, limits))
        return await self._looks.run(what, work, late=use.end)

    async def _lives(self, container: Container) -> bool:
        init = container.init
        assert init is not None
        return await asyncio.to_thread(lambda: epoll.lives(epoll.open_process(init.pid, init.started_ticks)))


class _Breakable(Protocol):
    def break_off(self, error: Exception) -> object: ...


B = TypeVar("B", bound=_Breakable)


class _Use:
    """One work on a container's files. Its end counts once."""

    def __init__(self, container: Container, end: Callable[[], None]) -> None:
        self.container = container
        self._by: _Breakable | None = None
        self._end: Callable[[], None] | None = end
        self._loop = asyncio.get_running_loop()

    def end(self) -> None:
        """For the event loop."""
        end, self._end = self._end, None
        if end is not None:
            end()

    def broken_off_by(self, by: B) -> B:
        """Return `by`, through which the work can be broken off."""
        self._by = by
        return by

    def break_off(self, error: Exception) -> None:
        """Its end follows. One that has a limit of seconds anyway is left to that."""
        if self._by is not None:
            self._by.break_off(error)

    def until_done(self, work: Callable[[], T]) -> Callable[[], T]:
        """Return the work for a thread, with whose end the use ends, also when no caller waits for it any more."""

        def in_thread() -> T:
            try:
                return work()
            finally:
                with contextlib.suppress(RuntimeError):  # the loop is closed: the daemon ends
                    self._loop.call_soon_threadsafe(self.end)

        return in_thread


class _Reading:
    """The reading of a layer in a thread. It begins when the loop says so, and counts only if it has come to its end
    before the loop closes it."""

    def __init__(self, what: str, end: Callable[[], None]) -> None:
        """`end`: called in the loop when a reading that has begun is over."""
        self.what = what
        self.at_work, self.over = asyncio.Event(), asyncio.Event()
        self._end = end
        self._loop = asyncio.get_running_loop()
        self._changed = threading.Condition()
        self._may_begin = self._is_reading = self._is_closed = False
        self._error: Exception | None = None

    def begin(self) -> None:
        """For the loop."""
        with self._changed:
            self._may_begin = True
            self._changed.notify_all()

    def close(self) -> bool:
        """For the loop. Return whether the thread is still at it; it gets an error at its next part. Repeatable."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
            return self._is_reading

    def break_off(self, error: Exception) -> None:
        """For the loop: the thread gets this error."""
        self._error = self._error or error
        self.close()

    def parts(self, read: Callable[[], Parts]) -> Parts:
        """For the thread. Raises TimedOut when it was closed, or has not been allowed to begin for long."""
        self._report(self.at_work.set)
        with self._changed:
            self._changed.wait_for(lambda: self._may_begin or self._is_closed, FREEZE_SECONDS)
            self._check()
            if not self._may_begin:
                raise TimedOut(f"{self.what}: it was not frozen in {FREEZE_SECONDS:g} s")
            self._is_reading = True
        try:
            with contextlib.closing(read()) as parts:
                for part in parts:
                    self._check()
                    yield part
            self._check()
        finally:
            with self._changed:
                self._is_reading = False
            self._report(self._ended)

    def _check(self) -> None:
        if self._is_closed:
            raise self._error or TimedOut(f"{self.what} was broken off")

    def _ended(self) -> None:
        self.over.set()
        self._end()

    def _report(self, what: Callable[[], None]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: the daemon ends
            self._loop.call_soon_threadsafe(what)


async def _first(work: "asyncio.Future[Image]", event: asyncio.Event, seconds: float | None = None) -> bool:
    """Return whether the work has ended, or the event has come, within the limit."""
    waiting = asyncio.ensure_future(event.wait())
    try:
        done, _ = await asyncio.wait((work, waiting), return_when=asyncio.FIRST_COMPLETED, timeout=seconds)
        return bool(done)
    finally:
        waiting.cancel()


async def _set(event: asyncio.Event, what: str) -> None:
    try:
        async with asyncio.timeout(LOOK_SECONDS):
            await event.wait()
    except TimeoutError as error:
        raise TimedOut(f"{what} takes more than {LOOK_SECONDS:g} s; try again later") from error


async def _taken(turn: asyncio.Lock, what: str) -> None:
    """Return when the turn is the caller's."""
    try:
        async with asyncio.timeout(LOOK_SECONDS):
            await turn.acquire()
    except TimeoutError as error:
        raise TimedOut(f"{what} takes more than {LOOK_SECONDS:g} s; does a file system hang?") from error


def last_part(path: str) -> str:
    """Return the name that a copy of the path has; `.` for a root, and for the content of a directory."""
    last = path.rstrip("/").rpartition("/")[2]
    return last if last not in ("", "..") else "."


@contextlib.contextmanager
def _directory(seen: FilesView, path: str) -> Iterator[int]:
    fd = seen.open(f"{path}/", follow=True)
    try:
        seen.refuse_read_only(fd, path)
        yield fd
    finally:
        os.close(fd)


def _put(inflow: Inflow, into_fd: int, keeping: "extract.Keeping", cross: "pack.Cross") -> "extract.ExtractedCounts":
    parts = inflow.parts()
    made = extract.extract(tar.TarReader(extract.ChunkSource(parts)), into_fd, keeping, cross)
    for _ in parts:  # what follows the end of a tar is padding
        pass
    return made


def _utc_text(time_ns: int) -> str:
    """As RFC 3339 has it."""
    seconds, ns = divmod(time_ns, 10**9)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{ns:09d}Z"


def _mark(path: str) -> None:
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
    except OSError as error:
        raise ShimFailed(f"{path}: {error.strerror}") from error


def _unmark(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def _is_thawed(container: Container | None) -> bool:
    return container is None or container.phase is not Phase.PAUSED


@contextlib.contextmanager
def _opened_directory(path: str) -> Iterator[int]:
    fd = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)


def _stat(opened: Opened, path: str, *, follow: bool) -> PathStat:
    with opened() as seen:
        fd = seen.open(path, follow=follow)
        try:
            found = os.fstat(fd)
            target = os.readlink("", dir_fd=fd) if stat.S_ISLNK(found.st_mode) else ""
        finally:
            os.close(fd)
    return PathStat(last_part(path), found.st_mode, found.st_size, found.st_mtime_ns, target)


def _end_failed(outflow: Outflow, work: "asyncio.Future[None]") -> None:
    """A work that never came to a thread ends its stream, too."""
    if not work.cancelled() and (error := work.exception()) is not None:
        outflow.end(error)
