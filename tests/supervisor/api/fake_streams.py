"""Standard streams of one container whose shim is a fake one: what the API is tested against."""

import asyncio

from supervisor.model.values import Container, Counters, Winsize
from supervisor.streams.attach import AttachSession, AttachTarget, WantedStreams
from tests.supervisor.api.fake_node import FakeNode

TOLD = Counters(1, 2, 3, 4, 5)


class FakeStreams:
    """They note and fail as the node does. The shim of whoever is attached to listens in `node.run_directory`."""

    def __init__(self, node: FakeNode) -> None:
        self._node = node

    async def attach(self, id: str, exec_id: str, wanted: WantedStreams) -> AttachSession:
        self._node.note("attach", id, exec_id, wanted)
        tty = id == "on-a-tty"
        return AttachSession(AttachTarget(id, self._node.run_directory, tty, True, asyncio.Event().wait), wanted)

    async def resize(self, id: str, exec_id: str, size: Winsize) -> None:
        self._node.note("resize", id, exec_id, size)

    async def close_stdin(self, id: str, exec_id: str) -> None:
        self._node.note("close_stdin", id, exec_id)

    async def reopen_log(self, id: str) -> None:
        self._node.note("reopen_log", id)

    async def counters(self, container: Container) -> Counters | None:
        return TOLD if container.id == "c1" else None
