"""The files of containers for the event loop: copied, exported and compared in threads, while the container stays.

A container is removed only after the last of these works has ended, and none begins once its removal has; so none sees
half a tree. A work ends when its client takes or sends nothing for a while, so that no container stays for ever.
"""

import asyncio
import contextlib
import os
import stat
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterator
from contextlib import AbstractContextManager, aclosing
from datetime import UTC, datetime
from functools import partial
from typing import TypeVar

import structlog

from supervisor.engine.containers import is_over
from supervisor.engine.ending import made
from supervisor.engine.imagedesk import ImageDesk
from supervisor.engine.node import GONE_SECONDS, Node
from supervisor.engine.operations import Operations, Settings
from supervisor.engine.participants import Participant
from supervisor.images import instructions
from supervisor.images.changes import changes, layer_tar
from supervisor.images.extract import ChunkSource, ExtractedCounts, Keeping, extract
from supervisor.images.facts import Image
from supervisor.images.instructions import CommitWords
from supervisor.images.pack import Cross, Found, entry_of, pack
from supervisor.images.tar import TarEntry, TarReader
from supervisor.model import lifecycle
from supervisor.model.errors import ExitdError, NoSuchContainer, ShimFailed, TimedOut, WrongState
from supervisor.model.files import FileChange, PathStat
from supervisor.model.health import is_being_ended
from supervisor.model.values import LIVE, By, Container, Phase, RunKey
from supervisor.monitor import epoll
from supervisor.runtime.oci import bundle, namefiles, rootfs, view
from supervisor.runtime.oci.view import View
from supervisor.system.aside import Aside
from supervisor.system.background import insist
from supervisor.system.conduit import Inflow, Outflow, StreamOver

log = structlog.get_logger(__name__)

MOST_AT_ONCE = 16
WORK_SECONDS = 86_400.0  # its clients' and file systems' stalls end a work long before
LOOK_SECONDS = 30.0
END_SECONDS = 10.0  # from the end of an init that is known to be over until it is stored
# What a runtime makes in the root to mount on; nothing of it is the container's.
MADE_PLACES = frozenset({*namefiles.PLACES.values(), "/dev", "/proc", "/sys", "/dev/pts", "/dev/shm", "/dev/mqueue"})
FROZEN = "frozen-for-commit"  # a file in the container's directory
THAW = By(policy="commit")
RESTS = frozenset({Phase.EXITED, Phase.RESTARTING})

T = TypeVar("T")
Parts = Generator[bytes, None, None]  # to be closed: it holds descriptors
Opened = Callable[[], AbstractContextManager[View]]


