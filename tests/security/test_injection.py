"""What comes in as a value goes out as that value: no header, no log line, no event of its own."""

import json
import re
from typing import Any

import pytest

from gateway.books.log import configure_logging
from gateway.settings import Settings
from gateway.turn.web_search import SearchResult
from gateway.wire.sse import SSEReader
from tests.support.events import events_in
from tests.support.gateway import running_gateway
from tests.support.playbook import NATIVE, QUESTION
from tests.support.raw import post, raw_client
from tests.support.search import ScriptedSearch, found
from tests.support.upstream import (
    Scripted,
    ScriptedUpstream,
    json_answer,
    message,
    raw,
    sse,
    sse_answer,
    text,
    tool_use,
)

pytestmark = pytest.mark.anyio

LINE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00 (debug|info|warning|error) .*")
BREAKS = [
    "a\nevil info request route=/v1/messages outcome=ok",
    "a\r\nX-Evil: 1",
    "a\x1b[2J\x1b[31mred",
    "a\x00\x07\x08\x7f\x9b",
    "a\u2028\u2029\u202e\u0085b",
    'a" outcome=ok x="',
    "a outcome=ok",
]


# --- into the log -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["text", "json"])
@pytest.mark.parametrize("where", ["proxied", "turn", "renamed"])
async def test_a_models_name_is_one_word_of_one_line(form: Any, where: str, capfd: pytest.CaptureFixture[str]) -> None:
    async with ScriptedUpstream(json_answer(message(text("hi")), 400)) as upstream:
        settings = Settings(
            upstream=upstream.origin, log_format=form, model_map={"a*": "m"} if where == "renamed" else {}
        )
        async with running_gateway(settings, search=ScriptedSearch()) as gateway:
            for name in BREAKS:
                tools = [NATIVE] if where == "turn" else []
                body = {"model": name, "max_tokens": 9, "messages": [QUESTION], "tools": tools}
                await gateway.client.post("/v1/messages", json=body)
    lines = capfd.readouterr().err.splitlines()
    assert len(lines) == len(BREAKS)
    for line in lines:
        assert line.isprintable()
        if form == "text":
            assert LINE.fullmatch(line)
            assert len(re.findall(r" outcome=", re.sub(r'"(\\.|[^"\\])*"', "", line))) == 1
        else:
            assert json.loads(line)["event"] == "request"


@pytest.mark.parametrize("part", ["path", "query", "header", "method"])
@pytest.mark.usefixtures("logging_as_before")
async def test_no_other_part_of_a_request_is_in_the_log(part: str, capfd: pytest.CaptureFixture[str]) -> None:
    configure_logging("debug", "text")
    marks = {
        "path": "GET /v1/models/mark%0aevil HTTP/1.1\r\nHost: x",
        "query": "GET /v1/models?mark=%0aevil HTTP/1.1\r\nHost: x",
        "header": "GET /v1/models HTTP/1.1\r\nHost: mark\r\nUser-Agent: mark\x1b[31m\xe9",
        "method": "MARK\x1b[31m /v1/models HTTP/1.1\r\nHost: x",
    }
    async with (
        ScriptedUpstream(json_answer({"data": []})) as upstream,
        running_gateway(Settings(upstream=upstream.origin, log_level="debug")) as gateway,
        raw_client(gateway.port) as client,
    ):
        await client.send(marks[part].encode("latin-1") + b"\r\nConnection: close\r\n\r\n")
        await client.rest()
    logged = capfd.readouterr().err
    assert logged
    assert "mark" not in logged.lower()
    assert all(line.isprintable() for line in logged.splitlines())


@pytest.mark.parametrize("stream", [False, True])
async def test_upstreams_words_are_not_in_the_log(stream: bool, capfd: pytest.CaptureFixture[str]) -> None:
    evil = "upstream says\nevil info request outcome=ok\x1b[31m"
    failure = {"type": "error", "error": {"type": "internal_error", "message": evil}}
    answer = sse_answer([failure]) if stream else json_answer(failure, 500)
    async with (
        ScriptedUpstream(answer) as upstream,
        running_gateway(Settings(upstream=upstream.origin, log_level="debug"), search=ScriptedSearch()) as gateway,
    ):
        for tools in ([], [NATIVE]):
            body = {"model": "m", "max_tokens": 9, "messages": [QUESTION], "tools": tools, "stream": stream}
            told = await gateway.client.post("/v1/messages", json=body)
            assert "upstream says" in told.text
    lines = capfd.readouterr().err.splitlines()
    assert len(lines) == 2
    assert all(LINE.fullmatch(line) and "evil" not in line for line in lines)


# --- into headers -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("connection", ["close", "keep-alive"])
@pytest.mark.parametrize(
    "field",
    [
        b"x-evil: a\rset-cookie: b",
        b"x-evil: a\nset-cookie: b",
        b"x-evil: a\r\n set-cookie: b",
        b"x-evil: a\x00b",
        b"x-evil: a\x07b",
        b"x-evil: a\x1bb",
        b"x-evil: a\x7fb",
        b"x\x07evil: a",
        b"x@evil: a",
        b"x(evil: a",
        b"x evil: a",
        b"x-evil : a",
        b": a",
    ],
)
async def test_a_broken_header_of_upstreams_is_no_answer(field: bytes, connection: str) -> None:
    async with (
        ScriptedUpstream(raw(b"HTTP/1.1 200 OK\r\n" + field + b"\r\ncontent-length: 2\r\n\r\n{}")) as upstream,
        running_gateway(Settings(upstream=upstream.origin)) as gateway,
        raw_client(gateway.port) as client,
    ):
        await client.send(post(b"{}", "/v1/messages", f"Connection: {connection}"))
        head = await client.head()
    assert head.startswith(b"HTTP/1.1 502 ")
    assert b"evil" not in head
    assert b"set-cookie" not in head


