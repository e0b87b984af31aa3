"""What is written past ``send`` is what ``send`` would have written, to the byte."""

import asyncio
import json
import logging
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from gateway.app import Gateway
from gateway.asgi import DIRECT, Direct, direct_of
from gateway.server.direct import DirectAnswer, HeadWithBody
from gateway.server.serve import loopback
from gateway.settings import Settings
from gateway.wire.headers import Headers
from tests.support.gateway import running_gateway
from tests.support.playbook import QUESTION, SEARCH
from tests.support.raw import post, raw_client
from tests.support.search import ScriptedSearch
from tests.support.upstream import (
    Scripted,
    ScriptedUpstream,
    chunk,
    encode_event,
    json_answer,
    message,
    raw,
    sse,
    sse_answer,
    text,
)

pytestmark = pytest.mark.anyio

EVENTS = sse(text(*(f"word {number} " for number in range(50))))


@pytest.mark.parametrize("model_map", [{}, {"m": "qwen3"}], ids=["its model", "a mapped model"])
@pytest.mark.parametrize("tools", [[], [SEARCH]], ids=["proxy", "loop"])
async def test_each_event_is_one_chunk_in_its_place(
    tools: list[Any], model_map: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pace lets every event come by itself, which is when it is written past ``send``."""
    sent, send = list[Any](), RequestResponseCycle.send

    async def counted(cycle: RequestResponseCycle, message: Any) -> None:
        sent.append(message)
        await send(cycle, message)

    monkeypatch.setattr(RequestResponseCycle, "send", counted)
    body = {"model": "m", "stream": True, "tools": tools, "messages": [QUESTION]}
    async with (
        ScriptedUpstream(sse_answer(EVENTS, pace=0.001)) as upstream,
        running_gateway(Settings(upstream=upstream.origin, model_map=model_map), search=ScriptedSearch()) as gateway,
        raw_client(gateway.port) as client,
    ):
        fields = ("content-type: application/json", "connection: close")
        await client.send(post(json.dumps(body).encode(), "/v1/messages", *fields))
        answer = await client.rest()
    deltas = [encode_event(event) for event in EVENTS[3:] if event["type"] == "content_block_delta"]
    assert [one for one in deltas if chunk(one) not in answer] == []
    places = [answer.index(chunk(one)) for one in deltas]
    assert places == sorted(places)
    assert len(sent) < len(deltas) / 2  # all but the head, the ends and what came while the task was busy


async def test_what_is_written_past_send_is_no_silence() -> None:
    """A ping comes after silence, and here is none: the stream takes four times as long as a ping waits."""
    body = {"model": "m", "stream": True, "tools": [SEARCH], "messages": [QUESTION]}
    async with (
        ScriptedUpstream(sse_answer(EVENTS, pace=0.03)) as upstream,
        running_gateway(Settings(upstream=upstream.origin, ping_interval_s=0.4), search=ScriptedSearch()) as gateway,
    ):
        answer = await gateway.client.post("/v1/messages", json=body)
    assert b"event: message_stop" in answer.content
    assert b"event: ping" not in answer.content


async def test_what_is_written_past_send_has_its_figures_in_the_metrics() -> None:
    events = sse(text(*(f"word {number} " for number in range(50))), input_tokens=7, output_tokens=50)
    async with (
        ScriptedUpstream(sse_answer(events, pace=0.001)) as upstream,
        running_gateway(Settings(upstream=upstream.origin)) as gateway,
    ):
        answer = await gateway.client.post("/v1/messages", json={"stream": True, "messages": [QUESTION]})
        assert answer.content == b"".join(map(encode_event, events))
        shown = (await gateway.client.get("/metrics")).text
    assert 'messages_gateway_tokens_total{direction="input"} 7.0' in shown
    assert 'messages_gateway_tokens_total{direction="output"} 50.0' in shown


# --- a whole answer in one write --------------------------------------------------------------------------------------


WHOLE = {
    "JSON": json_answer(message(text("hi"))),
    "headers": json_answer({}, headers=[("set-cookie", "a=1"), ("Set-Cookie", "b=2"), ("x-empty", "")]),
    "an error": json_answer({"type": "error"}, 404),
    "a strange status": json_answer({}, 299),
    "a stream": sse_answer(sse(text("hi"))),
    "nothing": json_answer(b""),
    "no body": raw(b"HTTP/1.1 204 No Content\r\n\r\n", then="keep"),
    "a body that may not be": raw(b"HTTP/1.1 204 No Content\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n"),
    "until the end": raw(b"HTTP/1.1 200 OK\r\n\r\nbody"),
    "large": json_answer(b"x" * 200_000),
}
ASKED = {
    "as usual": post(b"{}"),
    "for the last time": post(b"{}", "/v1/messages", "Connection: close"),
    "by HTTP/1.0": b"POST /v1/messages HTTP/1.0\r\nContent-Length: 2\r\n\r\n{}",
    "expecting a 100": post(b"{}", "/v1/messages", "Expect: 100-continue"),
    "in the path's name": b"GET /v1/other HTTP/1.1\r\nHost: gateway\r\n\r\n",
}


@pytest.mark.parametrize("asked", ASKED.values(), ids=ASKED)
@pytest.mark.parametrize("whole", WHOLE.values(), ids=WHOLE)
async def test_a_whole_answer_is_what_send_would_have_written(whole: Scripted, asked: bytes) -> None:
    """Two such requests, one behind the other in one write, and one that ends the connection."""
    answers = []
    for direct in (True, False):
        async with (
            ScriptedUpstream(whole, whole, whole) as upstream,
            _serving(Settings(upstream=upstream.origin), direct=direct) as port,
            raw_client(port) as client,
        ):
            await client.send(asked * 2 + post(b"{}", "/v1/messages", "Connection: close"))
            answers.append(re.sub(rb"req_\w+", b"", await client.rest()))
    assert answers[0] == answers[1]


@asynccontextmanager
async def _serving(settings: Settings, *, direct: bool) -> AsyncIterator[int]:
    """A gateway under its server, or under one that has a short way for pieces alone; yields its port."""
    gateway = Gateway(settings)

    async def for_pieces(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            scope = {**scope, "extensions": {DIRECT: _ForPieces(scope["extensions"][DIRECT])}}
        await gateway(scope, receive, send)

    async with loopback(gateway if direct else for_pieces) as url:
        yield int(url.rpartition(":")[2])


class _ForPieces:
    def __init__(self, direct: Direct) -> None:
        self.writer = direct.writer

    def write_whole(self, status: int, headers: Headers, body: bytes) -> bool:
        return False


@pytest.mark.parametrize("extensions", [{}, {"extensions": {}}, {"extensions": {"http.response.push": {}}}], ids=str)
def test_another_server_has_no_short_way(extensions: Scope) -> None:
    assert direct_of({"type": "http", **extensions}) is None


async def test_each_request_has_its_own() -> None:
    """The later ones wait behind the first, whose answer the first's way writes."""
    offered = []

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            for step in ("startup", "shutdown"):
                await receive()
                await send({"type": f"lifespan.{step}.complete"})
            return
        direct = scope["extensions"][DIRECT]
        offered.append(direct)
        await asyncio.sleep(0.01)
        assert direct.write_whole(200, [(b"content-length", b"1")], scope["path"][1:].encode())

    async with loopback(application) as url, raw_client(int(url.rpartition(":")[2])) as client:
        await client.send(b"".join(b"GET /%d HTTP/1.1\r\nHost: x\r\n\r\n" % number for number in range(3)))
        for number in range(3):
            assert await client.head() == b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n"
            assert await client.until(b"%d" % number) == b"%d" % number
    assert len(set(map(id, offered))) == 3


async def test_a_small_answer_is_written_past_send(monkeypatch: pytest.MonkeyPatch) -> None:
    async def send(cycle: RequestResponseCycle, message: Any) -> None:
        raise AssertionError(message)

    monkeypatch.setattr(RequestResponseCycle, "send", send)
    async with (
        ScriptedUpstream(json_answer(message(text("hi")))) as upstream,
        running_gateway(Settings(upstream=upstream.origin)) as gateway,
    ):
        answer = await gateway.client.post("/v1/messages", json={})
    assert answer.json() == message(text("hi"))


@pytest.mark.parametrize("tools", [[], [SEARCH]], ids=["proxy", "loop"])
async def test_what_the_client_is_slow_to_read_waits_its_turn(tools: list[Any]) -> None:
    """10 MB, more than all buffers hold: pieces are written at once, held back and sent, in one order."""
    body = {"model": "m", "stream": True, "tools": tools, "messages": [QUESTION]}
    pieces = [f"{number:06}" + "x" * 100_000 for number in range(100)]
    async with (
        ScriptedUpstream(sse_answer(sse(text(*pieces)))) as upstream,
        running_gateway(Settings(upstream=upstream.origin), search=ScriptedSearch()) as gateway,
        raw_client(gateway.port) as client,
    ):
        await client.send(post(json.dumps(body).encode(), "/v1/messages", "connection: close"))
        answer = await client.rest()
    places = [answer.index(piece.encode()) for piece in pieces]
    assert places == sorted(places)


@pytest.mark.parametrize(
    "state",
    [
        {"access_log": True},  # which send writes
        {"default_headers": [(b"server", b"uvicorn")]},
        {"keep_alive": False},
        {"disconnected": True},
        {"write_paused": True},  # send waits until the client has taken what is there
        {"status": 204},
        {"status": 304},
        {"method": "HEAD"},
        {"length": b"3"},
    ],
    ids=str,
)
async def test_what_only_send_knows_to_write_is_for_send(state: dict[str, Any]) -> None:
    transport = _Transport()
    flow = FlowControl(transport)
    if state.get("write_paused"):
        flow.pause_writing()
    cycle = RequestResponseCycle(
        scope={"method": state.get("method", "POST")},  # type: ignore[typeddict-item]  # all of it that is looked at
        transport=transport,
        flow=flow,
        logger=logging.getLogger(),
        access_logger=logging.getLogger(),
        access_log=state.get("access_log", False),
        default_headers=state.get("default_headers", []),
        message_event=asyncio.Event(),
        expect_100_continue=False,
        keep_alive=state.get("keep_alive", True),
        on_response=lambda: None,
    )
    cycle.disconnected = state.get("disconnected", False)
    direct = DirectAnswer(cycle, HeadWithBody(asyncio.get_running_loop(), transport))
    headers = [(b"content-length", state.get("length", b"2"))]
    assert not direct.write_whole(state.get("status", 200), headers, b"{}")
    assert transport.written == b""
    assert not cycle.response_started


class _Transport(asyncio.Transport):
    written = b""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data
