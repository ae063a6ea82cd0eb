"""The files by which a container finds names: /etc/hosts, /etc/hostname and /etc/resolv.conf, made for each run. Pure.

hosts(5), hostname(5), resolv.conf(5). With the machine's network they are the machine's, and what was asked for.
"""

from collections.abc import Mapping, Sequence

from shim.frozen import replace
from supervisor.model.networks import Attached, addresses
from supervisor.model.resolver import Resolver

PLACES = {"hosts": "/etc/hosts", "hostname": "/etc/hostname", "resolv.conf": "/etc/resolv.conf"}
LOCALHOST = """127.0.0.1\tlocalhost
::1\tlocalhost ip6-localhost ip6-loopback
fe00::\tip6-localnet
ff00::\tip6-mcastprefix
ff02::1\tip6-allnodes
ff02::2\tip6-allrouters
"""


def texts(
    resolver: Resolver,
    hostname: str,
    machines: Mapping[str, str],
    *,
    of_host: bool,
    attached: Sequence[Attached] = (),
) -> dict[str, str]:
    """Return the texts for PLACES. `machines`: the machine's own, by the same names; `of_host`: the container has the
    machine's network; `attached`: what other networks have given it."""
    resolver = _with_networks(resolver, attached)
    return {
        "hosts": _hosts(resolver, hostname, machines["hosts"], of_host=of_host, own=addresses(attached)),
        "hostname": f"{hostname}\n",
        "resolv.conf": _resolv_conf(resolver, machines["resolv.conf"], of_host=of_host),
    }


def _with_networks(resolver: Resolver, attached: Sequence[Attached]) -> Resolver:
    """What a network says of its DNS counts where the caller asks for nothing of that kind."""
    servers, searches, options = (
        tuple(dict.fromkeys(word for each in attached for word in getattr(each, kind)))
        for kind in ("servers", "searches", "options")
    )
    return replace(
        resolver,
        servers=resolver.servers or servers,
        searches=resolver.searches or searches,
        options=resolver.options or options,
    )


def _hosts(resolver: Resolver, hostname: str, machines: str, *, of_host: bool, own: Sequence[str]) -> str:
    own_lines = "".join(f"{address}\t{hostname}\n" for address in own or ("127.0.0.1",))
    begun = _whole(machines) if of_host else f"{LOCALHOST}{own_lines}"
    return begun + "".join(f"{address}\t{name}\n" for name, address in resolver.hosts)


def _resolv_conf(resolver: Resolver, machines: str, *, of_host: bool) -> str:
    """What was asked for takes the place of the machine's lines of that kind. A server on the machine's own loopback
    cannot be reached from another network."""
    asked = {"nameserver": resolver.servers, "search": resolver.searches, "options": resolver.options}
    kept = []
    for line in _whole(machines).splitlines():
        words = line.split()
        kind = "search" if words and words[0] == "domain" else words[0] if words else ""
        unreachable = kind == "nameserver" and not of_host and _is_loopback(words[1:])
        if not asked.get(kind) and not unreachable:
            kept.append(f"{line}\n")
    servers = [f"nameserver {server}\n" for server in resolver.servers]
    rest = [f"{kind} {' '.join(asked[kind])}\n" for kind in ("search", "options") if asked[kind]]
    return "".join([*kept, *servers, *rest])


def _is_loopback(words: list[str]) -> bool:
    return bool(words) and (words[0].startswith("127.") or words[0] == "::1")


def _whole(text: str) -> str:
    return text if text.endswith("\n") or not text else f"{text}\n"
