"""Ranges of user and group ids, one for the user namespace of each container that has its own. Pure.

user_namespaces(7). In the container they are 0 to 65,535; on the machine they are those of the range, with which
nothing else runs.
"""

from collections.abc import Iterable

from shim.frozen import frozen

COUNT = 65_536  # of each container: all ids of 16 bits, as podman's --userns=auto has it at least
NOBODY = 65_534  # what the kernel shows for an owner outside the range, overflowuid of proc_sys_kernel(5)
MOST_ID = 2**32 - 1  # -1 is no id

HOST, AUTO = "host", "auto"
KEEPS = ("keep", "keep-id")  # podman's words
NO_KEEP = (
    "keeps the ids of a user who runs containers without root, and exitd runs them as root, of whom nothing must be "
    "kept; podman refuses root's keep-id, too: write auto, or host with --user"
)


@frozen
class IdRange:
    """`count` ids from `first` on."""

    first: int
    count: int = COUNT

    def outside(self, inside: int) -> int:
        """Return the machine's id of one in the container; for one outside the range, that of NOBODY."""
        return self.first + (inside if 0 <= inside < self.count else NOBODY)

    def inside(self, outside: int) -> int:
        """Return the container's id of one of the machine's; NOBODY, if it is not in the range."""
        return outside - self.first if self.first <= outside < self.first + self.count else NOBODY

    def overlaps(self, other: "IdRange") -> bool:
        return self.first < other.first + other.count and other.first < self.first + self.count

    def __str__(self) -> str:
        """As inspect of podman shows a mapping: inside, outside, how many."""
        return f"0:{self.first}:{self.count}"


def choose(pool: IdRange, taken: Iterable[IdRange]) -> IdRange | None:
    """Return the first range of the pool that overlaps none of these; None if there is none."""
    held = sorted(taken, key=lambda each: each.first)
    end = min(pool.first + pool.count, MOST_ID)
    first = pool.first
    for each in held:
        if first + COUNT <= each.first:
            break
        first = max(first, each.first + each.count)
    return IdRange(first) if first + COUNT <= end else None
