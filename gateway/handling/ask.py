"""What all that ask upstream have in common."""

import asyncio
from contextlib import suppress

from gateway.errors import UpstreamBroken, UpstreamError
from gateway.handling.exchange import Exchange, Services
from gateway.upstream import Response
from gateway.wire.headers import Headers, header

LEFTOVER_S = 0.25
"""How long to wait for the end of an answer whose message is whole, so that its connection can be used again."""

EVENT_STREAM_TYPE = b"text/event-stream; charset=utf-8"
JSON_TYPE = b"application/json"

_OF_THE_BODY = frozenset({b"content-type", b"content-length", b"content-encoding"})


def asking_headers(exchange: Exchange, services: Services, *, identity: bool = True) -> Headers:
    """The client's end-to-end headers for upstream; with ``identity`` it is to answer without a content encoding."""
    return services.upstream.headers(exchange.scope["headers"], identity=identity)


def expect_readable(response: Response, *, stream: bool) -> None:
    """Raises :class:`UpstreamBroken` for an answer that cannot be read: another type, or a content encoding."""
    kind = header(response.headers, b"content-type") or b""
    if stream and not kind.lower().startswith(b"text/event-stream"):
        raise UpstreamBroken("Upstream did not answer with an event stream.")
    if (header(response.headers, b"content-encoding") or b"identity").lower() != b"identity":
        raise UpstreamBroken("Upstream answered with a content encoding that was not asked for.")


async def read_leftover(response: Response) -> None:
    """Read on to the end of an answer that needs no more reading, if it comes soon."""
    with suppress(TimeoutError, UpstreamError):  # the message is whole: the worst is a connection less in the pool
        async with asyncio.timeout(LEFTOVER_S):
            while not response.ended and await response.read_chunk():
                pass


def with_type(headers: Headers, content_type: bytes) -> Headers:
    """Upstream's headers beside a body that the gateway makes of upstream's."""
    return [(b"content-type", content_type), *(pair for pair in headers if pair[0] not in _OF_THE_BODY)]
