"""Hosts, as settings, ``Host`` and ``Origin`` name them."""

import ipaddress
from urllib.parse import urlsplit

_OF_THIS_NETWORK = ("localhost", "local", "internal", "home.arpa")
"""Under these nobody on the internet has a name (RFC 6761, 6762, 8375, and ICANN's reservation of ``internal``)."""


def is_loopback(host: str) -> bool:
    """Whether it is this machine and nobody else that a host names; without brackets, in lower case."""
    address = _address(host)
    return host == "localhost" or host.endswith(".localhost") if address is None else address.is_loopback


def is_of_this_network(host: str) -> bool:
    """Whether no page of the internet can have been loaded from a host of that name.

    So it is for an address, a name without a dot, and the names that are set apart for networks like this one.
    """
    return (
        _address(host) is not None or "." not in host or host.endswith(tuple(f".{name}" for name in _OF_THIS_NETWORK))
    )


def host_of(authority: str) -> str:
    """The host of ``host[:port]``, in lower case, without an address's brackets and the dot that ends a whole name."""
    host = authority.partition("]")[0][1:] if authority.startswith("[") else authority.partition(":")[0]
    return host.lower().removesuffix(".")


def web_host(origin: str) -> str | None:
    """The host of an origin of ``http`` or ``https``; None for another one, such as ``null``."""
    parts = urlsplit(origin)
    return host_of(parts.netloc) if parts.scheme in ("http", "https") else None


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None
