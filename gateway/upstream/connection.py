"""One connection to upstream, and the one answer that is on its way through it.

The parser is httptools'; this module gives it bytes and turns what it finds into a :class:`Response`. Where it stands
is one of the :mod:`~gateway.upstream.states`: a byte that arrives while it is idle belongs to nobody and ends it. An
answer that cannot be told whole (cut, reset, not HTTP) is an error, never a short body.

This is the path of every proxied byte. One Future for a wait that really waits, no task and no timer of its own: the
pool looks at all connections once in a while (:meth:`Connection.check`).
"""

import asyncio
from collections.abc import Callable
from itertools import chain
from typing import Protocol, cast

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from gateway.errors import UpstreamBroken, UpstreamError, UpstreamTimeout
from gateway.upstream.states import (
    ASKED,
    DROPPED,
    ENDED,
    ENDED_FOR_GOOD,
    HEAD,
    OPENED,
    SETTLED,
    SURPLUS,
    State,
)
from gateway.wire.headers import Headers

_AWAITED, _BODY, _COMPLETE = State.AWAITED, State.BODY, State.COMPLETE  # a member of a class takes longer to look up

BUFFER_LIMIT = 256 * 1024
"""Body bytes held for a caller who does not read; with more, the socket is no longer read. See :class:`Response`."""

READ_LIMIT = 64 * 1024 * 1024
"""Bytes taken for a body that is read whole, unless the caller says another number."""

HEAD_LIMIT = 64 * 1024
"""Bytes taken for one response head, interim ones included; also for what frames the pieces of a body."""

WRITE_PIECE = 256 * 1024
"""A longer request body is written in pieces of this size, each when the socket has taken the ones before."""


Take = Callable[[bytes], bool]
"""Takes a piece of a body, and says whether the next may come."""


class Keeper(Protocol):
    """Who keeps a connection between requests."""

    def opened(self, connection: "Connection") -> None:
        """It is connected."""

    def idle(self, connection: "Connection") -> None:
        """Its answer is complete and it can carry another request."""

    def closed(self, connection: "Connection") -> None:
        """It is gone."""


class Response:
    """One answer, its head already in.

    ``status`` is the final status (interim 1xx answers are skipped), ``headers`` all header fields as sent, those of
    the one hop included. Close it when done, whatever happened (``contextlib.closing`` does).

    The body is handed out by :meth:`pass_to`, or whole by :meth:`read`. A caller who does neither holds at most
    ``BUFFER_LIMIT`` (256 KiB) and one socket read (at most 256 KiB) of it in memory; after that upstream is held back
    by TCP.
    """

    __slots__ = (
        "_buffered",
        "_chunks",
        "_connection",
        "_error",
        "_nudged",
        "_since",
        "_take",
        "_waiter",
        "headers",
        "status",
    )

    def __init__(self, connection: "Connection") -> None:
        self.status = 0
        self.headers: Headers = []
        self._connection: Connection | None = connection  # None: no more bytes will come
        self._chunks: list[bytes] = []
        self._buffered = 0
        self._error: UpstreamError | None = None  # told once what came before it has been taken
        self._take: Take | None = None  # while somebody waits for pieces, and has not had enough
        self._waiter: asyncio.Future[None] | None = None
        self._since = 0.0
        self._nudged = False

    @property
    def silent_since(self) -> float:
        """The loop's time since which nothing has come; of use while ``pass_to`` waits."""
        return self._since

    def nudge(self) -> None:
        """Let a ``pass_to`` that waits return, though the answer has not ended.

        Upstream's silence is not thereby broken: for the idle timeout it goes on.
        """
        if self._waiter is not None:
            self._nudged = True
            self._take = None
            self._wake()

    @property
    def whole(self) -> bool:
        """Whether all of the answer is here, so that :meth:`read` returns the rest of it without suspending."""
        return self._connection is None and self._error is None

    @property
    def ended(self) -> bool:
        """Whether the whole answer has been read."""
        return self.whole and not self._chunks

    async def pass_to(self, take: Take) -> None:
        """Hand the body to ``take`` piece by piece as it arrives, transfer coding removed, up to its end.

        ``take`` is called in the instant a piece comes, and wakes nobody; it raises nothing. Once it says no, or
        somebody nudges, this returns, and the pieces that follow wait for the next call. What is already here comes
        without suspending, in one piece. One caller at a time; cancelling it closes the response. Raises
        UpstreamTimeout (``idle``) and UpstreamBroken, after the bytes that came before.
        """
        if self._chunks and not take(self._waiting()):
            return
        connection = self._connection
        if connection is not None:
            self._take = take
            try:
                await self._wait(connection)
            except asyncio.CancelledError:
                self._take = None
                self.close()
                raise
            if self._take is None:
                return
            self._take = None
        if self._error is not None:
            raise self._error

    async def read(self, limit: int = READ_LIMIT) -> bytes:
        """All of the body that has not been read.

        Raises as ``pass_to`` does, and UpstreamBroken where it is more than ``limit`` bytes.
        """
        if self.whole:
            body = self._waiting()
        else:
            pieces: list[bytes] = []
            size = 0

            def keep(piece: bytes) -> bool:
                nonlocal size
                pieces.append(piece)
                size += len(piece)
                return size <= limit

            while not self.ended and size <= limit:
                await self.pass_to(keep)
            body = b"".join(pieces)
        if len(body) > limit:
            raise UpstreamBroken("upstream's answer is larger than the gateway takes")
        return body

    def _waiting(self) -> bytes:
        """What has come and was not handed out, in one piece."""
        if self._buffered > BUFFER_LIMIT and self._connection is not None:
            self._connection.resume()
        self._buffered = 0
        self._nudged = False
        chunks = self._chunks
        if len(chunks) == 1:
            return chunks.pop()
        data = b"".join(chunks)
        chunks.clear()
        return data

    def close(self) -> None:
        """Let go of the answer. If it has not come whole, its connection is dropped at once; else that is pooled."""
        if not self.ended:
            fault = UpstreamBroken("the answer was closed before its end")
            if self._connection is not None:
                self._connection.abort(fault)
            self._error = self._error or fault
            self._chunks.clear()

    def _wait(self, connection: "Connection") -> "asyncio.Future[None]":
        loop = connection.loop
        waiter = self._waiter = loop.create_future()
        if self._nudged:
            self._nudged = False
        else:
            self._since = loop.time()
        connection.overhead = 0
        return waiter

    def _wake(self) -> None:
        waiter = self._waiter
        if waiter is not None:
            self._waiter = None
            if not waiter.done():  # the waiting task may just have been cancelled
                waiter.set_result(None)


