"""What a turn may take: time, bytes, one event's size, a place among the others. What is passed on has no limits."""

import asyncio
import json
from typing import Any

import httpx
import pytest

from gateway.settings import Settings
from gateway.turn.web_search import SearchOutcome
from tests.support.events import events_in
from tests.support.gateway import running_gateway
from tests.support.playbook import SEARCH, asking
from tests.support.search import Held, ScriptedSearch, found
from tests.support.upstream import (
    Answer,
    ScriptedUpstream,
    answering,
    encode_event,
    json_answer,
    message,
    raw,
    sse,
    sse_answer,
    text,
    tool_use,
)

pytestmark = pytest.mark.anyio

RUST = tool_use("web_search", {"query": "rust"})
LONG = text("x" * 4096)


def passing(*, stream: bool) -> dict[str, Any]:
    return asking(stream=stream, tools=[])


def ending(response: httpx.Response) -> tuple[int, str, str]:
    """How an answer ended: its status, and the type of its error and its words, "" if it is none."""
    if response.headers["content-type"].startswith("text/event-stream"):
        last = events_in(response.content)[-1]
    else:
        last = response.json()
    error = last.get("error", {})
    return response.status_code, error.get("type", ""), error.get("message", "")


# --- time -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stage", ["first head", "stream", "tool", "later head"])
@pytest.mark.parametrize("stream", [False, True])
async def test_a_turn_that_takes_too_long(stream: bool, stage: str) -> None:
    begun = sse_answer(sse(RUST)[:3], whole=False, then="stall")
    if not stream:
        begun = raw(b"HTTP/1.1 200 OK\r\ncontent-length: 900\r\n\r\n{", then="stall")
    scripts: dict[str, list[Answer]] = {
        "first head": [raw(then="stall")],
        "stream": [begun],
        "tool": [answering(RUST, stream=stream)],
        "later head": [answering(RUST, stream=stream), raw(then="stall")],
    }
    held = Held(found("x"))
    search = ScriptedSearch(default=held if stage == "tool" else found("x"))
    async with ScriptedUpstream(*scripts[stage]) as upstream:
        settings = Settings(upstream=upstream.origin, turn_timeout_s=0.2)
        async with running_gateway(settings, search=search) as gateway:
            status, kind, words = ending(await gateway.client.post("/v1/messages", json=asking(stream=stream)))
            if stage == "tool":
                await asyncio.wait_for(held.let_go.wait(), 1)
            else:
                await upstream.closed_by_client(within_s=1)
            assert await gateway.outcomes() == {"timeout": 1}
    assert status == (200 if stream and stage != "first head" else 504)
    assert (kind, words) == ("timeout_error", "The turn took longer than 0.2 s.")


async def test_what_is_passed_on_may_take_its_time() -> None:
    async with (
        ScriptedUpstream(sse_answer(sse(text("slow")), pace=0.03)) as upstream,
        running_gateway(Settings(upstream=upstream.origin, turn_timeout_s=0.05)) as gateway,
    ):
        answer = await gateway.client.post("/v1/messages", json=passing(stream=True))
    assert answer.content.endswith(encode_event({"type": "message_stop"}))


# --- places ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("more", [{}, {"tools": [], "return_token_ids": True}], ids=["a turn", "a token request"])
async def test_one_turn_more_than_there_are_places_is_told_to_try_again(more: dict[str, Any]) -> None:
    held = Held(found("x"))
    async with ScriptedUpstream(answering(RUST, stream=False), answering(text("Done."), stream=False)) as upstream:
        settings = Settings(upstream=upstream.origin, upstream_dialect="vllm", max_concurrent_turns=1)
        async with running_gateway(settings, search=ScriptedSearch(default=held)) as gateway:
            first = asyncio.create_task(gateway.client.post("/v1/messages", json=asking(stream=False)))
            await held.started.wait()
            refused = await gateway.client.post("/v1/messages", json=asking(stream=False, **more))
            assert ending(refused)[:2] == (529, "overloaded_error")
            assert int(refused.headers["retry-after"]) > 0
            # What is passed on takes no place.
            assert (await gateway.client.post("/v1/messages", json=passing(stream=False))).status_code == 200
            held.release.set()
            assert (await first).status_code == 200
            assert (await gateway.client.post("/v1/messages", json=asking(stream=False))).status_code == 200
            assert await gateway.outcomes() == {"ok": 3, "overloaded": 1}


