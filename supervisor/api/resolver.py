"""How a container finds names: message to fact, checked, and back. Pure."""

import socket
from collections.abc import Iterable

from protos.exitd.v1 import exitd_pb2 as pb
from shim.patterns import LatePattern
from supervisor.api.values import bad
from supervisor.model import bounds
from supervisor.model.errors import BadRequest
from supervisor.model.resolver import Resolver

_WORD = LatePattern(r"[!-~]{1,255}")
_NAME = LatePattern(r"[a-zA-Z0-9_]([a-zA-Z0-9_.-]{0,253}[a-zA-Z0-9_.])?")


def resolver_of(message: pb.ResolverSpec, *, of_bundle: bool) -> Resolver:
    """Return the checked part. A bundle brings its own files. Raises BadRequest, which names the field."""
    if of_bundle and message.ListFields():
        raise BadRequest("resolver: a bundle brings its own files; mount them there", field="resolver")
    if message.of_image and len(message.ListFields()) > 1:
        raise BadRequest("resolver.of_image: then nothing else can be asked for", field="resolver.of_image")
    return Resolver(
        servers=tuple(_address("resolver.servers", each) for each in message.servers),
        searches=_words("resolver.searches", message.searches),
        options=_words("resolver.options", message.options),
        hosts=tuple((_host(each.name), _address("resolver.hosts", each.address)) for each in message.hosts),
        of_image=message.of_image,
    )


def resolver_message(resolver: Resolver) -> pb.ResolverSpec:
    """Return the message, as `resolver_of` reads it."""
    return pb.ResolverSpec(
        servers=resolver.servers,
        searches=resolver.searches,
        options=resolver.options,
        hosts=[pb.HostEntry(name=name, address=address) for name, address in resolver.hosts],
        of_image=resolver.of_image,
    )


def _words(field: str, words: Iterable[str]) -> tuple[str, ...]:
    found = tuple(words)
    for word in found:
        if not _WORD.fullmatch(word):
            raise bad(field, word, "a word of resolv.conf(5), without blanks")
    if (size := bounds.size_of(found)) > bounds.MOST_PAIRS_BYTES:
        raise bad(field, f"{size} bytes of them", f"at most {bounds.MOST_PAIRS_BYTES}")
    return found


def _host(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise bad("resolver.hosts", name, "a host's name: letters, digits, '-', '_' and '.'")
    return name


def _address(field: str, text: str) -> str:
    """Return the address, IPv4 or IPv6; a zone (fe80::1%eth0) may be at its end."""
    for family, shown in ((socket.AF_INET, text), (socket.AF_INET6, text.split("%")[0])):
        try:
            socket.inet_pton(family, shown)
        except (OSError, ValueError):
            continue
        if text.isascii() and text.isprintable() and " " not in text:
            return text
    raise bad(field, text, "an address such as 192.0.2.1 or 2001:db8::1")
