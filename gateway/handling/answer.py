"""How the client is answered by the loop and by token requests: as server-sent events, or as one JSON message."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

from gateway.asgi import Write, direct_of
from gateway.errors import Overloaded, Refused, RequestError, TurnTimeout, error_body, error_type
from gateway.handling.ask import EVENT_STREAM_TYPE, ask
from gateway.handling.exchange import Exchange
from gateway.handling.pings import PING
from gateway.handling.refuse import send_whole
from gateway.settings import Settings
from gateway.turn import Event, Fold, Out, jsonvalue
from gateway.wire.headers import Headers, without_length
from gateway.wire.sse import SSEReader, write_event

EVENT_STREAM: Headers = [(b"content-type", EVENT_STREAM_TYPE), (b"cache-control", b"no-cache")]
"""The head of a stream that begins before upstream has answered."""


class ClientAnswer(Protocol):
    """How the client is answered. ``started``: bytes have gone out."""

    started: bool

    def hold(self, headers: Headers = EVENT_STREAM) -> None:
        """Begin as late as can be: with the first event, or where a silent stream needs its first ping."""

    async def start(self, headers: Headers) -> None:
        """Begin; a stream's head goes out at once."""

    def put(self, out: Out) -> bool:
        """Take what the client is to see; False where it has to wait for ``flush``, and so has all after it."""

    async def flush(self) -> None:
        """Send what waits."""

    async def send(self, out: Out) -> None:
        """Both at once."""

    async def finish(self, message: Event | None) -> None:
        """The answer is whole: ``message``, or, where that is None, what the events fold to."""

    async def refuse(self, refused: Refused) -> None: ...
    async def fail(self, error: RequestError) -> None: ...
    def close(self) -> None: ...


async def see_through(work: Awaitable[None], answer: ClientAnswer, exchange: Exchange, settings: Settings) -> None:
    """Do the work that gives the answer; where it fails or takes too long, end the answer as that demands.

    Raises :class:`gateway.errors.RequestError` where nothing has been sent yet, for the app to answer.
    """
    try:
        await _in_time(work, settings.turn_timeout_s)
    except Refused as refused:
        exchange.record.fails(refused)
        await answer.refuse(refused)
    except RequestError as error:
        if not answer.started:
            raise
        exchange.record.fails(error)
        await answer.fail(error)
    except asyncio.CancelledError:
        # The client went, or the server stops: of that a stream's client is told in its stream.
        if answer.started and not exchange.record.left:
            await answer.fail(Overloaded("the gateway is being stopped"))
        raise
    finally:
        answer.close()


async def pass_events(
    asked: ask, answer: ClientAnswer, read: Callable[[list[bytes], Out], bool], max_event_bytes: int
) -> None:
    """Have a stream's events read as they come, and answered in that instant, up to its end.

    ``read`` adds what the client sees of each piece's events, and says whether more are needed. What it raises ends
    this, once what came before has been sent.
    """
    reader = SSEReader(max_event_bytes)
    failure: Exception | None = None
    begun, more = False, True

    def take(piece: bytes) -> bool:
        nonlocal begun, failure, more
        if not begun:
            begun = True
            asked.piece()
        out: Out = []
        try:
            more = read(reader.split(piece), out)
        except Exception as error:  # noqa: BLE001  (raised below, in the task: nobody can take it here)
            failure, more = error, False
        return (not out or answer.put(out)) and more

    while more and not asked.response.ended:
        await asked.response.pass_to(take)
        await answer.flush()
    if failure is not None:
        raise failure


def _written(out: Out) -> bytes:
    """The bytes of events."""
    return b"".join(
        [event if isinstance(event, bytes) else write_event(event["type"], jsonvalue.write(event)) for event in out]
    )


async def _in_time(work: Awaitable[None], limit_s: float) -> None:
    limit = asyncio.timeout(limit_s)
    try:
        async with limit:
            await work
    except TimeoutError:
        if limit.expired():
            raise TurnTimeout(f"The turn took longer than {limit_s:g} s.") from None
        raise


