"""The IO shell of a turn: upstream, tools, pings, and the client's answer; what a turn is lives in ``gateway.turn``.

When the client goes, the app cancels the task that is in here, and every ``finally`` lets go of what it holds: the
upstream connection, the tools, the pings.
"""

import asyncio
from contextlib import suppress
from time import perf_counter
from typing import Protocol

from gateway.errors import RequestError, UpstreamBroken, UpstreamError, error_body, error_type
from gateway.exchange import Exchange, Services
from gateway.observe import Outcome
from gateway.turn import Call, Fold, Out, Turn, events_of, jsonvalue, read_event, read_message
from gateway.turn.tool import SearchOutcome
from gateway.upstream import Response
from gateway.wire.headers import Headers, header, response_headers, upstream_headers
from gateway.wire.sse import SSEReader, write_event

PING = write_event("ping", b'{"type":"ping"}')
_LEFTOVER_S = 0.25
"""How long to wait for the end of an answer whose message is whole, so that its connection can be used again."""


async def run_turn(turn: Turn, exchange: Exchange, services: Services) -> None:
    """Answer the whole HTTP request that ``turn`` was read from.

    Raises :class:`gateway.errors.RequestError` where nothing has been sent yet, for the app to answer.
    """
    answer: _Answer = _JsonAnswer(exchange)
    if turn.stream:
        answer = _StreamAnswer(exchange, services.settings.ping_interval_s)
    exchange.record.model = turn.model
    try:
        await _Run(turn, answer, exchange, services).drive()
    except _RoundRefused as refused:
        exchange.record.outcome = _outcome(refused.status)
        await answer.refuse(refused)
    except RequestError as error:
        if not answer.started:
            raise
        exchange.record.outcome = "timeout" if error.status == 504 else "cut"
        await answer.fail(error)
    finally:
        answer.close()


class _RoundRefused(Exception):
    """A later round that upstream answered with another status than 200."""

    def __init__(self, status: int, headers: Headers, body: bytes) -> None:
        super().__init__(status)
        self.status = status
        self.headers = headers
        self.body = body

    def message(self) -> str:
        """Upstream's own message, from either shape of vLLM's error bodies."""
        try:
            match jsonvalue.read(self.body):
                case {"error": {"message": str(message)}} | {"message": str(message)}:
                    return message
        except jsonvalue.Unreadable:
            pass  # an HTML page, say: the status has to do
        return f"Upstream answered with status {self.status}."


class _Answer(Protocol):
    """How the client is answered: as a stream or as one JSON message."""

    started: bool

    async def start(self, headers: Headers) -> None: ...
    async def send(self, out: Out) -> None: ...
    async def finish(self) -> None: ...
    async def refuse(self, refused: _RoundRefused) -> None: ...
    async def fail(self, error: RequestError) -> None: ...
    def close(self) -> None: ...


class _Run:
    """One turn on its way."""

    def __init__(self, turn: Turn, answer: _Answer, exchange: Exchange, services: Services) -> None:
        self._turn = turn
        self._answer = answer
        self._exchange = exchange
        self._services = services
        key = services.settings.upstream_api_key
        self._headers = upstream_headers(
            exchange.scope["headers"],
            upstream_api_key=None if key is None else key.get_secret_value(),
            gateway_keys=bool(services.settings.api_keys),
            identity=True,
        )

    async def drive(self) -> None:
        """All the rounds, and the calls between them."""
        turn = self._turn
        await self._run_calls(turn.late_calls())
        while not turn.over:
            sent = perf_counter()
            response = await self._ask()
            try:
                if response.status != 200:
                    await self._not_ok(response)
                    return
                _expect_readable(response, stream=turn.stream)
                if turn.rounds == 0:
                    await self._answer.start(response_headers(response.headers))
                await (self._read_stream(response) if turn.stream else self._read_json(response))
                self._exchange.record.upstream_ms += (perf_counter() - sent) * 1000
                await self._end_round()
                await _read_leftover(response)
            finally:
                response.close()
        await self._answer.finish()

    async def _ask(self) -> Response:
        body = self._turn.request()
        self._exchange.record.rounds += 1
        return await self._services.upstream.request("POST", self._exchange.target, self._headers, body)

    async def _read_stream(self, response: Response) -> None:
        turn, reader, send = self._turn, SSEReader(), self._answer.send
        while not turn.round_done:
            chunk = await response.read_chunk()
            if not chunk:
                break
            out: Out = []
            try:
                for frame in reader.feed(chunk):
                    event = read_event(frame.data)
                    turn.feed(event, frame.raw if frame.event == event.get("type") else None, out)
                    if turn.round_done:
                        break
            finally:
                if out:  # what came before an event that cannot be used is not lost
                    await send(out)

    async def _read_json(self, response: Response) -> None:
        message = read_message(await response.read())
        for event in events_of(message):
            out: Out = []
            self._turn.feed(event, None, out)
            await self._answer.send(out)

    async def _end_round(self) -> None:
        turn, record = self._turn, self._exchange.record
        out: Out = []
        calls = turn.end_round(out)
        usage = turn.usage()
        record.input_tokens, record.output_tokens = usage.get("input_tokens"), usage.get("output_tokens")
        if out:
            await self._answer.send(out)
        await self._run_calls(calls)
        if turn.over:
            out = []
            turn.finish(out)
            await self._answer.send(out)

    async def _run_calls(self, calls: list[Call]) -> None:
        """Run calls side by side; each outcome is presented as soon as it and those before it are there."""
        tasks = [asyncio.ensure_future(self._run_call(call)) for call in calls]
        try:
            for call, task in zip(calls, tasks, strict=True):
                outcome = await task
                out: Out = []
                self._turn.answer(call, outcome, out)
                if out:
                    await self._answer.send(out)
        finally:
            for task in tasks:
                task.cancel()

    async def _run_call(self, call: Call) -> SearchOutcome:
        if call.search is None:
            assert call.refused is not None
            return call.refused
        self._exchange.record.tools.append("web_search")
        outcome = await self._services.web_search.run(call.search)
        self._services.metrics.tool_call("web_search", outcome.error)
        return outcome

    async def _not_ok(self, response: Response) -> None:
        """The first round's answer passes as it is; a later one's ends the turn."""
        self._exchange.record.status = response.status
        if self._turn.rounds:
            raise _RoundRefused(response.status, response_headers(response.headers), await response.read())
        self._exchange.record.outcome = _outcome(response.status)
        send = self._exchange.send
        await send(
            {"type": "http.response.start", "status": response.status, "headers": response_headers(response.headers)}
        )
        while chunk := await response.read_chunk():
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body"})


