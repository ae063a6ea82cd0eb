"""Puts the adapter together, and takes part in the life of containers: root file systems are mounted before a create
and unmounted with the container's files; fifos are held open after a create that was interrupted."""

import contextlib

from supervisor.containerd import making
from supervisor.containerd.callers import Turns
from supervisor.containerd.ends import Ends
from supervisor.containerd.execs import TaskExecs
from supervisor.containerd.holding import HeldStreams
from supervisor.containerd.making import Asides
from supervisor.containerd.publish import Publisher
from supervisor.containerd.relays import Relays
from supervisor.containerd.sandboxes import Sandboxes
from supervisor.containerd.service import AdapterParts, SandboxPlace, TaskService
from supervisor.containerd.standing import StandingWords
from supervisor.containerd.taskserver import TaskServer
from supervisor.engine.node import Node
from supervisor.engine.participants import Participant
from supervisor.model.values import Container, Phase
from supervisor.system.inotify import Inotify

__all__ = ["AdapterParts", "Asides", "Relays", "SandboxPlace", "Tasks", "serve"]


class Tasks(Participant):
    """Made before containers are looked up, since it removes what a crash has left of them."""

    def __init__(self, node: Node, execs: TaskExecs, state: str, asides: Asides, relays: Relays) -> None:
        self._node = node
        self._state = state
        self._asides = asides
        self._execs = execs
        self._held = HeldStreams(asides)
        self._standing = StandingWords(node.containers, state)
        self._relays = relays

    def begin(self) -> None:
        """Go on with what an earlier exitd has left undone. Called in the event loop."""
        self._relays.begin()

    async def before_make(self, container_id: str) -> None:
        await making.mount(self._node.containers.known(container_id), self._asides)

    async def before_find(self, container_id: str) -> None:
        if (container := self._node.containers.get(container_id)) is not None:
            self._standing.look_up(container)
            await self._held.hold(container)

    def changed(self, container: Container) -> None:
        if container.phase is Phase.CREATED:
            self._held.release(container)
        self._standing.settle(container)

    def turning(self, container_id: str) -> None:
        if (container := self._node.containers.get(container_id)) is not None:
            self._standing.turning(container)

    def turned(self, container_id: str) -> None:
        if (container := self._node.containers.get(container_id)) is not None:
            self._standing.turned(container)

    async def before_clean_up(self, container_id: str) -> None:
        await self._leave_end(container_id)

    async def removing(self, container_id: str) -> None:
        await self._leave_end(container_id)  # where it could not be left before

    async def _leave_end(self, container_id: str) -> None:
        if (container := self._node.containers.get(container_id)) is not None:
            await making.leave_end(container, self._state, self._asides)

    async def discarded(self, container_id: str) -> None:
        if (container := self._node.containers.get(container_id)) is not None:
            await making.unmount(container, self._asides)
            await self._relays.task_removed(container)
        self._execs.forget(container_id)
        self._standing.forget(container_id)


async def serve(stack: contextlib.AsyncExitStack, parts: AdapterParts, inotify: Inotify) -> None:
    """Serve containerd once the containers are listed; ends with the stack. Events are sent to containerd only when it
    is known which tasks it has given up. Raises CannotStart."""
    publisher = Publisher(parts.runs.node.events, parts.state, parts.runs.node.clock.boot_id())
    stack.push_async_callback(publisher.close)
    turns, service = Turns(), TaskService(parts)
    ends = Ends(parts.runs.node, service, turns, publisher, parts.state, parts.asides, parts.relays)
    sandboxes = Sandboxes(parts.runs.node, service, parts.services.ending, parts.sandboxes, parts.asides)
    server = TaskServer(parts.runs.node, service, sandboxes, ends, turns, publisher, parts.state)
    await parts.task_execs.load()
    await server.start(inotify)
    stack.push_async_callback(server.stop)
    publisher.begin()
