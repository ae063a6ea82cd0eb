"""Converts --network, --ip, --ip6 and --mac-address, in docker's and podman's words, to a request's networks."""

from collections.abc import Iterable, Iterator

from protos.exitd.v1 import exitd_pb2 as pb
from shim.frozen import frozen
from supervisor.model.errors import BadRequest

FORM = "write NAME, NAME,NAME, NAME:ip=ADDRESS,mac=ADDRESS or name=NAME,ip=ADDRESS,mac-address=ADDRESS"
IPS, MACS = ("ip", "ip6"), ("mac", "mac-address")


@frozen
class NetworkWords:
    """The options about networks, literally."""

    network: tuple[str, ...] = ()
    ip: str = ""
    ip6: str = ""
    mac_address: str = ""


def put_networks(spec: pb.ContainerSpec, words: NetworkWords) -> None:
    """Put the networks and the addresses that are asked for into the request. Raises BadRequest."""
    wanted = [each for word in words.network for each in _networks(word)]
    if wanted:
        spec.network = wanted[0].network
        spec.more_networks.extend(each.network for each in wanted[1:])
    own = pb.AddressWish(ips=[each for each in (words.ip, words.ip6) if each], mac=words.mac_address)
    spec.addresses.extend(each for each in (own, *wanted) if each.ips or each.mac)


def _networks(word: str) -> Iterator[pb.AddressWish]:
    """Yield each network of a word, with the addresses that it is to give."""
    name, colon, options = word.partition(":")
    if colon and "=" in options:
        yield _wish(word, name, options.split(","))
    elif "=" in word:
        parts = word.split(",")
        names = [each.partition("=")[2] for each in parts if each.partition("=")[0] == "name"]
        if len(names) != 1:
            raise BadRequest(f"--network {word}: one name is missing; {FORM}")
        yield _wish(word, names[0], [each for each in parts if each.partition("=")[0] != "name"])
    else:
        for each in word.split(","):
            if not each:
                raise BadRequest(f"--network {word!r}: a name is missing; {FORM}")
            yield pb.AddressWish(network=each)


def _wish(word: str, name: str, options: Iterable[str]) -> pb.AddressWish:
    wish = pb.AddressWish(network=name)
    for each in options:
        key, _, value = each.partition("=")
        if not name or not value or key not in (*IPS, *MACS):
            raise BadRequest(f"--network {word}: {each!r} is not known here; {FORM}")
        if key in IPS:
            wish.ips.append(value)
        else:
            wish.mac = value
    return wish
