"""Networks: messages to facts, checked, and back. Pure."""

from collections.abc import Iterable

from protos.exitd.v1 import exitd_pb2 as pb
from shim.patterns import LatePattern
from supervisor.api.values import bad, matching, one_of
from supervisor.model import networks
from supervisor.model.addresses import address
from supervisor.model.networks import (
    MOST_NETWORKS,
    MOST_PORT,
    MOST_PUBLISHED,
    MOST_WISHED,
    PROTOCOLS,
    AddressWish,
    Attached,
    NetworkView,
    PrunedNetworks,
    PublishedPort,
    StuckAttachment,
)

_NAME = LatePattern(r"[a-zA-Z0-9][a-zA-Z0-9_.-]{0,62}")
_MAC = LatePattern(r"[0-9a-f][02468ace](:[0-9a-f]{2}){5}")  # of one station


def network_of(text: str) -> str:
    return matching("network", text, _NAME, "none, host, pod, bridge or a network's name")


def more_networks_of(first: str, names: Iterable[str]) -> tuple[str, ...]:
    """Raises BadRequest."""
    found = tuple(names)
    if len(found) >= MOST_NETWORKS:
        raise bad("more_networks", f"{len(found)} of them", f"at most {MOST_NETWORKS - 1}")
    for index, name in enumerate(found):
        matching(f"more_networks[{index}]", name or " ", _NAME, "a network's name")
    networks.refuse_mixed(first, found)
    return found


def wishes_of(messages: Iterable[pb.AddressWish]) -> tuple[AddressWish, ...]:
    """Return the checked addresses. Raises BadRequest, which names the field."""
    found = tuple(_wish(f"addresses[{index}]", each) for index, each in enumerate(messages))
    if len(found) > MOST_NETWORKS:
        raise bad("addresses", f"{len(found)} of them", f"at most {MOST_NETWORKS}")
    return found


def _wish(field: str, message: pb.AddressWish) -> AddressWish:
    if not 0 < len(message.ips) + bool(message.mac) <= MOST_WISHED:
        raise bad(field, f"{len(message.ips)} addresses", f"1 to {MOST_WISHED}")
    network = matching(f"{field}.network", message.network, _NAME, "a network's name")
    ips = tuple(_ip(f"{field}.ips", each or " ") for each in message.ips)
    mac = matching(f"{field}.mac", message.mac.lower().replace("-", ":"), _MAC, "as in 02:42:ac:11:00:02")
    return AddressWish(network, ips, mac)


def ports_of(messages: Iterable[pb.PortMapping]) -> tuple[PublishedPort, ...]:
    """Return the checked ports. Raises BadRequest, which names the field."""
    found = tuple(_port(f"ports[{index}]", each) for index, each in enumerate(messages))
    if len(found) > MOST_PUBLISHED:
        raise bad("ports", f"{len(found)} of them", f"at most {MOST_PUBLISHED}")
    if twice := next(networks.doubled(found), None):
        raise bad(
            "ports", f"{twice.host_port}/{twice.protocol}", "another port of the machine: that one is there twice"
        )
    return found


def _port(field: str, message: pb.PortMapping) -> PublishedPort:
    if not 0 < message.container_port <= MOST_PORT:
        raise bad(f"{field}.container_port", str(message.container_port), f"1 to {MOST_PORT}")
    if message.host_port > MOST_PORT:
        raise bad(f"{field}.host_port", str(message.host_port), f"1 to {MOST_PORT}, or 0 for a free one")
    protocol = one_of(f"{field}.protocol", message.protocol or "tcp", PROTOCOLS)
    return PublishedPort(message.container_port, message.host_port, protocol, _ip(f"{field}.host_ip", message.host_ip))


def _ip(field: str, text: str) -> str:
    try:
        return address(text) if text else ""
    except ValueError as error:
        raise bad(field, text, "an address such as 127.0.0.1 or ::1") from error


def exposed_of(message: pb.ExposeSpec) -> tuple[tuple[int, str], ...]:
    """Raises BadRequest."""
    if len(message.ports) > MOST_PUBLISHED:
        raise bad("expose.ports", f"{len(message.ports)} of them", f"at most {MOST_PUBLISHED}")
    return tuple(map(_exposed, message.ports))


def _exposed(word: str) -> tuple[int, str]:
    found = networks.exposed(word)
    if found is None:
        raise bad("expose.ports", word, "a port such as 80 or 53/udp")
    return found


def ports_message(ports: Iterable[PublishedPort]) -> list[pb.PortMapping]:
    return [
        pb.PortMapping(
            container_port=each.container_port, host_port=each.host_port, protocol=each.protocol, host_ip=each.host_ip
        )
        for each in ports
    ]


def expose_message(exposed: Iterable[tuple[int, str]], *, publish_all: bool) -> pb.ExposeSpec | None:
    """Return the message, as `exposed_of` reads it; None where nothing was asked for."""
    found = pb.ExposeSpec(publish_all=publish_all, ports=[f"{port}/{protocol}" for port, protocol in exposed])
    return found if found.ListFields() else None


def attachment_message(attached: Attached) -> pb.Attachment:
    return pb.Attachment(
        network=attached.network,
        interface=attached.interface,
        mac=attached.mac,
        addresses=attached.addresses,
        gateways=attached.gateways,
        dns_servers=attached.servers,
        dns_searches=attached.searches,
        dns_options=attached.options,
    )


def wishes_message(wishes: Iterable[AddressWish]) -> list[pb.AddressWish]:
    return [pb.AddressWish(network=each.network, ips=each.ips, mac=each.mac) for each in wishes]


def stuck_message(stuck: StuckAttachment) -> pb.StuckAttachment:
    return pb.StuckAttachment(
        record=stuck.record,
        container=stuck.container,
        run=stuck.run,
        networks=stuck.networks,
        ports=ports_message(stuck.ports),
        tries=stuck.tries,
        why=stuck.why,
    )


def pruned_message(pruned: PrunedNetworks) -> pb.PruneNetworksReply:
    return pb.PruneNetworksReply(
        taken_down=map(stuck_message, pruned.taken_down), given_up=map(stuck_message, pruned.given_up)
    )


def network_message(view: NetworkView) -> pb.Network:
    return pb.Network(
        name=view.name,
        file=view.file,
        cni_version=view.version,
        plugins=view.plugins,
        default=view.default,
        publishes=view.publishes,
        config=view.config,
        error=view.error,
        containers=view.containers,
    )