class StreamAnswer:
    """Server-sent events. Silent for ``ping_interval_s``, it sends a ping.

    One that is held begins with a ping when it has been silent for ``early_head_s``, by default as long.
    """

    def __init__(self, exchange: Exchange, ping_interval_s: float, early_head_s: float | None = None) -> None:
        self.started = False
        self._early_head = ping_interval_s if early_head_s is None else early_head_s
        self._exchange = exchange
        self._interval = ping_interval_s
        self._headers = EVENT_STREAM
        self._last = 0.0
        self._clock = asyncio.get_running_loop().time
        self._pings: asyncio.Task[None] | None = None
        self._direct = direct_of(exchange.scope)
        self._write_now: Write | None = None
        self._waiting: list[bytes] = []

    def hold(self, headers: Headers = EVENT_STREAM) -> None:
        self._headers = headers
        if self._pings is None:
            self._last = self._clock()
            self._pings = asyncio.ensure_future(self._ping())

    async def start(self, headers: Headers) -> None:
        self.hold(headers)
        if not self.started:
            await self._begin()

    def put(self, out: Out) -> bool:
        self._last = self._clock()
        data = out[0] if len(out) == 1 else None
        if not isinstance(data, bytes):
            data = _written(out)
        if self._write_now is not None and self._write_now(data):
            return True
        self._waiting.append(data)
        return False

    async def flush(self) -> None:
        if not self._waiting:
            return
        data = b"".join(self._waiting)
        self._waiting.clear()
        await self._write(data)
        if self._write_now is None and self._direct is not None:  # not before: the head goes with the first events
            self._write_now = self._direct.writer()

    async def send(self, out: Out) -> None:
        if not self.put(out):
            await self.flush()

    async def finish(self, message: Event | None = None) -> None:
        self.close()
        await self._exchange.send({"type": "http.response.body", "body": b""})

    async def refuse(self, refused: Refused) -> None:
        self.close()
        if self.started:
            await self._end(error_type(refused.status), _message_of(refused))
        else:
            await send_whole(self._exchange.send, refused.status, refused.headers, refused.body)

    async def fail(self, error: RequestError) -> None:
        await self._end(error.type, error.message)

    def close(self) -> None:
        if self._pings is not None:
            self._pings.cancel()

    async def _begin(self) -> None:
        self.started = True
        head = {"type": "http.response.start", "status": 200, "headers": without_length(self._headers)}
        await self._exchange.send(head)

    async def _end(self, kind: str, message: str) -> None:
        await self._write(write_event("error", jsonvalue.write(error_body(kind, message))))
        await self.finish()

    async def _write(self, data: bytes) -> None:
        self._last = self._clock()
        if not self.started:
            await self._begin()
        await self._exchange.send({"type": "http.response.body", "body": data, "more_body": True})

    async def _ping(self) -> None:
        while True:
            limit = self._interval if self.started else self._early_head
            left = self._last + limit - self._clock()
            if left > 0:
                await asyncio.sleep(left)
            else:
                await self._write(PING)


class JsonAnswer:
    """One JSON message, sent when it is whole: until then nothing has started."""

    started = False

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._fold = Fold()
        self._headers: Headers = []

    def hold(self, headers: Headers = EVENT_STREAM) -> None:
        self._headers = headers

    async def start(self, headers: Headers) -> None:
        self._headers = headers

    def put(self, out: Out) -> bool:
        self._fold.take(out)
        return True

    async def flush(self) -> None:
        pass

    async def send(self, out: Out) -> None:
        self._fold.take(out)

    async def finish(self, message: Event | None = None) -> None:
        whole = jsonvalue.write(self._fold.message if message is None else message)
        await send_whole(self._exchange.send, 200, self._headers, whole)

    async def refuse(self, refused: Refused) -> None:
        await send_whole(self._exchange.send, refused.status, refused.headers, refused.body)

    async def fail(self, error: RequestError) -> None:
        raise error

    def close(self) -> None:
        pass


def _message_of(refused: Refused) -> str:
    """Upstream's own message, from either shape of vLLM's error bodies."""
    try:
        match jsonvalue.read(refused.body):
            case {"error": {"message": str(message)}} | {"message": str(message)}:
                return message
    except jsonvalue.Unreadable:
        pass  # an HTML page, say: the status has to do
    return f"Upstream answered with status {refused.status}."
