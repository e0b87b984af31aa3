"""Bytes in, bytes out: what the client sent reaches upstream, what upstream answered reaches the client."""

import asyncio
import gzip
import json
import re
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from gateway.settings import Settings
from tests.support.gateway import running_gateway
from tests.support.playbook import SEARCH, asking
from tests.support.raw import post, raw_client
from tests.support.upstream import (
    Scripted,
    ScriptedUpstream,
    encode_event,
    head,
    json_answer,
    message,
    raw,
    sse,
    sse_answer,
    text,
)

pytestmark = pytest.mark.anyio

BODY = (
    b'{ "model":"qwen3",\n "max_tokens" : 5, "unknown":[1,2.50], "messages":[{"role":"user","content":"h\xc3\xa9"}] }'
)


async def test_the_request_reaches_upstream_as_it_was_sent() -> None:
    async with (
        ScriptedUpstream(json_answer({})) as upstream,
        running_gateway(Settings(upstream=upstream.origin)) as gateway,
    ):
        headers = [("anthropic-beta", "a,b"), ("anthropic-beta", "c"), ("X-App", "cli"), ("cookie", "k=v")]
        await gateway.client.post("/v1/messages?beta=true&x=%20y", content=BODY, headers=headers)
    [seen] = upstream.requests
    assert (seen.method, seen.target, seen.body) == ("POST", "/v1/messages?beta=true&x=%20y", BODY)
    sent = [(name, value) for name, value in seen.headers if name in (b"anthropic-beta", b"x-app", b"cookie")]
    assert sent == [(b"anthropic-beta", b"a,b"), (b"anthropic-beta", b"c"), (b"x-app", b"cli"), (b"cookie", b"k=v")]
    assert seen.header(b"host") == upstream.origin.removeprefix("http://").encode()


async def test_the_answer_reaches_the_client_as_it_was_sent() -> None:
    body = b'{ "id" : "x",\n"content":[] }'
    extra = [
        ("set-cookie", "a=1"),
        ("set-cookie", "b=2"),
        ("x-request-id", "7"),
        ("server", "up"),
        ("date", "then"),
        ("request-id", "req_up"),
    ]
    async with (
        ScriptedUpstream(json_answer(body, headers=extra)) as upstream,
        running_gateway(Settings(upstream=upstream.origin)) as gateway,
    ):
        answer = await gateway.client.post("/v1/messages", content=BODY)
    assert answer.status_code == 200
    assert answer.content == body
    assert answer.headers.multi_items() == [("content-type", "application/json"), *extra, ("content-length", "28")]


@pytest.mark.parametrize(
    ("status", "body", "headers"),
    [
        (400, b'{"error":{"message":"1 validation error","type":"Bad Request","code":400}}', []),
        (404, b'{"type":"error","error":{"type":"NotFoundError","message":"no `nope`"}}', []),
        (429, b'{"error":"slow down"}', [("retry-after", "7")]),
        (500, b"Internal Server Error", []),
        (503, b"<html>unwell</html>", [("retry-after", "1")]),
        (529, b'{"type":"error","error":{"type":"overloaded_error","message":"busy"}}', []),
    ],
)
async def test_error_answers_pass_unchanged(status: int, body: bytes, headers: list[tuple[str, str]]) -> None:
    async with (
        ScriptedUpstream(json_answer(body, status, headers)) as upstream,
        running_gateway(Settings(upstream=upstream.origin)) as gateway,
    ):
        answer = await gateway.client.post("/v1/messages", content=BODY)
    assert (answer.status_code, answer.content) == (status, body)
    assert headers == [(name, value) for name, value in answer.headers.multi_items() if name == "retry-after"]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"   ",
        b'{"model":"qwen3","messages":[',
        b'{"model":"\xff\xfe"}',
        b"\xff\xfe{}",
        b"[" * 100_000,
        b'{"a":' * 50_000 + b"1" + b"}" * 50_000,
        b'[{"model":"qwen3"}]',
        b'"text"',
        b"null",
        b'{"model":"a","model":"b"}',
        b'{"model":"\\ud800","n":NaN}',
    ],
    ids=lambda body: repr(body[:20]),
)
@pytest.mark.parametrize("path", ["/v1/messages", "/v1/messages/count_tokens"])
async def test_a_body_that_nobody_can_read_is_upstreams_to_judge(path: str, body: bytes) -> None:
    async with (
        ScriptedUpstream(json_answer(b"no", 400)) as upstream,
        running_gateway(Settings(upstream=upstream.origin)) as gateway,
    ):
        answer = await gateway.client.post(path, content=body)
    assert (answer.status_code, answer.content) == (400, b"no")
    assert upstream.requests[0].body == body


