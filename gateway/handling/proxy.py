"""The fallthrough: bytes in, bytes out. Nothing is held back, error bodies pass as they are.

What is added is a ``request-id`` where upstream sent none.
"""

from typing import Final

from gateway.asgi import direct_of
from gateway.errors import UpstreamError
from gateway.handling.ask import ask, asking_headers
from gateway.handling.exchange import Exchange, Services
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
        await _pass_on(exchange, asked)


async def _pass_on(exchange: Exchange, asked: ask) -> None:
    response = asked.response
    headers = identified(response_headers(response.headers), exchange.record)
    name = exchange.client_model
    if response.status in BODILESS:
        exchange.record.answers(response.status)
        await send_whole(exchange.send, response.status, headers, b"")
    elif name is None or header(headers, b"content-encoding") not in (None, b"identity"):
        if response.whole:
            await _give(exchange, response.status, headers, await response.read_chunk())
        else:
            await _stream(exchange, asked, headers, None)
    elif (header(headers, b"content-type") or b"").startswith(b"text/event-stream"):
        await _stream(exchange, asked, without_length(headers), NameInStream(name))
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


async def _stream(exchange: Exchange, asked: ask, headers: Headers, naming: NameInStream | None) -> None:
    response = asked.response
    exchange.record.answers(response.status)
    await exchange.send({"type": "http.response.start", "status": response.status, "headers": headers})
    send, direct, ends = exchange.send, direct_of(exchange.scope), _Ends()
    more = True
    try:
        while more:
            chunk = await response.read_chunk()
            more = not response.ended
            if chunk:
                asked.piece()
                ends.first = ends.first or chunk[:_END_BYTES]
                ends.take(chunk)
            if naming is not None:
                chunk = naming.feed(chunk) if more else naming.feed(chunk) + naming.flush()
            if chunk or not more:
                await send({"type": "http.response.body", "body": chunk, "more_body": more})
            if more and direct is not None and response.sink is None and (naming is None or naming.done):
                response.sink = direct.sink(ends.take)  # a stream: most answers are here whole with their first piece
    except UpstreamError as error:
        exchange.record.fails(error)
    finally:
        exchange.record.keeps(ends.first, ends.end())


class _Ends:
    """The beginning of an answer's first piece, and the ends of its last three."""

    __slots__ = ("_before", "_earlier", "_last", "first")

    def __init__(self) -> None:
        self.first = self._earlier = self._before = self._last = b""

    def take(self, chunk: bytes) -> bool:
        """One more piece; always True."""
        if len(chunk) > _END_BYTES:  # large ones to a client that does not read have long been sent: not all of them
            chunk = chunk[-_END_BYTES:]
        self._earlier, self._before, self._last = self._before, self._last, chunk
        return True

    def end(self) -> bytes:
        """The last bytes of all."""
        return b"".join((self._earlier, self._before, self._last))[-_END_BYTES:]
