"""What a comparison has found: values alone, and the JSON they are kept as (in the report, too)."""

import dataclasses
import json
from typing import Any

from shim.frozen import frozen

VERSION = 1


class BadReport(ValueError):
    """The text is no report of this version."""


@frozen
class Way:
    """One way to run pods on this machine. `why_not`: the reason it takes no part; empty when it does."""

    key: str  # e.g. exitd-runc, exitd-crun, exitd-shimv2, containerd-runc, containerd-exitd, podman, conmon
    name: str  # what a person reads
    design: str  # "shim per container, exit fifo" | "shim per pod, Wait" | another in a few words
    why_not: str = ""


@frozen
class Memory:
    """What stays with one pod while it runs, by the number of its members: one sample per pod measured."""

    way: str
    members: int
    processes: int  # beside the containers' own
    private_kb: tuple[float, ...]
    pss_kb: tuple[float, ...]
    daemon_kb: float  # what the daemons have grown by, per pod
    kernel_kb: float | None  # of the monitors' cgroup, per pod; None where no cgroup counts it


@frozen
class Latency:
    """`what`: "start" (asked until it runs) or "exit" (init killed until the waiting client knows); `load`: "idle" or
    "busy" (every processor has work)."""

    way: str
    what: str
    load: str
    ms: tuple[float, ...]


@frozen
class Storm:
    """`count` inits killed at once: how long until each notice, in the order they came, one tuple per round."""

    way: str
    count: int
    rounds_ms: tuple[tuple[float, ...], ...]


@frozen
class Restart:
    """The daemon killed with `live` containers, `ended` of which end before it is back. `ms`: from its start until
    every wait of the others works again. What it then says of those that have ended: right, unknown, wrong, lost."""

    way: str
    live: int
    ms: tuple[float, ...]
    ended: int
    right: int
    unknown: int
    wrong: int
    lost: int


@frozen
class Fault:
    """One container ends with `truth` just while `victim` (daemon, shim, keeper, containerd, relay, conmon) is killed
    or stopped. `told`: what the way reports of it, in its own words; `verdict`: right | unknown | wrong | lost."""

    way: str
    victim: str
    act: str  # "kill" | "stop"
    truth: str
    told: str
    verdict: str


@frozen
class CompareReport:
    """Everything that was measured. `conditions`: name and value, in the order in which a person wants to read them."""

    conditions: tuple[tuple[str, str], ...]
    ways: tuple[Way, ...]
    memory: tuple[Memory, ...] = ()
    latencies: tuple[Latency, ...] = ()
    storms: tuple[Storm, ...] = ()
    restarts: tuple[Restart, ...] = ()
    faults: tuple[Fault, ...] = ()
    # How much of all processors nobody used in looks before and between the measurements on an idle machine, while
    # nothing of the comparison had anything to do; 1.0 is all.
    rest: tuple[float, ...] = ()


_ROWS = {"ways": Way, "memory": Memory, "latencies": Latency, "storms": Storm, "restarts": Restart, "faults": Fault}


def encode(report: CompareReport) -> str:
    return json.dumps({"version": VERSION, **dataclasses.asdict(report)}, indent=1)


def decode(text: str) -> CompareReport:
    """Return the report that `encode` has written. Raises BadReport for anything else."""
    try:
        found = json.loads(text)
        if found.pop("version") != VERSION:
            raise BadReport(f"a report of another version than {VERSION}")
        conditions = tuple((str(name), str(value)) for name, value in found.pop("conditions"))
        rest = tuple(float(share) for share in found.pop("rest", ()))  # earlier reports have none
        rows = {key: tuple(_row(_ROWS[key], each) for each in value) for key, value in found.items()}
        return CompareReport(conditions, rest=rest, **rows)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadReport(f"not a report: {error}") from error


def _row(kind: type, found: dict[str, Any]) -> Any:
    return kind(**{name: _frozen(value) for name, value in found.items()})


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value
