"""The adapter put together, and its place in the life of a container: what is mounted before its create and taken down
with its files; what is held open after a create that was broken off."""

import contextlib

from supervisor.containerd import making
from supervisor.containerd.callers import Turns
from supervisor.containerd.door import Door
from supervisor.containerd.ends import Ends
from supervisor.containerd.execs import TaskExecs
from supervisor.containerd.holding import Held
from supervisor.containerd.making import Asides
from supervisor.containerd.publish import Publisher
from supervisor.containerd.service import Parts, TaskService
from supervisor.engine.node import Node
from supervisor.model.values import Container, Phase
from supervisor.system.inotify import Inotify

__all__ = ["Asides", "Parts", "mounting", "serve"]


def mounting(node: Node, state: str, asides: Asides) -> None:
    """Before containers are looked up: what a crash has left of one is removed then."""
    removing, discarded, find, changed, held = (
        node.on_removing,
        node.on_discarded,
        node.before_find,
        node.on_change,
        Held(),
    )

    async def hold(container_id: str) -> None:
        if (container := node.containers.get(container_id)) is not None:
            held.look(container)
        await find(container_id)

    def release(container: Container) -> None:
        if container.phase is Phase.CREATED:
            held.look(container)
        changed(container)

    async def mount(container_id: str) -> None:
        await making.mount(node.known(container_id), asides)

    async def leave_end(container_id: str) -> None:
        await removing(container_id)
        if (container := node.containers.get(container_id)) is not None:
            await making.leave_end(container, state, asides)

    async def unmount(container_id: str) -> None:
        container = node.containers.get(container_id)
        if container is not None:
            await making.unmount(container, asides)
        if container is None or container.spec.task is None:  # a task holds no image
            await discarded(container_id)

    node.before_make, node.on_removing, node.on_discarded = mount, leave_end, unmount
    node.before_find, node.on_change = hold, release


async def serve(stack: contextlib.AsyncExitStack, parts: Parts, inotify: Inotify) -> None:
    """CannotStart. When the containers are listed; ends with the stack. containerd is told of its tasks from when it is
    known which of them it has given up."""
    publisher = Publisher(parts.node.events, parts.state, parts.node.clock.boot_id())
    stack.push_async_callback(publisher.close)
    turns, execs = Turns(), TaskExecs(parts.node, parts.operations, parts.asides)
    service = TaskService(parts, execs)
    ends = Ends(parts.node, service, turns, parts.state, parts.asides)
    door = Door(parts.node, service, ends, turns, publisher, parts.state)
    discarded = parts.node.on_discarded

    async def forget(container_id: str) -> None:
        await discarded(container_id)
        execs.forget(container_id)

    parts.node.on_discarded = forget
    ends.on_given_up = publisher.drop
    await execs.load()
    await door.start(inotify)
    stack.push_async_callback(door.stop)
    publisher.begin()
