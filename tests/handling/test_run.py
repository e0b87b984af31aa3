"""Turns over real sockets: scripted upstream, real gateway, HTTP client. What it is asked, what the client gets."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from gateway.settings import Settings
from gateway.tools.web_search import WebSearch
from gateway.turn.web_search import SearchOutcome
from gateway.wire.sse import SSEReader
from tests.support.events import events_in
from tests.support.gateway import RunningGateway, running_gateway
from tests.support.playbook import NATIVE, asking
from tests.support.raw import post
from tests.support.search import Held, ScriptedSearch, found
from tests.support.upstream import (
    Answer,
    ScriptedUpstream,
    answering,
    encode_event,
    head,
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
FOUND = {"rust": found("It is 1.89."), "go": found("It is 1.26.")}
ERROR = {"type": "error", "error": {"type": "BadRequestError", "message": "max_tokens is too large"}}


def events(response: httpx.Response) -> list[dict[str, Any]]:
    return events_in(response.content)


@asynccontextmanager
async def setting(
    *answers: Answer, search: Any = None, **settings: Any
) -> AsyncIterator[tuple[RunningGateway, ScriptedUpstream]]:
    async with ScriptedUpstream(*answers) as upstream:
        search = search or ScriptedSearch(FOUND)
        async with running_gateway(Settings(upstream=upstream.origin, **settings), search=search) as gateway:
            yield gateway, upstream


def said(response: httpx.Response, *, stream: bool) -> str:
    if not stream:
        return "".join(block["text"] for block in response.json()["content"] if block["type"] == "text")
    deltas = [event["delta"] for event in events(response) if event["type"] == "content_block_delta"]
    return "".join(delta["text"] for delta in deltas if delta["type"] == "text_delta")


@pytest.mark.parametrize("stream", [False, True])
async def test_a_search_between_two_rounds(stream: bool) -> None:
    first = answering(RUST, stream=stream, headers=[("x-request-id", "one"), ("connection", "x-hop"), ("x-hop", "1")])
    async with setting(first, answering(text("Rust is at 1.89."), stream=stream)) as (gateway, upstream):
        headers = {"x-api-key": "k", "anthropic-beta": "a,b", "accept-encoding": "gzip"}
        response = await gateway.client.post("/v1/messages?beta=true", json=asking(stream=stream), headers=headers)
    assert response.status_code == 200
    assert said(response, stream=stream) == "Rust is at 1.89."
    assert response.headers["x-request-id"] == "one"
    assert "x-hop" not in response.headers
    asked = upstream.requests[1]
    assert asked.target == "/v1/messages?beta=true"
    assert asked.json["stream"] is stream
    assert asked.header(b"accept-encoding") == b"identity"
    assert asked.header(b"anthropic-beta") == b"a,b"
    assert asked.header(b"x-api-key") == b"k"
    assert asked.json["messages"][2]["content"][0]["content"] == "It is 1.89."
    assert upstream.accepted == 1  # one connection, used again


@pytest.mark.parametrize("stream", [False, True])
async def test_calls_run_side_by_side(stream: bool) -> None:
    slow, quick = Held(found("slow")), Held(found("quick"))
    search = ScriptedSearch({"slow": slow, "quick": quick})
    calls = [tool_use("web_search", {"query": query}, id=f"call-{query}") for query in ("slow", "quick")]
    tools = {"tools": [NATIVE]}
    async with setting(answering(*calls, stream=stream), answering(text("Done."), stream=stream), search=search) as (
        gateway,
        upstream,
    ):
        request = asyncio.create_task(gateway.client.post("/v1/messages", json=asking(stream=stream, **tools)))
        await slow.started.wait()
        await quick.started.wait()  # both run before either has ended
        quick.release.set()
        slow.release.set()
        response = await request
    results = upstream.requests[1].json["messages"][2]["content"]
    assert [result["tool_use_id"] for result in results] == ["call-slow", "call-quick"]
    assert said(response, stream=stream) == "Done."


async def test_a_native_result_is_shown_as_soon_as_it_and_those_before_it_are_done() -> None:
    first, second = Held(found("one")), Held(found("two"))
    calls = [tool_use("web_search", {"query": query}, id=f"call-{query}") for query in ("one", "two")]
    body = asking(stream=True, tools=[NATIVE])
    async with (
        setting(
            sse_answer(sse(*calls)),
            sse_answer(sse(text("Done."))),
            search=ScriptedSearch({"one": first, "two": second}),
        ) as (gateway, _),
        gateway.client.stream("POST", "/v1/messages", json=body) as response,
    ):
        shown = _live(response)
        await second.started.wait()
        first.release.set()
        while (event := await anext(shown)).get("content_block", {}).get("type") != "web_search_tool_result":
            pass
        assert event["content_block"]["tool_use_id"] == "srvtoolu_call_2done"
        assert not second.release.is_set()
        second.release.set()
        assert [event async for event in shown][-1] == {"type": "message_stop"}


async def _live(response: httpx.Response) -> AsyncIterator[dict[str, Any]]:
    reader = SSEReader()
    async for chunk in response.aiter_raw():
        for frame in reader.feed(chunk):
            yield json.loads(frame.data)


async def test_text_reaches_the_client_while_upstream_still_speaks() -> None:
    go_on = asyncio.Event()
    spoken = sse(text("One ", "two "))
    async with (
        setting(sse_answer([*spoken[:3], go_on, *spoken[3:]])) as (gateway, _),
        gateway.client.stream("POST", "/v1/messages", json=asking(stream=True)) as response,
    ):
        shown = _live(response)
        while (event := await anext(shown))["type"] != "content_block_delta":
            pass
        assert event["delta"]["text"] == "One "
        go_on.set()
        assert [event async for event in shown][-1]["type"] == "message_stop"


async def test_a_tool_that_takes_too_long_is_a_result_the_model_reads() -> None:
    class Never:
        name = label = "never"

        async def search(self, query: Any) -> Any:
            await asyncio.Event().wait()

        async def aclose(self) -> None:
            pass

    search = WebSearch(Never(), timeout_s=0.05, concurrency=1, max_results=1, result_max_chars=1000)
    async with setting(json_answer(message(RUST)), json_answer(message(text("No."))), search=search) as (
        gateway,
        upstream,
    ):
        response = await gateway.client.post("/v1/messages", json=asking(stream=False))
    result = upstream.requests[1].json["messages"][2]["content"][0]
    assert result["is_error"] is True
    assert "did not answer in time" in result["content"]
    assert said(response, stream=False) == "No."


async def test_pings_keep_a_silent_stream_warm() -> None:
    held = Held(found("x"))
    async with (
        setting(
            sse_answer(sse(RUST)),
            sse_answer(sse(text("Done."))),
            search=ScriptedSearch({"rust": held}),
            ping_interval_s=0.02,
        ) as (gateway, _),
        gateway.client.stream("POST", "/v1/messages", json=asking(stream=True)) as response,
    ):
        shown = _live(response)
        for _ in range(2):
            while (await anext(shown))["type"] != "ping":
                pass
        held.release.set()
        rest = [event["type"] async for event in shown]
    assert rest[-1] == "message_stop"


@pytest.mark.parametrize("index", [1, 2])
async def test_a_delta_of_another_block_is_not_passed_on_even_by_itself(index: int) -> None:
    """It comes alone, as the events do that go to the client unread. The block is upstream's 0 and the client's 2."""
    opening, start, *deltas, stop, ending, end = sse(text("a ", "b ", "c "))
    second = sse_answer([opening, start, *deltas, {**deltas[-1], "index": index}, stop, ending, end], pace=0.02)
    async with setting(sse_answer(sse(RUST)), second) as (gateway, _):
        response = await gateway.client.post("/v1/messages", json=asking(stream=True, tools=[NATIVE]))
    shown = events(response)
    texts = [event for event in shown if event.get("delta", {}).get("type") == "text_delta"]
    assert [(event["index"], event["delta"]["text"]) for event in texts] == [(2, "a "), (2, "b "), (2, "c ")]
    assert shown[-1]["type"] == "error"
    assert "a block that is not open" in shown[-1]["error"]["message"]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("status", [400, 404, 429, 500, 529])
async def test_a_first_round_that_is_refused_passes_as_it_is(stream: bool, status: int) -> None:
    refusal = json_answer(ERROR, status=status, headers=[("retry-after", "7")])
    async with setting(refusal) as (gateway, _):
        response = await gateway.client.post("/v1/messages", json=asking(stream=stream))
    assert (response.status_code, response.json()) == (status, ERROR)
    assert response.headers["retry-after"] == "7"


@pytest.mark.parametrize(
    ("status", "kind"),
    [(400, "invalid_request_error"), (404, "not_found_error"), (429, "rate_limit_error"), (500, "api_error"),
     (502, "api_error"), (529, "overloaded_error")],
)  # fmt: skip
async def test_a_later_round_that_is_refused(status: int, kind: str) -> None:
    refusal = json_answer(ERROR, status=status)
    async with setting(json_answer(message(RUST)), refusal) as (gateway, _):
        response = await gateway.client.post("/v1/messages", json=asking(stream=False))
    assert (response.status_code, response.json()) == (status, ERROR)
    async with setting(sse_answer(sse(RUST)), refusal) as (gateway, _):
        response = await gateway.client.post("/v1/messages", json=asking(stream=True))
    assert response.status_code == 200
    assert events(response)[-1] == {"type": "error", "error": {"type": kind, "message": "max_tokens is too large"}}


async def test_an_error_page_of_a_later_round_is_told_by_its_status() -> None:
    page = json_answer(b"<html>", status=503, headers=[("content-type", "text/html")])
    async with setting(sse_answer(sse(RUST)), page) as (gateway, _):
        response = await gateway.client.post("/v1/messages", json=asking(stream=True))
    assert events(response)[-1]["error"] == {"type": "api_error", "message": "Upstream answered with status 503."}


BROKEN: dict[str, Answer] = {
    "cut": sse_answer(sse(RUST)[:4], whole=False),
    "ended early": sse_answer(sse(RUST)[:-1]),
    "malformed": sse_answer([*sse(RUST)[:3], b"event: content_block_delta\ndata: {oops\n\n"]),
    "second start": sse_answer([*sse(RUST)[:1], *sse(RUST)]),
    "used index": sse_answer([*sse(RUST)[:-2], *sse(RUST)[1:]]),
    "reset": sse_answer(sse(RUST)[:4], whole=False, then="reset"),
}


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN)
async def test_a_stream_that_breaks_ends_in_an_error_and_runs_nothing(broken: Answer) -> None:
    search = ScriptedSearch(FOUND)
    async with setting(broken, search=search) as (gateway, upstream):
        response = await gateway.client.post("/v1/messages", json=asking(stream=True))
    shown = events(response)
    assert shown[0]["type"] == "message_start"
    assert shown[-1]["type"] == "error"
    assert shown[-1]["error"]["type"] == "api_error"
    assert "message_stop" not in [event["type"] for event in shown]
    assert search.calls == []
    assert len(upstream.requests) == 1


async def test_upstreams_own_error_event_passes_with_its_message() -> None:
    error = {"type": "error", "error": {"type": "internal_error", "message": "CUDA is out of memory"}}
    async with setting(sse_answer([*sse(RUST)[:3], error])) as (gateway, _):
        response = await gateway.client.post("/v1/messages", json=asking(stream=True))
    assert events(response)[-1]["error"] == {"type": "api_error", "message": "CUDA is out of memory"}


@pytest.mark.parametrize(
    "broken",
    [
        raw(head(200, [("content-type", "text/html"), ("content-length", "6")]) + b"<html>", then="close"),
        raw(head(200, [("content-length", "5")]) + b"[1,2]", then="close"),
        raw(head(200, [("content-type", "application/json"), ("content-length", "900")]) + b"{", then="close"),
        json_answer({"type": "message"}),
        json_answer(message(), headers=[("content-encoding", "gzip")]),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_that_is_no_message_is_502(broken: Answer, stream: bool) -> None:
    async with setting(broken) as (gateway, _):
        response = await gateway.client.post("/v1/messages", json=asking(stream=stream))
    assert response.status_code == 502
    assert response.json()["error"]["type"] == "api_error"


@pytest.mark.parametrize("stream", [False, True])
async def test_an_upstream_that_stalls_before_its_head_is_504(stream: bool) -> None:
    async with setting(raw(then="stall"), first_byte_timeout_s=0.05) as (gateway, _):
        response = await gateway.client.post("/v1/messages", json=asking(stream=stream))
    assert response.status_code == 504
    assert response.json()["error"]["type"] == "timeout_error"


async def test_an_upstream_that_stalls_in_a_stream_is_an_error_event() -> None:
    async with setting(sse_answer(sse(RUST)[:3], whole=False, then="stall"), idle_timeout_s=0.05) as (gateway, _):
        response = await gateway.client.post("/v1/messages", json=asking(stream=True))
    assert events(response)[-1]["error"]["type"] == "timeout_error"


@pytest.mark.parametrize("stage", ["first head", "stream", "tool", "later head"])
@pytest.mark.parametrize("stream", [False, True])
async def test_when_the_client_goes_everything_is_let_go(stream: bool, stage: str) -> None:
    held = Held(found("x"))
    search = ScriptedSearch({"rust": held if stage == "tool" else SearchOutcome("x")})
    stalled = sse_answer(sse(RUST)[:4], whole=False, then="stall")
    if not stream:
        stalled = raw(head(200, [("content-length", "900")]) + b"{", then="stall")
    scripts: dict[str, list[Answer]] = {
        "first head": [raw(then="stall")],
        "stream": [stalled],
        "tool": [answering(RUST, stream=stream)],
        "later head": [answering(RUST, stream=stream), raw(then="stall")],
    }
    script = scripts[stage]
    async with setting(*script, search=search) as (gateway, upstream):
        reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
        body = json.dumps(asking(stream=stream)).encode()
        writer.write(post(body))
        if stage == "tool":
            await held.started.wait()
        else:
            await upstream.arrived(len(script))
        if stream and stage == "stream":
            await reader.readuntil(b"message_start")
        writer.close()
        async with asyncio.timeout(1):
            await (held.let_go.wait() if stage == "tool" else upstream.closed_by_client())


async def test_the_model_map_names_the_message_as_the_client_did() -> None:
    for stream in (False, True):
        async with setting(
            answering(RUST, stream=stream), answering(text("Done."), stream=stream), model_map={"claude-*": "qwen3"}
        ) as (gateway, upstream):
            response = await gateway.client.post("/v1/messages", json=asking(stream=stream, model="claude-opus-4-8"))
        assert [request.json["model"] for request in upstream.requests] == ["qwen3", "qwen3"]
        named = events(response)[0]["message"] if stream else response.json()
        assert named["model"] == "claude-opus-4-8"


async def test_events_cut_at_any_place_come_out_the_same() -> None:
    data = b"".join(encode_event(event) for event in sse(text("One ", "two"), RUST))
    whole = None
    for size in (1, 7, len(data)):
        pieces = [data[at : at + size] for at in range(0, len(data), size)]
        async with setting(sse_answer(pieces), sse_answer(sse(text("Done.")))) as (gateway, _):
            response = await gateway.client.post("/v1/messages", json=asking(stream=True))
        whole = whole or events(response)
        assert events(response) == whole


async def test_the_time_of_a_round_that_fails_is_upstreams(capsys: pytest.CaptureFixture[str]) -> None:
    async with setting(raw(then="stall"), first_byte_timeout_s=0.05, log_format="json") as (gateway, _):
        await gateway.client.post("/v1/messages", json=asking(stream=False))
    line = json.loads(capsys.readouterr().err.splitlines()[-1])
    assert line["outcome"] == "timeout"
    assert line["upstream_ms"] >= 40
