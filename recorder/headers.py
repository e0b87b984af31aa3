"""Which headers mean something once their connection is gone, and how a cassette holds them."""

from collections.abc import Iterable

HeaderPairs = Iterable[tuple[bytes, bytes]]

HOP_BY_HOP = frozenset(
    {
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
"""Of one connection: RFC 9110, section 7.6.1."""

OF_THE_EXCHANGE = HOP_BY_HOP | {"content-length", "date", "host"}
"""What says nothing in a cassette: that, and what whoever plays it says anew."""


def recorded_headers(pairs: HeaderPairs) -> dict[str, str]:
    """Headers as a cassette holds them: lower-case names, doubles joined, without those of the exchange."""
    headers: dict[str, str] = {}
    for raw_name, raw_value in pairs:
        name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1")
        if name not in OF_THE_EXCHANGE:
            headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return headers


def end_to_end(pairs: HeaderPairs) -> list[tuple[bytes, bytes]]:
    """Headers that may go on to another connection: also without those that ``connection`` names. Lower-case names."""
    headers = [(name.lower(), value) for name, value in pairs]
    named = {item.strip().lower() for name, value in headers if name == b"connection" for item in value.split(b",")}
    return [(name, value) for name, value in headers if name.decode("latin-1") not in HOP_BY_HOP and name not in named]
