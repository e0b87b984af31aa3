"""The upstream double: a process that answers like a model server, at a pace that it is told.

    POST /v1/messages            the answer: JSON, or a stream if the body says `"stream": true`
    PUT  /bench/plan             what every later stream shall be (a `Plan` as JSON)
    POST /bench/finish           ends the open streams at their next step
    GET  /bench/seen             {"messages": …, "searches": …} since the last plan
    GET  /res/v1/web/search      what a search found, in Brave's shape, for the servers that run a search
    anything else                200 with a list of one model

Streams step in batches of at most 100, as the sequences of one engine do: a batch's streams get their next event in
the same instant, and the batches take turns. Every event carries the stream's number, its own number and the time it
was sent (CLOCK_MONOTONIC, ns), so that the reader knows what was lost, mixed up or late.

It is started with a port: `python -m bench.upstream PORT`.
"""

import asyncio
import itertools
import json
import re
import sys
import time
from typing import cast

import httptools
import uvloop

from bench.script import CALL_ID, END, JSON_BODY, MODELS, STREAM_HEAD, Plan, Round, chunk, found, json_answer

BATCH = 100
GOLDEN = 0.618034  # spreads the phases of any number of batches evenly over the interval


class Stream:
    """One open stream: what it has sent so far."""

    numbers = itertools.count(1)

    def __init__(self, transport: asyncio.Transport, script: Round) -> None:
        self.transport = transport
        self.script = script
        self.number = next(self.numbers)
        self.sent = 0
        self.finishing = False

    def delta(self) -> bytes:
        self.sent += 1
        return self.script.delta % (self.number, self.sent, time.monotonic_ns())

    def open(self) -> None:
        lead = b"".join(chunk(self.delta()) for _ in range(self.script.lead))
        self.transport.write(STREAM_HEAD + chunk(self.script.opening) + lead + (self.end() if self.ended() else b""))

    def ended(self) -> bool:
        return self.finishing or (self.script.events is not None and self.sent >= self.script.events)

    def end(self) -> bytes:
        return chunk(self.script.ending) + END

    def step(self) -> None:
        self.transport.write(self.end() if self.ended() else chunk(self.delta()))


class Batch:
    """The streams that get their events in the same instants."""

    def __init__(self, interval_s: float, phase: float) -> None:
        self.streams: list[Stream] = []
        self.interval_s = interval_s
        self.loop = asyncio.get_running_loop()
        self.due = self.loop.time() + interval_s * (1 + phase)
        self.timer = self.loop.call_at(self.due, self.step)

    def step(self) -> None:
        ended = [stream for stream in self.streams if stream.ended()]
        for stream in self.streams:
            stream.step()
        for stream in ended:
            self.streams.remove(stream)
        self.due += self.interval_s
        self.timer = self.loop.call_at(self.due, self.step)


class Pacer:
    """All open streams, and what the process was told."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self.follow(Plan())

    def follow(self, plan: Plan) -> None:
        for batch in self.batches:
            batch.timer.cancel()
        self.plan, self.batches, self.messages, self.searches = plan, [], 0, 0
        self.answer, self.searching = Round(plan, searching=False), Round(plan, searching=True)
        self.found = json_answer(found(plan.results))

    def finish(self) -> None:
        for batch in self.batches:
            for stream in batch.streams:
                stream.finishing = True

    def start(self, transport: asyncio.Transport, script: Round) -> tuple[Batch, Stream] | None:
        """Opens a stream; None if it has already said all."""
        stream = Stream(transport, script)
        stream.open()
        if stream.ended():
            return None
        batch = next((batch for batch in self.batches if len(batch.streams) < BATCH), None)
        if batch is None:
            batch = Batch(self.plan.interval_s, len(self.batches) * GOLDEN % 1)
            self.batches.append(batch)
        batch.streams.append(stream)
        return batch, stream


class Connection(asyncio.Protocol):
    """One connection of a server under test, or of the bench itself."""

    streamed = re.compile(rb'"stream": ?true')
    called = CALL_ID.encode()

    def __init__(self, pacer: Pacer) -> None:
        self.pacer = pacer
        self.open: tuple[Batch, Stream] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's is one by its methods, not by its class
        self.parser = httptools.HttpRequestParser(self)

    def data_received(self, data: bytes) -> None:
        self.parser.feed_data(data)

    def connection_lost(self, exc: Exception | None) -> None:
        if self.open is not None and self.open[1] in self.open[0].streams:
            self.open[0].streams.remove(self.open[1])

    def on_message_begin(self) -> None:
        self.url = b""
        self.pieces: list[bytes] = []

    def on_url(self, url: bytes) -> None:
        self.url += url

    def on_body(self, body: bytes) -> None:
        self.pieces.append(body)

    def on_message_complete(self) -> None:
        path = self.url.partition(b"?")[0]
        body = b"".join(self.pieces)
        if path == b"/v1/messages":
            self.pacer.messages += 1
            self.answer(body)
        elif path == b"/bench/plan":
            self.pacer.follow(Plan(**json.loads(body)))
            self.transport.write(json_answer(b"{}"))
        elif path == b"/bench/finish":
            self.pacer.finish()
            self.transport.write(json_answer(b"{}"))
        elif path == b"/bench/seen":
            seen = {"messages": self.pacer.messages, "searches": self.pacer.searches}
            self.transport.write(json_answer(json.dumps(seen).encode()))
        elif path == b"/res/v1/web/search":
            self.pacer.searches += 1
            self.transport.write(self.pacer.found)
        else:
            self.transport.write(json_answer(MODELS))

    def answer(self, body: bytes) -> None:
        pacer = self.pacer
        if not self.streamed.search(body):
            self.transport.write(json_answer(JSON_BODY))
            return
        searching = pacer.plan.searches > 0 and self.called not in body
        self.open = pacer.start(self.transport, pacer.searching if searching else pacer.answer)


async def main(port: int) -> None:
    pacer = Pacer()
    server = await asyncio.get_running_loop().create_server(lambda: Connection(pacer), "127.0.0.1", port, backlog=2048)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1])))
