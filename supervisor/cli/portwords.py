"""Converts -p, -P and --expose, in docker's words, to messages, and published ports back to words."""

from collections.abc import Iterable, Iterator

from protos.exitd.v1 import exitd_pb2 as pb
from shim.frozen import frozen
from supervisor.model.errors import BadRequest
from supervisor.model.networks import MOST_PORT, PROTOCOLS, plain_address

FORM = "write [[IP:][HOST]:]CONTAINER[/PROTOCOL], as in 8080:80, 127.0.0.1:8080:80/tcp or 7000-7009:7000-7009/udp"


@frozen
class PortWords:
    """The options about ports, literally."""

    publish: tuple[str, ...] = ()
    publish_all: bool = False
    expose: tuple[str, ...] = ()


def ports(words: Iterable[str]) -> list[pb.PortMapping]:
    """Return the mappings of -p. Raises BadRequest."""
    return [each for word in words for each in _mappings(word)]


def _mappings(word: str) -> Iterator[pb.PortMapping]:
    rest, slash, protocol = word.partition("/")
    protocol = protocol.lower() if slash else "tcp"
    if protocol not in PROTOCOLS:
        raise BadRequest(f"-p {word}: the protocol is {', '.join(PROTOCOLS)}; {FORM}")
    around, _, container = rest.rpartition(":")
    ip, host = _host(word, around)
    within, beyond = _range(word, container), _range(word, host) if host else None
    if beyond is None:
        pairs = [(port, 0) for port in within]
    elif len(within) == 1 and len(beyond) > 1:
        raise BadRequest(f"-p {word}: of a range of the machine's exitd chooses none; name one port, or leave it out")
    elif len(within) != len(beyond):
        raise BadRequest(f"-p {word}: the two ranges are of different lengths; {FORM}")
    else:
        pairs = list(zip(within, beyond, strict=True))
    for port, host_port in pairs:
        yield pb.PortMapping(container_port=port, host_port=host_port, protocol=protocol, host_ip=ip)


def _host(word: str, around: str) -> tuple[str, str]:
    """Return the address and the port or range of the machine; each may be empty."""
    if around.startswith("["):
        ip, bracket, host = around[1:].partition("]")
        if not bracket or (host and not host.startswith(":")):
            raise BadRequest(f"-p {word}: {FORM}")
        host = host[1:]
    else:
        ip, _, host = around.rpartition(":")
    try:
        return (plain_address(ip) if ip else "", host)
    except ValueError as error:
        raise BadRequest(f"-p {word}: {ip!r} is no address; {FORM}") from error


def _range(word: str, text: str) -> range:
    first, dash, last = text.partition("-")
    numbers = [_port(word, each) for each in ((first, last) if dash else (first,))]
    if numbers[0] > numbers[-1]:
        raise BadRequest(f"-p {word}: {text} ends before it begins")
    return range(numbers[0], numbers[-1] + 1)


def _port(word: str, text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= 5 and 0 < int(text) <= MOST_PORT):
        raise BadRequest(f"-p {word}: {text!r} is no port, 1 to {MOST_PORT}; {FORM}")
    return int(text)


def expose_spec(words: PortWords) -> pb.ExposeSpec | None:
    """Return None if neither -P nor --expose was given. Raises BadRequest."""
    named = [f"{port}{slash}{protocol}" for word in words.expose for port, slash, protocol in _exposed(word)]
    found = pb.ExposeSpec(publish_all=words.publish_all, ports=named)
    return found if found.ListFields() else None


def _exposed(word: str) -> Iterator[tuple[int, str, str]]:
    numbers, slash, protocol = word.partition("/")
    for port in _range(word, numbers):
        yield port, slash, protocol


def outside(port: pb.PortMapping) -> str:
    """Return the machine's side of a mapping, as `docker port` shows it."""
    ip = port.host_ip or "0.0.0.0"
    return f"{f'[{ip}]' if ':' in ip else ip}:{port.host_port}"


def inside(port: pb.PortMapping) -> str:
    return f"{port.container_port}/{port.protocol}"


def column(ports_: Iterable[pb.PortMapping]) -> str:
    """Return what `ps` shows."""
    return ", ".join(f"{outside(each)}->{inside(each)}" for each in ports_)


def by_port(ports_: Iterable[pb.PortMapping]) -> dict[str, list[dict[str, str]]]:
    """Return the ports as docker's inspect has them, by those of the container."""
    found: dict[str, list[dict[str, str]]] = {}
    for each in ports_:
        found.setdefault(inside(each), []).append(
            {"HostIp": each.host_ip or "0.0.0.0", "HostPort": str(each.host_port)}
        )
    return found
