"""What is searched, and the ways in which the protocol could be wrong that the search must refuse."""

from shim.frozen import frozen
from tests.protocol.state import Bound

SHIM_KILLED, SHIM_STOPPED, SHIM_GOES_ON = "a shim is killed", "a shim is stopped", "a stopped shim goes on"
KEEPER_KILLED, KEEPER_STOPPED, EXITD_KILLED = "the keeper is killed", "the keeper is stopped", "exitd is killed"
RELAY_KILLED, POWER, COMMIT = "the relay is killed", "the power fails", "a commit fails"
RING, RECORD, OTHER = "a write to the ring fails", "a record cannot be written", "another event"

MONITORS = {
    **{SHIM_KILLED: 1, SHIM_STOPPED: 1, SHIM_GOES_ON: 1, KEEPER_KILLED: 2, KEEPER_STOPPED: 1},
    **{EXITD_KILLED: 2, RECORD: 1},
}
BOUNDS = (
    Bound("witnesses", "a run; the kernel tells nobody how a process ended", MONITORS, 3),
    Bound("kernel", "the same, on a kernel that says it to who holds a pidfd", MONITORS, 3, kernel=True),
    Bound("wide", "the same, with a code that the fifo cannot tell from a signal", MONITORS, 3, wide=True),
    Bound(
        "disk",
        "two containers whose ends are recorded, and the way of both onto the disk",
        {EXITD_KILLED: 2, POWER: 1, COMMIT: 1, RING: 1, OTHER: 1},
        2,
        containers=2,
        from_end=True,
    ),
    Bound(
        "restart",
        "a run and the one after it",
        {SHIM_KILLED: 1, KEEPER_KILLED: 1, EXITD_KILLED: 2, POWER: 1, COMMIT: 1, RING: 1},
        2,
        runs=2,
    ),
    Bound(
        "relay",
        "a task of containerd's",
        {SHIM_KILLED: 1, EXITD_KILLED: 2, RELAY_KILLED: 1, RECORD: 1},
        2,
        wide=True,
        has_relay=True,
    ),
)


@frozen
class Mutation:
    """A way to be wrong, and the bound in which the search has to find that."""

    name: str
    bound: str


MUTATIONS = (
    Mutation("the shim reaps before it records", "witnesses"),
    Mutation("the fifo's byte comes before the record", "wide"),
    Mutation("the keeper reaps before it journals", "witnesses"),
    Mutation("exitd looks at init last", "witnesses"),
    Mutation("a keeper's pidfd is not waited for", "kernel"),
    Mutation("a number that is none comes before the keeper", "wide"),
    Mutation("a run is cleaned up before its end is stored", "witnesses"),
    Mutation("a client is answered before the flush", "disk"),
    Mutation("a page of the ring is used again before its end is flushed", "disk"),
    Mutation("the ring is not read at a start", "disk"),
    Mutation("the ring's page is used again before the mark is flushed", "disk"),
    Mutation("a block whose write failed counts at the next start", "disk"),
    Mutation("the relay takes a missing record for an end", "relay"),
    Mutation("the relay reads the fifo", "relay"),
    Mutation("the relay forgets what it has brought", "relay"),
)


def bound(name: str) -> Bound:
    return next(each for each in BOUNDS if each.name == name)
