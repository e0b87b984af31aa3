"""A value nested as deep as can just be read, or deeper: refused or passed on, never the end of anything."""

import json
from collections.abc import Callable

import pytest

from gateway.settings import Settings
from tests.support.events import events_in
from tests.support.gateway import running_gateway
from tests.support.playbook import BASH, QUESTION, SEARCH
from tests.support.search import ScriptedSearch, found
from tests.support.upstream import ScriptedUpstream, json_answer, message, sse, sse_answer, text, tool_use

pytestmark = pytest.mark.anyio

TYPED = '{"type":"web_search_20250305","name":"web_search"}'
CALL = '{"type":"server_tool_use","id":"srvtoolu_a","name":"web_search","input":{"query":%s}}'
ASKED = '"model":"m","max_tokens":9,"messages":[{"role":"user","content":"q"}'


def body(start: str, depth: int, end: str) -> bytes:
    return f"{{{ASKED}{start}{'[' * depth}{']' * depth}{end}}}".encode()


SHAPES: dict[str, Callable[[int], bytes]] = {
    "a schema": lambda depth: body(f'],"tools":[{TYPED},{{"name":"x","input_schema":', depth, "}]"),
    "a call": lambda depth: body(',{"role":"assistant","content":[' + CALL.partition("%s")[0], depth, "}}]}]"),
    "a schema beside tokens": lambda depth: body(f'],"return_token_ids":true,"tools":[{TYPED},', depth, "]"),
    "a message beside tokens": lambda depth: body(',{"role":"user","content":', depth, '}],"return_token_ids":true'),
    "what nobody knows": lambda depth: body(f'],"tools":[{TYPED}],"x":', depth, ""),
}


@pytest.mark.parametrize("shape", SHAPES)
async def test_no_depth_of_a_request_breaks_the_gateway(shape: str) -> None:
    async with ScriptedUpstream(json_answer(message(text("hi")))) as upstream:
        settings = Settings(upstream=upstream.origin, upstream_dialect="vllm")
        async with running_gateway(settings, search=ScriptedSearch(default=found("None."))) as gateway:
            statuses = set()
            for depth in [*range(930, 1000, 2), 100_000]:
                answer = await gateway.client.post("/v1/messages", content=SHAPES[shape](depth))
                statuses.add(answer.status_code)
                assert json.loads(answer.content)["type"] in ("error", "message")
    assert statuses <= {200, 400, 502}


async def test_a_forged_mark_or_id_breaks_nothing() -> None:
    deep = "gateway.think." + "W1tb" * 30_000
    blocks = [
        {"type": "thinking", "thinking": "x", "signature": deep},
        {"type": "server_tool_use", "id": "srvtoolu__ed_a0_80", "name": "web_search", "input": {}},
    ]
    async with (
        ScriptedUpstream(json_answer(message(text("hi")))) as upstream,
        running_gateway(Settings(upstream=upstream.origin), search=ScriptedSearch()) as gateway,
    ):
        for block in blocks:
            history = [{"role": "assistant", "content": [block]}, {"role": "user", "content": "q"}]
            asked = {"model": "m", "max_tokens": 9, "messages": history}
            assert (await gateway.client.post("/v1/messages", json=asked)).status_code == 200


@pytest.mark.parametrize("depth", [150, 201, 202, 300, 900])
async def test_a_clients_call_is_the_same_in_json_and_in_a_stream_however_deep(depth: int) -> None:
    inner = "[" * depth + "]" * depth
    call = tool_use("Bash", {"command": 7})
    body = json.dumps(message(call)).replace('{"command": 7}', f'{{"command": {inner}}}').encode()
    events = sse(tool_use("Bash", [f'{{"command": {inner}}}'[:20], f'{{"command": {inner}}}'[20:]]))
    inputs = []
    for answer, stream in ((json_answer(body), False), (sse_answer(events), True)):
        async with (
            ScriptedUpstream(answer) as upstream,
            running_gateway(Settings(upstream=upstream.origin), search=ScriptedSearch()) as gateway,
        ):
            asked = {"model": "m", "max_tokens": 9, "messages": [QUESTION], "tools": [SEARCH, BASH], "stream": stream}
            got = await gateway.client.post("/v1/messages", json=asked)
        pieces = (e["delta"]["partial_json"] for e in events_in(got.content) if e["type"] == "content_block_delta")
        inputs.append(json.loads("".join(pieces)) if stream else got.json()["content"][0]["input"])
    assert inputs == [{"command": json.loads(inner)}] * 2
