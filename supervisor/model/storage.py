"""Where a container's writable layer is: what it writes on top of its image. Pure."""

from enum import StrEnum

from shim.frozen import frozen
from supervisor.model import parsing

LEAST_BYTES, MOST_BYTES = 64 << 10, 1 << 50  # of a tmpfs: tmpfs(5) takes 0 for no limit at all
WORDS = "disk, tmpfs or tmpfs:SIZE"


class StorageKind(StrEnum):
    """disk: below the daemon's root directory. tmpfs: in memory, which the container's memory limit counts."""

    DISK = "disk"
    TMPFS = "tmpfs"


@frozen
class Storage:
    """A writable layer. In a request, a kind of None means the daemon's configuration. The default is what containers
    have that an exitd made before there was a choice."""

    kind: StorageKind | None = StorageKind.TMPFS
    size_bytes: int = 0  # of a tmpfs; 0: `limits.scratch_mib` of the configuration, at each mount

    def __str__(self) -> str:
        """As `parse` reads it; empty for None."""
        return f"{self.kind}:{self.size_bytes}" if self.size_bytes else self.kind or ""


LEFT_OPEN = Storage(None)


def parse(text: str) -> Storage:
    """Return the storage of a word: disk, tmpfs, tmpfs:64m; empty leaves it open. Raises ValueError, which
    says what is allowed."""
    kind, colon, size = text.partition(":")
    if not text:
        return LEFT_OPEN
    if kind == StorageKind.DISK and colon:
        raise ValueError(f"{WORDS}; a layer on disk has no limit of its own, one in memory has")
    if kind not in [*StorageKind] or (colon and kind != StorageKind.TMPFS):
        raise ValueError(WORDS)
    size_bytes = parsing.parse(size) if colon else 0
    if colon and not LEAST_BYTES <= size_bytes <= MOST_BYTES:
        raise ValueError(f"{WORDS}, with a SIZE from {LEAST_BYTES >> 10}k to {MOST_BYTES >> 40}t")
    return Storage(StorageKind(kind), size_bytes)
