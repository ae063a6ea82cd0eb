"""What a round of the reconcile loop does for the output of one run: a pure decision.

exitd holds copies of what a replacement shim needs, for the case that shim and keeper die at once. They are asked for
when a shim has begun or is found. The keeper may have none then, or exitd no room for all of them; and a replacement
may fail, as while the shim's program is being installed anew. Only a round comes back to these.
"""

from collections.abc import Collection
from enum import Enum

from shim import slots
from shim.frozen import frozen

OF_ALL = frozenset({slots.OUT_FD, slots.STAGE_READ_FD, slots.STAGE_WRITE_FD})


class Mend(Enum):
    """What is wanted."""

    NOTHING = "nothing"
    COPIES = "copies"  # the keeper is asked for them
    SHIM = "shim"  # a replacement is tried


@frozen
class OutputState:
    """What is known of a run. `copies`: the slots of which exitd holds one. `is_alone`: it has only one output, as a
    run with a terminal. `is_open`: there may be more output, and no other part of exitd is at work on it."""

    copies: frozenset[int]
    is_alone: bool
    has_shim: bool
    is_open: bool


def missing(copies: Collection[int], *, is_alone: bool) -> frozenset[int]:
    """Return the slots that a replacement would miss. The input is none of them: see decision 31."""
    return (OF_ALL if is_alone else OF_ALL | {slots.ERR_FD}) - frozenset(copies)


def wanted(output: OutputState) -> Mend:
    """Return what this round does. Without a shim and without copies the keeper comes first: it may have some by now,
    and the next round has a shim replaced then. If it has none, a replacement would have nothing to do."""
    if not output.is_open:
        return Mend.NOTHING
    if not output.has_shim and output.copies:
        return Mend.SHIM
    return Mend.COPIES if missing(output.copies, is_alone=output.is_alone) else Mend.NOTHING
