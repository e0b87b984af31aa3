"""The orders in which SDKs send a round back that had several calls: each is read as the one round that it was."""

from collections.abc import Sequence
from typing import Any

import pytest

from gateway.turn.web_search import SearchOutcome, SearchResult
from tests.support.conversing import converse
from tests.support.playbook import BASH, NATIVE, QUESTION
from tests.support.search import ScriptedSearch, found
from tests.support.upstream import Block, text, thinking, tool_use

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("stream", [False, True])]

RUST = tool_use("web_search", {"query": "rust"}, id="call-rust")
GO = tool_use("web_search", {"query": "go"}, id="call-go")
LS = tool_use("Bash", {"command": "ls"}, id="call-ls")
LISTED = {"type": "tool_result", "tool_use_id": "call-ls", "content": "a.txt"}
DONE = text("Done.")
SETTINGS: dict[str, Any] = {"seal_keys": ("orders",)}
TOOLS = [NATIVE, BASH]


def searches() -> ScriptedSearch:
    return ScriptedSearch(
        {query: found(f"1. {query}", SearchResult(query, "https://a.example", "...")) for query in ("rust", "go")}
    )


def results_behind_their_calls(content: list[Any]) -> list[Any]:
    """As the AI SDK has it: each result right after its call, whatever stood between."""
    results = {block["tool_use_id"]: block for block in content if block["type"] == "web_search_tool_result"}
    ordered: list[Any] = []
    for block in content:
        if block["type"] != "web_search_tool_result":
            ordered.append(block)
            ordered += [results[block["id"]]] if block.get("id") in results else []
    return ordered


def client_calls_at_the_end(content: list[Any]) -> list[Any]:
    """As the AI SDK has it where a result was behind its call already: what the client answers comes last."""
    return sorted(results_behind_their_calls(content), key=lambda block: block["type"] == "tool_use")


def as_it_came(content: list[Any]) -> list[Any]:
    """As the ``anthropic`` SDKs and LangChain have it."""
    return content


MIXED = [[RUST, LS], [LS, RUST], [RUST, LS, GO], [thinking("Hm."), text("Looking. "), RUST, GO, LS]]


@pytest.mark.parametrize("order", [as_it_came, results_behind_their_calls, client_calls_at_the_end])
@pytest.mark.parametrize("blocks", MIXED, ids=lambda blocks: "-".join(block.value["type"] for block in blocks))
async def test_a_mixed_round_is_one_round(blocks: Sequence[Block], order: Any, stream: bool) -> None:
    first = await converse({"tools": TOOLS}, [blocks], stream=stream, search=searches(), **SETTINGS)
    content = order(first.message["content"])
    history = [QUESTION, {"role": "assistant", "content": content}, {"role": "user", "content": [LISTED]}]
    second = await converse({"tools": TOOLS, "messages": history}, [[DONE]], stream=stream, **SETTINGS)
    told = {
        "call-ls": LISTED,
        "call-rust": {"type": "tool_result", "tool_use_id": "call-rust", "content": "1. rust"},
        "call-go": {"type": "tool_result", "tool_use_id": "call-go", "content": "1. go"},
    }
    calls = [block.value["id"] for block in blocks if block.value["type"] == "tool_use"]
    assert second.asked[0]["messages"] == [
        QUESTION,
        {"role": "assistant", "content": [block.value for block in blocks]},
        {"role": "user", "content": [told[call] for call in calls]},
    ]


@pytest.mark.parametrize("order", [as_it_came, results_behind_their_calls])
async def test_two_searches_at_once_are_one_round(order: Any, stream: bool) -> None:
    first = await converse({"tools": TOOLS}, [[RUST, GO], [DONE]], stream=stream, search=searches(), **SETTINGS)
    history = [QUESTION, {"role": "assistant", "content": order(first.message["content"])}, QUESTION]
    second = await converse({"tools": TOOLS, "messages": history}, [[DONE]], stream=stream, **SETTINGS)
    assert second.asked[0]["messages"][:3] == first.asked[1]["messages"]


@pytest.mark.parametrize("order", [as_it_came, results_behind_their_calls])
async def test_rounds_after_one_another_stay_so(order: Any, stream: bool) -> None:
    first = await converse({"tools": TOOLS}, [[RUST], [GO], [LS]], stream=stream, search=searches(), **SETTINGS)
    content = order(first.message["content"])
    history = [QUESTION, {"role": "assistant", "content": content}, {"role": "user", "content": [LISTED]}]
    second = await converse({"tools": TOOLS, "messages": history}, [[DONE]], stream=stream, **SETTINGS)
    assert second.asked[0]["messages"][:5] == first.asked[2]["messages"]
    assert second.asked[0]["messages"][5:] == [
        {"role": "assistant", "content": [LS.value]},
        {"role": "user", "content": [LISTED]},
    ]


async def test_without_a_seal_nothing_is_lost_either(stream: bool) -> None:
    """An error has no seal, so that it cannot be known: the client's call is read as of a round of its own."""
    search = ScriptedSearch(default=SearchOutcome("Down.", error="unavailable"))
    first = await converse({"tools": TOOLS}, [[RUST, LS]], stream=stream, search=search, **SETTINGS)
    content = results_behind_their_calls(first.message["content"])
    history = [QUESTION, {"role": "assistant", "content": content}, {"role": "user", "content": [LISTED]}]
    second = await converse({"tools": TOOLS, "messages": history}, [[DONE]], stream=stream, **SETTINGS)
    told = second.asked[0]["messages"]
    assert [block for message in told[1::2] for block in message["content"]] == [RUST.value, LS.value]
    assert told[-1] == {"role": "user", "content": [LISTED]}
