"""Facts about how a container finds addresses of names."""

from shim.frozen import frozen


@frozen
class Resolver:
    """What its /etc/resolv.conf and /etc/hosts have. Empty ones: what the machine's own files have."""

    servers: tuple[str, ...] = ()  # addresses
    searches: tuple[str, ...] = ()  # domains
    options: tuple[str, ...] = ()  # resolv.conf(5)
    hosts: tuple[tuple[str, str], ...] = ()  # name, address
    of_image: bool = False  # /etc/hosts, /etc/hostname and /etc/resolv.conf are the image's
