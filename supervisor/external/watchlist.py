"""What exitd is asked to watch: the watch service puts it here and takes it away, the observer counts its ends."""

from typing import Protocol

from shim.frozen import mutable
from supervisor.model.watched import Kind, Target


class WatchSource(Protocol):
    """Finds processes behind a target and hands them to the observer."""

    trouble: str

    async def begin(self) -> None: ...
    async def close(self) -> None: ...


@mutable
class WatchEntry:
    target: Target
    source: WatchSource | None = None
    exits: int = 0


class WatchList(dict[str, WatchEntry]):
    """By where each is. A pid is watched until its end; the other targets go on."""

    def ending_with(self, where: str) -> tuple[Target, ...]:
        """Return the target that is not watched any more once one of its processes has ended; none for one that is."""
        entry = self.get(where)
        return (entry.target,) if entry is not None and entry.target.kind is Kind.PID else ()

    def count_exit(self, where: str) -> None:
        """Note that the end of one of its processes is stored."""
        entry = self.get(where)
        if entry is not None:
            entry.exits += 1
            if entry.target.kind is Kind.PID:
                del self[where]
