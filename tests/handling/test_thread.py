"""A conversation that the server is to hold: refused in the words by which clients send their whole history instead."""

from typing import Any

import httpx
import pytest
from anthropic import AsyncAnthropic, beta_async_tool

from gateway.settings import Settings
from tests.support.gateway import running_gateway
from tests.support.playbook import NATIVE, QUESTION
from tests.support.search import ScriptedSearch
from tests.support.upstream import (
    Answer,
    ScriptedUpstream,
    SeenRequest,
    json_answer,
    message,
    sse,
    sse_answer,
    text,
    tool_use,
)

pytestmark = pytest.mark.anyio

CREATE = {"type": "create"}
CONTINUE = {"type": "continue", "previous_message_id": "msg_1"}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    "more", [{}, {"tools": [NATIVE]}, {"return_token_ids": True}], ids=["passes", "turn", "tokens"]
)
@pytest.mark.parametrize("thread", [CREATE, CONTINUE])
async def test_a_thread_is_refused_by_name(thread: dict[str, str], more: dict[str, Any], stream: bool) -> None:
    async with (
        ScriptedUpstream(json_answer({})) as upstream,
        running_gateway(Settings(upstream=upstream.origin), search=ScriptedSearch()) as gateway,
    ):
        body = {"model": "m", "max_tokens": 9, "messages": [QUESTION], "stream": stream, "thread": thread, **more}
        answer = await gateway.client.post("/v1/messages?beta=true", json=body)
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert error["type"] == "invalid_request_error"
    assert error["message"].startswith("thread: ")
    assert error["details"] == {"error_code": "thread_unsupported_request", "unsupported": ["thread"]}
    assert upstream.requests == []


async def test_no_thread_passes() -> None:
    body = b'{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"a \\"thread\\""}],"thread":null}'
    async with (
        ScriptedUpstream(json_answer(message(text("hi")))) as upstream,
        running_gateway(Settings(upstream=upstream.origin)) as gateway,
    ):
        answer: httpx.Response = await gateway.client.post("/v1/messages", content=body)
    assert answer.status_code == 200
    assert [request.body for request in upstream.requests] == [body]


@beta_async_tool
async def weather(city: str) -> str:
    """The weather in a city."""
    return f"sunny in {city}"


@pytest.mark.parametrize("stream", [False, True])
async def test_the_sdks_tool_runner_sends_the_whole_conversation(stream: bool) -> None:
    """It asks for a thread first, and each later request would have held a tool result and nothing else."""

    def says(request: SeenRequest) -> Answer:
        told = request.json["messages"][-1]["role"] == "user" and len(request.json["messages"]) > 1
        blocks = [text("sunny")] if told else [tool_use("weather", {"city": "Riga"})]
        return sse_answer(sse(*blocks)) if request.json.get("stream") else json_answer(message(*blocks))

    async with (
        ScriptedUpstream(says) as upstream,
        running_gateway(Settings(upstream=upstream.origin)) as gateway,
        AsyncAnthropic(base_url=gateway.url, api_key="k", max_retries=0) as client,
    ):
        asked: Any = {"model": "m", "max_tokens": 64, "messages": [QUESTION], "tools": [weather], "stream": stream}
        last = await client.beta.messages.tool_runner(**asked).until_done()
    assert last.content[0].to_dict()["text"] == "sunny"
    first, second = (request.json for request in upstream.requests)
    assert "thread" not in first
    assert "thread" not in second
    assert [turn["role"] for turn in second["messages"]] == ["user", "assistant", "user"]
    assert second["messages"][0] == QUESTION
    assert second["messages"][1]["content"][0]["type"] == "tool_use"
    assert second["messages"][2]["content"][0]["type"] == "tool_result"
