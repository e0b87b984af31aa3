"""The fallthrough: bytes in, bytes out. Nothing is held back, error bodies pass as they are.

What is added is a ``request-id`` where upstream sent none, and pings where a stream is silent
(:mod:`gateway.handling.pings`).
"""

from typing import Final

from gateway.asgi import Write, direct_of
from gateway.errors import UpstreamError
from gateway.handling.ask import ask, asking_headers
from gateway.handling.exchange import Exchange, Services
from gateway.handling.pings import Silence, is_between_events, ping_for, silence_of
from gateway.handling.refuse import BODILESS, identified, send_whole
from gateway.wire.headers import Headers, header, response_headers, without_length
from gateway.wire.rewrite import NameInStream, name_in_message

_END_BYTES: Final = 2048
"""How much of an answer's beginning and end is kept, to read the figures for the log from."""


async def proxy(exchange: Exchange, services: Services) -> None:
    """Answer an exchange with what upstream answers.

    Raises :class:`gateway.errors.UpstreamError` while no byte has gone to the client. Once one has, an upstream that
    fails leaves the answer unfinished and the record's outcome ``cut``: the server then breaks the client's connection,
    so that the client can tell.
    """
    exchange.record.passes(exchange.body)
    headers = asking_headers(exchange, services, identity=exchange.client_model is not None)
    method = exchange.scope["method"]
    async with ask(exchange, services, method, exchange.target, headers, exchange.body) as asked:
        await give_on(exchange, services, asked)


async def give_on(exchange: Exchange, services: Services, asked: ask) -> None:
    """Answer with the answer whose head is here."""
    response = asked.response
    headers = identified(response_headers(response.headers), exchange.record)
    name = exchange.client_model
    if response.status in BODILESS:
        exchange.record.answers(response.status)
        await send_whole(exchange.send, response.status, headers, b"")
    elif name is None or header(headers, b"content-encoding") not in (None, b"identity"):
        if response.whole:
            await _give(exchange, response.status, headers, await response.read())
        else:
            await _stream(exchange, services, asked, headers, None)
    elif (header(headers, b"content-type") or b"").startswith(b"text/event-stream"):
        await _stream(exchange, services, asked, without_length(headers), NameInStream(name))
    else:
        # Upstream sends a JSON answer when all of it is there, so that waiting for its end costs no time.
        body = name_in_message(await response.read(), name)
        headers = [*without_length(headers), (b"content-length", b"%d" % len(body))]
        await _give(exchange, response.status, headers, body)


async def _give(exchange: Exchange, status: int, headers: Headers, body: bytes) -> None:
    """Answer with a body that is here whole."""
    exchange.record.keeps(body[:_END_BYTES], body[-_END_BYTES:])
    exchange.record.answers(status)
    direct = direct_of(exchange.scope)
    if not (body and direct is not None and direct.write_whole(status, headers, body)):
        await exchange.send({"type": "http.response.start", "status": status, "headers": headers})
        await exchange.send({"type": "http.response.body", "body": body})


async def _stream(
    exchange: Exchange, services: Services, asked: ask, headers: Headers, naming: NameInStream | None
) -> None:
    status = asked.response.status
    exchange.record.answers(status)
    await exchange.send({"type": "http.response.start", "status": status, "headers": headers})
    try:
        await relay(exchange, asked, Passing(naming), silence_of(asked.response, headers, services))
    except UpstreamError as error:
        exchange.record.fails(error)


async def relay(exchange: Exchange, asked: ask, passing: "Passing", silence: Silence | None) -> None:
    """The body behind a head that has been sent, to its end.

    Raises :class:`gateway.errors.UpstreamError`.
    """
    response = asked.response
    send, direct = exchange.send, direct_of(exchange.scope)
    more = True
    try:
        while more:
            await response.pass_to(passing.take)
            more = not response.ended
            piece = passing.held(more)
            if more and not piece:  # long silent
                if passing.is_between_events():
                    await send({"type": "http.response.body", "body": ping_for(exchange), "more_body": True})
                continue
            if piece:
                asked.piece()
            await send({"type": "http.response.body", "body": piece, "more_body": more})
            if more and direct is not None and passing.write is None:
                passing.write = direct.writer()  # a stream: most answers are here whole with their first piece
    finally:
        if silence is not None:
            silence.close()
        exchange.record.keeps(*passing.ends())


class Passing:
    """The pieces of an answer on their way through: ``write`` writes them; what it did not is held for ``send``.

    Kept for the log are the beginning of the first piece, and the ends of the last three.
    """

    __slots__ = ("_before", "_earlier", "_first", "_held", "_last", "naming", "write")

    def __init__(self, naming: NameInStream | None = None) -> None:
        self.write: Write | None = None
        self.naming = naming
        self._held = b""
        self._first = self._earlier = self._before = self._last = b""

    def take(self, piece: bytes) -> bool:
        """One more piece; says whether it was written."""
        # Large pieces to a client that does not read have long been sent: not all of them is kept.
        last = piece if len(piece) <= _END_BYTES else piece[-_END_BYTES:]
        self._earlier, self._before, self._last = self._before, self._last, last
        write = self.write
        if write is None:
            self._first = self._first or piece[:_END_BYTES]
        if self.naming is not None:
            piece = self.naming.feed(piece)
            if not piece:
                return True
        if write is not None and write(piece):
            return True
        self._held = piece
        return False

    def held(self, more: bool) -> bytes:
        """What ``send`` is to send."""
        held, self._held = self._held, b""
        return held if more or self.naming is None else held + self.naming.flush()

    def ends(self) -> tuple[bytes, bytes]:
        """The first and the last bytes of all."""
        return self._first, b"".join((self._earlier, self._before, self._last))[-_END_BYTES:]

    def is_between_events(self) -> bool:
        """Whether the stream has no event begun."""
        return is_between_events((self._earlier, self._before, self._last))
