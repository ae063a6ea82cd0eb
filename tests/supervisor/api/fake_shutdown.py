"""The end of the host, as the API asks for it."""

from supervisor.model.views import StoppedForShutdown
from tests.supervisor.api.fake_node import FakeNode


class FakeShutdown:
    def __init__(self, node: FakeNode) -> None:
        self._note = node.note

    async def shut_down_node(self, limit_seconds: float) -> StoppedForShutdown:
        self._note("shut_down_node", limit_seconds)
        return StoppedForShutdown(("c1",), ("c2",))