class FileDesk(Participant):
    """Implements `supervisor.api.files.FileCalls`."""

    def __init__(self, node: Node, operations: Operations, images: ImageDesk, settings: Settings) -> None:
        self._node, self._operations, self._images = node, operations, images
        self._containers, self._root, self._now = node.containers, settings.root, settings.now
        self._works = Aside(MOST_AT_ONCE, WORK_SECONDS)
        self._looks = Aside(MOST_AT_ONCE, LOOK_SECONDS)
        self._users: Counter[str] = Counter()  # works under way, by container
        self._unused: dict[str, list[asyncio.Event]] = {}
        self._turns: dict[str, asyncio.Lock] = {}  # of mounting a root that no run has
        self._freezes: dict[str, asyncio.Lock] = {}  # of commits

    # -- a participant of the containers' life

    async def before_make(self, container_id: str) -> None:
        """A mount that is being made comes first, so that no overlay is mounted twice."""
        if (turn := self._turns.get(container_id)) is not None:
            async with turn:
                pass

    async def before_find(self, container_id: str) -> None:
        """An end that is taken up waits for `thaw_left`."""
        if await asyncio.to_thread(os.path.lexists, self._marks_of(container_id)):
            self._node.frozen.add(container_id)

    async def removing(self, container_id: str) -> None:
        """Wait for the works on it: each ends, since its client and its file system have limits."""
        if self._users[container_id]:
            unused = asyncio.Event()
            self._unused.setdefault(container_id, []).append(unused)
            await unused.wait()
        self._turns.pop(container_id, None)
        self._freezes.pop(container_id, None)

    # -- what callers ask

    async def stat_path(self, id: str, path: str, follow: bool) -> PathStat:
        use = await self._use(id)
        opened = await self._opened(use)
        work = use.until_done(lambda: _stat(opened, path, follow=follow))
        return await self._looks.run(f"looking at {path}", work, late=use.end)

    async def copy_from(self, id: str, path: str, follow: bool, name: str) -> AsyncGenerator[bytes, None]:
        def send(seen: View) -> Parts:
            fd = seen.open(path, follow=follow)
            try:
                yield from pack(fd, name or last_part(path), cross=seen.cross, fuse=seen.on_fuse)
            finally:
                os.close(fd)

        async with aclosing(self._sent(id, f"copying {path}", send)) as parts:
            async for part in parts:
                yield part

    async def copy_to(
        self, id: str, directory: str, keep_owner: bool, begun: Callable[[], None], parts: AsyncIterator[bytes]
    ) -> ExtractedCounts:
        """`begun` is called once the directory is found. Raises what `extract` does, NoSuchPath, TimedOut."""
        use = await self._use(id)
        opened = await self._opened(use)
        what = f"copying to {directory}"
        inflow = Inflow(what)
        ready = asyncio.Event()
        loop = asyncio.get_running_loop()

        def receive() -> ExtractedCounts:
            try:
                with opened() as seen, _directory(seen, directory) as into_fd:
                    loop.call_soon_threadsafe(ready.set)
                    made = _put(inflow, into_fd, Keeping(owner=keep_owner, xattrs=True), seen.cross_to_write)
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
        def send(seen: View) -> Parts:
            device = os.fstat(seen.root_fd).st_dev

            def shape(found: Found) -> tuple[TarEntry, ...] | None:
                is_mounted = stat.S_ISDIR(found.status.st_mode) and found.status.st_dev != device
                return (entry_of(found.name, found.status),) if is_mounted else None

            return pack(seen.root_fd, ".", fuse=seen.on_fuse, shape=shape)

        async with aclosing(self._sent(id, "the export", send, root_only=True)) as parts:
            async for part in parts:
                yield part

    async def changes(self, id: str) -> AsyncGenerator[FileChange, None]:
        def send(seen: View) -> Parts:
            spec, upper = use.container.spec, self._upper(use.container)
            with _opened_directory(upper) as upper_fd:
                for each in changes(upper_fd, spec.layers or (spec.rootfs,), MADE_PLACES):
                    yield os.fsencode(f"{each.kind} {each.path}\0")

        use = await self._use(id)
        held = b""
        async with aclosing(self._stream(use, "the look at the changes", send, root_only=True)) as parts:
            async for part in parts:
                *whole, held = (held + part).split(b"\0")
                for line in whole:
                    kind, _, path = os.fsdecode(line).partition(" ")
                    yield FileChange(kind, path)

    async def commit(self, id: str, words: CommitWords, name: str, pause: bool, by: By) -> Image:
        """Make an image of the container's image and its layer, which is read while the container is frozen. Thawed
        again whatever happens: see `thaw_left`. Raises WrongState for one that stands on no image of the store."""
        instructions.check(words.changes)
        use = await self._use(id)
        try:
            return await self._commit(use.container, words, name, by, pause=pause)
        finally:
            use.end()

    async def _commit(self, container: Container, words: CommitWords, name: str, by: By, *, pause: bool) -> Image:
        spec = container.spec
        if not spec.image_id:
            way = f"exitctl export {spec.name} | exitctl image import - NAME"
            raise WrongState(f"{spec.name} stands on no image of exitd's store; {way} makes one", id=container.id)
        opened = await self._root_way(container)
        loop, read = asyncio.get_running_loop(), asyncio.Event()

        def parts() -> Parts:
            with opened(), _opened_directory(self._upper(container)) as upper_fd:
                yield from layer_tar(upper_fd, spec.layers, MADE_PLACES)

        def all_read() -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: the daemon ends
                loop.call_soon_threadsafe(read.set)

        def document(base: bytes, diff_id: str) -> bytes:
            return instructions.document(base, spec, words, diff_id, _utc_text(self._node.clock.now_ns()))

        async with self._frozen(container, by) if pause else contextlib.nullcontext():
            work = asyncio.ensure_future(self._images.commit(parts, spec.image_id, document, name, all_read))
            waiting = asyncio.ensure_future(read.wait())
            try:
                await asyncio.wait((work, waiting), return_when=asyncio.FIRST_COMPLETED)
            finally:
                waiting.cancel()
        return await work

    @contextlib.asynccontextmanager
    async def _frozen(self, container: Container, by: By) -> AsyncIterator[None]:
        """Freeze a container that runs, for the length of the block. A mark says so on the disk, for the next exitd.
        One that is being ended goes on: frozen, it would not hear its stop signal."""
        turn = self._freezes.setdefault(container.id, asyncio.Lock())  # the thaw after one commit is none of another
        async with turn, self._frozen_alone(container, by):
            yield

    @contextlib.asynccontextmanager
    async def _frozen_alone(self, container: Container, by: By) -> AsyncIterator[None]:
        now = self._containers.known(container.id)
        if now.phase is not Phase.RUNNING or is_being_ended(now) or self._node.is_ending(now):
            yield
            return
        self._node.frozen.add(container.id)
        try:
            await asyncio.to_thread(_mark, self._marks_of(container.id))
            await self._operations.pause(container.id, by)
            yield
        finally:
            self._node.spawn(insist(lambda: self._thaw(container.id, by), "thaw after a commit", container.id))
            await self._containers.until(container.id, _is_thawed, GONE_SECONDS, "its thaw")

    async def _thaw(self, container_id: str, by: By) -> None:
        """Thaw what a commit has frozen, and take its mark away. Repeatable."""
        with contextlib.suppress(WrongState, NoSuchContainer):  # it has ended, or another has thawed it
            if (await self._containers.find(container_id)).phase is Phase.PAUSED:
                await self._operations.resume(container_id, by)
        await asyncio.to_thread(_unmark, self._marks_of(container_id))
        self._node.frozen.discard(container_id)
        self._containers.changes.notify(container_id, self._containers.get(container_id))  # to its end, which waits

    async def thaw_left(self) -> None:
        """After a start: thaw what an earlier daemon has frozen for a commit, and been killed."""
        ids = tuple(container.id for container in self._containers.values())
        for id in await asyncio.to_thread(lambda: [each for each in ids if os.path.lexists(self._marks_of(each))]):
            log.warning("to be thawed after a commit that was broken off", container=id)
            await insist(partial(self._thaw, id, THAW), "thaw after a commit", id)

    def _marks_of(self, container_id: str) -> str:
        return f"{bundle.directory_of(self._root, container_id)}/{FROZEN}"

    # -- how

    def _upper(self, container: Container) -> str:
        if rootfs.is_shared(container.spec):
            raise WrongState(f"{container.spec.name} has no layer of its own: it is the pause program's")
        return rootfs.upper_of(f"{bundle.directory_of(self._root, container.id)}/rootfs")

    async def _sent(
        self, id: str, what: str, send: Callable[[View], Parts], *, root_only: bool = False
    ) -> AsyncGenerator[bytes, None]:
        """Yield what `send` yields in a thread. `root_only`: without what is mounted in the container."""
        async with aclosing(self._stream(await self._use(id), what, send, root_only=root_only)) as parts:
            async for part in parts:
                yield part

    async def _stream(
        self, use: "_Use", what: str, send: Callable[[View], Parts], *, root_only: bool
    ) -> AsyncGenerator[bytes, None]:
        opened = await self._opened(use, root_only=root_only)
        outflow = Outflow(what)

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
        self._users[container.id] += 1
        return _Use(container, partial(self._unuse, container.id))

    def _unuse(self, container_id: str) -> None:
        self._users[container_id] -= 1
        if not self._users[container_id]:
            del self._users[container_id]
            for waiter in self._unused.pop(container_id, ()):
                waiter.set()

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
        async with self._turns.setdefault(container.id, asyncio.Lock()):
            container = self._containers.known(container.id)
            if container.phase not in RESTS:
                raise WrongState(f"{container.spec.name} is {container.phase.value}; try again", id=container.id)
            root, limits = self._root, self._now().limits
            what = f"mounting the files of {container.spec.name}"
            merged = await self._looks.run(what, lambda: view.mounted_root(container, root, limits))
        return partial(view.of_stopped, container, root, merged)

    async def _lives(self, container: Container) -> bool:
        init = container.init
        assert init is not None
        return await asyncio.to_thread(lambda: epoll.lives(epoll.open_process(init.pid, init.started_ticks)))


