"""Half a surrogate pair, as a program writes it that cuts a text within a character: a turn goes on with it."""

import json
from typing import Any

import pytest

from gateway.settings import Settings
from tests.support.events import events_in
from tests.support.gateway import running_gateway
from tests.support.playbook import BASH, NATIVE, QUESTION, SEARCH
from tests.support.search import ScriptedSearch, found
from tests.support.upstream import (
    Answer,
    Block,
    ScriptedUpstream,
    json_answer,
    message,
    sse,
    sse_answer,
    text,
    tool_use,
)

pytestmark = pytest.mark.anyio

CUT = "half \ud83e of 🦀"
READ = "half \ufffd of 🦀"


def round_of(block: Block, *, stream: bool) -> Answer:
    return sse_answer(sse(block)) if stream else json_answer(message(block))


async def content(tool: dict[str, Any], *rounds: Block, stream: bool) -> tuple[list[dict[str, Any]], ScriptedSearch]:
    """The message's content, and what was searched."""
    search = ScriptedSearch(default=found("None."))
    async with (
        ScriptedUpstream(*(round_of(block, stream=stream) for block in rounds)) as upstream,
        running_gateway(Settings(upstream=upstream.origin), search=search) as gateway,
    ):
        body = {"model": "m", "max_tokens": 9, "messages": [QUESTION], "tools": [tool, BASH], "stream": stream}
        answer = await gateway.client.post("/v1/messages", json=body)
    assert answer.status_code == 200
    if not stream:
        return answer.json()["content"], search
    blocks: list[dict[str, Any]] = []
    for event in events_in(answer.content):
        if event["type"] == "content_block_start":
            blocks.append(event["content_block"])
        elif event["type"] == "content_block_delta" and "text" in event["delta"]:
            blocks[-1]["text"] += event["delta"]["text"]
    assert events_in(answer.content)[-1]["type"] == "message_stop"
    return blocks, search


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("tool", [NATIVE, SEARCH], ids=["native", "hidden"])
async def test_in_upstreams_text(tool: dict[str, Any], stream: bool) -> None:
    blocks, _ = await content(tool, text(CUT), stream=stream)
    assert blocks == [{"type": "text", "text": READ}]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("tool", [NATIVE, SEARCH], ids=["native", "hidden"])
async def test_in_what_is_searched(tool: dict[str, Any], stream: bool) -> None:
    blocks, search = await content(tool, tool_use("web_search", {"query": CUT}), text("Done."), stream=stream)
    assert search.queries == [READ]
    assert blocks[-1] == {"type": "text", "text": "Done."}


async def test_in_a_call_of_the_clients() -> None:
    call = tool_use("Bash", {"command": CUT})
    [block], _ = await content(SEARCH, call, stream=False)
    assert block["input"] == {"command": READ}


@pytest.mark.parametrize("written", [json.dumps(CUT), '"\\\\\\ud800\\\\ud800"', '"\\ud800\\ud800\\udc00\\udc00"'])
async def test_only_the_half_is_replaced(written: str) -> None:
    body = json.dumps(message(text("here"))).replace('"here"', written).encode()
    async with (
        ScriptedUpstream(json_answer(body)) as upstream,
        running_gateway(Settings(upstream=upstream.origin), search=ScriptedSearch()) as gateway,
    ):
        asked = {"model": "m", "max_tokens": 9, "messages": [QUESTION], "tools": [SEARCH]}
        answer = await gateway.client.post("/v1/messages", json=asked)
    said = json.loads(written).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    assert answer.json()["content"] == [{"type": "text", "text": said}]
