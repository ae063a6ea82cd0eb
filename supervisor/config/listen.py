"""Where something of exitd's listens besides the API: an address that only this machine reaches, or a socket's path.

Any process that may connect may read, and nothing is encrypted: so an address that other machines reach is refused. For
these there are proxies that know who is asking.
"""

import ipaddress
import os
import re

from shim.frozen import frozen

WANTED = '"127.0.0.1:PORT", "[::1]:PORT" or "unix:PATH" with an absolute path: no other machine may reach it'
MOST_PATH_BYTES = 107  # sun_path, unix(7)
_TCP = re.compile(r"(?:\[(?P<six>[0-9a-fA-F:]+)\]|(?P<four>[0-9.]+)):(?P<port>[0-9]{1,5})")
UNIX = "unix:"


@frozen
class TcpPlace:
    """An address and a port of the loopback interface."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@frozen
class UnixPlace:
    """The path of a socket."""

    path: str

    def __str__(self) -> str:
        return f"{UNIX}{self.path}"


Place = TcpPlace | UnixPlace


def parse(text: str) -> Place:
    """Raises ValueError for what is none, and for an address that is not the loopback interface's."""
    if text.startswith(UNIX):
        path = text.removeprefix(UNIX)
        if not os.path.isabs(path) or "\0" in path or path.endswith("/") or len(os.fsencode(path)) > MOST_PATH_BYTES:
            raise ValueError(text)
        return UnixPlace(os.path.normpath(path))
    found = _TCP.fullmatch(text)
    if found is None:
        raise ValueError(text)
    host, port = ipaddress.ip_address(found["six"] or found["four"]), int(found["port"])
    if not host.is_loopback or not 0 < port < 1 << 16:
        raise ValueError(text)
    return TcpPlace(str(host), port)
