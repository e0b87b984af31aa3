"""Pings on a stream that passes through, and streams that begin before upstream does."""

import asyncio
import json
from typing import Any

import pytest

from gateway.handling.pings import is_between_events
from gateway.settings import Settings
from tests.support.gateway import running_gateway
from tests.support.playbook import NATIVE, QUESTION
from tests.support.search import ScriptedSearch
from tests.support.upstream import (
    Scripted,
    ScriptedUpstream,
    SeenRequest,
    encode_event,
    json_answer,
    raw,
    sse,
    sse_answer,
    text,
)

pytestmark = pytest.mark.anyio

PING = b'event: ping\ndata: {"type":"ping"}\n\n'
COMMENT = b": ping\n"
EVENTS = [encode_event(event) for event in sse(text("hi"))]
QUICK: dict[str, Any] = {"ping_interval_s": 0.02, "proxy_pings": True}
TWO_WAYS = pytest.mark.parametrize("tools", [[], [NATIVE]], ids=["passes", "turn"])


def asked(*tools: Any, stream: bool = True) -> dict[str, Any]:
    return {"model": "m", "max_tokens": 9, "messages": [QUESTION], "stream": stream, "tools": list(tools)}


async def read(
    settings: dict[str, Any], path: str, answer: Any, until: bytes, *holds: asyncio.Event, **more: Any
) -> Any:
    """What the client gets; upstream is held until it has ``until`` once more for each hold. Status, head and body."""
    async with (
        ScriptedUpstream(answer) as upstream,
        running_gateway(Settings(upstream=upstream.origin, **settings), search=ScriptedSearch()) as gateway,
        gateway.client.stream("POST", path, json=more.get("body", asked()), headers=more.get("headers")) as response,
    ):
        got, held = b"", list(holds)
        async for piece in response.aiter_raw():
            got += piece
            if held and got.endswith(until):
                held.pop(0).set()
    return response.status_code, response.headers, got


@pytest.mark.parametrize("at", range(len(EVENTS)))
async def test_a_silent_stream_gets_a_ping_between_two_events(at: int) -> None:
    hold = asyncio.Event()
    answer = sse_answer([*EVENTS[:at], hold, *EVENTS[at:]])
    status, _, got = await read(QUICK, "/v1/messages?beta=true", answer, PING, hold)
    assert status == 200
    assert got.startswith(b"".join(EVENTS[:at]) + PING)
    assert got.replace(PING, b"") == b"".join(EVENTS)


async def test_the_pings_go_on() -> None:
    hold, more = asyncio.Event(), asyncio.Event()
    _, _, got = await read(QUICK, "/v1/messages", sse_answer([EVENTS[0], hold, more, *EVENTS[1:]]), PING, hold, more)
    assert got.startswith(EVENTS[0] + PING * 2)
    assert got.replace(PING, b"") == b"".join(EVENTS)


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses", "/v1/messages/x"])
async def test_on_other_paths_it_is_a_comment(path: str) -> None:
    hold = asyncio.Event()
    events = [b'data: {"a":1}\n\n', b"data: [DONE]\n\n"]
    _, _, got = await read(QUICK, path, sse_answer([events[0], hold, events[1]]), COMMENT, hold)
    assert got.startswith(events[0] + COMMENT)
    assert got.replace(COMMENT, b"") == b"".join(events)


@pytest.mark.parametrize("cut", [1, 12, 40, len(EVENTS[1]) - 1])
async def test_never_inside_an_event(cut: int) -> None:
    start, event = EVENTS[:2]
    answer = sse_answer([start, event[:cut], 0.15, event[cut:], *EVENTS[2:]])
    _, _, got = await read(QUICK, "/v1/messages", answer, PING)
    assert event in got
    assert got.replace(PING, b"") == b"".join(EVENTS)


HEAD = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n"
LONG = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: 8\r\n\r\n"


@pytest.mark.parametrize(
    "answer",
    [
        raw(HEAD + b"content-type: application/json\r\n\r\n", 0.1, b"8\r\nsome\n\n..\r\n0\r\n\r\n"),
        raw(HEAD + b"content-type: text/plain\r\n\r\n4\r\nso\n\n\r\n", 0.1, b"4\r\nme..\r\n0\r\n\r\n"),
        raw(
            HEAD + b"content-type: text/event-stream\r\ncontent-encoding: br\r\n\r\n", 0.1, b"4\r\nso\n\n\r\n0\r\n\r\n"
        ),
        raw(LONG + b"so\n\n", 0.1, b"me\n\n"),
    ],
    ids=["JSON", "text", "encoded", "of a known length"],
)
async def test_nothing_is_put_into_another_answer(answer: Scripted) -> None:
    _, _, got = await read(QUICK, "/v1/messages", answer, PING, headers={"accept-encoding": "br"})
    assert b"ping" not in got


async def test_without_pings_the_bytes_alone_pass() -> None:
    answer = sse_answer([EVENTS[0], 0.1, *EVENTS[1:]])
    _, _, got = await read({**QUICK, "proxy_pings": False}, "/v1/messages", answer, PING)
    assert got == b"".join(EVENTS)


