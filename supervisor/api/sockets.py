"""Who may connect: the API's sockets belong to root and, where it exists, to the group exitd (root in effect)."""

import grp
import os
from collections.abc import Iterator
from contextlib import contextmanager

GROUP = "exitd"


@contextmanager
def nobody_else() -> Iterator[None]:
    """What is made inside has mode 0600 from its first moment. The umask is the process's: only around a bind."""
    before = os.umask(0o177)
    try:
        yield
    finally:
        os.umask(before)


def admit_group(path: str, group: str = GROUP) -> bool:
    """Gives a bound socket to root:`group`, mode 0660. False where no such group exists: it stays the owner's alone."""
    try:
        gid = grp.getgrnam(group).gr_gid
    except KeyError:
        os.chmod(path, 0o600)
        return False
    os.chown(path, -1, gid)
    os.chmod(path, 0o660)
    return True
