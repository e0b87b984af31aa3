"""Answers made to cost: of a search provider, of the pages that it found, of upstream. None takes the gateway's time.

The client asks from a thread of its own, so that it notices where the gateway stands still: nothing here may take it
ten seconds, its patience, of which each needs a tenth or less.
"""

# ruff: noqa: RUF001 - letters that look like others are what some of it is about

import asyncio
import gzip
import tracemalloc
from collections.abc import Sequence
from typing import Any

import httpx
import pytest

from gateway.settings import Settings
from tests.support.events import events_in
from tests.support.gateway import running_gateway
from tests.support.playbook import NATIVE, QUESTION, SEARCH
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

both_transports = pytest.mark.parametrize("stream", [False, True], ids=["JSON", "SSE"])
both_forms = pytest.mark.parametrize("tool", [NATIVE, SEARCH], ids=["native", "hidden"])
BOMB = gzip.compress(b" " * (1 << 28))
TWICE = gzip.compress(BOMB)
GOOD = {"title": "Rust", "url": "https://rust-lang.org/", "content": "Rust is at 1.89."}


def round_of(*blocks: Block, stream: bool, stop_reason: str | None = None) -> Answer:
    if stream:
        return sse_answer(sse(*blocks, stop_reason=stop_reason))
    return json_answer(message(*blocks, stop_reason=stop_reason))


async def asked(url: str, body: dict[str, Any]) -> httpx.Response:
    return await asyncio.to_thread(httpx.post, f"{url}/v1/messages", json=body, timeout=10, trust_env=False)


