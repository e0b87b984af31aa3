"""A recording reverse proxy: whatever passes becomes a turn, bytes unchanged.

Turns are written in the order they finished, each whole: an exchange that its client or the upstream broke off is no
turn. When a client has the end of its answer, the turn is in the file. The one thing changed is that the upstream is
asked for identity encoding, so that a cassette can be read.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import httpx

from recorder.capture import Capture
from recorder.cassette import Request, Response, Turn, parse_json
from recorder.errors import RecorderError
from recorder.faults import error_envelope
from recorder.headers import end_to_end, recorded_headers
from recorder.serving import Receive, Scope, Send, client_gone, query_params, read_body
from recorder.writer import CassetteWriter

_MADE_ANEW = {b"host", b"content-length", b"accept-encoding", b"expect"}
_TIMEOUT = httpx.Timeout(600, connect=10)

Say = Callable[[str, Turn | None], None]


class RecordingProxy:
    """The ASGI application. ``say`` is told of every exchange: what it was, and the turn it became, if one."""

    def __init__(self, upstream: str, writer: CassetteWriter, say: Say) -> None:
        self._upstream = httpx.URL(upstream)
        self._writer = writer
        self._say = say
        self._client = httpx.AsyncClient(timeout=_TIMEOUT, limits=httpx.Limits(max_connections=None))
        # one thread: turns are written one after the other, and no stream waits for it
        self._pen = ThreadPoolExecutor(max_workers=1)
        self._passing: set[asyncio.Task[None]] = set()

    def stop(self) -> None:
        """Break off what is under way."""
        for passing in self._passing:
            passing.cancel()

    async def aclose(self) -> None:
        """Write what has finished, and let the upstream go."""
        await asyncio.to_thread(self._pen.shutdown)
        await self._client.aclose()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        exchange = _Exchange(scope, await read_body(receive), send)
        passing = asyncio.create_task(self._pass(exchange))
        leaving = asyncio.create_task(client_gone(receive))
        self._passing.add(passing)
        try:
            await asyncio.wait({passing, leaving}, return_when=asyncio.FIRST_COMPLETED)
            passing.cancel()
            await asyncio.wait({passing})
        finally:
            passing.cancel()
            leaving.cancel()
            self._passing.discard(passing)
        if not passing.cancelled():
            passing.result()
        elif exchange.capture.message_stopped and not exchange.written:
            # clients may hang up as soon as they have seen the last event
            await self._write(exchange)
        elif not exchange.written:
            self._say(f"{exchange.name}: broken off before its end, not recorded", None)

    async def _pass(self, exchange: "_Exchange") -> None:
        try:
            answer = await self._client.send(exchange.upstream_request(self._upstream), stream=True)
        except httpx.TransportError as error:
            self._say(f"{exchange.name}: no answer from the upstream ({type(error).__name__}), not recorded", None)
            await exchange.bad_gateway()
            return
        try:
            await exchange.head(answer)
            last = b""
            async for data in answer.aiter_raw():
                exchange.capture.feed(data)
                if exchange.capture.size == exchange.content_length:
                    last = data
                else:
                    await exchange.body(data)
        except httpx.TransportError as error:
            # the answer stays without an end, which the server makes a dropped connection, as it was for us
            self._say(f"{exchange.name}: the upstream broke off ({type(error).__name__}), not recorded", None)
            return
        finally:
            await answer.aclose()
        await self._write(exchange)
        await exchange.body(last, more=False)

    async def _write(self, exchange: "_Exchange") -> None:
        exchange.written = True
        response = exchange.capture.finish()
        await asyncio.shield(asyncio.wrap_future(self._pen.submit(self._append, exchange, response)))

    def _append(self, exchange: "_Exchange", response: Response) -> None:
        try:
            turn = self._writer.append(exchange.request(), response)
        except RecorderError as error:
            self._say(f"{exchange.name}: {error}", None)
        else:
            self._say(exchange.name, turn)


class _Exchange:
    """One request passing, and its answer."""

    def __init__(self, scope: Scope, body: bytes, send: Send) -> None:
        self.name = f"{scope['method']} {scope['path']}"
        self.capture = Capture()
        self.content_length: int | None = None
        self.written = False
        self._scope, self._body, self._send = scope, body, send

    def request(self) -> Request:
        """The request as a cassette holds it."""
        value = parse_json(self._body)
        text = self._body.decode("utf-8", "replace") if self._body and value is None else None
        query = query_params(self._scope)
        headers = recorded_headers(self._scope["headers"])
        return Request(self._scope["method"], self._scope["path"], query, headers, value, text)

    def upstream_request(self, upstream: httpx.URL) -> httpx.Request:
        """The request as it goes upstream."""
        query = self._scope["query_string"]
        target = self._scope["raw_path"] + (b"?" + query if query else b"")
        headers = [(name, value) for name, value in end_to_end(self._scope["headers"]) if name not in _MADE_ANEW]
        return httpx.Request(
            self._scope["method"],
            upstream.copy_with(raw_path=upstream.raw_path.rstrip(b"/") + target),
            headers=[*headers, (b"accept-encoding", b"identity")],
            content=self._body or None,
        )

    async def head(self, answer: httpx.Response) -> None:
        """The answer has begun."""
        self.capture.head(answer.status_code, answer.headers.raw)
        length = answer.headers.get("content-length", "")
        self.content_length = int(length) if length.isdigit() else None
        headers = end_to_end(answer.headers.raw)
        await self._send({"type": "http.response.start", "status": answer.status_code, "headers": headers})

    async def body(self, data: bytes, *, more: bool = True) -> None:
        await self._send({"type": "http.response.body", "body": data, "more_body": more})

    async def bad_gateway(self) -> None:
        headers = [(b"content-type", b"application/json")]
        await self._send({"type": "http.response.start", "status": 502, "headers": headers})
        await self.body(error_envelope("api_error", "the upstream did not answer"), more=False)
