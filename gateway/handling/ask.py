"""The one door to upstream: whoever answers a client asks through here.

It sends, counts the round, times it, lets go of the answer, and tells the observers, however the round ends. What the
model server is asked on the gateway's own account (its list of models, its windows, its health) is its own affair
(:mod:`gateway.model_server`); where such an answer is what the client asked for, that is a round too
(:class:`Round`).
"""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from time import perf_counter
from types import TracebackType
from typing import Any

from gateway.books.observer import RoundBegun, RoundEnded
from gateway.errors import UpstreamBroken, UpstreamError
from gateway.handling.exchange import Exchange, Services
from gateway.upstream import Response
from gateway.wire.headers import Headers, header

LEFTOVER_S = 0.25
"""How long to wait for the end of an answer whose message is whole, so that its connection can be used again."""

EVENT_STREAM_TYPE = b"text/event-stream; charset=utf-8"
JSON_TYPE = b"application/json"

_OF_THE_BODY = frozenset({b"content-type", b"content-length", b"content-encoding"})


class Round:
    """``with Round(…) as round:`` is one round: counted when it begins, timed until :meth:`whole` or its end."""

    __slots__ = ("_begun_at", "_first_ms", "_head_ms", "_observers", "_record", "_status", "_told", "body", "target")

    def __init__(self, exchange: Exchange, services: Services, target: str, body: bytes = b"") -> None:
        self.target = target
        self.body = body
        self._record = exchange.record
        self._observers = services.observers
        self._begun_at = 0.0
        self._head_ms: float | None = None
        self._first_ms: float | None = None
        self._status: int | None = None
        self._told = False

    def __enter__(self) -> "Round":
        record = self._record
        record.asks()
        if self._observers.round_began:
            begun = RoundBegun(record.rounds, self.target, self.body)
            for tell in self._observers.round_began:
                tell(record, begun)
        self._begun_at = perf_counter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end(error, {})

    def head(self, status: int) -> None:
        """The answer's head has come. Raises :class:`UpstreamBroken` for a status that HTTP does not have."""
        self._status = status
        if self._observers.round_ended:
            self._head_ms = (perf_counter() - self._begun_at) * 1000
        if not 200 <= status <= 599:
            raise UpstreamBroken(f"upstream answered with status {status}, which HTTP does not have")

    def piece(self) -> None:
        """A piece of the answer's body has come."""
        if self._first_ms is None and self._observers.round_ended:
            self._first_ms = (perf_counter() - self._begun_at) * 1000

    def whole(self, answer: Mapping[str, Any]) -> None:
        """All of the answer that matters has come; ``answer`` is as for :class:`gateway.books.observer.RoundEnded`."""
        self._end(None, answer)

    def _end(self, error: BaseException | None, answer: Mapping[str, Any]) -> None:
        if self._told:
            return
        self._told = True
        record, ms = self._record, (perf_counter() - self._begun_at) * 1000
        record.waited(ms)
        if self._observers.round_ended:
            ended = RoundEnded(record.rounds, ms, self._head_ms, self._first_ms, self._status, error, answer)
            for tell in self._observers.round_ended:
                tell(record, ended)


class ask:
    """``async with ask(…) as asked:`` sends a request for a round and has the head of its answer, ``asked.response``.

    ``target`` is in origin-form, ``headers`` are end-to-end ones. The answer is let go of at the end; if it has not
    come whole, its connection is dropped at once. A class, as ``contextlib``'s generators cost a small request
    more than the door does.

    Raises :class:`UpstreamError`, for a status that HTTP does not have too.
    """

    __slots__ = ("_headers", "_method", "_round", "_services", "response")

    response: Response

    def __init__(
        self, exchange: Exchange, services: Services, method: str, target: str, headers: Headers, body: bytes
    ) -> None:
        self._services = services
        self._method = method
        self._headers = headers
        self._round = Round(exchange, services, target, body)

    async def __aenter__(self) -> "ask":
        round_ = self._round.__enter__()
        try:
            response = self.response = await self._services.upstream.request(
                self._method, round_.target, self._headers, round_.body
            )
        except BaseException as error:
            round_.__exit__(type(error), error, None)
            raise
        try:
            round_.head(response.status)
        except UpstreamBroken as error:
            await self.__aexit__(type(error), error, None)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.response.close()
        self._round.__exit__(kind, error, trace)

    def piece(self) -> None:
        """A piece of the answer's body has come."""
        self._round.piece()

    def whole(self, answer: Mapping[str, Any]) -> None:
        """The round has come whole; what the answer is kept for from now on is not its time. See :class:`Round`."""
        self._round.whole(answer)


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
    if response.ended:
        return
    with suppress(TimeoutError, UpstreamError):  # the message is whole: the worst is a connection less in the pool
        async with asyncio.timeout(LEFTOVER_S):
            await response.pass_to(lambda _: True)


def with_type(headers: Headers, content_type: bytes) -> Headers:
    """Upstream's headers beside a body that the gateway makes of upstream's."""
    return [(b"content-type", content_type), *(pair for pair in headers if pair[0] not in _OF_THE_BODY)]
