"""Tasks that containerd has given up, since their relay is dead or the host was rebooted. They are ended and removed
here.

containerd asks for that through the relay's `delete` program, which exitd answers with how the task ended. If exitd was
away, or too slow, that program leaves a note in STATE/shimv2/gone/HASH, with the same names.
"""

import asyncio
import contextlib
import hashlib
import os
from pathlib import Path

import structlog

from shim import fields
from shim.frozen import frozen
from supervisor.containerd import making, sockets, tasks
from supervisor.containerd.callers import Turns
from supervisor.containerd.publish import Publisher
from supervisor.containerd.relays import Relays
from supervisor.containerd.service import TaskService
from supervisor.containerd.tasks import TaskLook
from supervisor.engine.node import Node
from supervisor.model.errors import Busy, CannotStart, NoSuchContainer, TimedOut
from supervisor.model.taskfacts import CLEANED_UP
from supervisor.model.values import By, Container
from supervisor.store.codec import TOMBSTONE_OF
from supervisor.system.background import retry
from supervisor.system.inotify import IN_MOVED_TO, Inotify

CONTAINERD = By(policy="containerd-cleanup")
MOST_BYTES = 1 << 16
AGAIN_SECONDS = 1.0  # until notes that could not be read are looked at again

log = structlog.get_logger(__name__)


@frozen
class Gone:
    """The note of a program that could not reach exitd. `written_ns`: a task made later is another one. `socket`: of
    the dead relay; empty from programs of an earlier version."""

    path: Path
    namespace: str
    id: str
    bundle: str
    written_ns: int
    socket: str = ""


