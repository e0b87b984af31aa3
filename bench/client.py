"""The two clients: a `Caller` asks the same again and again on one connection, a `Reader` reads one long stream."""

import asyncio
import re
import time
from collections.abc import Callable
from typing import TypeVar, cast

import httptools

DELTA = re.compile(rb'"(?:text|thinking|partial_json)": ?" ?(\d+)\.(\d+)\.(\d+)"')


def post(body: bytes, path: bytes = b"/v1/messages") -> bytes:
    """A whole request, with the headers that a Messages client sends."""
    return (
        b"POST %s HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\naccept: application/json\r\n"
        b"user-agent: bench\r\nanthropic-version: 2023-06-01\r\nx-api-key: bench\r\ncontent-length: %d\r\n\r\n%s"
    ) % (path, len(body), body)


class Fault(Exception):
    """A server answered what it must not: the measurement would be of something else."""


class Exchange(asyncio.Protocol):
    """One connection; the subclass says what to do with the bytes of an answer."""

    def __init__(self, request: bytes) -> None:
        self.request = request
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's is one by its methods, not by its class
        self.parser = httptools.HttpResponseParser(self)

    def data_received(self, data: bytes) -> None:
        self.parser.feed_data(data)

    def connection_lost(self, exc: Exception | None) -> None:
        _settle(self.lost)


class Caller(Exchange):
    """Sends its request again as soon as the answer is whole, until it is stopped.

    Every answer must have status 200 and hold `proof`.
    """

    def __init__(self, request: bytes, proof: bytes) -> None:
        super().__init__(request)
        self.proof = proof
        self.answers = 0
        self.fault: str | None = None
        self.stopped = False
        self.pieces: list[bytes] = []

    def start(self) -> None:
        self.transport.write(self.request)

    def on_message_begin(self) -> None:
        self.pieces = []

    def on_body(self, body: bytes) -> None:
        self.pieces.append(body)

    @property
    def body(self) -> bytes:
        """What has come of the answer under way."""
        return b"".join(self.pieces)

    def on_message_complete(self) -> None:
        status = self.parser.get_status_code()
        if status != 200 or self.proof not in self.body:
            self.fault = f"status {status}: {self.body[:300]!r}"
        elif not self.stopped:
            self.answers += 1
            self.transport.write(self.request)
            return
        self.transport.close()


class Reader(Exchange):
    """Reads one stream: how late each event is, and whether any was lost, mixed up or out of order.

    It may be made of `rounds` streams of upstream's, one after the other.
    under_way: done when its first `lead` events are here, first_bytes when anything of its body is, or the connection
    is gone.
    first_ns: from the request to the first bytes of the body. late_ns: from sending to arrival, an entry an event.
    """

    def __init__(self, request: bytes, lead: int = 1, rounds: int = 1) -> None:
        super().__init__(request)
        self.lead = lead
        self.rounds = rounds
        self.under_way: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.first_bytes: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.first_ns: int | None = None
        self.late_ns: list[int] = []
        self.events = 0
        self.stream: bytes | None = None
        self.expected = 1
        self.whole = False
        self.fault: str | None = None
        self.tail = b""

    def start(self) -> None:
        self.started_ns = time.monotonic_ns()
        self.transport.write(self.request)

    def on_body(self, body: bytes) -> None:
        now = time.monotonic_ns()
        if self.first_ns is None:
            self.first_ns = now - self.started_ns
            _settle(self.first_bytes)
        text = self.tail + body
        end = 0
        for found in DELTA.finditer(text):
            self.events += 1
            self.late_ns.append(now - int(found[3]))
            if found[1] != self.stream and self.rounds > 0:
                self.rounds -= 1
                self.stream, self.expected = found[1], 1
            if found[1] != self.stream or int(found[2]) != self.expected:
                self.fault = f"event {self.expected} of stream {self.stream!r} came as {found[0]!r}"
            self.expected += 1
            end = found.end()
        if self.events >= self.lead:
            _settle(self.under_way)
        self.tail = text[max(end, text.rfind(b"\n\n") + 2) :]
        if b"message_stop" in text[end:]:
            self.whole = True

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        _settle(self.under_way)
        _settle(self.first_bytes)

    def on_message_complete(self) -> None:
        status = self.parser.get_status_code()
        if status != 200 or not self.whole:
            self.fault = f"status {status}, no message_stop: {self.tail[:300]!r}"
        self.transport.close()


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


Some = TypeVar("Some", bound=Exchange)


async def connect(port: int, number: int, make: Callable[[], Some]) -> list[Some]:
    """That many open connections to a server of this machine."""
    loop = asyncio.get_running_loop()
    return [(await loop.create_connection(make, "127.0.0.1", port))[1] for _ in range(number)]
