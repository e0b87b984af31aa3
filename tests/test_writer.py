"""A stream written past ``send`` is the stream that ``send`` would have written."""

import json
from typing import Any

import pytest

from gateway.settings import Settings
from gateway.writer import writer_of
from tests.support.gateway import running_gateway
from tests.support.playbook import QUESTION, SEARCH
from tests.support.raw import post, raw_client
from tests.support.search import ScriptedSearch
from tests.support.upstream import ScriptedUpstream, chunk, encode_event, sse, sse_answer, text

pytestmark = pytest.mark.anyio

EVENTS = sse(text(*(f"word {number} " for number in range(50))))


async def test_only_uvicorns_send_has_a_writer() -> None:
    async def send(message: Any) -> None: ...

    assert writer_of(send) is None


@pytest.mark.parametrize("tools", [[], [SEARCH]], ids=["proxy", "loop"])
async def test_each_event_is_one_chunk_in_its_place(tools: list[Any]) -> None:
    """The pace lets every event come by itself, which is when it is written past ``send``."""
    body = {"model": "m", "stream": True, "tools": tools, "messages": [QUESTION]}
    async with (
        ScriptedUpstream(sse_answer(EVENTS, pace=0.001)) as upstream,
        running_gateway(Settings(upstream=upstream.origin), search=ScriptedSearch()) as gateway,
        raw_client(gateway.port) as client,
    ):
        await client.send(post(json.dumps(body).encode(), "/v1/messages", "connection: close"))
        answer = await client.rest()
    deltas = [encode_event(event) for event in EVENTS[3:] if event["type"] == "content_block_delta"]
    assert [one for one in deltas if chunk(one) not in answer] == []
    places = [answer.index(chunk(one)) for one in deltas]
    assert places == sorted(places)


@pytest.mark.parametrize("tools", [[], [SEARCH]], ids=["proxy", "loop"])
async def test_what_the_client_is_slow_to_read_waits_its_turn(tools: list[Any]) -> None:
    """10 MB, more than all buffers hold: pieces are written at once, held back and sent, in one order."""
    body = {"model": "m", "stream": True, "tools": tools, "messages": [QUESTION]}
    pieces = [f"{number:06}" + "x" * 100_000 for number in range(100)]
    async with (
        ScriptedUpstream(sse_answer(sse(text(*pieces)))) as upstream,
        running_gateway(Settings(upstream=upstream.origin), search=ScriptedSearch()) as gateway,
        raw_client(gateway.port) as client,
    ):
        await client.send(post(json.dumps(body).encode(), "/v1/messages", "connection: close"))
        answer = await client.rest()
    places = [answer.index(piece.encode()) for piece in pieces]
    assert places == sorted(places)