async def test_a_chunked_request_arrives_whole() -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for at in range(0, len(BODY), 7):
            yield BODY[at : at + 7]

    async with (
        ScriptedUpstream(json_answer({})) as upstream,
        running_gateway(Settings(upstream=upstream.origin)) as gateway,
    ):
        await gateway.client.post("/v1/messages", content=pieces())
    assert upstream.requests[0].body == BODY
    assert upstream.requests[0].header(b"content-length") == str(len(BODY)).encode()


async def test_a_token_reaches_the_client_when_it_leaves_upstream() -> None:
    events = sse(text("one", "two"))
    gate = asyncio.Event()
    script = sse_answer([*events[:3], gate, *events[3:]])
    async with ScriptedUpstream(script) as upstream, running_gateway(Settings(upstream=upstream.origin)) as gateway:
        got = b""
        async with gateway.client.stream("POST", "/v1/messages", content=BODY) as answer:
            assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
            async for chunk in answer.aiter_raw():
                got += chunk
                if got.endswith(encode_event(events[2])):
                    gate.set()
    assert gate.is_set()
    assert got == b"".join(map(encode_event, events))


async def test_an_encoded_body_passes_encoded() -> None:
    body = gzip.compress(b'{"id":"x"}')
    answer_headers = [("content-encoding", "gzip"), ("vary", "accept-encoding")]
    async with (
        ScriptedUpstream(json_answer(body, headers=answer_headers)) as upstream,
        running_gateway(Settings(upstream=upstream.origin)) as gateway,
    ):
        request = {"content": BODY, "headers": {"accept-encoding": "gzip"}}
        async with gateway.client.stream("POST", "/v1/messages", **request) as answer:  # type: ignore[arg-type]
            got = b"".join([chunk async for chunk in answer.aiter_raw()])
    assert (got, answer.headers["content-encoding"]) == (body, "gzip")
    assert upstream.requests[0].header(b"accept-encoding") == b"gzip"


@pytest.mark.parametrize("status", [204, 304])
async def test_an_answer_without_a_body_ends(status: int) -> None:
    script = raw(f"HTTP/1.1 {status} X\r\ncontent-length: 12\r\netag: q\r\n\r\n".encode(), then="keep")
    async with ScriptedUpstream(script) as upstream, running_gateway(Settings(upstream=upstream.origin)) as gateway:
        answer = await gateway.client.get("/v1/models")
    assert (answer.status_code, answer.headers["etag"], answer.content) == (status, "q", b"")


