"""Nobody sends the gateway elsewhere: it asks upstream and the search provider, and no address that it is told."""

import json
from typing import Any

import pytest
from pydantic import SecretStr

from gateway.settings import Settings
from gateway.turn.web_search import SearchResult
from tests.support.gateway import running_gateway
from tests.support.playbook import NATIVE, QUESTION, SEARCH
from tests.support.search import ScriptedSearch, found
from tests.support.upstream import Scripted as Answer
from tests.support.upstream import ScriptedUpstream, head, json_answer, message, raw, sse, sse_answer, text, tool_use

pytestmark = pytest.mark.anyio


def redirect(status: int, trap: ScriptedUpstream) -> Answer:
    return raw(head(status, [("location", trap.origin + "/latest/meta-data"), ("content-length", "0")]), then="keep")


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize(
    ("method", "path", "more"),
    [
        ("POST", "/v1/messages", {}),
        ("POST", "/v1/messages", {"tools": [NATIVE]}),
        ("POST", "/v1/messages", {"tools": [NATIVE], "stream": True}),
        ("POST", "/v1/messages", {"return_token_ids": True}),
        ("POST", "/v1/messages/count_tokens", {}),
        ("GET", "/v1/models", {}),
        ("GET", "/v1/models/m", {}),
        ("GET", "/ready", {}),
    ],
)
async def test_a_redirect_of_upstreams_is_passed_on_and_not_followed(
    status: int, method: str, path: str, more: dict[str, Any]
) -> None:
    async with ScriptedUpstream(json_answer({})) as trap, ScriptedUpstream(redirect(status, trap)) as upstream:
        settings = Settings(upstream=upstream.origin, upstream_dialect="vllm")
        async with running_gateway(settings, search=ScriptedSearch()) as gateway:
            body = {"model": "m", "max_tokens": 9, "messages": [QUESTION], **more} if method == "POST" else None
            answer = await gateway.client.request(method, path, json=body, headers={"anthropic-version": "2023-06-01"})
    assert answer.status_code == (200 if path == "/ready" else status)
    assert trap.requests == []


@pytest.mark.parametrize("stream", [False, True])
async def test_a_redirect_in_the_middle_of_a_turn_ends_it(stream: bool) -> None:
    call = tool_use("web_search", {"query": "rust"})
    first = sse_answer(sse(call)) if stream else json_answer(message(call))
    async with ScriptedUpstream(json_answer({})) as trap, ScriptedUpstream(first, redirect(307, trap)) as upstream:
        settings = Settings(upstream=upstream.origin)
        async with running_gateway(settings, search=ScriptedSearch(default=found("None."))) as gateway:
            body = {"model": "m", "max_tokens": 9, "messages": [QUESTION], "tools": [SEARCH], "stream": stream}
            answer = await gateway.client.post("/v1/messages", json=body)
    assert answer.status_code == (200 if stream else 307)
    assert ("event: error" in answer.text) is stream
    assert trap.requests == []


@pytest.mark.parametrize("provider", ["searxng", "brave", "tavily", "exa", "you"])
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_of_a_provider_is_a_search_that_failed(provider: Any, status: int) -> None:
    rounds = [json_answer(message(tool_use("web_search", {"query": "rust"}))), json_answer(message(text("Done.")))]
    async with (
        ScriptedUpstream(json_answer({})) as trap,
        ScriptedUpstream(redirect(status, trap)) as backend,
        ScriptedUpstream(*rounds) as upstream,
    ):
        settings = Settings(
            upstream=upstream.origin,
            search_provider=provider,
            search_base_url=backend.origin,
            search_api_key=SecretStr("k"),
        )
        async with running_gateway(settings) as gateway:
            body = {"model": "m", "max_tokens": 9, "messages": [QUESTION], "tools": [SEARCH]}
            answer = await gateway.client.post("/v1/messages", json=body)
    assert answer.status_code == 200
    assert upstream.requests[1].json["messages"][-1]["content"][0]["is_error"] is True
    assert len(backend.requests) == 1
    assert trap.requests == []


async def test_no_address_in_a_conversation_is_asked() -> None:
    """Of images, of pages that were found, of whatever a client, a model or a page names."""
    async with ScriptedUpstream(json_answer({})) as trap:
        page = SearchResult("Here", trap.origin + "/page", f"see {trap.origin}/other")
        call = tool_use("web_search", {"query": trap.origin + "/query"})
        rounds = [json_answer(message(call)), json_answer(message(text(f"See {trap.origin}.")))]
        async with ScriptedUpstream(*rounds) as upstream:
            search = ScriptedSearch(default=found(page.snippet, page))
            async with running_gateway(Settings(upstream=upstream.origin), search=search) as gateway:
                image = {"type": "image", "source": {"type": "url", "url": trap.origin + "/image"}}
                asked = {"role": "user", "content": [image, {"type": "text", "text": trap.origin}]}
                tool = {**NATIVE, "allowed_domains": ["127.0.0.1"]}
                body = {"model": "m", "max_tokens": 9, "messages": [asked], "tools": [tool]}
                headers = {"host": trap.origin[7:], "x-forwarded-host": trap.origin[7:], "referer": trap.origin}
                answer = await gateway.client.post("/v1/messages", json=body, headers=headers)
    assert json.loads(answer.text)["stop_reason"] == "end_turn"
    assert trap.accepted == 0
