"""The ports of this machine that are to lead to containers: chosen where none is named, and refused where a program has
them. `first_taken` blocks.

A socket of an outgoing connection has a port, too, of those in ip_local_port_range: bind(2) refuses it to others, and
yet no connection comes in there. So exitd chooses outside of them, and has the tables of listeners decide. ip(7),
proc(5): /proc/net/tcp.
"""

import errno
import ipaddress
import secrets
import socket
import sys
from collections.abc import Iterable, Iterator

from shim.frozen import replace
from supervisor.model.errors import WrongState
from supervisor.model.networks import EVERY, MOST_PORT, PublishedPort, TakenPorts

KINDS = {"tcp": (socket.SOCK_STREAM, 0), "udp": (socket.SOCK_DGRAM, 0), "sctp": (socket.SOCK_STREAM, 132)}
LOCAL_RANGE = "/proc/sys/net/ipv4/ip_local_port_range"
TABLES = ("/proc/net/tcp", "/proc/net/tcp6")
MOST_TABLE_BYTES = 16 << 20  # 100 000 sockets
LISTENS = "0A"
FEWEST = 1024  # so many ports at least are to choose from
LOWEST = 20_000  # below it are those of well-known services
DYNAMIC = (49152, MOST_PORT)  # RFC 6335

Listeners = dict[int, set[str]]  # the addresses at which something listens, by port


def outside(first: int, last: int) -> tuple[int, int]:
    """Return the first and the last of the ports to choose from, given those of outgoing connections: not among these,
    unless they leave too few."""
    if MOST_PORT - last >= FEWEST:
        return last + 1, MOST_PORT
    return (LOWEST, first - 1) if first - LOWEST >= FEWEST else DYNAMIC


def numbers() -> Iterator[int]:
    """Yield the ports to choose from, each once, from a random one on."""
    try:
        with open(LOCAL_RANGE, encoding="ascii") as file:
            first, last = outside(*map(int, file.read(100).split()))
    except (OSError, ValueError, TypeError):  # no such parameter here
        first, last = DYNAMIC
    count = last - first + 1
    start = secrets.randbelow(count)
    for step in range(count):
        yield first + (start + step) % count


def choose(port: PublishedPort, taken: TakenPorts, among: Iterator[int]) -> PublishedPort:
    """Return the port with the first of these of the machine that nothing has now. Raises WrongState."""
    for number in among:
        chosen = replace(port, host_port=number)
        if not taken.clashes(chosen) and _can_bind(chosen):
            return chosen
    raise WrongState(f"ports: no free port of this machine for {port.container_port}/{port.protocol}; name one")


def first_taken(ports: Iterable[PublishedPort]) -> PublishedPort | None:
    """Return the first of the ports that a program of this machine has."""
    listeners: Listeners | None = None
    for port in ports:
        if _can_bind(port):
            continue
        if port.protocol != "tcp":
            return port
        try:
            listeners = _listeners() if listeners is None else listeners
        except (OSError, ValueError):  # they cannot be read
            return port
        if is_listened_at(port, listeners):
            return port
    return None


def _can_bind(port: PublishedPort) -> bool:
    """Return whether no socket of this machine has the port. True where that cannot be found out."""
    kind, protocol = KINDS[port.protocol]
    address = port.host_ip or "0.0.0.0"
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, kind, protocol) as line:
            if port.protocol != "udp":
                line.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # one at which no process listens is free
            line.bind((address, port.host_port))
    except OSError as error:
        return error.errno != errno.EADDRINUSE
    return True


def is_listened_at(port: PublishedPort, listeners: Listeners) -> bool:
    """Return whether a listener would lose connections to the port."""
    at = listeners.get(port.host_port, set())
    return bool(at) and (port.host_ip in EVERY or port.host_ip in at or not at.isdisjoint(EVERY))


def _listeners() -> Listeners:
    """Raises OSError, ValueError."""
    found: Listeners = {}
    for path in TABLES:
        try:
            with open(path, encoding="ascii") as file:
                table = file.read(MOST_TABLE_BYTES + 1)
        except FileNotFoundError:  # no IPv6
            continue
        if len(table) > MOST_TABLE_BYTES:
            raise ValueError("too many sockets")
        for port, address in listening(table):
            found.setdefault(port, set()).add(address)
    return found


def listening(table: str) -> Iterator[tuple[int, str]]:
    """Yield port and address of each socket of the table that listens. Raises ValueError."""
    for line in table.splitlines()[1:]:
        words = line.split(maxsplit=4)
        if len(words) > 3 and words[3] == LISTENS:
            address, _, port = words[1].partition(":")
            yield int(port, 16), _address(bytes.fromhex(address))


def _address(raw: bytes) -> str:
    """The kernel writes words of 32 bits, each as this machine has it."""
    data = b"".join(int.from_bytes(raw[at : at + 4], "big").to_bytes(4, sys.byteorder) for at in range(0, len(raw), 4))
    if len(data) == 4:
        return str(ipaddress.IPv4Address(data))
    address = ipaddress.IPv6Address(data)
    return str(address.ipv4_mapped or address)
