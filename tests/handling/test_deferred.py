"""Deferred tools through the running gateway: what upstream is asked, in the proxy and in a turn, in JSON and SSE."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from gateway.settings import Settings
from gateway.turn import Fold
from tests.support.events import events_in
from tests.support.gateway import RunningGateway, running_gateway
from tests.support.playbook import BASH, NATIVE, QUESTION, SEARCH, asking, found
from tests.support.search import ScriptedSearch
from tests.support.upstream import Block, ScriptedUpstream, answering, json_answer, text, tool_use

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("stream", [False, True])]

PLACEHOLDER = {"name": "DeferredToolPlaceholder", "input_schema": {"type": "object"}, "defer_loading": True}
FINDER = {"name": "ToolSearch", "input_schema": {"type": "object"}}
WEB = {**SEARCH, "name": "WebSearch", "description": "Search.", "defer_loading": True}
BM25 = {"type": "tool_search_tool_bm25_20251119", "name": "tool_search_tool_bm25"}
REGEX = {"type": "tool_search_tool_regex", "name": "tool_search_tool_regex"}
WEATHER = {
    "name": "get_weather",
    "description": "The weather of a place.",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}},
    "defer_loading": True,
}
FUNCTIONS = (
    '<functions>\n<function>{"description":"The weather of a place.","name":"get_weather","parameters":'
    '{"type":"object","properties":{"city":{"type":"string"}}}}</function>\n</functions>'
)
LOADED = "The tool get_weather is loaded and can be called now."
FIND = {"role": "assistant", "content": [{"type": "tool_use", "id": "call-1", "name": "ToolSearch", "input": {}}]}
DONE = text("It rains.")
RUST = tool_use("web_search", {"query": "rust"}, id="call-rust")


def refers(*names: str) -> dict[str, Any]:
    content = [{"type": "tool_reference", "tool_name": name} for name in names]
    return {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "call-1", "content": content}]}


@asynccontextmanager
async def setting(
    *rounds: list[Block], stream: bool, **settings: Any
) -> AsyncIterator[tuple[RunningGateway, ScriptedUpstream]]:
    settings = {"deferred_tools": "expand", **settings}
    async with ScriptedUpstream(*(answering(*blocks, stream=stream) for blocks in rounds)) as upstream:
        search = ScriptedSearch({"rust": found("rust")})
        async with running_gateway(Settings(upstream=upstream.origin, **settings), search=search) as gateway:
            yield gateway, upstream


async def message_of(gateway: RunningGateway, *, stream: bool, **members: Any) -> dict[str, Any]:
    response = await gateway.client.post("/v1/messages", json=asking(stream=stream, **members))
    return folded(response, stream=stream)


def folded(response: httpx.Response, *, stream: bool) -> dict[str, Any]:
    assert response.status_code == 200, response.text
    if not stream:
        message: dict[str, Any] = response.json()
        return message
    fold = Fold()
    fold.take(events_in(response.content))
    return fold.message


def names(body: dict[str, Any]) -> list[str]:
    return [tool["name"] for tool in body["tools"]]


# Where nothing is the gateway's own


async def test_a_request_of_a_client_that_searches_itself(stream: bool) -> None:
    members = {"tools": [FINDER, WEATHER, PLACEHOLDER], "messages": [QUESTION, FIND, refers("get_weather")]}
    async with setting([DONE], stream=stream) as (gateway, upstream):
        await message_of(gateway, stream=stream, **members, metadata={"user_id": "1"})
    asked = upstream.requests[0].json
    assert asked == {
        **asking(stream=stream, metadata={"user_id": "1"}),
        "tools": [FINDER],
        "messages": [
            QUESTION,
            FIND,
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "call-1", "content": [{"type": "text", "text": FUNCTIONS}]}
                ],
            },
        ],
    }


@pytest.mark.parametrize("mode", ["auto", "expand", "declare", "pass"])
async def test_a_request_without_any_is_the_same_bytes(stream: bool, mode: str) -> None:
    body = b' {"model":"qwen3", "max_tokens": 64, "stream": %b,"tools": [%b],  "messages": [ %b ]} '
    body %= (b"true" if stream else b"false", json.dumps(BASH).encode(), json.dumps(QUESTION).encode())
    async with setting([DONE], stream=stream, deferred_tools=mode) as (gateway, upstream):
        await gateway.client.post("/v1/messages", content=body)
    assert [request.body for request in upstream.requests] == [body]


async def test_pass_leaves_the_bytes(stream: bool) -> None:
    members = {"tools": [FINDER, WEATHER, PLACEHOLDER], "messages": [QUESTION, FIND, refers("get_weather")]}
    body = json.dumps(asking(stream=stream, **members), indent=1).encode()
    async with setting([DONE], stream=stream, deferred_tools="pass") as (gateway, upstream):
        await gateway.client.post("/v1/messages", content=body)
    assert upstream.requests[0].body == body


async def test_auto_asks_upstream_first(stream: bool) -> None:
    members = {"tools": [FINDER, WEATHER], "messages": [QUESTION, FIND, refers("get_weather")]}
    async with setting(stream=stream, deferred_tools="auto") as (gateway, upstream):
        upstream.answers = (
            lambda request: (
                json_answer({"input_tokens": 7})
                if request.target.endswith("count_tokens")
                else answering(DONE, stream=stream)
            ),
        )
        for _ in range(2):
            await message_of(gateway, stream=stream, **members)
    targets = [request.target.rpartition("/")[2] for request in upstream.requests]
    assert targets.count("messages") == 2
    assert targets[-2:] == ["messages", "messages"]
    assert names(upstream.requests[-1].json) == ["ToolSearch"]


async def test_a_forced_tool_is_declared(stream: bool) -> None:
    choice = {"type": "tool", "name": "get_weather"}
    async with setting([DONE], stream=stream) as (gateway, upstream):
        await message_of(gateway, stream=stream, tools=[FINDER, WEATHER], tool_choice=choice)
    asked = upstream.requests[0].json
    assert (names(asked), asked["tool_choice"]) == (["ToolSearch", "get_weather"], choice)


async def test_where_all_are_deferred_no_tools_and_no_choice_go_upstream(stream: bool) -> None:
    async with setting([DONE], stream=stream) as (gateway, upstream):
        await message_of(gateway, stream=stream, tools=[WEATHER], tool_choice={"type": "auto"})
    assert not {"tools", "tool_choice"} & upstream.requests[0].json.keys()


async def test_count_tokens_counts_what_upstream_would_be_asked(stream: bool) -> None:
    body = asking(stream=stream, tools=[FINDER, WEATHER], messages=[QUESTION, FIND, refers("get_weather")])
    async with setting([DONE], stream=stream) as (gateway, upstream):
        await gateway.client.post("/v1/messages/count_tokens", json=body)
        await gateway.client.post("/v1/messages", json=body)
    counted, asked = (request.json for request in upstream.requests)
    assert counted == asked


# Whose tool it is


async def test_an_aliased_tool_is_the_gateways_deferred_or_not(stream: bool) -> None:
    call = tool_use("WebSearch", {"query": "rust"}, id="call-rust")
    members = {"tools": [FINDER, WEB], "messages": [QUESTION, FIND, refers("WebSearch")]}
    rounds: list[list[Block]] = [[call], [DONE]]
    async with setting(*rounds, stream=stream, tool_aliases={"WebSearch": "web_search"}) as (gateway, upstream):
        message = await message_of(gateway, stream=stream, **members)
    assert [block["type"] for block in message["content"]] == ["text"]
    assert [names(request.json) for request in upstream.requests] == [["ToolSearch"]] * 2


@pytest.mark.parametrize("mode", ["expand", "declare"])
async def test_a_typed_search_that_is_deferred_is_offered_once_it_is_referenced(stream: bool, mode: str) -> None:
    typed = {**NATIVE, "defer_loading": True}
    members = {"tools": [FINDER, typed], "messages": [QUESTION, FIND, refers("web_search")]}
    async with setting([DONE], [RUST], [DONE], stream=stream, deferred_tools=mode) as (gateway, upstream):
        await message_of(gateway, stream=stream, tools=[FINDER, typed])
        message = await message_of(gateway, stream=stream, **members)
    before, after, _ = (request.json for request in upstream.requests)
    assert names(before) == ["ToolSearch"]
    assert names(after) == (["ToolSearch"] if mode == "expand" else ["ToolSearch", "web_search"])
    assert "defer_loading" not in json.dumps(after)
    assert "web_search" in json.dumps(after["messages"][2])
    assert [block["type"] for block in message["content"]] == ["server_tool_use", "web_search_tool_result", "text"]


@pytest.mark.parametrize("definition", [NATIVE, SEARCH])
@pytest.mark.parametrize("mode", ["expand", "declare", "pass"])
async def test_a_search_that_the_conversation_defines_is_the_gateways(
    stream: bool, mode: str, definition: dict[str, Any]
) -> None:
    added = {"type": "tool_addition", "tool": {"type": "tool_definition", "definition": definition}}
    members = {"tools": [BASH], "messages": [QUESTION, {"role": "system", "content": [added]}]}
    async with setting([RUST], [DONE], stream=stream, deferred_tools=mode) as (gateway, upstream):
        message = await message_of(gateway, stream=stream, **members)
    shown = ["server_tool_use", "web_search_tool_result", "text"] if definition is NATIVE else ["text"]
    assert [block["type"] for block in message["content"]] == shown
    asked = upstream.requests[0].json
    assert names(asked) == (["Bash", "web_search"] if mode == "declare" else ["Bash"])
    assert "web_search_20250305" not in json.dumps(asked)


async def test_a_definition_that_is_not_the_gateways_is_no_turn(stream: bool) -> None:
    added = {"type": "tool_addition", "tool": {"type": "tool_definition", "definition": BASH}}
    members = {"tools": [FINDER], "messages": [QUESTION, {"role": "system", "content": [added]}]}
    async with setting([DONE], stream=stream) as (gateway, upstream):
        await message_of(gateway, stream=stream, **members)
    told = upstream.requests[0].json["messages"][1]
    assert told["role"] == "user"
    assert told["content"][0]["text"].startswith('<functions>\n<function>{"name":"Bash"')


# The gateway's own tool search


def sought(words: str, **more: Any) -> Block:
    return tool_use("tool_search_tool_bm25", {"query": words, **more}, id="call-find")


def matched(pattern: str, **more: Any) -> Block:
    return tool_use("tool_search_tool_regex", {"pattern": pattern, **more}, id="call-find")


@pytest.mark.parametrize(("mode", "told"), [("expand", FUNCTIONS), ("declare", LOADED), ("pass", FUNCTIONS)])
@pytest.mark.parametrize(("typed", "call"), [(BM25, sought("weather")), (REGEX, matched("^get_"))])
async def test_a_tool_search_finds_a_tool_that_can_then_be_called(
    stream: bool, mode: str, told: str, typed: dict[str, Any], call: Block
) -> None:
    weather = tool_use("get_weather", {"city": "Oslo"}, id="call-weather")
    tools = [typed, BASH, WEATHER]
    async with setting([call], [weather], [DONE], stream=stream, deferred_tools=mode) as (gateway, upstream):
        message = await message_of(gateway, stream=stream, tools=tools)
        answer = {"type": "tool_result", "tool_use_id": "call-weather", "content": "Rain."}
        history = [
            QUESTION,
            {"role": "assistant", "content": message["content"]},
            {"role": "user", "content": [answer]},
        ]
        await message_of(gateway, stream=stream, tools=tools, messages=history)
    assert message["stop_reason"] == "tool_use"
    use, result, client = message["content"]
    assert (use["type"], use["name"]) == ("server_tool_use", typed["name"])
    assert result == {
        "type": "tool_search_tool_result",
        "tool_use_id": use["id"],
        "content": {
            "type": "tool_search_tool_search_result",
            "tool_references": [{"type": "tool_reference", "tool_name": "get_weather"}],
        },
    }
    assert client["id"] == "call-weather"
    first, second, third = (request.json for request in upstream.requests)
    assert second["messages"][-1]["content"] == [{"type": "tool_result", "tool_use_id": "call-find", "content": told}]
    assert third["messages"][: len(second["messages"])] == second["messages"]
    offered = [typed["name"], "Bash"]
    later = {"expand": offered, "declare": [*offered, "get_weather"], "pass": [*offered, "get_weather"]}[mode]
    assert [names(first), names(second), names(third)] == [offered if mode != "pass" else later, later, later]


@pytest.mark.parametrize(
    ("typed", "call", "code", "words"),
    [
        (BM25, tool_use("tool_search_tool_bm25", {}, id="c"), "invalid_tool_input", "non-empty string `query`"),
        (BM25, sought(" "), "invalid_tool_input", "non-empty string `query`"),
        (BM25, sought("x" * 1001), "invalid_tool_input", "longer than 1000 characters"),
        (BM25, sought("x", limit=0), "invalid_tool_input", "`limit` must be an integer from 1 to 10000"),
        (BM25, sought("x", limit=True), "invalid_tool_input", "`limit` must be an integer from 1 to 10000"),
        (REGEX, matched("("), "invalid_tool_input", "cannot be used"),
        (REGEX, matched("x" * 201), "invalid_tool_input", "longer than 200 characters"),
    ],
)
async def test_a_call_that_cannot_be_run(
    stream: bool, typed: dict[str, Any], call: Block, code: str, words: str
) -> None:
    async with setting([call], [DONE], [DONE], stream=stream) as (gateway, upstream):
        message = await message_of(gateway, stream=stream, tools=[typed, WEATHER])
        history = [QUESTION, {"role": "assistant", "content": message["content"]}, QUESTION]
        await message_of(gateway, stream=stream, tools=[typed, WEATHER], messages=history)
    content = message["content"][1]["content"]
    assert (content["type"], content["error_code"]) == ("tool_search_tool_result_error", code)
    assert words in content["error_message"]
    (told,) = upstream.requests[1].json["messages"][-1]["content"]
    assert (told["content"], told["is_error"]) == (content["error_message"], True)
    assert upstream.requests[2].json["messages"][2] == upstream.requests[1].json["messages"][-1]


@pytest.mark.parametrize("tools", [[BM25, WEATHER], [BM25, BASH]])
async def test_nothing_found_is_an_empty_list(stream: bool, tools: list[Any]) -> None:
    async with setting([sought("quantum")], [DONE], stream=stream) as (gateway, upstream):
        message = await message_of(gateway, stream=stream, tools=tools)
    assert message["content"][1]["content"] == {"type": "tool_search_tool_search_result", "tool_references": []}
    (told,) = upstream.requests[1].json["messages"][-1]["content"]
    assert told["content"] == "No tool was found."


async def test_no_more_than_the_limit(stream: bool) -> None:
    tools = [BM25, BASH, *({**WEATHER, "name": f"get_{number}"} for number in range(9))]
    async with setting([sought("weather", limit=2)], [sought("weather")], [DONE], stream=stream) as (gateway, _):
        message = await message_of(gateway, stream=stream, tools=tools)
    results = [block["content"] for block in message["content"] if block["type"] == "tool_search_tool_result"]
    assert [len(content["tool_references"]) for content in results] == [2, 5]


async def test_what_anthropic_refuses_is_refused_of_a_typed_search(stream: bool) -> None:
    marked = {**WEATHER, "cache_control": {"type": "ephemeral"}}
    async with setting([DONE], stream=stream) as (gateway, upstream):
        refused = await gateway.client.post("/v1/messages", json=asking(stream=stream, tools=[BM25, marked]))
        await message_of(gateway, stream=stream, tools=[FINDER, marked])
    assert refused.status_code == 400
    assert refused.json()["error"]["message"].startswith("tools.1.cache_control: ")
    assert len(upstream.requests) == 1
