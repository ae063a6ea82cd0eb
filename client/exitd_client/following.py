"""Following the event log by its numbers: nothing is missed and nothing comes twice, however often the call begins
anew. Pure: both clients drive it."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from exitd_client import calls, values


@dataclass(slots=True)
class Following:
    """Where a reader of events is. `since`: the first number wanted, or a time."""

    since: int | datetime
    until: datetime | None
    filters: Sequence[str]
    follow: bool
    _next: int | None = None  # the first number that has not been seen; None before the first
    _missed: bool = False

    def call(self) -> calls.Call[Any]:
        """Return the call that goes on where the reader is."""
        self._missed = False
        if self._next is not None:
            return calls.events(self._next, None, self.until, self.filters, follow=self.follow)
        if isinstance(self.since, datetime):
            return calls.events(None, self.since, self.until, self.filters, follow=self.follow)
        return calls.events(self.since, None, self.until, self.filters, follow=self.follow)

    def read(self, reply: Any) -> values.Event | None:
        """Return the event of a reply; None for one that only says how far the log is. After one that says what came
        too fast, `missed` is true: end the call and begin anew with `call`, which asks for these again."""
        kind = reply.WhichOneof("item")
        if kind == "lost":
            self._next, self._missed = getattr(reply.lost, "from"), True
            return None
        seq = reply.event.seq if kind == "event" else reply.bookmark
        if self._next is not None and seq < self._next:
            return None
        self._next = seq + 1
        return values.event_of(reply.event) if kind == "event" else None

    @property
    def missed(self) -> bool:
        return self._missed
