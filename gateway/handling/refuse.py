"""How the gateway answers by itself: with a whole answer, or with an error."""

from starlette.types import Message, Send

from gateway.books.record import Record
from gateway.errors import RequestError
from gateway.wire.headers import Headers, without_length

JSON: Headers = [(b"content-type", b"application/json")]

BODILESS = frozenset({204, 205, 304})
"""Statuses whose answers have no body (RFC 9110, 15), whatever came with them."""


async def send_whole(send: Send, status: int, headers: Headers, body: bytes) -> None:
    """Send a whole answer; its own content-length takes the place of one in ``headers``."""
    fields = without_length(headers)
    if status in BODILESS:
        body = b""
    if status not in (204, 304):  # which end with their heads
        fields = [*fields, (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": fields})
    await send({"type": "http.response.body", "body": body})


async def refuse(error: RequestError, record: Record, send: Send) -> None:
    """Answer with the error, or, where an answer has begun, leave it unfinished: the server breaks the connection."""
    if record.answered:
        record.fails(error)
        return
    record.refuses(error)
    await send_whole(send, error.status, error.fields(record.request_id), error.body(record.request_id))


def identified(headers: Headers, record: Record) -> Headers:
    """The head of an answer with its ``request-id``, which is the gateway's own where upstream gave none."""
    for name, value in headers:
        if name == b"request-id" and value:
            record.is_called(value)
            return headers
    return [*headers, (b"request-id", record.request_id.encode("latin-1"))]


def noting(record: Record, send: Send) -> Send:
    """``send`` that writes down what goes to the client, and gives it the request's id."""

    async def noted(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = identified(message["headers"], record)
            record.answers(message["status"])
        await send(message)

    return noted
