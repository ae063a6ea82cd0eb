"""The service manager, without libsystemd: sd_notify(3), and the sockets on which it listens for exitd,
sd_listen_fds(3)."""

import os
import socket
import time
from collections.abc import MutableMapping

from supervisor.model.errors import CannotStart

_SEND_SECONDS = 1.0  # a manager that does not read must not hold the daemon up


def notify(*lines: str) -> bool:
    """Send `NAME=value` lines as one datagram to $NOTIFY_SOCKET. Return False if there is none, or if it does not take
    them."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return False
    if address.startswith("@"):
        address = "\0" + address[1:]  # the abstract namespace, unix(7)
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as manager:
            manager.settimeout(_SEND_SECONDS)
            manager.sendto("\n".join(lines).encode(), address)
    except OSError:
        return False
    return True


def ready(text: str = "") -> bool:
    """Report that exitd serves; also ends a reload."""
    return notify("READY=1", f"STATUS={_one_line(text)}") if text else notify("READY=1")


def reloading() -> bool:
    """Report that a reload has begun; `ready` ends it. The time identifies the reload (Type=notify-reload)."""
    return notify("RELOADING=1", f"MONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}")


def stopping() -> bool:
    return notify("STOPPING=1")


def _one_line(text: str) -> str:
    return " ".join(text.splitlines())


# -- sockets that it has bound


FIRST_FD = 3
VARIABLES = ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES", "LISTEN_PIDFDID")


def given(known: frozenset[str], environment: MutableMapping[str, str] = os.environ) -> dict[str, socket.socket]:
    """Return the sockets by their FileDescriptorName=. Call it before there are children, which must have neither the
    variables nor the descriptors. Raises CannotStart when one is not in `known`, or is no listening unix socket."""
    variables = {name: environment.pop(name, "") for name in VARIABLES}
    if variables["LISTEN_PID"] != str(os.getpid()) or not variables["LISTEN_FDS"].isdecimal():
        return {}
    names = variables["LISTEN_FDNAMES"].split(":")
    found: dict[str, socket.socket] = {}
    for place in range(int(variables["LISTEN_FDS"])):
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
