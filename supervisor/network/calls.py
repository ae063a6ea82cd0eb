"""What a plugin is asked, and what its answer says: text to facts and back. Pure.

CNI specification, sections 2 (the environment and the exit code), 3 (derived configuration), 4 and 5 (answers, errors).
"""

import json
from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Any

from shim.frozen import frozen
from shim.patterns import LatePattern
from supervisor.model.addresses import address, with_prefix
from supervisor.model.networks import Attached, PublishedPort
from supervisor.network.conflist import IPS, MAC, PORTS, NetworkConfig, PluginConfig

MOST_ADDRESSES = 64
MOST_WORDS = 32  # name servers, domains and options, of each so many
MOST_ERROR = 500  # characters of a plugin's words

_WORD = LatePattern(r"[!-~]{1,255}")
_MAC = LatePattern(r"[0-9a-fA-F]{2}(:[0-9a-fA-F]{2}){5,19}")


class NotAnswer(ValueError):
    """What a plugin wrote is no answer; says why."""


class Verb(StrEnum):
    ADD = "ADD"
    CHECK = "CHECK"
    DEL = "DEL"


@frozen
class Endpoint:
    """Whom a request is about. `attachment` is the container's id for the plugins; `namespace` the path of its network
    namespace, empty when that has gone; `lock` the path beside which the lock of the work on it is. `ips` and `mac`:
    the addresses that it is to have, empty: any."""

    attachment: str
    namespace: str
    lock: str
    interface: str
    ports: tuple[PublishedPort, ...] = ()
    ips: tuple[str, ...] = ()
    mac: str = ""


def environment(verb: Verb, endpoint: Endpoint, plugin_dirs: Iterable[str]) -> dict[str, str]:
    """Return the variables of CNI for a plugin."""
    return {
        "CNI_COMMAND": verb.value,
        "CNI_CONTAINERID": endpoint.attachment,
        "CNI_NETNS": endpoint.namespace,
        "CNI_IFNAME": endpoint.interface,
        "CNI_ARGS": "IgnoreUnknown=1",
        "CNI_PATH": ":".join(plugin_dirs),
    }


def request(network: NetworkConfig, plugin: PluginConfig, endpoint: Endpoint, previous: str) -> str:
    """Return what a plugin reads: its part of the configuration, and what is known at run time. `previous`: the answer
    of the plugin before it, or the last one of ADD; empty if there is none."""
    document: dict[str, Any] = json.loads(plugin.text)
    document.pop("capabilities", None)
    document |= {"name": network.name, "cniVersion": network.version}
    asked = {PORTS: [_mapping(port) for port in endpoint.ports], IPS: list(endpoint.ips), MAC: endpoint.mac}
    if given := {name: value for name, value in asked.items() if value and name in plugin.capabilities}:
        document["runtimeConfig"] = given
    if previous:
        document["prevResult"] = json.loads(previous)
    return json.dumps(document)


def _mapping(port: PublishedPort) -> dict[str, object]:
    mapping: dict[str, object] = {
        "hostPort": port.host_port,
        "containerPort": port.container_port,
        "protocol": port.protocol,
    }
    return {**mapping, "hostIP": port.host_ip} if port.host_ip else mapping


def answer(text: str, network: str, namespace: str, interface: str) -> Attached:
    """Return what ADD has given. Raises NotAnswer."""
    found = _object(_json(text), "the answer")
    addresses = list(_addresses(_list(found.get("ips"))))
    dns = _object(found.get("dns") or {}, "dns")
    return Attached(
        network,
        interface,
        _mac(_list(found.get("interfaces")), namespace, interface),
        tuple(address for address, _ in addresses),
        tuple(dict.fromkeys(gateway for _, gateway in addresses if gateway)),
        tuple(_address(each) for each in _few(dns.get("nameservers"))),
        tuple(_words([*_few(dns.get("search")), *_few([dns["domain"]] if dns.get("domain") else None)])),
        tuple(_words(_few(dns.get("options")))),
    )


def is_answer(text: str) -> bool:
    """Return whether a plugin's output can be the next one's prevResult."""
    try:
        return isinstance(_json(text), dict)
    except NotAnswer:
        return False


def refusal(stdout: str, stderr: str) -> str:
    """Return what a plugin that has failed says: the message of its error document, else its last words."""
    try:
        found = _object(_json(stdout), "the error")
        words = ": ".join(str(found[key]) for key in ("msg", "details") if found.get(key))
    except NotAnswer:
        words = ""
    last = next((line for line in reversed((stderr or stdout).splitlines()) if line.strip()), "")
    return _printable(words or last or "it does not say why")


def _printable(text: str) -> str:
    return "".join(letter if letter.isprintable() else " " for letter in text)[:MOST_ERROR]


def _json(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise NotAnswer(f"no JSON: {_printable(text)[:80]!r}") from error


def _object(value: object, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise NotAnswer(f"{what} is no JSON object")
    return value


def _list(value: object) -> list[object]:
    if value is None:
        return []
    if not isinstance(value, list) or len(value) > MOST_ADDRESSES:
        raise NotAnswer(f"a list of more than {MOST_ADDRESSES}, or no list")
    return value


def _few(value: object) -> list[object]:
    found = _list(value)
    if len(found) > MOST_WORDS:
        raise NotAnswer(f"more than {MOST_WORDS} entries of dns")
    return found


def _words(values: Iterable[object]) -> Iterator[str]:
    """They go into resolv.conf, where a line end would begin another entry."""
    for value in values:
        if not isinstance(value, str) or not _WORD.fullmatch(value):
            raise NotAnswer(f"dns: {_printable(str(value))[:80]!r} is no word of resolv.conf(5)")
        yield value


def _address(value: object) -> str:
    try:
        return address(value if isinstance(value, str) else "")
    except ValueError as error:
        raise NotAnswer(f"{_printable(str(value))[:80]!r} is no address") from error


def _addresses(ips: list[object]) -> Iterator[tuple[str, str]]:
    for each in ips:
        found = _object(each, "an entry of ips")
        try:
            own = with_prefix(found["address"] if isinstance(found.get("address"), str) else "")
        except ValueError as error:
            raise NotAnswer(f"{_printable(str(found.get('address')))[:80]!r} is no address with a prefix") from error
        yield own, _address(found["gateway"]) if found.get("gateway") else ""


def _mac(interfaces: list[object], namespace: str, interface: str) -> str:
    """Return the hardware address of the container's own interface."""
    for each in interfaces:
        found = _object(each, "an interface")
        mac = found.get("mac")
        inside = found.get("sandbox") == namespace or (found.get("name") == interface and found.get("sandbox"))
        if inside and isinstance(mac, str) and _MAC.fullmatch(mac):
            return mac.lower()
    return ""