async def searched(
    provider: Answer, tool: dict[str, Any], *, stream: bool, calls: int = 1
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """What the model reads of its searches, and the blocks the client sees. The turn ends well."""
    searches = [tool_use("web_search", {"query": f"rust {n}"}, id=f"call-{n}") for n in range(calls)]
    rounds = [round_of(*searches, stream=stream), round_of(text("Done."), stream=stream)]
    async with ScriptedUpstream(provider) as backend, ScriptedUpstream(*rounds) as upstream:
        settings = Settings(upstream=upstream.origin, search_provider="searxng", search_base_url=backend.origin)
        async with running_gateway(settings) as gateway:
            body = {"model": "m", "max_tokens": 9, "messages": [QUESTION], "tools": [tool], "stream": stream}
            answer = await asked(gateway.url, body)
    assert answer.status_code == 200
    if stream:
        assert events_in(answer.content)[-1]["type"] == "message_stop"
        blocks = [e["content_block"] for e in events_in(answer.content) if e["type"] == "content_block_start"]
    else:
        blocks = answer.json()["content"]
    return upstream.requests[1].json["messages"][-1]["content"], blocks


def hits(*found: Any) -> Answer:
    return json_answer({"results": list(found)})


@both_transports
@both_forms
@pytest.mark.parametrize(("coding", "packed"), [("gzip", BOMB), ("gzip, gzip", TWICE)])
async def test_a_bomb_is_not_unpacked(coding: str, packed: bytes, tool: dict[str, Any], stream: bool) -> None:
    provider = json_answer(packed, headers=[("content-encoding", coding)])
    tracemalloc.start()
    try:
        [result], _ = await searched(provider, tool, stream=stream)
        assert tracemalloc.get_traced_memory()[1] < 1 << 25
    finally:
        tracemalloc.stop()
    assert result["is_error"] is True
    assert tool is NATIVE or "an answer that cannot be read" in result["content"]


@pytest.mark.parametrize("piece", ["<a ", "<!--", "<script ", "&#9", "<a '"])
async def test_a_snippet_of_beginnings_of_tags(piece: str) -> None:
    found = [{**GOOD, "url": f"https://example.com/{n}", "content": piece * 5000} for n in range(8)]
    results, _ = await searched(hits(*found), SEARCH, stream=False, calls=32)
    assert [result["content"].count("https://example.com/") for result in results] == [8] * 32


async def test_one_address_again_and_again() -> None:
    found = {"url": "https://example.com/", "title": "<a " * 300, "content": "<a " * 300}
    [result], _ = await searched(hits(*[found] * 900, GOOD), SEARCH, stream=False)
    assert result["content"].count("https://") == 2


async def test_very_many_hits() -> None:
    [result], _ = await searched(hits(GOOD, *[1] * 500_000), SEARCH, stream=False)
    assert result["content"] == "1. Rust\nhttps://rust-lang.org/\nRust is at 1.89."


@both_transports
@both_forms
@pytest.mark.parametrize("odd", [{**GOOD, "title": 5}, {**GOOD, "content": ["x"]}, {"title": 5}, 5, None], ids=repr)
async def test_a_malformed_hit_hides_no_other(odd: Any, tool: dict[str, Any], stream: bool) -> None:
    other = {**GOOD, "url": "https://blog.rust-lang.org/"}
    [result], blocks = await searched(hits(odd, other), tool, stream=stream)
    assert "https://blog.rust-lang.org/\nRust is at 1.89." in result["content"]
    if tool is NATIVE:
        shown = next(block for block in blocks if block["type"] == "web_search_tool_result")["content"]
        assert shown[-1]["url"] == "https://blog.rust-lang.org/"


EVASIONS = ["%65vil.com", "evil%2ecom", "a_b.ｅｖｉｌ.com", "evil。com", "ev\u00adil.com", "EVIL.com.", "www.ⓔvil.com"]


@both_transports
@both_forms
async def test_a_blocked_domain_is_blocked_however_it_is_written(tool: dict[str, Any], stream: bool) -> None:
    found = [{**GOOD, "url": f"https://{host}/{n}"} for n, host in enumerate(EVASIONS)]
    blocking = {"blocked_domains": ["evil.com"]}
    call = tool_use("web_search", {"query": "rust", **({} if tool is NATIVE else blocking)})
    rounds = [round_of(call, stream=stream), round_of(text("Done."), stream=stream)]
    async with ScriptedUpstream(hits(*found, GOOD)) as backend, ScriptedUpstream(*rounds) as upstream:
        settings = Settings(upstream=upstream.origin, search_provider="searxng", search_base_url=backend.origin)
        async with running_gateway(settings) as gateway:
            declared = {**tool, **blocking} if tool is NATIVE else tool
            body = {"model": "m", "max_tokens": 9, "messages": [QUESTION], "tools": [declared], "stream": stream}
            assert (await asked(gateway.url, body)).status_code == 200
    [result] = upstream.requests[1].json["messages"][-1]["content"]
    assert result["content"] == "1. Rust\nhttps://rust-lang.org/\nRust is at 1.89."


async def test_more_domains_than_a_search_can_have() -> None:
    many = [f"{n}.example.com" for n in range(100_000)]
    call = tool_use("web_search", {"query": "rust"})
    rounds = [round_of(call, stream=False), round_of(text("Done."), stream=False)]
    async with ScriptedUpstream(hits(GOOD)) as backend, ScriptedUpstream(*rounds) as upstream:
        settings = Settings(upstream=upstream.origin, search_provider="searxng", search_base_url=backend.origin)
        async with running_gateway(settings) as gateway:
            tool = {**NATIVE, "blocked_domains": many}
            body = {"model": "m", "max_tokens": 9, "messages": [QUESTION], "tools": [tool]}
            answer = await asked(gateway.url, body)
    [shown] = [block for block in answer.json()["content"] if block["type"] == "web_search_tool_result"]
    assert shown["content"] == {"type": "web_search_tool_result_error", "error_code": "request_too_large"}
    assert backend.requests == []


MANY = 20_000
ROUNDS: dict[str, Sequence[Block]] = {
    "one id again and again": [tool_use("web_search", {}, id="call")] * MANY,
    "blocks of white space": [text(" ")] * MANY,
}


@pytest.mark.parametrize("name", ROUNDS)
async def test_a_round_of_very_many_alike(name: str) -> None:
    said = round_of(*ROUNDS[name], text("Done."), stream=False, stop_reason="max_tokens")
    async with ScriptedUpstream(said) as upstream, running_gateway(Settings(upstream=upstream.origin)) as gateway:
        body = {"model": "m", "max_tokens": 9, "messages": [QUESTION], "tools": [NATIVE]}
        answer = await asked(gateway.url, body)
    *before, last = answer.json()["content"]
    assert last == {"type": "text", "text": "Done."}
    ids = {block["id"] for block in before}
    assert len(ids) == len(before) == (MANY if "id" in name else 0)
