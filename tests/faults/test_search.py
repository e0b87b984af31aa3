"""Every row of docs/faults.md's second table: the search fails, the turn goes on, and the model knows what to do."""

import asyncio
import json
import re
from typing import Any

import pytest

from gateway.settings import Settings
from gateway.tools.web_search import make_backend
from tests.faults.searches import BODY, FAULTS, REFUSES, STALLS
from tests.faults.table import read_search_table
from tests.support.events import events_in
from tests.support.gateway import running_gateway
from tests.support.playbook import NATIVE, QUESTION, SEARCH
from tests.support.upstream import Answer, ScriptedUpstream, json_answer, message, sse, sse_answer, text, tool_use

pytestmark = pytest.mark.anyio

EXPECTED = read_search_table()
CALLS = re.compile(r'messages_gateway_tool_calls_total\{outcome="(\w+)",tool="web_search"\} (\S+)')


def test_the_table_has_every_fault() -> None:
    assert list(EXPECTED) == list(FAULTS)


def rounds(*, stream: bool) -> list[Answer]:
    """Two searches, one after the other, and the answer."""
    calls = [tool_use("web_search", {"query": query}, id=f"call-{query}") for query in ("rust", "go")]
    said = [*calls, text("Done.")]
    return [sse_answer(sse(block)) if stream else json_answer(message(block)) for block in said]


@pytest.mark.parametrize("name", FAULTS)
@pytest.mark.parametrize(("tool", "stream"), [(SEARCH, False), (NATIVE, True)], ids=["hidden, JSON", "native, SSE"])
async def test_a_search_that_fails(name: str, tool: dict[str, Any], stream: bool) -> None:
    outcome, words = EXPECTED[name]
    async with (
        asyncio.timeout(10),
        ScriptedUpstream(*rounds(stream=stream)) as upstream,
        ScriptedUpstream(FAULTS[name]) as backend,
    ):
        if name == REFUSES:
            backend.stop_listening()
        settings = Settings(upstream=upstream.origin, tool_timeout_s=0.15 if name in STALLS else 10)
        brave = make_backend("brave", base_url=backend.origin, api_key="k")
        async with running_gateway(settings, backend=brave) as gateway:
            body = {"model": "qwen3", "max_tokens": 64, "stream": stream, "tools": [tool], "messages": [QUESTION]}
            answer = await gateway.client.post("/v1/messages", json=body)
            metrics = (await gateway.client.get("/metrics")).text
    assert answer.status_code == 200
    events = events_in(answer.content)
    assert (events[-1]["type"] if stream else answer.json()["stop_reason"]) == (
        "message_stop" if stream else "end_turn"
    )
    assert dict(CALLS.findall(metrics)) == {outcome: "2.0"}
    assert 'requests_total{outcome="ok",route="/v1/messages",status="2xx"} 1.0' in metrics
    # What the model reads, and what a native client sees.
    for at in (2, 4):
        result = upstream.requests[2].json["messages"][at]["content"][0]
        assert result.get("is_error", False) == (outcome != "ok")
        assert "127.0.0.1" not in result["content"]
        if tool is SEARCH:
            assert words in result["content"]
    if tool is NATIVE:
        shown = [event["content_block"] for event in events if event["type"] == "content_block_start"]
        found = [block["content"] for block in shown if block["type"] == "web_search_tool_result"]
        codes = [content["error_code"] if isinstance(content, dict) else "ok" for content in found]
        assert codes == [outcome, outcome]


def test_the_backends_right_answer_is_one() -> None:
    assert json.loads(BODY)["web"]["results"][0]["description"] == "Rust is at 1.89."
