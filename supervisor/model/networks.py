"""Facts about networks: the ports that a container publishes, and what a network has given it. Pure."""

from collections.abc import Iterable, Iterator

from shim.frozen import frozen
from supervisor.model.errors import BadRequest

NONE, HOST, POD, BRIDGE, AUTO = "none", "host", "pod", "bridge", "auto"
WITHOUT = frozenset({NONE, HOST, POD})  # no network of a configuration is called so
PROTOCOLS = ("tcp", "udp", "sctp")
MOST_PORT = 65535
MOST_PUBLISHED = 1024  # of one container: each is several rules of the kernel, and a plugin has 30 s for all of them
MOST_NETWORKS = 16  # of one container
MOST_WISHED = 8  # addresses for one interface
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
class AddressWish:
    """The addresses that a network is to give. `network` empty: the container's first. `mac` empty: any."""

    network: str = ""
    ips: tuple[str, ...] = ()
    mac: str = ""


@frozen
class StuckAttachment:
    """What plugins could not take down: `tries` have failed, the last because of `why`. Others do not get its ports."""

    record: str
    container: str
    run: int
    networks: tuple[str, ...]
    ports: tuple[PublishedPort, ...]
    tries: int
    why: str


@frozen
class PrunedNetworks:
    """What came of a last try: taken down after all, or given up."""

    taken_down: tuple[StuckAttachment, ...] = ()
    given_up: tuple[StuckAttachment, ...] = ()


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


def has_own(network: str, sandbox: str) -> bool:
    """Return whether exitd makes the network namespace, and a network's plugins its interface: not for a member of a
    pod, `sandbox`, which joins its pod's."""
    return network not in ("", *WITHOUT) and not sandbox


def refuse_mixed(first: str, more: tuple[str, ...]) -> None:
    """Raise BadRequest for words that cannot stand beside others: each is the whole network of a container."""
    if not more:
        return
    if not first:
        raise BadRequest("network: name the first one there, and the others in more_networks", field="network")
    if alone := next((each for each in (first, *more) if each in WITHOUT), ""):
        raise BadRequest(
            f"network {alone}: it is the whole network of a container, and no other goes with it; leave one out",
            field="network",
        )


def interface(index: int) -> str:
    """Return the name of a container's interface in the network of that place among its networks."""
    return f"eth{index}"


def addresses(attached: Iterable[Attached]) -> tuple[str, ...]:
    """Return the addresses without their prefixes."""
    return tuple(address.partition("/")[0] for each in attached for address in each.addresses)


class TakenPorts:
    """A set of ports of the machine, in which a clash is found without a look at all of them."""

    def __init__(self, ports: Iterable[PublishedPort] = ()) -> None:
        self._addresses: dict[tuple[int, str], set[str]] = {}
        for port in ports:
            self.add(port)

    def add(self, port: PublishedPort) -> None:
        if port.host_port:
            self._addresses.setdefault((port.host_port, port.protocol), set()).add(port.host_ip)

    def clashes(self, port: PublishedPort) -> bool:
        """Return whether the port would be the same port of the machine as one of the set."""
        at = self._addresses.get((port.host_port, port.protocol), set())
        return bool(at) and (port.host_ip in at or port.host_ip in EVERY or not at.isdisjoint(EVERY))


def doubled(ports: Iterable[PublishedPort]) -> Iterator[PublishedPort]:
    """Yield the ports that an earlier one of the list has taken."""
    seen = TakenPorts()
    for port in ports:
        if seen.clashes(port):
            yield port
        seen.add(port)


def exposed(word: str) -> tuple[int, str] | None:
    """Return port and protocol of a word such as 80 or 53/udp; None if it is no such word."""
    port, _, protocol = word.partition("/")
    protocol = protocol.lower() or "tcp"
    if not (port.isascii() and port.isdecimal() and len(port) <= 5 and protocol in PROTOCOLS):
        return None
    return (int(port), protocol) if 0 < int(port) <= MOST_PORT else None
