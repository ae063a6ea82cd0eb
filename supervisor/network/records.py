"""What is kept of an attachment from before its ADD until after its DEL. Pure.

ROOT/networks/ID-RUN, JSON: a later daemon, also after a boot, takes down by it what an earlier one has put up, whatever
has become of the container's row and of the network's configuration.
"""

import json
import re
from typing import Any

from shim.frozen import frozen, replace
from shim.patterns import LatePattern
from supervisor.model import networks
from supervisor.model.networks import MOST_NETWORKS, MOST_PORT, PROTOCOLS, PublishedPort
from supervisor.network import calls, conflist
from supervisor.network.conflist import NetworkConfig, NotConfig

VERSION = 2  # of records of several networks, and of one with addresses that were asked for
MOST_BYTES = MOST_NETWORKS * (8 << 20)

_INTERFACE = LatePattern(r"eth[0-9]{1,2}")
_FILE = LatePattern(r"([A-Za-z0-9][A-Za-z0-9_.-]{0,199})-([1-9][0-9]{0,18})", re.ASCII)


class BadAttachment(ValueError):
    """A file that no exitd of this version wrote like this; says why."""


class NewerRecord(BadAttachment):
    """One that a later version wrote, which will take it down."""


@frozen
class NetworkLink:
    """A run's interface in one network. `result`: the answer of ADD, empty while none is known. `plugin_dirs`: where
    the plugins of its ADD were. `ips` and `mac`: what was asked for, empty: any."""

    interface: str
    network: NetworkConfig
    plugin_dirs: tuple[str, ...]
    ports: tuple[PublishedPort, ...] = ()
    result: str = ""
    ips: tuple[str, ...] = ()
    mac: str = ""

    @property
    def is_plain(self) -> bool:
        """Whether version 1 has words for it."""
        return self.interface == networks.interface(0) and not self.ips and not self.mac


@frozen
class AttachmentRecord:
    """What one run has: its links in the order of their ADDs, those that DEL has not taken down."""

    container: str
    run: int
    links: tuple[NetworkLink, ...] = ()

    @property
    def id(self) -> str:
        """Its id for the plugins, and its file's name: no two runs share one, so that a late DEL of one cannot hit
        another. The interface tells its networks apart."""
        return f"{self.container}-{self.run}"

    @property
    def ports(self) -> tuple[PublishedPort, ...]:
        return tuple(port for each in self.links for port in each.ports)

    @property
    def networks(self) -> tuple[str, ...]:
        return tuple(each.network.name for each in self.links)

    def with_link(self, link: NetworkLink) -> "AttachmentRecord":
        """Return the record with this link, in the place of what it had of that interface."""
        there = any(each.interface == link.interface for each in self.links)
        links = tuple(link if each.interface == link.interface else each for each in self.links)
        return replace(self, links=links if there else (*links, link))

    def without(self, interface: str) -> "AttachmentRecord":
        return replace(self, links=tuple(each for each in self.links if each.interface != interface))


def key_of(file: str) -> tuple[str, int] | None:
    """Return container and run of a record's file name; None for another file."""
    found = _FILE.fullmatch(file)
    return (found[1], int(found[2])) if found else None


def encode(record: AttachmentRecord) -> bytes:
    """Return the file's bytes: of version 1, which every exitd reads, where that has words for it."""
    about: dict[str, Any] = {"container": record.container, "run": record.run}
    links = [_link_document(each) for each in record.links]
    if len(record.links) == 1 and record.links[0].is_plain:
        return json.dumps({"version": 1, **about, **links[0]}).encode()
    more = ({"interface": each.interface, "ips": list(each.ips), "mac": each.mac} for each in record.links)
    return json.dumps(
        {"version": VERSION, **about, "links": [{**one, **two} for one, two in zip(links, more, strict=True)]}
    ).encode()


def _link_document(link: NetworkLink) -> dict[str, Any]:
    """Return what both versions have of a link."""
    return {
        "network": link.network.text,
        "plugin_dirs": list(link.plugin_dirs),
        "ports": [[each.container_port, each.host_port, each.protocol, each.host_ip] for each in link.ports],
        "result": link.result,
    }


def decode(data: bytes, file: str) -> AttachmentRecord:
    """Return the record in the file of that name. Raises BadAttachment."""
    try:
        found: dict[str, Any] = json.loads(data)
        version = found["version"]
        if version not in (1, VERSION):
            kind = NewerRecord if isinstance(version, int) and version > VERSION else BadAttachment
            raise kind(f"it is of version {str(version)[:20]}, and this exitd reads {VERSION}")
        links = [found] if version == 1 else found["links"]
        record = AttachmentRecord(_text(found["container"]), int(found["run"]), tuple(map(_link, links)))
    except BadAttachment:
        raise
    except (NotConfig, ValueError, TypeError, KeyError, RecursionError) as error:
        raise BadAttachment(str(error)[:200] or repr(error)[:200]) from error
    if record.id != file:
        raise BadAttachment("it is another attachment's")
    if not 0 < len(record.links) <= MOST_NETWORKS:
        raise BadAttachment("it has no network, or too many")
    if len({each.interface for each in record.links}) != len(record.links):
        raise BadAttachment("an interface is there twice")
    return record


def _link(found: object) -> NetworkLink:
    """Raises BadAttachment, and what `decode` makes one of."""
    if not isinstance(found, dict):
        raise BadAttachment("a network is none")
    interface = _text(found.get("interface", networks.interface(0)))
    if not _INTERFACE.fullmatch(interface):
        raise BadAttachment("an interface is none")
    result = _text(found["result"])
    if result and not calls.is_answer(result):
        raise BadAttachment("its result is no answer of a plugin")
    return NetworkLink(
        interface,
        conflist.parse(_text(found["network"])),
        tuple(map(_text, found["plugin_dirs"])),
        tuple(_port(*each) for each in found["ports"]),
        result,
        tuple(map(_text, found.get("ips", ()))),
        _text(found.get("mac", "")),
    )


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise BadAttachment("a text is missing")
    return value


def _port(container_port: object, host_port: object, protocol: object, host_ip: object) -> PublishedPort:
    if not (isinstance(container_port, int) and isinstance(host_port, int) and protocol in PROTOCOLS):
        raise BadAttachment("a port is none")
    if not (0 < container_port <= MOST_PORT and 0 <= host_port <= MOST_PORT):
        raise BadAttachment("a port is none")
    return PublishedPort(container_port, host_port, str(protocol), _text(host_ip))