class _StreamAnswer:
    """Server-sent events. Silent for ``ping_interval_s``, it sends a ping."""

    def __init__(self, exchange: Exchange, ping_interval_s: float) -> None:
        self.started = False
        self._exchange = exchange
        self._interval = ping_interval_s
        self._last = 0.0
        self._clock = asyncio.get_running_loop().time
        self._pings: asyncio.Task[None] | None = None

    async def start(self, headers: Headers) -> None:
        self.started = True
        self._last = self._clock()
        self._exchange.record.status = 200
        await self._exchange.send({"type": "http.response.start", "status": 200, "headers": _without_length(headers)})
        self._pings = asyncio.ensure_future(self._ping())

    async def send(self, out: Out) -> None:
        await self._write(
            b"".join(
                [
                    event if isinstance(event, bytes) else write_event(event["type"], jsonvalue.write(event))
                    for event in out
                ]
            )
        )

    async def finish(self) -> None:
        self.close()
        await self._exchange.send({"type": "http.response.body"})

    async def refuse(self, refused: _RoundRefused) -> None:
        await self._end(error_type(refused.status), refused.message())

    async def fail(self, error: RequestError) -> None:
        await self._end(error.type, error.message)

    def close(self) -> None:
        if self._pings is not None:
            self._pings.cancel()

    async def _end(self, kind: str, message: str) -> None:
        await self._write(write_event("error", jsonvalue.write(error_body(kind, message))))
        await self.finish()

    async def _write(self, data: bytes) -> None:
        self._last = self._clock()
        await self._exchange.send({"type": "http.response.body", "body": data, "more_body": True})

    async def _ping(self) -> None:
        while True:
            left = self._last + self._interval - self._clock()
            if left > 0:
                await asyncio.sleep(left)
            else:
                await self._write(PING)


class _JsonAnswer:
    """One JSON message, sent when the turn is over: until then nothing has started."""

    started = False

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._fold = Fold()
        self._headers: Headers = []

    async def start(self, headers: Headers) -> None:
        self._headers = headers

    async def send(self, out: Out) -> None:
        self._fold.take(out)

    async def finish(self) -> None:
        await self._whole(200, self._headers, jsonvalue.write(self._fold.message))

    async def refuse(self, refused: _RoundRefused) -> None:
        await self._whole(refused.status, refused.headers, refused.body)

    async def fail(self, error: RequestError) -> None:
        raise error

    def close(self) -> None:
        pass

    async def _whole(self, status: int, headers: Headers, body: bytes) -> None:
        self._exchange.record.status = status
        fields = [*_without_length(headers), (b"content-length", str(len(body)).encode())]
        await self._exchange.send({"type": "http.response.start", "status": status, "headers": fields})
        await self._exchange.send({"type": "http.response.body", "body": body})


async def _read_leftover(response: Response) -> None:
    """Read on to the end of an answer that needs no more reading, if it comes soon."""
    with suppress(TimeoutError, UpstreamError):  # the message is whole: the worst is a connection less in the pool
        async with asyncio.timeout(_LEFTOVER_S):
            while not response.ended and await response.read_chunk():
                pass


def _expect_readable(response: Response, *, stream: bool) -> None:
    """Raises :class:`UpstreamBroken` for an answer that cannot be read: another type, or a content encoding."""
    kind = header(response.headers, b"content-type") or b""
    if stream and not kind.lower().startswith(b"text/event-stream"):
        raise UpstreamBroken("Upstream did not answer with an event stream.")
    if (header(response.headers, b"content-encoding") or b"identity").lower() != b"identity":
        raise UpstreamBroken("Upstream answered with a content encoding that was not asked for.")


def _without_length(headers: Headers) -> Headers:
    return [pair for pair in headers if pair[0] != b"content-length"]


def _outcome(status: int) -> Outcome:
    return "client_error" if status < 500 else "upstream_error"
