"""Where upstream is: an origin URL, read once into what a connection needs."""

import ipaddress
import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from gateway.errors import SettingsError

_NAME = re.compile(r"[a-z0-9._-]+")
_DEFAULT_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Origin:
    """``host`` is a name (in its ASCII form) or an address without brackets; ``authority`` the Host header's value."""

    tls: bool
    host: str
    port: int
    authority: bytes


def parse_origin(url: str) -> Origin:
    """Read ``scheme://host[:port]``; raises SettingsError for anything else, a path or credentials included."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
        if host and not _is_ipv6(host):
            host = host.encode("idna").decode("ascii")
            if not _NAME.fullmatch(host):
                raise ValueError("a character that no host name has")
    except ValueError as error:
        raise SettingsError(f"upstream: not an origin: {error}") from error
    if parts.scheme not in _DEFAULT_PORTS or not host:
        raise SettingsError("upstream: give an origin, such as http://127.0.0.1:8000")
    if parts.username is not None or parts.path not in ("", "/") or parts.query or parts.fragment:
        raise SettingsError("upstream: give only scheme, host and port, without a path or credentials")
    authority = f"[{host}]" if _is_ipv6(host) else host
    default = _DEFAULT_PORTS[parts.scheme]
    if port is not None and port != default:
        authority = f"{authority}:{port}"
    return Origin(parts.scheme == "https", host, port or default, authority.encode("ascii"))


def _is_ipv6(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).version == 6
    except ValueError:
        return False
