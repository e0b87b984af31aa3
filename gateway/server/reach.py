"""Addresses: how they are written, and whether anybody is there."""

import socket
from urllib.parse import urlsplit

LOOPBACK = ("127.0.0.1", "localhost", "::1")
"""How a setting names this machine and nobody else."""


def address_of(origin: str) -> tuple[str, int]:
    """Host and port of an origin, as the settings hold it."""
    parts = urlsplit(origin)
    return parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)


def origin_at(host: str, port: int) -> str:
    """The origin of a plain HTTP server there; an IPv6 address stands in brackets."""
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def listens(origin: str, timeout_s: float = 1) -> bool:
    """Whether something there takes a connection."""
    try:
        socket.create_connection(address_of(origin), timeout=timeout_s).close()
    except OSError:
        return False
    return True
