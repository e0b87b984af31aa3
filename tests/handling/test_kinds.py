"""A second kind of tool beside web search, through the running gateway: what sets a tool apart is all in its kind."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from gateway.settings import Settings
from gateway.turn import KINDS, Fold, Kinds
from tests.support.clock import FUNCTION, NO_TIME_LEFT, SENTENCES, Clock, ClockKind
from tests.support.events import events_in
from tests.support.gateway import RunningGateway, running_gateway
from tests.support.playbook import BASH, NATIVE, QUESTION, SEARCH, asking
from tests.support.playbook import found as found_for
from tests.support.search import Held, ScriptedSearch
from tests.support.upstream import Block, ScriptedUpstream, answering, text, tool_use

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("stream", [False, True])]

CLOCK = {"type": "clock_20260101", "name": "clock"}
UTC = tool_use("clock", {"zone": "UTC"}, id="call-utc")
CET = tool_use("clock", {"zone": "CET"}, id="call-cet")
MARS = tool_use("clock", {"zone": "Mars"}, id="call-mars")
RUST = tool_use("web_search", {"query": "rust"}, id="call-rust")
LS = tool_use("Bash", {"command": "ls"}, id="call-ls")
DONE = text("It is noon.")
FOUND = found_for("rust")


@asynccontextmanager
async def setting(
    *rounds: list[Block], stream: bool, **settings: Any
) -> AsyncIterator[tuple[RunningGateway, ScriptedUpstream, Clock, ScriptedSearch]]:
    clock, search = Clock(), ScriptedSearch({"rust": FOUND})
    async with ScriptedUpstream(*(answering(*blocks, stream=stream) for blocks in rounds)) as upstream:
        tools: dict[str, Any] = {"kinds": Kinds([*KINDS, ClockKind()]), "runners": {"clock": clock}}
        async with running_gateway(Settings(upstream=upstream.origin, **settings), search=search, **tools) as gateway:
            yield gateway, upstream, clock, search
    assert clock.closed


def message_of(response: httpx.Response, *, stream: bool) -> dict[str, Any]:
    assert response.status_code == 200, response.text
    if not stream:
        message: dict[str, Any] = response.json()
        return message
    fold = Fold()
    fold.take(events_in(response.content))
    return fold.message


def result(call: str, content: str, *, failed: bool = False) -> dict[str, Any]:
    block = {"type": "tool_result", "tool_use_id": call, "content": content}
    return {**block, "is_error": True} if failed else block


async def test_native_calls_of_two_kinds_in_one_round(stream: bool) -> None:
    async with setting([UTC, RUST, MARS], [DONE], stream=stream) as (gateway, upstream, clock, search):
        body = asking(stream=stream, tools=[CLOCK, NATIVE])
        message = message_of(await gateway.client.post("/v1/messages", json=body), stream=stream)
        metrics = (await gateway.client.get("/metrics")).text
    assert [(block["type"], block.get("name")) for block in message["content"][:3]] == [
        ("server_tool_use", "clock"),
        ("server_tool_use", "web_search"),
        ("server_tool_use", "clock"),
    ]
    utc, rust, mars = message["content"][3:6]
    assert utc == {
        "type": "clock_tool_result",
        "tool_use_id": "clocku_call_2dutc",
        "content": {"type": "clock_result", "time": "12:00"},
    }
    assert (rust["type"], rust["tool_use_id"]) == ("web_search_tool_result", "srvtoolu_call_2drust")
    assert mars["content"] == {"type": "clock_tool_result_error", "error_code": "unknown_zone"}
    assert message["usage"]["server_tool_use"] == {
        "web_search_requests": 1,
        "web_fetch_requests": 0,
        "clock_requests": 1,
    }
    assert [tool["name"] for tool in upstream.requests[0].json["tools"]] == ["clock", "web_search"]
    assert upstream.requests[0].json["tools"][0] == FUNCTION
    assert upstream.requests[1].json["messages"][2]["content"] == [
        result("call-utc", "12:00"),
        result("call-rust", FOUND.text),
        result("call-mars", SENTENCES["unknown_zone"], failed=True),
    ]
    assert (clock.zones, search.queries) == (["UTC", "Mars"], ["rust"])
    assert 'messages_gateway_tool_calls_total{outcome="unknown_zone",tool="clock"} 1.0' in metrics
    assert 'messages_gateway_tool_calls_total{outcome="ok",tool="web_search"} 1.0' in metrics


async def test_calls_of_two_kinds_run_side_by_side(stream: bool) -> None:
    held = Held(FOUND)
    clock = ReleasesOnRun(held)
    async with ScriptedUpstream(answering(RUST, UTC, stream=stream), answering(DONE, stream=stream)) as upstream:
        tools: dict[str, Any] = {"kinds": Kinds([*KINDS, ClockKind()]), "runners": {"clock": clock}}
        search = ScriptedSearch({"rust": held})
        async with running_gateway(Settings(upstream=upstream.origin), search=search, **tools) as gateway:
            body = asking(stream=stream, tools=[CLOCK, SEARCH])
            message = message_of(await gateway.client.post("/v1/messages", json=body), stream=stream)
    assert [block["type"] for block in message["content"]] == ["server_tool_use", "clock_tool_result", "text"]


class ReleasesOnRun(Clock):
    """Lets the search go on, which came before it."""

    def __init__(self, held: Held) -> None:
        super().__init__()
        self._held = held

    async def run(self, zone: str, /) -> Any:
        await self._held.started.wait()
        self._held.release.set()
        return await super().run(zone)


async def test_what_comes_back_is_the_prompt_it_was(stream: bool) -> None:
    async with setting([UTC, RUST], [MARS], [DONE], [DONE], stream=stream) as (gateway, upstream, *_):
        body = asking(stream=stream, tools=[CLOCK, NATIVE])
        message = message_of(await gateway.client.post("/v1/messages", json=body), stream=stream)
        body["messages"] = [QUESTION, {"role": "assistant", "content": message["content"]}, QUESTION]
        message_of(await gateway.client.post("/v1/messages", json=body), stream=stream)
    before, after = (upstream.requests[at].json["messages"] for at in (2, 3))
    assert after[: len(before)] == before


async def test_a_result_that_cannot_be_read_is_named(stream: bool) -> None:
    odd = {"type": "clock_tool_result", "tool_use_id": "clocku_a", "content": 12}
    call = {"type": "server_tool_use", "id": "clocku_a", "name": "clock", "input": {}}
    history = [QUESTION, {"role": "assistant", "content": [call, odd]}, QUESTION]
    async with setting([DONE], stream=stream) as (gateway, upstream, *_):
        response = await gateway.client.post("/v1/messages", json=asking(stream=stream, messages=history))
    assert response.status_code == 400
    assert response.json()["error"]["message"].startswith("messages.1.content.1.content: ")
    assert upstream.requests == []


async def test_a_call_that_came_back_without_result_is_run_where_its_own_tool_is_declared(stream: bool) -> None:
    calls = [
        {"type": "server_tool_use", "id": "clocku_a", "name": "clock", "input": {"zone": "UTC"}},
        {"type": "server_tool_use", "id": "srvtoolu_b", "name": "web_search", "input": {"query": "rust"}},
        LS.value,
    ]
    listed = {"type": "tool_result", "tool_use_id": "call-ls", "content": "a.txt"}
    history = [QUESTION, {"role": "assistant", "content": calls}, {"role": "user", "content": [listed]}]
    async with setting([DONE], stream=stream) as (gateway, upstream, clock, search):
        body = asking(stream=stream, tools=[CLOCK, BASH], messages=history)
        message = message_of(await gateway.client.post("/v1/messages", json=body), stream=stream)
    assert [block["type"] for block in message["content"]] == ["clock_tool_result", "text"]
    assert (clock.zones, search.queries) == (["UTC"], [])
    told = upstream.requests[-1].json["messages"][-1]["content"]
    assert [(block["tool_use_id"], block.get("is_error", False)) for block in told] == [
        ("a", False),
        ("b", True),
        ("call-ls", False),
    ]


@pytest.mark.parametrize("function", [FUNCTION, {"name": "clock", "input_schema": {"type": "object"}}])
async def test_a_hidden_clock_is_read_and_not_seen(stream: bool, function: dict[str, Any]) -> None:
    async with setting([UTC, RUST], [DONE], stream=stream) as (gateway, upstream, clock, _):
        body = asking(stream=stream, tools=[function, NATIVE])
        message = message_of(await gateway.client.post("/v1/messages", json=body), stream=stream)
    assert [block["type"] for block in message["content"]] == ["server_tool_use", "web_search_tool_result", "text"]
    assert message["usage"]["server_tool_use"]["clock_requests"] == 0
    assert upstream.requests[0].json["tools"][0] == function
    assert upstream.requests[1].json["messages"][2]["content"][0] == result("call-utc", "12:00")
    assert clock.zones == ["UTC"]


async def test_a_function_that_asks_for_more_than_the_clock_has_stays_the_clients(stream: bool) -> None:
    own = {"name": "clock", "input_schema": {"type": "object", "required": ["zone", "precision"]}}
    async with setting([UTC], stream=stream) as (gateway, upstream, clock, _):
        body = asking(stream=stream, tools=[own])
        message = message_of(await gateway.client.post("/v1/messages", json=body), stream=stream)
    assert message["content"] == [UTC.value]
    assert message["stop_reason"] == "tool_use"
    assert "iterations" not in message["usage"]
    assert upstream.requests[0].json == body
    assert clock.zones == []


async def test_each_tool_has_uses_of_its_own(stream: bool) -> None:
    tools = [{**CLOCK, "max_uses": 1}, {**NATIVE, "max_uses": 2}]
    async with setting([UTC, RUST, CET], [RUST], [DONE], stream=stream) as (gateway, _, clock, search):
        body = asking(stream=stream, tools=tools)
        message = message_of(await gateway.client.post("/v1/messages", json=body), stream=stream)
    results = [block for block in message["content"] if block["type"] == "clock_tool_result"]
    assert [one["content"].get("error_code") for one in results] == [None, "too_often"]
    assert (clock.zones, search.queries) == (["UTC"], ["rust", "rust"])
    assert message["usage"]["server_tool_use"]["web_search_requests"] == 2


async def test_before_a_last_round_that_must_answer_a_hidden_result_says_so_in_its_kinds_words(stream: bool) -> None:
    """The native time is visible as it is, so that the sentence goes to the hidden search before it, in its words."""
    async with setting([RUST, UTC], [DONE], stream=stream, max_rounds=2) as (gateway, upstream, *_):
        body = asking(stream=stream, tools=[SEARCH, CLOCK])
        message = message_of(await gateway.client.post("/v1/messages", json=body), stream=stream)
    assert message["content"][1]["content"] == {"type": "clock_result", "time": "12:00"}
    told = [block["content"] for block in upstream.requests[1].json["messages"][2]["content"]]
    assert told == [f"{FOUND.text}\n\n{KINDS.functions['web_search'].none_left}", "12:00"]

    async with setting([UTC], [DONE], stream=stream, max_rounds=2) as (gateway, upstream, *_):
        message_of(
            await gateway.client.post("/v1/messages", json=asking(stream=stream, tools=[FUNCTION])), stream=stream
        )
    told = [block["content"] for block in upstream.requests[1].json["messages"][2]["content"]]
    assert told == [f"12:00\n\n{NO_TIME_LEFT}"]


async def test_two_declarations_of_one_kind_are_refused(stream: bool) -> None:
    async with setting([DONE], stream=stream) as (gateway, *_):
        response = await gateway.client.post("/v1/messages", json=asking(stream=stream, tools=[CLOCK, FUNCTION]))
    assert response.status_code == 400
    assert response.json()["error"]["message"] == "tools.1.name: 'clock' is already declared by tools.0"