@pytest.mark.parametrize("stage", ["refused by upstream", "client gone"])
async def test_a_turn_that_fails_gives_its_place_back(stage: str) -> None:
    failing = json_answer({}, 400) if stage == "refused by upstream" else raw(then="stall")
    async with (
        ScriptedUpstream(failing, answering(text("Done."), stream=False)) as upstream,
        running_gateway(Settings(upstream=upstream.origin, max_concurrent_turns=1)) as gateway,
    ):
        first = asyncio.create_task(gateway.client.post("/v1/messages", json=asking(stream=False)))
        await upstream.arrived()
        if stage == "client gone":
            first.cancel()
            await upstream.closed_by_client(within_s=1)
        else:
            assert (await first).status_code == 400
        assert (await gateway.client.post("/v1/messages", json=asking(stream=False))).status_code == 200


# --- bytes ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True])
async def test_a_turn_that_grows_too_large(stream: bool) -> None:
    rounds = [answering(RUST, stream=stream), answering(LONG, stream=stream)]
    for answers, search in ((rounds, found("x")), (rounds[:1], SearchOutcome("y" * 4096))):
        async with ScriptedUpstream(*answers) as upstream:
            settings = Settings(upstream=upstream.origin, max_turn_bytes=4096)
            async with running_gateway(settings, search=ScriptedSearch(default=search)) as gateway:
                status, kind, _ = ending(await gateway.client.post("/v1/messages", json=asking(stream=stream)))
                assert (status, kind) == (200 if stream else 502, "api_error")
                assert await gateway.outcomes() == {"cut" if stream else "upstream_error": 1}


async def test_a_request_too_large_for_a_turn() -> None:
    async with (
        ScriptedUpstream(json_answer(message(text("hi")))) as upstream,
        running_gateway(Settings(upstream=upstream.origin, max_turn_bytes=100)) as gateway,
    ):
        turn = await gateway.client.post("/v1/messages", json=asking(stream=False))
        passed = await gateway.client.post("/v1/messages", json=passing(stream=False))
    assert ending(turn)[:2] == (413, "request_too_large")
    assert passed.status_code == 200


@pytest.mark.parametrize("status", [200, 400])
async def test_an_answer_that_is_read_whole_has_a_limit(status: int) -> None:
    large = json_answer({"message": "x" * 4096}, status)
    async with (
        ScriptedUpstream(large) as upstream,
        running_gateway(Settings(upstream=upstream.origin, max_turn_bytes=2048)) as gateway,
    ):
        turn = await gateway.client.post("/v1/messages", json=asking(stream=False))
        passed = await gateway.client.post("/v1/messages", json=passing(stream=False))
    assert ending(turn)[:2] == (502, "api_error")
    assert (passed.status_code, passed.json()) == (status, {"message": "x" * 4096})


@pytest.mark.parametrize("tools", [[], [SEARCH]], ids=["a token request", "a turn"])
async def test_the_tokens_of_a_stream_count(tools: list[Any]) -> None:
    def chunk(**members: Any) -> bytes:
        return b"data: %b\n\n" % json.dumps({"id": "c", "model": "qwen3", **members}).encode()

    ids = [chunk(choices=[{"delta": {"content": "x"}, "token_ids": list(range(100))}]) for _ in range(20)]
    answer = sse_answer([chunk(choices=[{"delta": {"role": "assistant"}}], usage={"prompt_tokens": 3}), *ids])
    async with ScriptedUpstream(answer) as upstream:
        settings = Settings(upstream=upstream.origin, upstream_dialect="vllm", max_turn_bytes=4096)
        async with running_gateway(settings) as gateway:
            body = asking(stream=True, tools=tools, return_token_ids=True)
            status, kind, words = ending(await gateway.client.post("/v1/messages", json=body))
    assert (status, kind) == (200, "api_error")
    assert words.endswith("has grown over 4096 bytes.")


# --- one event ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("limit", "last"), [(30_000_000, ""), (16_777_216, "api_error")])
async def test_an_event_of_20_mb_passes_or_ends_the_turn_as_the_setting_says(limit: int, last: str) -> None:
    large = text("x" * 20_000_000, "")
    async with (
        ScriptedUpstream(sse_answer(sse(large))) as upstream,
        running_gateway(Settings(upstream=upstream.origin, max_event_bytes=limit)) as gateway,
    ):
        answer = await gateway.client.post("/v1/messages", json=asking(stream=True))
    assert ending(answer)[:2] == (200, last)
    assert (b"x" * 20_000_000 in answer.content) == (last == "")


async def test_an_event_of_20_mb_passes_through() -> None:
    large = text("x" * 20_000_000, "")
    async with (
        ScriptedUpstream(sse_answer(sse(large))) as upstream,
        running_gateway(Settings(upstream=upstream.origin)) as gateway,
    ):
        answer = await gateway.client.post("/v1/messages", json=passing(stream=True))
    assert answer.content == b"".join(map(encode_event, sse(large)))