@pytest.mark.parametrize("name", BREAKS)
async def test_what_a_client_names_stays_in_the_body(name: str) -> None:
    """Errors that quote the client: a tool's name, a call's id, a model's."""
    doubled = [{"name": name, "input_schema": {}}] * 2
    ids = [{"type": "server_tool_use", "id": name, "name": "web_search", "input": {}}] * 2
    async with (
        ScriptedUpstream(json_answer({"data": []})) as upstream,
        running_gateway(Settings(upstream=upstream.origin, tool_aliases={name: "web_search"})) as gateway,
    ):
        for more in (
            {"messages": [QUESTION], "tools": doubled},
            {"messages": [QUESTION, {"role": "assistant", "content": ids}]},
        ):
            answer = await gateway.client.post("/v1/messages", json={"model": "m", "max_tokens": 9, **more})
            assert answer.status_code == 400
            assert answer.json()["error"]["type"] == "invalid_request_error"
            assert set(answer.headers) == {"content-type", "content-length", "request-id", "x-should-retry"}


# --- into the event stream --------------------------------------------------------------------------------------------


async def test_no_text_of_a_model_or_a_page_becomes_an_event() -> None:
    evil = 'x\n\nevent: message_stop\ndata: {"type":"message_stop"}\n\n'
    page = SearchResult(evil, "https://example.com/", evil)
    rounds: list[Scripted] = [
        sse_answer(sse(text(evil), tool_use("web_search", {"query": evil}))),
        sse_answer(sse(text(evil, ""))),
    ]
    search = ScriptedSearch(default=found(evil, page))
    async with (
        ScriptedUpstream(*rounds) as upstream,
        running_gateway(Settings(upstream=upstream.origin), search=search) as gateway,
    ):
        body = {"model": "m", "max_tokens": 9, "messages": [QUESTION], "tools": [NATIVE], "stream": True}
        answer = await gateway.client.post("/v1/messages", json=body)
    events = events_in(answer.content)
    assert [event["type"] for event in events].count("message_stop") == 1
    assert events[-1]["type"] == "message_stop"
    assert "".join(event["delta"].get("text", "") for event in events if "delta" in event) == 2 * evil


async def test_an_events_name_is_not_upstreams_to_choose() -> None:
    start, *rest = sse(text("hi"))
    kinds = ["ping\n\nevent: message_stop\ndata: {}", "message_stop\n", "message\r\n\r\nevent: message_stop"]
    odd = [b"event: ping\ndata: %s\n\n" % json.dumps({"type": kind}).encode() for kind in kinds]
    async with (
        ScriptedUpstream(sse_answer([start, *odd, {"type": "ping"}, *rest])) as upstream,
        running_gateway(Settings(upstream=upstream.origin), search=ScriptedSearch()) as gateway,
    ):
        body = {"model": "m", "max_tokens": 9, "messages": [QUESTION], "tools": [NATIVE], "stream": True}
        answer = await gateway.client.post("/v1/messages", json=body)
    assert [frame.event for frame in SSEReader().feed(answer.content)].count("message_stop") == 1


# --- into the log -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("usage_first", [False, True])
async def test_what_a_model_writes_is_no_figure(
    stream: bool, usage_first: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    forged = {"model": "forged", "usage": {"input_tokens": 7777, "output_tokens": 8888}, "input_tokens": 9999}
    usage = {"input_tokens": 7, "output_tokens": 5}
    answer: Scripted
    if stream:
        start = {"type": "content_block_start", "index": 0, "content_block": tool_use("x", forged).value}
        counts = {"type": "message_delta", "delta": {}, "usage": usage}
        answer = sse_answer([counts, start] if usage_first else [start, counts])
    else:
        said = {"content": [tool_use("x", forged).value]}
        answer = json_answer({"usage": usage, **said} if usage_first else {**said, "usage": usage})
    async with (
        ScriptedUpstream(answer) as upstream,
        running_gateway(Settings(upstream=upstream.origin)) as gateway,
    ):
        body = {"model": "asked", "max_tokens": 9, "messages": [QUESTION], "stream": stream}
        await gateway.client.post("/v1/messages", json=body)
        metrics = (await gateway.client.get("/metrics")).text
    line = capfd.readouterr().err
    assert " model=asked " in line
    assert " input_tokens=7 output_tokens=5 " in line
    assert 'tokens_total{direction="input"} 7.0' in metrics
    assert 'tokens_total{direction="output"} 5.0' in metrics


# --- into the metrics -------------------------------------------------------------------------------------------------


async def test_no_client_makes_up_a_label() -> None:
    async with (
        ScriptedUpstream(json_answer({})) as upstream,
        running_gateway(Settings(upstream=upstream.origin)) as gateway,
    ):
        for path in ("/mark", "/v1/models/mark", "/v1/messages?mark"):
            await gateway.client.post(path, json={"model": "mark", "tools": [{"name": "mark"}]})
        metrics = (await gateway.client.get("/metrics")).text
    assert "mark" not in metrics
    assert 'route="proxied"' in metrics
