"""Last references to overlays are closed by another thread, all of them."""

import os

from supervisor.runtime.oci.unmounted import MOST_HELD, Unmounted


def test_however_many_there_are_each_is_closed() -> None:
    unmounted = Unmounted()
    pipes = [os.pipe() for _ in range(2 * MOST_HELD)]
    for _, fd in pipes:
        unmounted.let_go(fd)
    for fd, _ in pipes:
        assert os.read(fd, 1) == b""  # the end of a pipe whose other end is closed; waits for that
        os.close(fd)
