"""Which headers cross the gateway: all end-to-end ones, unchanged; hop-by-hop ones never (RFC 9110, 7.6.1)."""

from collections.abc import Iterable

Headers = list[tuple[bytes, bytes]]
"""Header fields in wire order, duplicates kept. Names are lower-case, values as sent, white space before them gone."""

HOP_BY_HOP = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)
# The upstream client writes host and content-length itself, and the body is read whole before it goes on, so that the
# client's expectation of a 100 is met here.
_REQUEST_DROPS = HOP_BY_HOP | {b"host", b"content-length", b"expect"}
_CREDENTIALS = frozenset({b"authorization", b"x-api-key"})
_NONE: frozenset[bytes] = frozenset()
_DROPS = {
    (own_credentials, identity): _REQUEST_DROPS
    | (_CREDENTIALS if own_credentials else _NONE)
    | ({b"accept-encoding"} if identity else _NONE)
    for own_credentials in (False, True)
    for identity in (False, True)
}
_PLAIN_TOKENS = HOP_BY_HOP | {b"close", b""}
"""What ``Connection`` names that is dropped anyway."""


def upstream_headers(
    client: Iterable[tuple[bytes, bytes]],
    *,
    upstream_api_key: str | None,
    gateway_keys: bool,
    identity: bool = False,
) -> Headers:
    """The headers of a request upstream, from the client's (lower-case names).

    ``upstream_api_key`` replaces the client's credentials; with ``gateway_keys`` they are the gateway's own and stay
    here. ``identity`` asks for an answer without content encoding.
    """
    headers = _without(client, _DROPS[gateway_keys or upstream_api_key is not None, identity])
    if identity:
        headers.append((b"accept-encoding", b"identity"))
    if upstream_api_key is not None:
        headers.append((b"authorization", b"Bearer " + upstream_api_key.encode()))
    return headers


def response_headers(upstream: Iterable[tuple[bytes, bytes]]) -> Headers:
    """The headers of an answer to the client, from upstream's (lower-case names); a content-length stays."""
    return _without(upstream, HOP_BY_HOP)


def without_length(headers: Headers) -> Headers:
    """The headers for another body than the one that came with them."""
    return [pair for pair in headers if pair[0] != b"content-length"]


def _without(headers: Iterable[tuple[bytes, bytes]], drops: frozenset[bytes]) -> Headers:
    kept = []
    named: set[bytes] = set()
    for header in headers:
        if header[0] not in drops:
            kept.append(header)
        elif header[0] == b"connection":
            named.update(token.strip().lower() for token in header[1].split(b","))
    if named - _PLAIN_TOKENS:
        return [header for header in kept if header[0] not in named]
    return kept


def header(headers: Iterable[tuple[bytes, bytes]], name: bytes) -> bytes | None:
    """The first value of the lower-case ``name``."""
    for key, value in headers:
        if key == name:
            return value
    return None
