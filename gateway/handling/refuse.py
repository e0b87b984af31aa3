"""How a request is answered by the gateway itself, and how it ends when something fails."""

from starlette.types import Message, Send

from gateway.books.record import Outcome, Record, outcome_of
from gateway.errors import Overloaded, RequestError, TurnTimeout, UpstreamError, UpstreamTimeout, UpstreamUnreachable
from gateway.turn.lifecycle import UpstreamStreamError
from gateway.wire.headers import Headers, without_length

JSON: Headers = [(b"content-type", b"application/json")]


async def send_whole(send: Send, status: int, headers: Headers, body: bytes) -> None:
    """Send a whole answer; its own content-length takes the place of one in ``headers``."""
    fields = [*without_length(headers), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": fields})
    await send({"type": "http.response.body", "body": body})


async def refuse(error: RequestError, record: Record, send: Send) -> None:
    """Answer with the error, or, where an answer has begun, leave it unfinished: the server breaks the connection."""
    if record.answered:
        record.outcome = "cut"
        return
    record.answered = True
    record.status = error.status
    record.outcome = _outcome_of(error)
    await send_whole(send, error.status, [*JSON, *error.headers], error.body())


def broken_off(error: RequestError) -> Outcome:
    """How a request ended whose answer had begun when it failed."""
    match error:
        case UpstreamTimeout() | TurnTimeout():
            return "timeout"
        case UpstreamStreamError():
            return "upstream_error"
    return "cut"


def _outcome_of(error: RequestError) -> Outcome:
    match error:
        case UpstreamTimeout() | TurnTimeout():
            return "timeout"
        case Overloaded():
            return "overloaded"
        case UpstreamUnreachable():
            return "upstream_unreachable"
        case UpstreamError():
            return "upstream_error"
    return "client_error" if error.status < 500 else "gateway_error"


def noting(record: Record, send: Send) -> Send:
    """``send`` that writes down what went to the client."""

    async def noted(message: Message) -> None:
        if message["type"] == "http.response.start":
            record.answered = True
            record.status = message["status"]
            record.outcome = outcome_of(record.status)
        await send(message)

    return noted
