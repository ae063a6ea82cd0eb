"""What is kept of an attachment from before its ADD until after its DEL. Pure.

ROOT/networks/ID-RUN, JSON: a later daemon, also after a boot, takes down by it what an earlier one has put up, whatever
has become of the container's row and of the network's configuration.
"""

import json
import re
from typing import Any

from shim.frozen import frozen, replace
from shim.patterns import LatePattern
from supervisor.model.networks import MOST_PORT, PROTOCOLS, Attached, PublishedPort
from supervisor.network import calls, conflist
from supervisor.network.calls import NotAnswer
from supervisor.network.conflist import NetworkConfig, NotConfig

VERSION = 1
MOST_BYTES = 8 << 20

_FILE = LatePattern(r"([A-Za-z0-9][A-Za-z0-9_.-]{0,199})-([1-9][0-9]{0,18})", re.ASCII)


class BadAttachment(ValueError):
    """A file that no exitd of this version wrote like this; says why."""


class NewerRecord(BadAttachment):
    """One that a later version wrote, which will take it down."""


@frozen
class AttachmentRecord:
    """One attachment. `result`: the answer of ADD, empty while none is known. `plugin_dirs`: where the plugins of its
    ADD were."""

    container: str
    run: int
    network: NetworkConfig
    plugin_dirs: tuple[str, ...]
    ports: tuple[PublishedPort, ...] = ()
    result: str = ""

    @property
    def id(self) -> str:
        """Its id for the plugins, and its file's name: no two runs share one, so that a late DEL of one cannot hit
        another."""
        return f"{self.container}-{self.run}"

    def with_result(self, result: str) -> "AttachmentRecord":
        return replace(self, result=result)

    def attached(self, namespace: str) -> Attached | None:
        """Return what its network has given it; None while that is not known."""
        try:
            return calls.answer(self.result, self.network.name, namespace) if self.result else None
        except NotAnswer:
            return None


def key_of(file: str) -> tuple[str, int] | None:
    """Return container and run of a record's file name; None for another file."""
    found = _FILE.fullmatch(file)
    return (found[1], int(found[2])) if found else None


def encode(record: AttachmentRecord) -> bytes:
    document = {
        "version": VERSION,
        "container": record.container,
        "run": record.run,
        "network": record.network.text,
        "plugin_dirs": list(record.plugin_dirs),
        "ports": [[each.container_port, each.host_port, each.protocol, each.host_ip] for each in record.ports],
        "result": record.result,
    }
    return json.dumps(document).encode()


def decode(data: bytes, file: str) -> AttachmentRecord:
    """Return the record in the file of that name. Raises BadAttachment."""
    try:
        found: dict[str, Any] = json.loads(data)
        if (version := found["version"]) != VERSION:
            kind = NewerRecord if isinstance(version, int) and version > VERSION else BadAttachment
            raise kind(f"it is of version {str(version)[:20]}, and this exitd reads {VERSION}")
        record = AttachmentRecord(
            _text(found["container"]),
            int(found["run"]),
            conflist.parse(_text(found["network"])),
            tuple(map(_text, found["plugin_dirs"])),
            tuple(_port(*each) for each in found["ports"]),
            _text(found["result"]),
        )
    except NewerRecord:
        raise
    except (NotConfig, ValueError, TypeError, KeyError, RecursionError) as error:
        raise BadAttachment(str(error)[:200] or repr(error)[:200]) from error
    if record.id != file:
        raise BadAttachment("it is another attachment's")
    if record.result and not calls.is_answer(record.result):
        raise BadAttachment("its result is no answer of a plugin")
    return record


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
