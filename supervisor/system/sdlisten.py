"""Sockets that the service manager has bound and listens on for us: sd_listen_fds_with_names(3) without libsystemd."""

import os
import socket
from collections.abc import MutableMapping

from supervisor.model.errors import CannotStart

FIRST_FD = 3
VARIABLES = ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES", "LISTEN_PIDFDID")


def given(known: frozenset[str], environment: MutableMapping[str, str] = os.environ) -> dict[str, socket.socket]:
    """Each by its FileDescriptorName=. To be called before there are children: they shall have neither the variables
    nor the descriptors. Raises CannotStart for what is not in `known`, or is no listening unix socket."""
    told = {name: environment.pop(name, "") for name in VARIABLES}
    if told["LISTEN_PID"] != str(os.getpid()) or not told["LISTEN_FDS"].isdecimal():
        return {}
    names = told["LISTEN_FDNAMES"].split(":")
    found: dict[str, socket.socket] = {}
    for place in range(int(told["LISTEN_FDS"])):
        name = names[place] if place < len(names) else ""
        if name not in known or name in found:
            wanted = " and ".join(sorted(known))
            raise CannotStart(f"the service manager passes a socket {name!r}; known is {wanted}, once each")
        found[name] = _taken(FIRST_FD + place, name)
    return found


def _taken(fd: int, name: str) -> socket.socket:
    try:
        os.set_inheritable(fd, False)
        taken = socket.socket(fileno=fd)
        listens = taken.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    except OSError as error:
        raise CannotStart(f"the socket {name!r} of the service manager: {error.strerror}") from error
    if (taken.family, taken.type) != (socket.AF_UNIX, socket.SOCK_STREAM) or not listens:
        raise CannotStart(f"the socket {name!r} of the service manager is not one of ListenStream= with a path")
    return taken
