"""Many lower directories in one mount option: mount(2) takes one page of options, too little for 127 paths."""

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

MOST_OPTION_BYTES = 3000  # of a page of 4096 bytes, so that upperdir, workdir and flags fit


def escape_layer(path: str) -> str:
    """Escape a path for overlay's mount options, where colon, comma and backslash have a meaning."""
    for special in ("\\", ":", ","):
        path = path.replace(special, "\\" + special)
    return path


@contextmanager
def lowerdir(layers: Sequence[str]) -> Iterator[str]:
    """Yield the value of overlay's option `lowerdir`, topmost layer first, valid for a mount inside the block.

    It has paths if they fit, since mountinfo shows them; otherwise descriptors, which the kernel resolves to the same
    directories.
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
