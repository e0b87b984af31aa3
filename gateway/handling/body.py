"""A request's body, read whole and no further than the limit."""

from collections.abc import Iterable

from starlette.types import Receive

from gateway.errors import ClientGone, InvalidRequest, RequestTooLarge
from gateway.wire.headers import header


async def read_body(headers: Iterable[tuple[bytes, bytes]], receive: Receive, limit: int) -> bytes:
    """The body, at most ``limit`` bytes.

    Raises :class:`RequestTooLarge`, by the content-length alone before a byte is read where there is one, and
    :class:`gateway.errors.ClientGone`.
    """
    length = header(headers, b"content-length")
    if length is not None and _number(length) > limit:
        raise _too_large(limit)
    message = await receive()
    if message["type"] == "http.request" and not message.get("more_body", False):
        body: bytes = message.get("body", b"")
        if len(body) > limit:
            raise _too_large(limit)
        return body
    pieces = []
    size = 0
    while message["type"] == "http.request":
        piece: bytes = message.get("body", b"")
        size += len(piece)
        if size > limit:
            raise _too_large(limit)
        pieces.append(piece)
        if not message.get("more_body", False):
            return b"".join(pieces)
        message = await receive()
    raise ClientGone


def _number(length: bytes) -> int:
    if not length.isdigit():
        raise InvalidRequest("content-length: must be a number")
    return int(length[:20])


def _too_large(limit: int) -> RequestTooLarge:
    return RequestTooLarge(f"the request's body is larger than {limit} bytes")