class Connection(asyncio.Protocol):
    """The protocol of one socket. ``idle_since`` is the loop's time at which its last answer was complete."""

    __slots__ = (
        "_head_only",
        "_keeper",
        "_parser",
        "_response",
        "_state",
        "_taken",
        "_transport",
        "_unsent",
        "_write_paused",
        "idle_since",
        "loop",
        "overhead",
    )

    _transport: asyncio.Transport

    def __init__(self, loop: asyncio.AbstractEventLoop, keeper: Keeper) -> None:
        self.loop = loop
        self.idle_since = 0.0
        self.overhead = 0  # bytes since the caller began to wait that were neither a whole head nor body
        self._keeper = keeper
        self._parser = HttpResponseParser(self)
        self._state = State.CONNECTING
        self._response: Response | None = None  # while it is AWAITED, in its BODY, or what ended it is being read
        self._head_only = False
        self._taken = (
            False  # of the bytes that just came some were body that was taken at once, and they did not end the answer
        )
        self._unsent: memoryview | None = None
        self._write_paused = False

    # What a client does

    def is_closing(self) -> bool:
        """Whether the connection is gone or going."""
        return self._transport.is_closing()

    async def exchange(self, head: bytes, body: bytes, *, head_only: bool) -> Response:
        """Send a request and wait for the head of its answer. ``head_only``: it is a HEAD request.

        Raises UpstreamTimeout (``first byte``) and UpstreamBroken; :meth:`unanswered` tells what that was.
        """
        self._state = ASKED[self._state]
        response = self._response = Response(self)
        self._head_only = head_only
        if len(body) <= WRITE_PIECE:
            self._transport.write(head + body)
        else:
            self._unsent = memoryview(body)
            self._transport.write(head)
            self._write_on()
        try:
            await response._wait(self)
        except asyncio.CancelledError:
            response.close()
            raise
        if response.status == 0 and response._error is not None:
            raise response._error
        return response

    def unanswered(self) -> bool:
        """After a failed exchange: not one byte of an answer had come."""
        return self.overhead == 0

    def resume(self) -> None:
        """Read again from the socket: the caller has room."""
        self._transport.resume_reading()

    def abort(self, error: UpstreamError) -> None:
        """Close the socket now; an exchange that was on its way ends with ``error``."""
        response = self._response
        if response is not None:
            self._response = None
            response._connection = None
            response._error = error
            response._wake()
        self.drop()

    def drop(self) -> None:
        """Close the socket now."""
        self._state = DROPPED[self._state]
        self._transport.abort()

    def check(self, now: float, *, first_byte_timeout_s: float, idle_timeout_s: float) -> None:
        """Fail the exchange if somebody has been waiting too long for upstream's next byte."""
        response = self._response
        if response is None or response._waiter is None:
            return
        waited = now - response._since
        if self._state is _AWAITED:
            if waited >= first_byte_timeout_s:
                text = f"upstream did not begin to answer within {first_byte_timeout_s:g} s"
                self.abort(UpstreamTimeout(text, stage="first byte"))
        elif waited >= idle_timeout_s:
            text = f"upstream sent nothing for {idle_timeout_s:g} s in the middle of its answer"
            self.abort(UpstreamTimeout(text, stage="idle"))

    # What the event loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's own are not subclasses
        self._state = OPENED[self._state]
        self._keeper.opened(self)

    def data_received(self, data: bytes) -> None:
        response = self._response
        if response is None:
            self.drop()
            return
        try:
            self._parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade) as error:
            if self._state is _BODY or self._state is _AWAITED:
                self.overhead += len(data)
                fault = error.__context__
                if not isinstance(fault, UpstreamBroken):
                    fault = UpstreamBroken("what upstream sent is not valid HTTP")
                    fault.__cause__ = error
                self.abort(fault)
                return
            self._state = SURPLUS[self._state]
        if self._taken:
            self._taken = False
            self.overhead = 0
            response._since = self.loop.time()
        elif self._state is not _BODY and self._state is not _AWAITED:
            self._finish(response)
        elif response._waiter is not None:
            self._no_progress(response, len(data))
        elif response._buffered > BUFFER_LIMIT:
            self._transport.pause_reading()

    def eof_received(self) -> None:
        response = self._response
        if response is None:
            return
        if self._state is _BODY and _ends_with_connection(response.headers):
            self._state = ENDED_FOR_GOOD[self._state]
            self._finish(response)
        else:
            self.abort(_cut(response))

    def connection_lost(self, error: Exception | None) -> None:
        response = self._response
        if response is not None:
            fault = _cut(response)
            fault.__cause__ = error
            self.abort(fault)
        self._state = DROPPED[self._state]
        del self._parser  # which holds this object's methods
        self._keeper.closed(self)

    def pause_writing(self) -> None:
        self._write_paused = True

    def resume_writing(self) -> None:
        self._write_paused = False
        self._write_on()

    # What the parser calls

    def on_message_begin(self) -> None:
        if self._state is not _AWAITED:
            raise UpstreamBroken("upstream sent a second answer")

    def on_header(self, name: bytes, value: bytes) -> None:
        response = self._response
        assert response is not None
        if self._state is not _AWAITED:
            return  # a trailer
        name = name.lower()
        response.headers.append((name, value))
        if name == b"transfer-encoding" and value.strip().lower() != b"chunked":
            raise UpstreamBroken("upstream used a transfer coding that was not asked for")

    def on_headers_complete(self) -> None:
        response = self._response
        assert response is not None
        if sum(map(len, chain.from_iterable(response.headers))) > HEAD_LIMIT:
            raise _too_long("response head")
        status = self._parser.get_status_code()
        if status < 200:
            response.headers.clear()
            return
        self._state = HEAD[self._state]
        response.status = status
        response._wake()
        if self._head_only:
            self._state = ENDED_FOR_GOOD[self._state]
            # The parser cannot be told that no body follows, so it stops here, and so does the connection.
            raise UpstreamBroken("a HEAD answer has no body")

    def on_body(self, data: bytes) -> None:
        response = self._response
        assert response is not None
        take, waiter = response._take, response._waiter
        if take is not None and waiter is not None and not waiter.done():  # else it was cancelled in this instant
            self._taken = True
            if not take(data):
                response._take = None
                response._wake()
            return
        response._chunks.append(data)
        response._buffered += len(data)

    def on_message_complete(self) -> None:
        if self._state is _BODY:  # else it was an interim answer
            self._taken = False
            step = ENDED if self._parser.should_keep_alive() else ENDED_FOR_GOOD
            self._state = step[self._state]

    # What is left

    def _finish(self, response: Response) -> None:
        self._response = None
        response._connection = None
        response._wake()
        if self._state is _COMPLETE and not self._write_paused:  # else this request would run into the next one
            self._state = SETTLED[self._state]
            self.idle_since = self.loop.time()
            self._keeper.idle(self)
        else:
            self.drop()

    def _no_progress(self, response: Response, size: int) -> None:
        self.overhead += size
        if self.overhead > HEAD_LIMIT:
            what = "trailers" if self._state is _BODY else "response head"
            self.abort(_too_long(what))
        elif self._state is _BODY:
            response._since = self.loop.time()  # a byte is a byte: upstream is not idle

    def _write_on(self) -> None:
        while self._unsent is not None and not self._write_paused:
            piece, rest = self._unsent[:WRITE_PIECE], self._unsent[WRITE_PIECE:]
            self._unsent = rest if rest.nbytes else None
            self._transport.write(piece)


def _ends_with_connection(headers: Headers) -> bool:
    return not any(name in (b"content-length", b"transfer-encoding") for name, _ in headers)


def _too_long(what: str) -> UpstreamBroken:
    return UpstreamBroken(f"upstream's {what} took more than {HEAD_LIMIT} bytes")


def _cut(response: Response) -> UpstreamBroken:
    where = "in the middle of its answer" if response.status else "before it answered"
    return UpstreamBroken(f"upstream closed the connection {where}")
