"""Addresses as values. Pure."""

import ipaddress


def address(text: str) -> str:
    """Return the address as `ipaddress` writes it. Raises ValueError, also for one with a scope such as fe80::1%eth0:
    `ipaddress` takes any text for a scope, line ends included."""
    return str(ipaddress.ip_address(_without_scope(text)))


def with_prefix(text: str) -> str:
    """As `address`, for one such as 10.88.0.2/16."""
    return str(ipaddress.ip_interface(_without_scope(text)))


def _without_scope(text: str) -> str:
    if "%" in text:
        raise ValueError("an address with a scope")
    return text
