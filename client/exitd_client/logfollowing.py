"""Following a log over restarts of exitd: no byte is missed and none comes twice. Pure: both clients drive it.

exitd sends positions in between, and everything before one has been sent. A call that begins anew names the newest, and
the bytes of each stream that came behind it come once more: a log's entries do not change.
"""

from dataclasses import dataclass, field, replace
from typing import Any

from exitd_client import calls, values


@dataclass(slots=True)
class FollowedLog:
    """Where a reader of a log is."""

    first: calls.Call[values.LogPart]
    _position: Any = None
    _behind: dict[str, int] = field(default_factory=dict)  # bytes that were shown behind it, by stream
    _to_skip: dict[str, int] = field(default_factory=dict)  # of them, those that are to come once more

    def call(self) -> calls.Call[Any]:
        """Return the call that goes on where the reader is."""
        request = type(self.first.request)()
        request.CopyFrom(self.first.request)
        request.positions = True
        if self._position is not None:
            request.after.CopyFrom(self._position)
        self._to_skip = dict(self._behind)
        return replace(self.first, request=request, read=lambda reply: reply)

    @property
    def may_go_on(self) -> bool:
        """Whether what comes next can be asked for. An exitd that is too old for positions sends none."""
        return self._position is not None or not self._behind

    def read(self, reply: Any) -> values.LogPart | None:
        """Return the part of a reply that is new; None where there is none."""
        if reply.gap:  # other entries come than those that were shown
            self._to_skip, self._behind = {}, {}
        if reply.HasField("position"):
            if not any(self._to_skip.values()):
                self._position, self._behind = reply.position, {}
            return values.LogPart(data=b"", stream="", time=None, gap=True) if reply.gap else None
        again = min(self._to_skip.get(reply.stream, 0), len(reply.data))
        if again:
            self._to_skip[reply.stream] -= again
        part = values.log_part_of(reply)
        if again == len(part.data):
            return None
        self._behind[reply.stream] = self._behind.get(reply.stream, 0) + len(part.data) - again
        return replace(part, data=part.data[again:])
