"""Watches that keep their word in memory, beside the fake node: they note and fail as it does."""

from supervisor.model.values import By
from supervisor.model.watched import Kind, Target, WatchView
from tests.supervisor.api.fake_node import AT_NS, FakeNode

VIEW = WatchView(Target(Kind.PID, "70", AT_NS, By(uid=0)), 1, 2, "trouble")


class FakeWatches:
    def __init__(self, node: FakeNode) -> None:
        self._note = node.note

    async def watch(self, kind: Kind, where: str, by: By) -> WatchView:
        self._note("watch", kind, where)
        return VIEW

    def watches(self) -> list[WatchView]:
        return [VIEW]

    async def end(self, where: str) -> WatchView:
        self._note("end_watch", where)
        return VIEW

    def last_seq(self) -> int:
        return 41
