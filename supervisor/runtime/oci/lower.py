"""Many lower directories in one mount option: mount(2) takes a page of options, and 127 paths are more than that."""

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

MOST_OPTION_BYTES = 3000  # of a page of 4096, so that upperdir, workdir and flags find room


def escape_layer(path: str) -> str:
    """A path inside overlay's mount options, where colon, comma and backslash have a meaning."""
    for special in ("\\", ":", ","):
        path = path.replace(special, "\\" + special)
    return path


@contextmanager
def lowerdir(layers: Sequence[str]) -> Iterator[str]:
    """The value of overlay's option `lowerdir`, topmost first, good for a mount inside the block.

    Paths where they fit, for mountinfo shows them; else descriptors, which the kernel follows to the same directories.
    """
    text = ":".join(map(escape_layer, layers))
    if len(os.fsencode(text)) <= MOST_OPTION_BYTES:
        yield text
        return
    with ExitStack() as held:
        numbers = []
        for layer in layers:
            fd = os.open(layer, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            held.callback(os.close, fd)
            numbers.append(fd)
        yield ":".join(f"/proc/self/fd/{fd}" for fd in numbers)