class Ends:
    """Belongs to the node's event loop."""

    def __init__(
        self,
        node: Node,
        service: TaskService,
        turns: Turns,
        publisher: Publisher,
        state: str,
        asides: making.Asides,
        relays: Relays,
    ) -> None:
        """`publisher` drops a task before it is ended: containerd reports its end to clients itself."""
        self._node = node
        self._service = service
        self._turns = turns
        self._publisher = publisher
        self._asides = asides
        self._relays = relays
        self._places = Path(state) / "shimv2" / "gone"
        self._looking: asyncio.TimerHandle | None = None

    def begin(self, inotify: Inotify) -> None:
        """Read the notes left while exitd was away, in the background, and later ones as they come. Raises
        CannotStart."""
        try:
            for directory in (self._places.parent, self._places):
                directory.mkdir(mode=0o700, exist_ok=True)
            self._watch(inotify)
            self._look()
        except OSError as error:
            raise CannotStart(f"{self._places}: {error.strerror}") from error
        for c in list(self._node.containers.values()):
            if c.spec.task is not None:
                self._node.spawn(self._end_rebooted(c.id))

    def _watch(self, inotify: Inotify) -> None:
        try:
            inotify.watch(str(self._places), IN_MOVED_TO, lambda item: self._look())
        except OSError as error:
            log.warning("not watched, looked at when exitd starts", path=str(self._places), why=error.strerror)

    def _look(self) -> None:
        """What cannot be read now, for want of a descriptor as a rule, is looked at again."""
        try:
            paths = sorted(self._places.iterdir())
        except OSError as error:
            return self._look_again(self._places, error)
        for path in paths:
            try:
                one = _read(path)
            except OSError as error:
                self._look_again(path, error)
                continue
            if one is not None:
                self._drop_given_up(one.namespace, one.id, one.bundle, one.written_ns)
                self._node.spawn(self._take_up(one))

    def _look_again(self, path: Path, error: OSError) -> None:
        log.warning("notes about given-up tasks cannot be read, trying again", path=str(path), why=error.strerror)
        if self._looking is None and not self._node.closing:
            self._looking = asyncio.get_running_loop().call_later(AGAIN_SECONDS, self._look_late)

    def _look_late(self) -> None:
        self._looking = None
        if not self._node.closing:
            self._look()

    async def clean_up(self, namespace: str, id: str, bundle: str) -> TaskLook:
        """Return how the task ended, with everything of it removed. An unknown task has an unknown end."""
        now_ns = self._node.clock.now_ns()
        self._drop_given_up(namespace, id, bundle, now_ns)  # not when a create that hangs is over
        socket = await self._socket_of(bundle)  # `delete` may be killed, and containerd removes the bundle then
        await self._drop_linked(namespace, id, bundle, now_ns)

        async def clean_up() -> TaskLook:
            return await self._clean_up(namespace, id, bundle, self._node.clock.now_ns(), socket)

        return await self._turns.run("", (namespace, id, ""), clean_up)

    async def word_of(self, namespace: str, id: str) -> None:
        """Act on a note about such a task, if there is one. Call it in the task's turn."""
        place = self._place(namespace, id)
        if place.exists() and (one := await asyncio.to_thread(_read, place)) is not None:
            await self._clean_up(one.namespace, one.id, one.bundle, one.written_ns, one.socket)

    async def _take_up(self, one: Gone) -> None:
        """Clean up without a caller that waits for the result."""
        await self._drop_linked(one.namespace, one.id, one.bundle, one.written_ns)

        async def clean_up() -> TaskLook:
            return await self._clean_up(one.namespace, one.id, one.bundle, one.written_ns, one.socket)

        name = (one.namespace, one.id, "")
        await retry(lambda: self._turns.run("", name, clean_up), "ending a task that containerd has given up", one.id)

    async def _clean_up(self, namespace: str, id: str, bundle: str, before_ns: int, socket: str = "") -> TaskLook:
        self._drop_given_up(namespace, id, bundle, before_ns)
        await self._drop_linked(namespace, id, bundle, before_ns)
        stale = sockets.of_text(socket) or await self._socket_of(bundle)
        if stale:  # `delete` removes it, unless it is killed, or the relay still lives
            await self._relays.given_up(stale)
        c = await self._known(namespace, id)
        if c is None or c.created_ns > before_ns or not await self._is_of(c, bundle):
            seen = await making.read_end(bundle, namespace, id, self._asides) if bundle else None
            seen = seen or await self._ended_before(namespace, id)
        else:
            log.info("task given up by containerd", container=c.id, task=id, namespace=namespace)
            seen = await self._service.remove(c, CONTAINERD, CLEANED_UP)
        with contextlib.suppress(FileNotFoundError):
            self._place(namespace, id).unlink()
        return seen

    async def _socket_of(self, bundle: str) -> str:
        """Raises TimedOut."""
        what = f"reading the address in {bundle}"
        return await self._asides.bundles.run(what, lambda: sockets.of_bundle(bundle), bundle)

    def _drop_given_up(self, namespace: str, id: str, bundle: str, before_ns: int) -> None:
        """Report it at once, and not only when the task has been found: its end may be in the log already."""
        c = self._earlier(namespace, id, before_ns)
        if c is not None and _is_named(c, bundle):
            self._publisher.drop(c)

    async def _drop_linked(self, namespace: str, id: str, bundle: str, before_ns: int) -> None:
        """The same for a task whose bundle has two names, as soon as that is known."""
        c = self._earlier(namespace, id, before_ns)
        with contextlib.suppress(TimedOut, Busy):  # the one that ends it looks again, and reports what fails
            if c is not None and not _is_named(c, bundle) and await self._is_of(c, bundle):
                self._publisher.drop(c)

    def _earlier(self, namespace: str, id: str, before_ns: int) -> Container | None:
        c = self._node.containers.named(namespace, id, task=True)
        return c if c is not None and c.spec.task is not None and c.created_ns <= before_ns else None

    async def _is_of(self, c: Container, bundle: str) -> bool:
        """Two containerds may have tasks of one name. Links are followed if the names differ. Raises TimedOut, Busy."""
        assert c.spec.task is not None
        own = c.spec.task.bundle
        return _is_named(c, bundle) or await self._asides.bundles.run(
            f"looking for {bundle}", lambda: os.path.realpath(bundle) == os.path.realpath(own), bundle
        )

    async def _known(self, namespace: str, id: str) -> Container | None:
        """Return the container, once it has been examined after a daemon start."""
        c = self._node.containers.named(namespace, id, task=True)
        if c is not None and c.spec.task is not None:
            with contextlib.suppress(NoSuchContainer):
                return await self._node.containers.find(c.id)
        return None

    async def _ended_before(self, namespace: str, id: str) -> TaskLook:
        found = await self._node.store.tombstones(TOMBSTONE_OF, namespace, id, "")
        if found:
            return tasks.of_tombstone(found[0])
        return tasks.unknown(self._node.clock.now_ns())

    async def _end_rebooted(self, container_id: str) -> None:
        """End a task of another boot, of which containerd knows nothing and whose deletion it will not ask for."""

        async def end() -> None:
            with contextlib.suppress(NoSuchContainer):
                c = await self._node.containers.find(container_id)
                # Earlier versions gave a task that had ended the boot in which they first saw it.
                is_earlier = tasks.is_of_another_boot(c, self._node.clock.boot_id())
                if is_earlier or await making.is_forgotten(c, self._asides):
                    await self._service.remove(c, CONTAINERD, CLEANED_UP)

        await retry(end, "ending a task of another boot", container_id)

    def _place(self, namespace: str, id: str) -> Path:
        return self._places / hashlib.sha256(f"{namespace}/{id}".encode()).hexdigest()


def _is_named(c: Container, bundle: str) -> bool:
    return c.spec.task is not None and bundle in ("", c.spec.task.bundle)


def _read(path: Path) -> Gone | None:
    """Return None if there is no note, or if it cannot be decoded, which is logged. Raises OSError."""
    try:
        with path.open("rb") as file:
            message, written_ns = fields.decode(file.read(MOST_BYTES), "gone"), os.fstat(file.fileno()).st_mtime_ns
        return Gone(
            path, message.get("namespace"), message.get("id"), message.get("bundle"), written_ns, message.get("socket")
        )
    except FileNotFoundError:
        return None
    except fields.BadMessage as error:
        log.warning("the note about a given-up task cannot be decoded", path=str(path), why=str(error))
        return None
