"""The exits of containers that are gone: found by their ids, and for a while by what else a caller may know."""

from collections.abc import Callable

from supervisor.config.settings import Retention
from supervisor.model.errors import AmbiguousId, NoSuchContainer
from supervisor.model.values import BootTime, Exit
from supervisor.store.database import Store
from supervisor.system.clock import Clock, boot_now


class Ledger:
    """Reads the store's ledger of exits. `retention`: what is in force at this moment."""

    def __init__(self, store: Store, clock: Clock, retention: Callable[[], Retention]) -> None:
        self._store = store
        self._clock = clock
        self._retention = retention

    async def exit_of(self, id: str, run: int) -> Exit | None:
        """Return a removed container's exit, so that late waiters get the code. Run 0: its newest one.

        Raises NoSuchContainer where the ledger has no exit of it at all, AmbiguousId."""
        known = await self.id_of(id)
        found = await (self._store.last_exit(known, run) if run else self._store.newest_exit(known))
        if found is None and not run:
            raise NoSuchContainer(f"no container {id}, and the ledger of exits does not know that id", id=id)
        return found

    async def id_of(self, reference: str) -> str:
        """Return the full id of a container that removed itself within the last minutes: of the newest one that had
        this name, else by the beginning of the id. The reference itself when no such container is meant.

        Raises AmbiguousId."""
        since = retained_since(self._retention(), boot_now(self._clock))
        found = await self._store.retained(reference, since)
        named = [one for one in found if one.name == reference and one.namespace == "default"] or found
        if len(named) > 1 and named is found:
            raise AmbiguousId(f"{reference} is the beginning of {len(found)} ids; give more of it", id=reference)
        return named[0].container if named else reference


def retained_since(retention: Retention, now: BootTime) -> BootTime:
    """Return the moment before which the names of containers that removed themselves are forgotten."""
    return now.later(-round(retention.exit_seconds * 1e9))