@pytest.mark.parametrize("tools", [[], [SEARCH]], ids=["proxy", "turn"])
@pytest.mark.parametrize("framing", [b"content-length: 5\r\n\r\nhello", b"transfer-encoding: chunked\r\n\r\n0\r\n\r\n"])
@pytest.mark.parametrize("status", [204, 205, 304])
async def test_an_answer_that_may_have_no_body_has_none_and_the_next_one_is_behind_it(
    status: int, framing: bytes, tools: list[Any]
) -> None:
    """Whatever upstream sends with it; the lengths of 204 and 304 are none of the body's that comes."""
    script = raw(b"HTTP/1.1 %d X\r\n%b" % (status, framing), then="keep")
    async with (
        ScriptedUpstream(script) as upstream,
        running_gateway(Settings(upstream=upstream.origin)) as gateway,
        raw_client(gateway.port) as client,
    ):
        await client.send(post(json.dumps(asking(stream=False, tools=tools)).encode()))
        head = await client.head()
        await client.send(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        assert (await client.head()).startswith(b"HTTP/1.1 200 OK\r\n")
    assert head.startswith(b"HTTP/1.1 %d " % status)
    assert b"transfer-encoding" not in head
    assert re.findall(rb"content-length: (\d+)", head) == ([b"0"] if status == 205 else [])


async def test_a_head_request_has_the_headers_of_the_answer_alone() -> None:
    script = raw(b"HTTP/1.1 200 OK\r\ncontent-length: 12\r\n\r\n", then="keep")
    async with ScriptedUpstream(script) as upstream, running_gateway(Settings(upstream=upstream.origin)) as gateway:
        answer = await gateway.client.head("/v1/models")
    assert (upstream.requests[0].method, answer.headers["content-length"]) == ("HEAD", "12")


# --- upstream fails -------------------------------------------------------------------------------------------------


def assert_envelope(answer: httpx.Response, status: int, kind: str) -> None:
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/json"
    value = answer.json()
    assert (value["type"], value["error"]["type"]) == ("error", kind)
    assert "127.0.0.1" not in value["error"]["message"]


async def test_an_upstream_that_cannot_be_reached_is_502() -> None:
    async with ScriptedUpstream() as upstream:
        nobody = upstream.origin
    async with running_gateway(Settings(upstream=nobody)) as gateway:
        assert_envelope(await gateway.client.post("/v1/messages", content=BODY), 502, "api_error")


async def test_an_upstream_that_stalls_is_504() -> None:
    async with ScriptedUpstream(raw(then="stall")) as upstream:
        settings = Settings(upstream=upstream.origin, first_byte_timeout_s=0.05)
        async with running_gateway(settings) as gateway:
            assert_envelope(await gateway.client.post("/v1/messages", content=BODY), 504, "timeout_error")
        await upstream.closed_by_client()


@pytest.mark.parametrize(
    "script",
    [
        raw(then="close"),
        raw(then="reset"),
        raw(b"HTTP/1.1 200 OK\r\ncontent-le", then="close"),
        raw(b"garbage\r\n\r\n"),
        raw(b"HTTP/1.1 999 What\r\ncontent-length: 0\r\n\r\n"),
    ],
    ids=["closed", "reset", "cut in the head", "not HTTP", "no status"],
)
async def test_an_upstream_that_gives_no_answer_is_502(script: Scripted) -> None:
    async with ScriptedUpstream(script) as upstream, running_gateway(Settings(upstream=upstream.origin)) as gateway:
        assert_envelope(await gateway.client.post("/v1/messages", content=BODY), 502, "api_error")


EVENT = encode_event(sse(text("x"))[0])
CUTS = {
    "JSON, closed": raw(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n" + EVENT, then="close"),
    "JSON, reset": raw(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n" + EVENT, 0.05, then="reset"),
    "stream, closed": sse_answer([EVENT], whole=False),
    "stream, reset": sse_answer([EVENT, 0.05], whole=False, then="reset"),
    "stream, stalled": sse_answer([EVENT], whole=False, then="stall"),
}


@pytest.mark.parametrize("script", CUTS.values(), ids=CUTS.keys())
async def test_an_answer_that_breaks_off_breaks_off_for_the_client_too(script: Scripted) -> None:
    async with ScriptedUpstream(script) as upstream:
        settings = Settings(upstream=upstream.origin, idle_timeout_s=0.1)
        async with running_gateway(settings) as gateway:
            got = b""

            async def read() -> None:
                nonlocal got
                async with gateway.client.stream("POST", "/v1/messages", content=BODY) as answer:
                    async for chunk in answer.aiter_raw():
                        got += chunk

            with pytest.raises(httpx.RemoteProtocolError):
                await read()
        assert got == EVENT  # nothing made up: no error event, no end


# --- the client goes ------------------------------------------------------------------------------------------------

HELD = {
    "JSON, before the first byte": (raw(then="stall"), None),
    "JSON, in the middle": (raw(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{", then="stall"), b"{"),
    "stream, before the first event": (sse_answer([], whole=False, then="stall"), b"\r\n\r\n"),
    "stream, after an event": (sse_answer(sse(text("x"))[:2], whole=False, then="stall"), b"content_block_start"),
}


@pytest.mark.parametrize(("script", "seen"), HELD.values(), ids=HELD.keys())
async def test_when_the_client_goes_upstream_is_let_go(script: Scripted, seen: bytes | None) -> None:
    async with (
        ScriptedUpstream(script) as upstream,
        running_gateway(Settings(upstream=upstream.origin)) as gateway,
        raw_client(gateway.port) as client,
    ):
        await client.send(post(BODY))
        await upstream.arrived()
        if seen is not None:
            await client.until(seen)
        client.leave()
        await upstream.closed_by_client(within_s=1)


async def test_a_client_that_goes_while_it_sends_never_reaches_upstream() -> None:
    async with (
        ScriptedUpstream(json_answer({})) as upstream,
        running_gateway(Settings(upstream=upstream.origin)) as gateway,
    ):
        async with raw_client(gateway.port) as client:
            await client.send(post(BODY)[:-5])
            client.leave()
        await gateway.client.post("/v1/messages", content=b"{}")
    assert [request.body for request in upstream.requests] == [b"{}"]


async def test_a_stream_whose_client_stays_is_not_cut() -> None:
    events = sse(text("one two three four five"))
    script = sse_answer(events, pace=0.02)
    async with ScriptedUpstream(script) as upstream, running_gateway(Settings(upstream=upstream.origin)) as gateway:
        for _ in range(2):
            answer = await gateway.client.post("/v1/messages", content=BODY)
            assert answer.content == b"".join(map(encode_event, events))
    assert upstream.accepted == 1  # and its connection serves the next request


# --- the model map in the answer ------------------------------------------------------------------------------------


async def test_the_answer_names_the_model_the_client_asked_for() -> None:
    async with ScriptedUpstream(
        json_answer(message(text("hi"), model="qwen3")),
        sse_answer(sse(text("hi"), model="qwen3")),
        json_answer({"type": "error", "error": {"type": "NotFoundError", "message": "model `qwen3`"}}, 404),
    ) as upstream:
        settings = Settings(upstream=upstream.origin, model_map={"claude-*": "qwen3"})
        async with running_gateway(settings) as gateway:
            request = {"model": "claude-opus-4-8", "max_tokens": 5, "messages": []}
            one = await gateway.client.post("/v1/messages", json=request)
            stream = await gateway.client.post("/v1/messages", json={**request, "stream": True})
            failed = await gateway.client.post("/v1/messages", json=request)
    assert one.json() == message(text("hi"), model="claude-opus-4-8")
    assert stream.content == b"".join(map(encode_event, sse(text("hi"), model="claude-opus-4-8")))
    assert failed.json()["error"]["message"] == "model `qwen3`"
    assert [seen.json["model"] for seen in upstream.requests] == ["qwen3"] * 3
    assert upstream.requests[0].header(b"accept-encoding") == b"identity"


@pytest.mark.parametrize("name", ["claude-opus-4-8", "q"], ids=["longer", "shorter"])
async def test_a_stream_of_a_known_length_has_none_once_its_model_is_named(name: str) -> None:
    stream = b"".join(map(encode_event, sse(text("hi"), model="qwen3")))
    fields = [("content-type", "text/event-stream"), ("content-length", str(len(stream)))]
    async with ScriptedUpstream(raw(head(200, fields) + stream, then="keep")) as upstream:
        settings = Settings(upstream=upstream.origin, model_map={name: "qwen3"})
        async with running_gateway(settings) as gateway:
            answer = await gateway.client.post("/v1/messages", json={"model": name, "stream": True})
    assert answer.content == b"".join(map(encode_event, sse(text("hi"), model=name)))
    assert "content-length" not in answer.headers


async def test_a_json_answer_cut_before_it_could_be_named_is_502() -> None:
    script = raw(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{", then="close")
    async with ScriptedUpstream(script) as upstream:
        settings = Settings(upstream=upstream.origin, model_map={"claude-*": "qwen3"})
        async with running_gateway(settings) as gateway:
            answer = await gateway.client.post("/v1/messages", json={"model": "claude-x"})
    assert_envelope(answer, 502, "api_error")
