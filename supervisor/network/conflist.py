"""Configurations of networks: text to facts. Pure.

CNI specification, section 1: a list of plugins (.conflist), or one plugin (.conf, .json) as versions before 1.0 had it.
"""

import json
from typing import Any, cast

from shim.frozen import frozen
from shim.patterns import LatePattern
from supervisor.model.networks import WITHOUT

VERSIONS = ("0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0")
CHECKS_FROM = VERSIONS.index("0.4.0")  # CHECK, and DEL with what ADD had answered
MOST_PLUGINS = 32
MOST_DEPTH = 64
MOST_SHOWN = 80  # characters of a wrong value
PORTS = "portMappings"  # the capability of plugins that publish ports
IPS, MAC = "ips", "mac"  # of those that give the addresses that are asked for

_NAME = LatePattern(r"[a-zA-Z0-9][a-zA-Z0-9_.-]{0,62}")
_TYPE = LatePattern(r"[^/\0]{1,128}")


class NotConfig(ValueError):
    """The text is no configuration of a network; says why."""


@frozen
class PluginConfig:
    """One plugin of a network: the name of its program, the capabilities that it takes, and its own part as JSON."""

    type: str
    capabilities: frozenset[str]
    text: str


@frozen
class NetworkConfig:
    """A network as its file has it. `text` is the file's, from which `parse` makes the same again."""

    name: str
    version: str
    plugins: tuple[PluginConfig, ...]
    checks: bool
    text: str

    @property
    def publishes(self) -> bool:
        return self.takes(PORTS)

    def takes(self, capability: str) -> bool:
        return any(capability in plugin.capabilities for plugin in self.plugins)

    @property
    def is_of_04(self) -> bool:
        """Whether its version has CHECK, and passes to DEL what ADD had answered."""
        return VERSIONS.index(self.version) >= CHECKS_FROM


def parse(text: str) -> NetworkConfig:
    """Return the network. Raises NotConfig."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise NotConfig(f"it is not JSON: {error}") from error
    found = _object(document, "the file")
    if _depth(found) > MOST_DEPTH:
        raise NotConfig(f"it is nested deeper than {MOST_DEPTH}")
    name = _word(found.get("name"), "name")
    if not _NAME.fullmatch(name) or name in WITHOUT:
        raise NotConfig(
            f"name {name[:MOST_SHOWN]!r}: must be letters, digits, '_', '.' and '-', and none of exitd's words"
        )
    plugins = found.get("plugins", [found] if "type" in found else None)
    if not isinstance(plugins, list) or not 0 < len(plugins) <= MOST_PLUGINS:
        raise NotConfig(f"plugins: must be a list of 1 to {MOST_PLUGINS} plugins")
    checks = found.get("disableCheck") not in (True, "true")
    return NetworkConfig(name, _version(found), tuple(map(_plugin, plugins)), checks, text)


def _version(found: dict[str, Any]) -> str:
    """Return the newest version that both the file and exitd have."""
    offered = found.get("cniVersions")
    words = [*(offered if isinstance(offered, list) else ()), found.get("cniVersion", "0.2.0")]
    common = [version for version in VERSIONS if version in words]
    if not common:
        raise NotConfig(f"cniVersion {str(words[-1])[:MOST_SHOWN]!r}: exitd has {', '.join(VERSIONS)}")
    return common[-1]


def _plugin(value: object) -> PluginConfig:
    found = _object(value, "a plugin")
    kind = _word(found.get("type"), "type of a plugin")
    if not _TYPE.fullmatch(kind) or kind in (".", ".."):
        raise NotConfig(f"type {kind[:MOST_SHOWN]!r}: must be the name of a program, without a directory")
    capabilities = _object(found.get("capabilities", {}), "capabilities of a plugin")
    taken = frozenset(name for name, value in capabilities.items() if value is True)
    return PluginConfig(kind, taken, json.dumps(found))


def _word(value: object, what: str) -> str:
    if not isinstance(value, str) or not value:
        raise NotConfig(f"{what}: is missing, or no text")
    return value


def _object(value: object, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise NotConfig(f"{what}: must be a JSON object")
    return cast(dict[str, Any], value)


def _depth(value: object) -> int:
    """Return how deep it is nested, without recursion."""
    deepest, left = 0, [(value, 1)]
    while left:
        each, depth = left.pop()
        deepest = max(deepest, depth)
        inner = each.values() if isinstance(each, dict) else each if isinstance(each, list) else ()
        left += [(one, depth + 1) for one in inner]
    return deepest
