"""Converts --add-host, --dns, --dns-search, --dns-option and --no-hosts, in docker's words, to a ResolverSpec."""

from protos.exitd.v1 import exitd_pb2 as pb
from shim.frozen import frozen
from supervisor.model.errors import BadRequest

GATEWAY = "host-gateway"  # docker's word for the machine, as containers of a bridge reach it


@frozen
class NameWords:
    """The options about names, literally."""

    add_host: tuple[str, ...] = ()
    dns: tuple[str, ...] = ()
    dns_search: tuple[str, ...] = ()
    dns_option: tuple[str, ...] = ()
    no_hosts: bool = False


def resolver_spec(words: NameWords) -> pb.ResolverSpec | None:
    """Return None if no option was given. Raises BadRequest."""
    found = pb.ResolverSpec(
        servers=words.dns,
        searches=words.dns_search,
        options=words.dns_option,
        hosts=[_host(word) for word in words.add_host],
        of_image=words.no_hosts,
    )
    return found if found.ListFields() else None


def host_word(entry: pb.HostEntry) -> str:
    """Return a line of /etc/hosts as `docker inspect` shows it."""
    return f"{entry.name}:{entry.address}"


def _host(word: str) -> pb.HostEntry:
    """`NAME:ADDRESS`, or `NAME=ADDRESS`; the address may be in brackets."""
    at = min((word.find(each) for each in ":=" if each in word), default=0)
    name, address = word[:at], word[at + 1 :]
    if not name or not address:
        raise BadRequest(f"--add-host {word}: write NAME:ADDRESS, as in db:192.0.2.7")
    if address == GATEWAY:
        raise BadRequest(f"--add-host {word}: write the machine's address, as the container reaches it")
    return pb.HostEntry(name=name, address=address.removeprefix("[").removesuffix("]"))
