"""One request that asks for very much: others are answered all the same."""

import asyncio
import json
from contextlib import AsyncExitStack
from typing import Any

import httpx
import pytest

from gateway.settings import Settings
from gateway.tools.base import SearchQuery
from gateway.turn.web_search import SearchResult
from tests.support.gateway import running_gateway
from tests.support.playbook import BASH, NATIVE, QUESTION, SEARCH
from tests.support.search import ScriptedSearch, found
from tests.support.upstream import (
    Answer,
    ScriptedUpstream,
    SeenRequest,
    answering,
    json_answer,
    text,
    tool_use,
)

pytestmark = pytest.mark.anyio

both_transports = pytest.mark.parametrize("stream", [False, True], ids=["JSON", "SSE"])
both_forms = pytest.mark.parametrize("tool", [NATIVE, SEARCH], ids=["native", "hidden"])
MANY = 3000
SERVED = {"object": "list", "data": [{"id": "m", "object": "model"}]}


def with_models(*answers: Answer) -> Answer:
    """An upstream that lists its models, too, and gives the answers one after the other."""
    left = iter(answers)
    return lambda request: json_answer(SERVED) if request.target == "/v1/models" else next(left)


def history_of_calls(count: int) -> list[dict[str, Any]]:
    """A conversation whose last message left that many searches to be run."""
    searches = [
        {"type": "server_tool_use", "id": f"srvtoolu_{n}", "name": "web_search", "input": {"query": f"q{n}"}}
        for n in range(count)
    ]
    bash = {"type": "tool_use", "id": "bash", "name": "Bash", "input": {}}
    answer = {"type": "tool_result", "tool_use_id": "bash", "content": "done"}
    return [QUESTION, {"role": "assistant", "content": [*searches, bash]}, {"role": "user", "content": [answer]}]


def asking(tool: dict[str, Any], messages: list[dict[str, Any]], *, stream: bool) -> dict[str, Any]:
    return {"model": "m", "max_tokens": 9, "messages": messages, "tools": [tool, BASH], "stream": stream}


@both_transports
async def test_a_history_runs_so_many_calls_and_no_more(stream: bool) -> None:
    search = ScriptedSearch(default=found("Something."))
    answer = with_models(answering(text("Done."), stream=stream))
    async with (
        ScriptedUpstream(answer) as upstream,
        running_gateway(Settings(upstream=upstream.origin, max_tool_calls=7), search=search) as gateway,
    ):
        body = asking(NATIVE, history_of_calls(MANY), stream=stream)
        assert (await gateway.client.post("/v1/messages", json=body)).status_code == 200
    assert search.queries == [f"q{n}" for n in range(7)]
    *results, bash = upstream.requests[-1].json["messages"][-1]["content"]
    assert bash["content"] == "done"
    assert [result["content"] for result in results[7:]] == [
        "The search was not run: no search is left for this request."
    ] * (MANY - 7)


@both_transports
@both_forms
async def test_a_round_runs_so_many_calls_and_no_more(tool: dict[str, Any], stream: bool) -> None:
    search = ScriptedSearch(default=found("Something."))
    calls = [tool_use("web_search", {"query": f"q{n}"}, id=f"call-{n}") for n in range(MANY)]
    rounds = answering(*calls, stream=stream), answering(text("Done."), stream=stream)
    async with (
        ScriptedUpstream(*rounds) as upstream,
        running_gateway(Settings(upstream=upstream.origin), search=search) as gateway,
    ):
        body = asking(tool, [QUESTION], stream=stream)
        assert (await gateway.client.post("/v1/messages", json=body)).status_code == 200
    assert len(search.queries) == 50
    results = upstream.requests[1].json["messages"][-1]["content"]
    assert len(results) == MANY
    assert results[50]["is_error"] is True


REFUSED = {"error": {"message": "No such key here."}}


@both_transports
@pytest.mark.parametrize("status", [401, 403])
async def test_nothing_runs_for_a_client_that_upstream_does_not_take(status: int, stream: bool) -> None:
    search = ScriptedSearch(default=found("Something."))

    def refusing(request: SeenRequest) -> Answer:
        assert request.header(b"x-api-key") == b"stolen"
        return json_answer(REFUSED, status)

    async with (
        ScriptedUpstream(refusing) as upstream,
        running_gateway(Settings(upstream=upstream.origin), search=search) as gateway,
    ):
        body = asking(NATIVE, history_of_calls(3), stream=stream)
        answer = await gateway.client.post("/v1/messages", json=body, headers={"x-api-key": "stolen"})
    assert (answer.status_code, answer.json()) == (status, REFUSED)
    assert search.queries == []


