"""Counts of ends, by pod, image, reason and the like, for `exits --by`. Pure."""

from collections.abc import Callable, Iterable

from protos.exitd.v1 import exitd_pb2 as pb
from shim.frozen import frozen
from supervisor.api.answers import status_of
from supervisor.cli.shape import Document, time_text
from supervisor.cli.spoken import moment, nanoseconds
from supervisor.model.status import Exited, Unknown
from supervisor.model.values import Reason

NONE = "-"  # an end that has no such name


def _pod(exit_: pb.Exit) -> str:
    return f"{exit_.names.namespace}/{exit_.names.pod}" if exit_.names.pod else NONE


KEYS: dict[str, Callable[[pb.Exit], str]] = {
    "pod": _pod,
    "image": lambda exit_: exit_.names.image or NONE,
    "container": lambda exit_: exit_.names.container or exit_.name or NONE,
    "namespace": lambda exit_: exit_.names.namespace or exit_.namespace or NONE,
    "reason": lambda exit_: exit_.reason or NONE,
    "source": lambda exit_: exit_.source or NONE,
}
COUNTS = ("ENDS", "OK", "FAILED", "SIGNALED", "OOM", "UNKNOWN")


@frozen
class Tally:
    """The ends with one name; each is counted in `ends` and in exactly one of the others. `last_ns`: since 1970."""

    name: str
    ends: int = 0
    ok: int = 0
    failed: int = 0
    signaled: int = 0
    oom: int = 0
    unknown: int = 0
    last_ns: int = 0


def headings(key: str) -> tuple[str, ...]:
    return (key.upper(), *COUNTS, "LAST")


def tallies(exits: Iterable[pb.Exit], key: str) -> list[Tally]:
    """Count the ends of containers, not those of execs, by what `KEYS[key]` names; the most frequent first."""
    found: dict[str, dict[str, int]] = {}
    for exit_ in exits:
        if exit_.exec_id:
            continue
        counts = found.setdefault(KEYS[key](exit_), {})
        for each in ("ends", _kind(exit_)):
            counts[each] = counts.get(each, 0) + 1
        counts["last_ns"] = max(counts.get("last_ns", 0), nanoseconds(exit_.at))
    made = [Tally(name, **counts) for name, counts in found.items()]
    return sorted(made, key=lambda each: (-each.ends, each.name))


def row(tally: Tally) -> list[str]:
    """Return the line of a table, for the columns of `headings`."""
    counts = (tally.ends, tally.ok, tally.failed, tally.signaled, tally.oom, tally.unknown)
    return [tally.name, *map(str, counts), time_text(moment(tally.last_ns))]


def document(tally: Tally, key: str) -> Document:
    """Return one as `exits --by KEY --format jsonl` prints it."""
    return {
        key.capitalize(): tally.name,
        "Ends": tally.ends,
        "Ok": tally.ok,
        "Failed": tally.failed,
        "Signaled": tally.signaled,
        "Oom": tally.oom,
        "Unknown": tally.unknown,
        "Last": time_text(moment(tally.last_ns)),
    }


def _kind(exit_: pb.Exit) -> str:
    status = status_of(exit_)
    if isinstance(status, Unknown):
        return "unknown"
    if exit_.reason == Reason.OOM:
        return "oom"
    if isinstance(status, Exited):
        return "failed" if status.code else "ok"
    return "signaled"
