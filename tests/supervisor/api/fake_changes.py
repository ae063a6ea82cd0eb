"""Fakes of what changes containers, and of what measures them."""

from supervisor.model.limits import Change
from supervisor.model.values import By
from supervisor.model.views import LiveUsage, NetworkUse, UsageView
from tests.supervisor.api.fake_node import AT_NS, FakeNode


class FakeChanges:
    def __init__(self, node: FakeNode) -> None:
        self._note = node.note

    async def rename(self, id: str, name: str, by: By) -> None:
        self._note("rename", id, name, by)

    async def update(self, id: str, change: Change, by: By) -> None:
        self._note("update", id, change, by)


class FakeStats:
    def __init__(self, node: FakeNode) -> None:
        self._note = node.note

    async def stats(self, ids: tuple[str, ...]) -> tuple[UsageView, ...]:
        self._note("stats", ids)
        usage = LiveUsage(1, 2, 3, NetworkUse(4, 5), 6, 7, 8, 9)
        return UsageView("c1", "web", usage, AT_NS), UsageView("c2", "gone", None, AT_NS)
