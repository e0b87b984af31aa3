"""A stream written past ``send`` is the stream that ``send`` would have written."""

import json
from typing import Any

import pytest
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from gateway.settings import Settings
from gateway.writer import sink_of
from tests.support.gateway import running_gateway
from tests.support.playbook import QUESTION, SEARCH
from tests.support.raw import post, raw_client
from tests.support.search import ScriptedSearch
from tests.support.upstream import ScriptedUpstream, chunk, encode_event, sse, sse_answer, text

pytestmark = pytest.mark.anyio

EVENTS = sse(text(*(f"word {number} " for number in range(50))))


async def test_only_uvicorns_send_has_a_sink() -> None:
    async def send(message: Any) -> None: ...

    assert sink_of(send, bool) is None


@pytest.mark.parametrize("model_map", [{}, {"m": "qwen3"}], ids=["its model", "a mapped model"])
@pytest.mark.parametrize("tools", [[], [SEARCH]], ids=["proxy", "loop"])
async def test_each_event_is_one_chunk_in_its_place(
    tools: list[Any], model_map: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pace lets every event come by itself, which is when it is written past ``send``."""
    sent, send = list[Any](), RequestResponseCycle.send

    async def counted(cycle: RequestResponseCycle, message: Any) -> None:
        sent.append(message)
        await send(cycle, message)

    monkeypatch.setattr(RequestResponseCycle, "send", counted)
    body = {"model": "m", "stream": True, "tools": tools, "messages": [QUESTION]}
    async with (
        ScriptedUpstream(sse_answer(EVENTS, pace=0.001)) as upstream,
        running_gateway(Settings(upstream=upstream.origin, model_map=model_map), search=ScriptedSearch()) as gateway,
        raw_client(gateway.port) as client,
    ):
        await client.send(post(json.dumps(body).encode(), "/v1/messages", "connection: close"))
        answer = await client.rest()
    deltas = [encode_event(event) for event in EVENTS[3:] if event["type"] == "content_block_delta"]
    assert [one for one in deltas if chunk(one) not in answer] == []
    places = [answer.index(chunk(one)) for one in deltas]
    assert places == sorted(places)
    assert len(sent) < len(deltas) / 2  # all but the head, the ends and what came while the task was busy


async def test_what_is_written_past_send_has_its_figures_in_the_metrics() -> None:
    events = sse(text(*(f"word {number} " for number in range(50))), input_tokens=7, output_tokens=50)
    async with (
        ScriptedUpstream(sse_answer(events, pace=0.001)) as upstream,
        running_gateway(Settings(upstream=upstream.origin)) as gateway,
    ):
        answer = await gateway.client.post("/v1/messages", json={"stream": True, "messages": [QUESTION]})
        assert answer.content == b"".join(map(encode_event, events))
        shown = (await gateway.client.get("/metrics")).text
    assert 'messages_gateway_tokens_total{direction="input"} 7.0' in shown
    assert 'messages_gateway_tokens_total{direction="output"} 50.0' in shown


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
