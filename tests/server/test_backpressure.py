"""A client that stops reading: its upstream is held back, others go on, and when it reads again nothing is missing."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from gateway.settings import Settings
from tests.support.gateway import running_gateway
from tests.support.playbook import QUESTION, SEARCH
from tests.support.upstream import chunk, encode_event, head, sse, text

pytestmark = pytest.mark.anyio

PIECE = encode_event({"type": "content_block_delta", "delta": {"type": "text_delta", "text": "x" * 65_000}, "index": 0})
PIECES = 800
"""52 MB: far more than everything between upstream and client can hold."""
HELD_AT_MOST = 24_000_000
"""The gateway holds about a megabyte (tests/upstream holds it to that); the rest is what kernels keep in sockets."""


class Flood:
    """An upstream that writes as fast as it is read; ``sent`` are the bytes that it has got rid of."""

    def __init__(self) -> None:
        opening = [encode_event(event) for event in sse(text("x"))]
        self.events = [*opening[:2], *[PIECE] * PIECES, *opening[-3:]]
        self.sent = 0

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", request)
        assert length is not None
        few = b'"model":"few"' in await reader.readexactly(int(length[1]))
        fields = [("content-type", "text/event-stream"), ("transfer-encoding", "chunked")]
        writer.write(head(200, fields))
        for event in [*self.events[:3], *self.events[-3:]] if few else self.events:
            writer.write(chunk(event))
            await writer.drain()
            self.sent += len(event)
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        writer.close()


@asynccontextmanager
async def flooding() -> AsyncIterator[tuple[Flood, str]]:
    flood = Flood()
    server = await asyncio.start_server(flood.answer, "127.0.0.1", 0)
    async with server:
        yield flood, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def settled(flood: Flood) -> int:
    """What upstream has got rid of once it can get rid of no more."""
    before = -1
    while flood.sent != before:
        before = flood.sent
        await asyncio.sleep(0.2)
    return before


@pytest.mark.parametrize("tools", [[], [SEARCH]], ids=["proxy", "loop"])
async def test_a_client_that_stops_reading_holds_its_upstream_back(tools: list[Any]) -> None:
    def body(model: str) -> bytes:
        asked = {"model": model, "stream": True, "max_tokens": 9, "tools": tools, "messages": [QUESTION]}
        return json.dumps(asked, separators=(",", ":")).encode()

    async with (
        asyncio.timeout(60),
        flooding() as (flood, origin),
        running_gateway(Settings(upstream=origin)) as gateway,
        gateway.client.stream("POST", "/v1/messages", content=body("many")) as response,
    ):
        assert await settled(flood) < HELD_AT_MOST
        # Another is served as ever.
        other = await gateway.client.post("/v1/messages", content=body("few"))
        assert other.content.endswith(encode_event({"type": "message_stop"}))
        # And nothing of the first was lost, once it reads on.
        got = b"".join([piece async for piece in response.aiter_raw()])
    assert got.startswith(b"".join(flood.events[:-2]))
    assert got.endswith(flood.events[-1])
