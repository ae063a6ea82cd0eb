"""The ports of containers, as values. Pure."""

from collections.abc import Iterable

from protos.exitd.v1 import exitd_pb2 as pb
from shim.frozen import frozen
from supervisor.cli.manifest.fields import Field, Notes, text_of
from supervisor.cli.manifest.marks import MarkedNumber
from supervisor.model.addresses import address

CRI_PROTOCOLS = ("TCP", "UDP", "SCTP")  # Protocol, by its numbers


@frozen
class PortMapping:
    """A port of a container, and the port of the machine that leads to it. `host_port` 0: none does."""

    host_ip: str
    host_port: int
    container_port: int
    protocol: str  # tcp | udp | sctp


def mappings_of(container: Field, notes: Notes, *, host_network: bool) -> tuple[PortMapping, ...]:
    """Return the checked ports of a container. With the machine's network a host port is the container's own."""
    found = []
    ports = container.get("ports")
    for each in ports.items() if ports is not None else ():
        port, host = each.get("containerPort"), each.get("hostPort")
        if port is None:
            each.refuse(notes, "containerPort is missing")
            continue
        host_port = host.integer() if host is not None else 0
        if host is not None and host_network and host_port not in (0, port.integer()):
            host.refuse(notes, f"with hostNetwork the host's port is the container's, {port.integer()}")
        host_ip = _address(each.get("hostIP"), notes)
        protocol = text_of(each.get("protocol"), "TCP").lower()
        found.append(PortMapping(host_ip, host_port, port.integer(), protocol))
    return tuple(found)


def sandbox_mappings(ports: Field | None, notes: Notes, *, host_network: bool) -> tuple[PortMapping, ...]:
    """Return the checked `port_mappings` of CRI's PodSandboxConfig that lead from a port of the machine. With the
    machine's network such a port is the container's own."""
    found = []
    for each in ports.items() if ports is not None else ():
        port, host, protocol = each.get("container_port"), each.get("host_port"), each.get("protocol")
        host_port = host.integer() if host is not None else 0
        container_port = port.integer() if port is not None else 0
        host_ip = _address(each.get("host_ip"), notes)
        if host is None or not host_port:
            continue
        if not container_port:
            each.refuse(notes, "container_port is missing")
        elif host_network and host_port != container_port:
            host.refuse(notes, f"with the machine's network the host's port is the container's, {container_port}")
        elif not host_network:
            kind = protocol_of(protocol).lower() if protocol is not None else "tcp"
            found.append((PortMapping(host_ip, host_port, container_port, kind), host))
    refuse_clashes(found, notes)
    return tuple(port for port, _ in found)


def protocol_of(field: Field) -> str:
    """Return a protocol of CRI, by its number or its name. Raises WrongField."""
    if isinstance(field.node.value, MarkedNumber):
        return CRI_PROTOCOLS[field.integer(0, len(CRI_PROTOCOLS) - 1)]
    if field.text() not in CRI_PROTOCOLS:
        raise field.wrong(f"{field.text()!r} is none of {', '.join(CRI_PROTOCOLS)}")
    return field.text()


def _address(field: Field | None, notes: Notes) -> str:
    if field is None or not field.text():
        return ""
    try:
        return address(field.text())
    except ValueError:
        field.refuse(notes, f"{field.text()[:100]!r} is no address; write 127.0.0.1")
        return ""


def refuse_clashes(found: Iterable[tuple[PortMapping, Field]], notes: Notes) -> None:
    """Refuse what two containers of one file cannot both have."""
    seen: dict[tuple[str, int, str], Field] = {}
    for port, where in found:
        if port.host_port:
            key = (port.host_ip, port.host_port, port.protocol)
            if key in seen:
                where.refuse(notes, f"the host's port {port.host_port}/{port.protocol} is taken by {seen[key]}")
            seen.setdefault(key, where)


def put_ports(pause: pb.ContainerSpec, ports: Iterable[PortMapping]) -> None:
    """Publish those with a port of the machine, as the pause container's: its network is the pod's."""
    pause.ports.extend(
        pb.PortMapping(
            container_port=port.container_port,
            host_port=port.host_port,
            protocol=port.protocol,
            host_ip=port.host_ip,
        )
        for port in ports
        if port.host_port
    )
