"""Facts about networks: the ports that a container publishes, and what a network has given it. Pure."""

from collections.abc import Iterable, Iterator

from shim.frozen import frozen

NONE, HOST, POD, BRIDGE, AUTO = "none", "host", "pod", "bridge", "auto"
WITHOUT = frozenset({NONE, HOST, POD})  # no network of a configuration is called so
PROTOCOLS = ("tcp", "udp", "sctp")
MOST_PORT = 65535
EVERY = frozenset({"", "0.0.0.0", "::"})  # as `ipaddress` writes them


@frozen
class PublishedPort:
    """A port of the machine that leads to one of a container. `host_port` 0: exitd chooses one. `host_ip` empty: all
    addresses of the machine."""

    container_port: int
    host_port: int = 0
    protocol: str = "tcp"
    host_ip: str = ""


@frozen
class Attached:
    """What a network has given a run of a container. `addresses` are with their prefix, as in 10.88.0.2/16."""

    network: str
    interface: str
    mac: str = ""
    addresses: tuple[str, ...] = ()
    gateways: tuple[str, ...] = ()
    servers: tuple[str, ...] = ()  # of the network's DNS, for /etc/resolv.conf
    searches: tuple[str, ...] = ()
    options: tuple[str, ...] = ()


@frozen
class NetworkView:
    """A configuration of a network, or a file that is none: `error` says why. `config` is the file's text."""

    file: str
    name: str = ""
    version: str = ""
    plugins: tuple[str, ...] = ()
    default: bool = False
    publishes: bool = False  # one of its plugins takes ports
    config: str = ""
    error: str = ""
    containers: tuple[str, ...] = ()  # ids of those that are in it now


def plain_address(text: str) -> str:
    """Return the address as `ipaddress` writes it. Raises ValueError for what is none, and for one with a zone, as in
    fe80::1%eth0: the zone's name may be any text, and means something in one network namespace alone."""
    import ipaddress  # commands that have no address do without

    if "%" in text:
        raise ValueError(f"{text!r} has a zone")
    return str(ipaddress.ip_address(text))


def has_own(network: str, sandbox: str) -> bool:
    """Return whether exitd makes the network namespace, and a network's plugins its interface: not for a member of a
    pod, `sandbox`, which joins its pod's."""
    return network not in ("", *WITHOUT) and not sandbox


def addresses(attached: Iterable[Attached]) -> tuple[str, ...]:
    """Return the addresses without their prefixes."""
    return tuple(address.partition("/")[0] for each in attached for address in each.addresses)


def clashes(one: PublishedPort, other: PublishedPort) -> bool:
    """Return whether both would be the same port of the machine."""
    same = (one.host_port, one.protocol) == (other.host_port, other.protocol)
    return same and bool(one.host_port) and (one.host_ip == other.host_ip or _is_all(one) or _is_all(other))


def _is_all(port: PublishedPort) -> bool:
    return port.host_ip in EVERY


def doubled(ports: Iterable[PublishedPort]) -> Iterator[PublishedPort]:
    """Yield the ports that an earlier one of the list has taken."""
    seen: list[PublishedPort] = []
    for port in ports:
        if any(clashes(port, each) for each in seen):
            yield port
        seen.append(port)


def exposed(word: str) -> tuple[int, str] | None:
    """Return port and protocol of a word such as 80 or 53/udp; None if it is no such word."""
    port, _, protocol = word.partition("/")
    protocol = protocol.lower() or "tcp"
    if not (port.isascii() and port.isdecimal() and len(port) <= 5 and protocol in PROTOCOLS):
        return None
    return (int(port), protocol) if 0 < int(port) <= MOST_PORT else None
