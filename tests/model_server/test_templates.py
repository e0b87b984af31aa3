"""What a chat template does with deferred tools: told by upstream's own counts, once a model."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from gateway.model_server import ModelServer
from gateway.model_server.templates import Templates, find_out
from gateway.turn import Mode
from tests.support.upstream import Scripted, ScriptedUpstream, SeenRequest, json_answer, raw

pytestmark = pytest.mark.anyio

ERROR = {"error": {"message": "no"}}
Template = Callable[[dict[str, Any]], int]


def words(body: dict[str, Any], *, head: bool, expands: bool) -> int:
    """How many words a template makes of a body, that writes deferred tools in the head or not, and references out."""
    tools = {tool["name"]: tool for tool in body["tools"]}
    shown = [tool for tool in tools.values() if head or not tool.get("defer_loading")]
    if expands:
        results = [block for message in body["messages"] if message["content"] for block in blocks(message)]
        shown += [tools[item["tool_name"]] for block in results for item in block.get("content", [])]
    return sum(len(tool["description"].split()) for tool in shown) + 10


def blocks(message: dict[str, Any]) -> list[dict[str, Any]]:
    content = message["content"]
    return content if isinstance(content, list) else []


def counting(template: Template) -> Callable[[SeenRequest], Scripted]:
    return lambda request: json_answer({"input_tokens": template(request.json)})


@pytest.mark.parametrize(
    ("head", "expands", "mode"),
    [(False, True, "pass"), (True, False, "expand"), (True, True, "expand"), (False, False, "expand")],
)
async def test_only_a_template_that_does_all_of_it_is_given_the_request_as_it_is(
    head: bool, expands: bool, mode: Mode
) -> None:
    async with ScriptedUpstream(counting(lambda body: words(body, head=head, expands=expands))) as upstream:
        server = ModelServer(upstream.origin)
        headers = [(b"authorization", b"Bearer k")]
        asked = await asyncio.gather(server.deferred_mode("qwen3", headers), server.deferred_mode("qwen3", headers))
        assert [*asked, await server.deferred_mode("qwen3", [])] == [mode] * 3
        once = len(upstream.requests)
        await server.deferred_mode("another", headers)
        await server.aclose()
    assert once <= 4
    assert {request.json["model"] for request in upstream.requests[:once]} == {"qwen3"}
    assert {request.target for request in upstream.requests} == {"/v1/messages/count_tokens"}
    assert {request.header(b"authorization") for request in upstream.requests} == {b"Bearer k"}
    assert len(upstream.requests) == 2 * once


@pytest.mark.parametrize("refused", ["defer_loading", "tool_reference"])
@pytest.mark.parametrize("status", [400, 500])
async def test_a_template_that_raises_is_remembered(refused: str, status: int) -> None:
    def answer(request: SeenRequest) -> Scripted:
        if refused in request.body.decode():
            return json_answer(ERROR, status)
        return json_answer({"input_tokens": words(request.json, head=False, expands=True)})

    async with ScriptedUpstream(answer) as upstream:
        server = ModelServer(upstream.origin)
        assert await server.deferred_mode("qwen3", []) == "expand"
        asked = len(upstream.requests)
        assert await server.deferred_mode("qwen3", []) == "expand"
        assert len(upstream.requests) == asked
        await server.aclose()


GOOD = counting(lambda body: words(body, head=False, expands=True))
FAILURES: dict[str, Scripted] = {
    "no such route, or no such model": json_answer(ERROR, 404),
    "overloaded": json_answer(ERROR, 503),
    "no count": json_answer({"tokens": 3}),
    "no JSON": json_answer(b"<html>"),
    "no answer": raw(then="close"),
}


@pytest.mark.parametrize("failure", FAILURES.values(), ids=FAILURES)
async def test_a_failure_means_expand_for_now(failure: Scripted) -> None:
    now = 0.0
    async with ScriptedUpstream(lambda _: failure) as upstream:
        server = ModelServer(upstream.origin, clock=lambda: now)
        assert await server.deferred_mode("qwen3", []) == "expand"
        asked = len(upstream.requests)
        upstream.answers = (GOOD,)
        now += Templates.RETRY_S - 1
        assert await server.deferred_mode("qwen3", []) == "expand"
        assert len(upstream.requests) == asked
        now += 1
        assert await server.deferred_mode("qwen3", []) == "pass"
        await server.aclose()


@pytest.mark.parametrize("status", [401, 403])
async def test_bad_credentials_say_nothing_about_the_next_clients(status: int) -> None:
    def answer(request: SeenRequest) -> Scripted:
        return GOOD(request) if request.header(b"x-api-key") else json_answer(ERROR, status)

    async with ScriptedUpstream(answer) as upstream:
        server = ModelServer(upstream.origin)
        assert await server.deferred_mode("qwen3", []) == "expand"
        assert await server.deferred_mode("qwen3", [(b"x-api-key", b"k")]) == "pass"
        await server.aclose()


@pytest.mark.parametrize("setting", ["expand", "declare", "pass"])
async def test_what_the_operator_says_is_not_asked(setting: Mode) -> None:
    server = ModelServer("http://127.0.0.1:1", deferred_tools=setting)
    assert await server.deferred_mode("qwen3", []) == setting


async def test_a_verdict_has_a_reason() -> None:
    async def count(body: dict[str, Any]) -> int | None:
        return words(body, head=True, expands=False)

    assert (await find_out("qwen3", count)).why == "the template writes deferred tools into the prompt's head"
