"""Ends that have been reported from the ring and are not in the database yet: values and their bytes. Pure."""

import json
from collections.abc import Iterable
from typing import Any

from shim.frozen import frozen, replace
from supervisor.model.values import Container, Event, Exit, RunKey
from supervisor.store import codec


@frozen
class RingEnd:
    """The end of a run as it was reported. `changes`: the fields of its container's row that it changes, beside `exit`.
    `events` have their numbers."""

    exit: Exit
    changes: dict[str, Any]
    events: tuple[Event, ...]

    @property
    def key(self) -> RunKey:
        return self.exit.key


def changes(before: Container, after: Container) -> dict[str, Any]:
    """Return the fields of `after` that differ from `before`, without `exit`."""
    found = zip(codec.names(Container), codec.values(before), codec.values(after), strict=True)
    return {name: new for name, old, new in found if new is not old and name != "exit"}


def changed(row: str | bytes, end: RingEnd) -> Container:
    """Return the container of a row as the end has left it. Raises BadRow."""
    return replace(codec.container_from(row), exit=end.exit, **end.changes)


def encode(ends: Iterable[RingEnd]) -> bytes:
    """Return the payload of a block."""
    bodies = [
        {
            "exit": end.exit,
            "changes": end.changes,
            "events": [
                {"seq": event.seq, "has_exit": event.exit is not None, "event": _bare(event)} for event in end.events
            ],
        }
        for end in ends
    ]
    return codec.encode(bodies).encode("ascii")


def _bare(event: Event) -> Event:
    """The exit is in the payload once."""
    return replace(event, exit=None) if event.exit is not None else event


def decode(payload: bytes) -> list[RingEnd]:
    """Return the ends of a block. Raises BadRow for what `encode` has not written, and for a field of a container that
    cannot be read."""
    try:
        return [_end(body) for body in json.loads(payload)]
    except (ValueError, TypeError, KeyError) as error:
        raise codec.BadRow(f"a block of ends cannot be read: {error!r}") from error


def _end(body: dict[str, object]) -> RingEnd:
    exit = codec.exit_from(json.dumps(body["exit"]))
    found, why = codec.readable(Container, body["changes"])
    if why:
        raise codec.BadRow(f"the end of {exit.key}: {why}")
    events = body["events"]
    if not isinstance(events, list):
        raise TypeError(f"events {events!r}")
    return RingEnd(exit, found, tuple(_event(each, exit) for each in events))


def _event(body: dict[str, object], exit: Exit) -> Event:
    event = codec.event_from(int(str(body["seq"])), json.dumps(body["event"]))
    return replace(event, exit=exit) if body["has_exit"] else event