async def test_a_stream_whose_model_is_renamed_has_them_too() -> None:
    hold = asyncio.Event()
    settings = {**QUICK, "model_map": {"m": "qwen3"}}
    _, _, got = await read(settings, "/v1/messages", sse_answer([hold, *EVENTS]), PING, hold)
    assert got.startswith(PING)
    assert got.replace(PING, b"") == b"".join(EVENTS).replace(b'"model":"qwen3"', b'"model":"m"')


async def test_an_upstream_that_is_silent_for_too_long_is_left_all_the_same() -> None:
    answer = sse_answer([EVENTS[0]], then="stall", whole=False)
    async with ScriptedUpstream(answer) as upstream:
        settings = Settings(upstream=upstream.origin, idle_timeout_s=0.3, **QUICK)
        async with running_gateway(settings) as gateway:
            with pytest.raises(Exception, match="peer closed connection"):
                await gateway.client.post("/v1/messages", json=asked())
            assert await gateway.outcomes() == {"timeout": 1}


@pytest.mark.parametrize(
    ("pieces", "between"),
    [
        ([], True),
        ([b"data: x\n\n"], True),
        ([b"data: x\r\n\r\n"], True),
        ([b"data: x\r\r"], True),
        ([b"data: x\n", b"\n"], True),
        ([b"data: x\r", b"\n", b"\r\n"], True),
        ([b"data: x\n"], False),
        ([b"data: x\r\n"], False),
        ([b"data: x"], False),
        ([b"\n\n: comment\n"], False),
        ([b"data: \\n\\n"], False),
    ],
)
def test_where_an_event_ends(pieces: list[bytes], between: bool) -> None:
    assert is_between_events(pieces) is between


# --- a head before upstream's -----------------------------------------------------------------------------------------

EARLY = {**QUICK, "early_head_s": 0.05}


def late(answer: Scripted, hold: asyncio.Event) -> Scripted:
    return Scripted([hold, *answer.pieces], answer.then)


@TWO_WAYS
async def test_a_stream_begins_before_upstream_does(tools: list[Any]) -> None:
    hold = asyncio.Event()
    answer = late(sse_answer(EVENTS, headers=[("request-id", "req_late")]), hold)
    status, headers, got = await read(EARLY, "/v1/messages", answer, PING, hold, body=asked(*tools))
    assert (status, headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
    assert headers["request-id"].startswith("req_")
    assert got.startswith(PING)
    assert b'"text":"hi"' in got
    assert got.endswith(EVENTS[-1])


@TWO_WAYS
@pytest.mark.parametrize(
    ("answer", "kind", "words"),
    [
        (json_answer({"error": {"message": "no such model"}}, 404), "not_found_error", "no such model"),
        (json_answer({"error": {"message": "slow down"}}, 429), "rate_limit_error", "slow down"),
        (json_answer({"message": "full"}, 529), "overloaded_error", "full"),
        (json_answer(b"<html>", 503), "api_error", "Upstream answered with status 503."),
        (json_answer({"type": "message"}), "api_error", "Upstream did not answer with an event stream."),
        (raw(), "api_error", "upstream closed the connection before it answered"),
    ],
)
async def test_what_fails_after_that_is_an_error_event(
    answer: Scripted, kind: str, words: str, tools: list[Any]
) -> None:
    hold = asyncio.Event()
    status, _, got = await read(EARLY, "/v1/messages", late(answer, hold), PING, hold, body=asked(*tools))
    assert status == 200
    assert got.startswith(PING)
    name, _, data = got.replace(PING, b"").partition(b"\ndata: ")
    assert name == b"event: error"
    assert json.loads(data) == {"type": "error", "error": {"type": kind, "message": words}}


@TWO_WAYS
async def test_an_upstream_that_begins_in_time_keeps_its_status(tools: list[Any]) -> None:
    settings = {"early_head_s": 30}
    status, _, got = await read(settings, "/v1/messages", json_answer({"no": 1}, 418), PING, body=asked(*tools))
    assert (status, got) == (418, b'{"no":1}')
    status, headers, got = await read(
        settings, "/v1/messages", sse_answer(EVENTS, headers=[("x-up", "1")]), PING, body=asked(*tools)
    )
    assert (status, headers["x-up"]) == (200, "1")
    assert got.endswith(EVENTS[-1])


@pytest.mark.parametrize(("path", "stream"), [("/v1/messages", False), ("/v1/chat/completions", True)])
async def test_no_other_answer_begins_early(path: str, stream: bool) -> None:
    def slow(request: SeenRequest) -> Scripted:
        return Scripted([0.15, *json_answer({"error": "no"}, 400).pieces])

    status, _, got = await read(EARLY, path, slow, PING, body=asked(stream=stream))
    assert (status, got) == (400, b'{"error":"no"}')


@TWO_WAYS
async def test_a_stream_that_breaks_between_two_events_ends_in_an_error_event(tools: list[Any]) -> None:
    hold = asyncio.Event()
    answer = late(sse_answer(EVENTS[:2], whole=False), hold)
    _, _, got = await read(EARLY, "/v1/messages", answer, PING, hold, body=asked(*tools))
    assert got.rpartition(b"event: ")[2].startswith(b'error\ndata: {"type":"error","error":{"type":"api_error"')
