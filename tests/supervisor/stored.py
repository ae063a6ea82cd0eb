"""Facts to store, and a store to put them in, for the tests of storage."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from supervisor.model.execs import Exec, ExecPhase, ExecSpec
from supervisor.model.values import (
    By,
    Container,
    Event,
    Exit,
    Exited,
    ExitStatus,
    Oom,
    Phase,
    Reason,
    RunKey,
    Source,
    Spec,
)
from supervisor.store.database import Keep, Store

FOREVER = Keep(events=10**9, events_age_ns=10**18, exits=10**9, exits_age_ns=10**18)


def container(id: str, name: str = "", **spec: str) -> Container:
    return Container(id, Spec(name=name or id, **spec), Phase.RUNNING, 1, 1)  # type: ignore[arg-type]  # only str fields


def ended(id: str, run: int = 1, at_ns: int = 0, status: ExitStatus = Exited(43), exec_id: str = "") -> Exit:  # noqa: B008  (frozen)
    key = RunKey(id, run, exec_id)
    return Exit(key, id, "default", status, Source.RECORD, Reason.SELF, By(), Oom(), at_ns, None, None, "ended")


def exec_of(exec_id: str, id: str = "c1") -> Exec:
    return Exec(RunKey(id, 1, exec_id), ExecSpec(("true",)), ExecPhase.CREATING, id, "default", "boot")


def event(id: str, time_ns: int = 0, type: str = "exit") -> Event:
    return Event(type, id, id, "default", time_ns)


@contextlib.asynccontextmanager
async def opened(path: Path, **options: Any) -> AsyncIterator[Store]:
    store = Store(path, **options)
    try:
        yield store
    finally:
        assert await store.close(60)


async def written(
    store: Store, *ends: tuple[Container, Container, Exit, tuple[Event, ...]]
) -> tuple[Event, ...] | None:
    """The events with their numbers, of ends that were put into the ring; None where it takes nothing, now or in the
    end."""
    writing = store.write_ends(ends)
    return await writing if writing is not None else None


async def all_exits(store: Store) -> list[Exit]:
    return [exit async for page in store.exit_pages() for exit in page]
