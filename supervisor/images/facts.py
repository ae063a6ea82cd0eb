"""What is known of an image: its configuration, its layers, and how it is found again."""

from collections.abc import Sequence

from shim.frozen import frozen
from supervisor.images.reference import DIGEST as DIGEST
from supervisor.model.values import HealthSpec


@frozen
class ImageDefaults:
    """What an image says about the process to run (image-spec, config.md); empty if it says nothing."""

    entrypoint: tuple[str, ...] = ()
    cmd: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    user: str = ""
    workdir: str = ""
    stop_signal: str = ""
    labels: tuple[tuple[str, str], ...] = ()
    health: HealthSpec | None = None
    volumes: tuple[str, ...] = ()  # absolute paths, at which a container has anonymous volumes
    exposed: tuple[tuple[int, str], ...] = ()  # ports and their protocols

    def args(self, words: Sequence[str], entrypoint: Sequence[str] = ()) -> tuple[str, ...]:
        """Return the command line: the image's entrypoint, then the caller's words, or the image's own if there are
        none.

        If the caller gives an entrypoint, nothing comes from the image; one empty word removes the image's.
        """
        return (*self.first_words(entrypoint), *(words or (() if entrypoint else self.cmd)))

    def first_words(self, entrypoint: Sequence[str] = ()) -> tuple[str, ...]:
        """Return those of the command line that are the entrypoint's: the caller's, or the image's."""
        if entrypoint:
            return () if tuple(entrypoint) == ("",) else tuple(entrypoint)
        return self.entrypoint


@frozen
class Layer:
    """One unpacked layer: the digest of its uncompressed tar, and the number of its bytes."""

    diff_id: str
    size_bytes: int


@frozen
class Image:
    """One image of the store. `id` is the digest of its configuration, `digest` that of its manifest, if it came with
    one. `names` are all its NAME:TAG; there is none if another image has taken the last one."""

    id: str
    digest: str
    names: tuple[str, ...]
    layers: tuple[Layer, ...]  # lowest first
    created: str

    @property
    def size_bytes(self) -> int:
        return sum({layer.diff_id: layer.size_bytes for layer in self.layers}.values())


@frozen
class Resolved:
    """What a container is made from. `lower` are overlay's lower directories, topmost first, at least one.

    `image` is the id to hold it by; empty if nothing needs to be held (a directory, the pause program).
    """

    lower: tuple[str, ...]
    config: ImageDefaults
    image: str = ""
    name: str = ""


@frozen
class RemovedImage:
    """What was removed: names, and the ids of the images whose last name was among them."""

    names: tuple[str, ...]
    ids: tuple[str, ...]


@frozen
class PrunedImages:
    """What a pruning has removed, and the bytes of the layers that went with it."""

    removed: RemovedImage
    reclaimed_bytes: int


@frozen
class ImageLimits:
    """How much one load may unpack, all its layers together."""

    total_bytes: int = 64 << 30
    entries: int = 1_000_000
    kept_bytes: int = 256 << 20  # of names in memory: a million directories with names of 128 bytes