async def test_a_client_with_one_of_the_gateways_keys_has_been_taken() -> None:
    search = ScriptedSearch(default=found("Something."))
    async with (
        ScriptedUpstream(answering(text("Done."), stream=False)) as upstream,
        running_gateway(Settings(upstream=upstream.origin, api_keys=("key",)), search=search) as gateway,
    ):
        body = asking(NATIVE, history_of_calls(3), stream=False)
        answer = await gateway.client.post("/v1/messages", json=body, headers={"x-api-key": "key"})
    assert answer.status_code == 200
    assert search.queries == ["q0", "q1", "q2"]
    assert [request.target for request in upstream.requests] == ["/v1/messages"]


class OneByOne:
    """A provider that answers the search that it is at when it is told to."""

    name = label = "one by one"

    def __init__(self) -> None:
        self.asked: list[str] = []
        self._came = asyncio.Condition()
        self._answers = asyncio.Semaphore(0)

    async def search(self, query: SearchQuery) -> list[SearchResult]:
        async with self._came:
            self.asked.append(query.text)
            self._came.notify_all()
        await self._answers.acquire()
        return []

    async def has_been_asked(self, times: int) -> None:
        async with asyncio.timeout(5), self._came:
            await self._came.wait_for(lambda: len(self.asked) >= times)

    def answer(self) -> None:
        self._answers.release()

    async def aclose(self) -> None:
        pass


async def test_a_turn_with_many_calls_lets_another_have_its_own_between() -> None:
    def upstream_says(request: SeenRequest) -> Answer:
        messages = request.json["messages"]
        if len(messages) > 1:
            return answering(text("Done."), stream=False)
        who, count = messages[0]["content"].split()
        calls = [tool_use("web_search", {"query": f"{who}{n}"}, id=f"{who}-{n}") for n in range(int(count))]
        return answering(*calls, stream=False)

    provider = OneByOne()
    async with AsyncExitStack() as stack:
        upstream = await stack.enter_async_context(ScriptedUpstream(upstream_says))
        settings = Settings(upstream=upstream.origin, tool_concurrency=1)
        gateway = await stack.enter_async_context(running_gateway(settings, backend=provider))
        clients = await stack.enter_async_context(asyncio.TaskGroup())

        async def ask(said: str) -> httpx.Response:
            body = asking(NATIVE, [{"role": "user", "content": said}], stream=False)
            return await gateway.client.post("/v1/messages", json=body)

        greedy = clients.create_task(ask("greedy 40"))
        await provider.has_been_asked(1)
        modest = clients.create_task(ask("modest 1"))
        await upstream.arrived(2)
        await gateway.client.get("/health")  # by now its call waits
        for number in range(1, 42):
            await provider.has_been_asked(number)
            provider.answer()
        assert (await greedy).status_code == (await modest).status_code == 200
    assert len(provider.asked) == 41
    assert provider.asked.index("modest0") <= 2


@pytest.mark.parametrize("log_format", ["text", "json"])
async def test_the_log_counts_calls_and_lists_none(log_format: str, capsys: pytest.CaptureFixture[str]) -> None:
    search = ScriptedSearch(default=found("Something."))
    calls = [tool_use("web_search", {"query": f"q{n}"}, id=f"call-{n}") for n in range(17)]
    rounds = answering(*calls, stream=False), answering(text("Done."), stream=False)
    async with (
        ScriptedUpstream(*rounds) as upstream,
        running_gateway(Settings(upstream=upstream.origin, log_format=log_format), search=search) as gateway,
    ):
        body = asking(SEARCH, [QUESTION], stream=False) | {"model": "m" * 10_000}
        assert (await gateway.client.post("/v1/messages", json=body)).status_code == 200
    [line] = [line for line in capsys.readouterr().err.splitlines() if "route=/v1/messages" in line or '"/v1/m' in line]
    assert len(line) < 600
    if log_format == "json":
        assert json.loads(line)["tools"] == {"web_search": 17}
    else:
        assert " tools=web_search×17 " in line  # noqa: RUF001
