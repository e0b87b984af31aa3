"""The upstream double: a process that answers like vLLM, at a pace that it is told.

    POST /v1/messages            the answer: JSON, or a stream if the body says `"stream": true`
    PUT  /bench/plan             what every later stream shall be (a `Plan` as JSON)
    POST /bench/finish           ends the open streams at their next step
    GET  /bench/seen             {"messages": …, "searches": …} since the last plan
    GET  /res/v1/web/search      a search result in Brave's shape, for the servers that run a search
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
from dataclasses import asdict, dataclass
from typing import Any, cast

import httptools
import uvloop

BATCH = 100
GOLDEN = 0.618034  # spreads the phases of any number of batches evenly over the interval


@dataclass(frozen=True, slots=True)
class Plan:
    """A stream: `events` deltas (None: until told to finish), `lead` of them at once and the rest `interval_s` apart.

    `call` asks for a search first, wherever the request holds no tool result yet.
    """

    events: int | None = 1
    lead: int = 1
    interval_s: float = 0.02
    call: bool = False

    def encode(self) -> bytes:
        return json.dumps(asdict(self)).encode()


def event(data: dict[str, Any]) -> bytes:
    """One SSE event, spelt as vLLM spells it."""
    return b"event: %s\ndata: %s\n\n" % (data["type"].encode(), json.dumps(data, separators=(",", ":")).encode())


def chunk(payload: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(payload), payload)


def message(**fields: Any) -> dict[str, Any]:
    usage = {"input_tokens": 175, "output_tokens": 0}
    empty = {"id": "chatcmpl-5b0c7a41d2f8936e", "type": "message", "role": "assistant", "content": [], "model": "qwen3"}
    return empty | {"stop_reason": None, "stop_sequence": None, "usage": usage} | fields


def ending(stop_reason: str) -> bytes:
    delta = {"stop_reason": stop_reason, "stop_sequence": None}
    usage = {"input_tokens": 175, "output_tokens": 64}
    return (
        event({"type": "content_block_stop", "index": 0})
        + event({"type": "message_delta", "delta": delta, "usage": usage})
        + event({"type": "message_stop"})
    )


TEXT = [{"type": "text", "text": "Hello! How can I help you today?"}]
JSON_BODY = json.dumps(message(content=TEXT, stop_reason="end_turn"), separators=(",", ":")).encode()
MODELS = json.dumps({"object": "list", "data": [{"id": "qwen3", "object": "model", "max_model_len": 262144}]}).encode()
RESULT = {"title": "Rust 1.0", "url": "https://example.com/rust", "description": "The latest stable release."}
SEARCH_BODY = json.dumps({"type": "search", "web": {"type": "search", "results": [RESULT]}}).encode()

STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\nserver: uvicorn\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
    b"transfer-encoding: chunked\r\n\r\n"
)
OPENING = event({"type": "message_start", "message": message()}) + event(
    {"type": "content_block_start", "content_block": {"type": "text", "text": ""}, "index": 0}
)
DELTA = (
    b"event: content_block_delta\n"
    b'data: {"type":"content_block_delta","delta":{"type":"text_delta","text":" %d.%d.%d"},"index":0}\n\n'
)
ENDING = chunk(ending("end_turn")) + b"0\r\n\r\n"
CALL = (
    event({"type": "message_start", "message": message()})
    + event(
        {
            "type": "content_block_start",
            "content_block": {"type": "tool_use", "id": "chatcmpl-tool-1", "name": "web_search", "input": {}},
            "index": 0,
        }
    )
    + event(
        {
            "type": "content_block_delta",
            "delta": {"type": "input_json_delta", "partial_json": '{"query": "latest stable Rust release"}'},
            "index": 0,
        }
    )
    + ending("tool_use")
)


def json_answer(body: bytes) -> bytes:
    head = b"HTTP/1.1 200 OK\r\nserver: uvicorn\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
    return head % len(body) + body


class Stream:
    """One open stream: what it has sent so far."""

    numbers = itertools.count(1)

    def __init__(self, transport: asyncio.Transport, plan: Plan) -> None:
        self.transport = transport
        self.plan = plan
        self.number = next(self.numbers)
        self.sent = 0
        self.finishing = False

    def delta(self) -> bytes:
        self.sent += 1
        return DELTA % (self.number, self.sent, time.monotonic_ns())

    def open(self) -> None:
        lead = b"".join(chunk(self.delta()) for _ in range(self.plan.lead))
        self.transport.write(STREAM_HEAD + chunk(OPENING) + lead + (ENDING if self.ended() else b""))

    def ended(self) -> bool:
        return self.finishing or (self.plan.events is not None and self.sent >= self.plan.events)

    def step(self) -> None:
        self.transport.write(ENDING if self.ended() else chunk(self.delta()))


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
        self.plan = Plan()
        self.batches: list[Batch] = []
        self.messages = 0
        self.searches = 0

    def follow(self, plan: Plan) -> None:
        for batch in self.batches:
            batch.timer.cancel()
        self.plan, self.batches, self.messages, self.searches = plan, [], 0, 0

    def finish(self) -> None:
        for batch in self.batches:
            for stream in batch.streams:
                stream.finishing = True

    def start(self, transport: asyncio.Transport) -> tuple[Batch, Stream] | None:
        """Opens a stream; None if it has already said all."""
        stream = Stream(transport, self.plan)
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
        self.body = b""

    def on_url(self, url: bytes) -> None:
        self.url += url

    def on_body(self, body: bytes) -> None:
        self.body += body

    def on_message_complete(self) -> None:
        path = self.url.partition(b"?")[0]
        if path == b"/v1/messages":
            self.pacer.messages += 1
            self.answer()
        elif path == b"/bench/plan":
            self.pacer.follow(Plan(**json.loads(self.body)))
            self.transport.write(json_answer(b"{}"))
        elif path == b"/bench/finish":
            self.pacer.finish()
            self.transport.write(json_answer(b"{}"))
        elif path == b"/bench/seen":
            seen = {"messages": self.pacer.messages, "searches": self.pacer.searches}
            self.transport.write(json_answer(json.dumps(seen).encode()))
        elif path == b"/res/v1/web/search":
            self.pacer.searches += 1
            self.transport.write(json_answer(SEARCH_BODY))
        else:
            self.transport.write(json_answer(MODELS))

    def answer(self) -> None:
        if not self.streamed.search(self.body):
            self.transport.write(json_answer(JSON_BODY))
        elif self.pacer.plan.call and b"tool_result" not in self.body:
            self.transport.write(STREAM_HEAD + chunk(CALL) + b"0\r\n\r\n")
        else:
            self.open = self.pacer.start(self.transport)


async def main(port: int) -> None:
    pacer = Pacer()
    server = await asyncio.get_running_loop().create_server(lambda: Connection(pacer), "127.0.0.1", port, backlog=2048)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1])))