class _Use:
    """One work on a container's files. Its end counts once."""

    def __init__(self, container: Container, end: Callable[[], None]) -> None:
        self.container = container
        self._end: Callable[[], None] | None = end
        self._loop = asyncio.get_running_loop()

    def end(self) -> None:
        """For the event loop."""
        end, self._end = self._end, None
        if end is not None:
            end()

    def until_done(self, work: Callable[[], T]) -> Callable[[], T]:
        """Return the work for a thread, with whose end the use ends, also when nobody waits for it any more."""

        def in_thread() -> T:
            try:
                return work()
            finally:
                with contextlib.suppress(RuntimeError):  # the loop is closed: the daemon ends
                    self._loop.call_soon_threadsafe(self.end)

        return in_thread


def last_part(path: str) -> str:
    """Return the name that a copy of the path has; `.` for a root, and for the content of a directory."""
    last = path.rstrip("/").rpartition("/")[2]
    return last if last not in ("", "..") else "."


@contextlib.contextmanager
def _directory(seen: View, path: str) -> Iterator[int]:
    fd = seen.open(f"{path}/", follow=True)
    try:
        seen.refuse_read_only(fd, path)
        yield fd
    finally:
        os.close(fd)


def _put(inflow: Inflow, into_fd: int, keeping: Keeping, cross: Cross) -> ExtractedCounts:
    parts = inflow.parts()
    made = extract(TarReader(ChunkSource(parts)), into_fd, keeping, cross)
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
