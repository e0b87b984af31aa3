"""The client's side of HTTP: what is one request to a proxy before the gateway is the same one here."""

import asyncio
import json
from typing import Any

import pytest
from pydantic import SecretStr

from gateway.server.strict import MAX_HEAD_BYTES
from gateway.settings import Settings
from gateway.wire.sse import SSEReader
from tests.support.gateway import running_gateway
from tests.support.playbook import SEARCH, asking
from tests.support.raw import post, raw_client
from tests.support.upstream import ScriptedUpstream, json_answer, raw, sse, sse_answer, text

pytestmark = pytest.mark.anyio

BODY = b'{"model":"m"}'
LAST = b"GET /v1/models?last HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"


@pytest.mark.parametrize(
    "wish",
    [
        ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA"),
        ("Connection: keep-alive, upgrade", "Upgrade: websocket"),
    ],
    ids=["h2c", "websocket"],
)
@pytest.mark.parametrize("pause", [None, "head", "body"])
async def test_a_wish_to_upgrade_is_passed_over_and_the_body_stays_a_body(wish: tuple[str, ...], pause: str) -> None:
    request = post(BODY, "/v1/messages", *wish)
    cut = {None: len(request), "head": 40, "body": len(request) - 5}[pause]
    async with (
        ScriptedUpstream(json_answer({})) as upstream,
        running_gateway(Settings(upstream=upstream.origin)) as gateway,
        raw_client(gateway.port) as client,
    ):
        await client.send(request[:cut])
        await asyncio.sleep(0.02)
        await client.send(request[cut:] + LAST)
        assert (await client.rest()).count(b"HTTP/1.1 200 ") == 2
    assert [(seen.target, seen.body) for seen in upstream.requests] == [
        ("/v1/messages", BODY),
        ("/v1/models?last", b""),
    ]
    assert not {name for name, _ in upstream.requests[0].headers} & {b"upgrade", b"connection", b"http2-settings"}


async def test_the_connection_can_still_be_asked_to_close() -> None:
    async with (
        ScriptedUpstream(json_answer({})) as upstream,
        running_gateway(Settings(upstream=upstream.origin)) as gateway,
        raw_client(gateway.port) as client,
    ):
        await client.send(post(BODY, "/v1/messages", "Connection: upgrade, close", "Upgrade: h2c"))
        assert (await client.rest()).count(b"HTTP/1.1 200 ") == 1


@pytest.mark.parametrize(
    "start", [b"GET /v1/models HTTP/1.1\r\nX-A: ", b"GET /v1/models?"], ids=["a header", "the target"]
)
async def test_a_head_that_does_not_end_is_not_read_for_ever(start: bytes) -> None:
    async def pour() -> None:
        await client.send(start)
        for _ in range(100):
            await client.send(b"a" * (MAX_HEAD_BYTES // 8))
            await asyncio.sleep(0.001)

    async with running_gateway(Settings()) as gateway, raw_client(gateway.port) as client:
        with pytest.raises(ConnectionError):
            await pour()


async def test_a_head_over_the_limit_is_431() -> None:
    async with running_gateway(Settings()) as gateway, raw_client(gateway.port) as client:
        await client.send(b"GET /v1/models HTTP/1.1\r\nX-A: " + b"a" * (MAX_HEAD_BYTES - 10))
        await asyncio.sleep(0.02)
        await client.send(b"a" * 20)
        head, _, body = (await client.rest()).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 431 ")
    assert json.loads(body)["error"]["type"] == "invalid_request_error"


async def test_a_long_body_in_short_pieces_is_no_head() -> None:
    body = b'{"model":"m","a":"' + b"a" * 3 * MAX_HEAD_BYTES + b'"}'
    async with (
        ScriptedUpstream(json_answer({})) as upstream,
        running_gateway(Settings(upstream=upstream.origin)) as gateway,
        raw_client(gateway.port) as client,
    ):
        request = post(body)
        for at in range(0, len(request), 10_000):
            await client.send(request[at : at + 10_000])
            await asyncio.sleep(0)
        assert (await client.head()).startswith(b"HTTP/1.1 200 ")
    assert upstream.requests[0].body == body


async def test_a_trailer_is_no_header() -> None:
    settings = Settings(api_keys=(SecretStr("team-a"),))
    request = (
        b"POST /v1/messages HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
        b"2\r\n{}\r\n0\r\nX-Api-Key: team-a\r\n\r\n"
    )
    async with running_gateway(settings) as gateway, raw_client(gateway.port) as client:
        await client.send(request)
        assert (await client.head()).startswith(b"HTTP/1.1 401 ")


async def test_what_is_not_http_behind_a_request_that_waits_does_not_stand_in_the_answer_before() -> None:
    """The client streams an answer, asks again, and sends junk: no second head in the body, and the end of it."""
    words = [f"word {number} " for number in range(100)]
    async with (
        ScriptedUpstream(sse_answer(sse(text(*words)), pace=0.005)) as upstream,
        running_gateway(Settings(upstream=upstream.origin)) as gateway,
        raw_client(gateway.port) as client,
    ):
        await client.send(post(BODY))
        await client.until(b"word 5 ")
        await client.send(post(BODY) + b"\x00junk\r\n\r\n")
        rest = await client.rest()
    assert b"HTTP/1.1" not in rest
    assert b"word 99 " not in rest


# --- the request line and the host ------------------------------------------------------------------------------------

ODD_HEADS = {
    "no host": b"GET /health HTTP/1.1\r\n\r\n",
    "two hosts": b"GET /health HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n",
    "two hosts in HTTP/1.0": b"GET /health HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n",
    "an empty host": b"GET /health HTTP/1.1\r\nHost:\r\n\r\n",
    "a host with a space": b"GET /health HTTP/1.1\r\nHost: a b\r\n\r\n",
    "a host with a path": b"GET /health HTTP/1.1\r\nHost: a/b\r\n\r\n",
    "a host with a user": b"GET /health HTTP/1.1\r\nHost: u@a\r\n\r\n",
    "a port that is none": b"GET /health HTTP/1.1\r\nHost: a:b\r\n\r\n",
    "an address without brackets": b"GET /health HTTP/1.1\r\nHost: ::1\r\n\r\n",
    "HTTP/2.0": b"GET /health HTTP/2.0\r\nHost: a\r\n\r\n",
    "HTTP/0.9": b"GET /health HTTP/0.9\r\nHost: a\r\n\r\n",
    "no version": b"GET /health\r\n\r\n",
    "two spaces before the path": b"GET  /health HTTP/1.1\r\nHost: a\r\n\r\n",
    "two spaces behind it": b"GET /health  HTTP/1.1\r\nHost: a\r\n\r\n",
}


@pytest.mark.parametrize("cut", [None, 5, 21], ids=["at once", "cut in the line", "cut behind it"])
@pytest.mark.parametrize("odd", ODD_HEADS.values(), ids=ODD_HEADS)
async def test_a_head_that_others_may_read_otherwise_is_400(odd: bytes, cut: int | None) -> None:
    async with running_gateway(Settings()) as gateway, raw_client(gateway.port) as client:
        if cut is not None:
            await client.send(odd[:cut])
            await asyncio.sleep(0.01)
        await client.send(odd[cut:] if cut is not None else odd)
        head, _, body = (await client.rest()).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    assert json.loads(body)["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    "first",
    [post(b'{"model":"GET /health HTTP/1.1\\r\\n"}'), b"GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n"],
    ids=["with a body", "without"],
)
@pytest.mark.parametrize("odd", ODD_HEADS.values(), ids=ODD_HEADS)
async def test_behind_another_request_it_is_not_answered(odd: bytes, first: bytes) -> None:
    """What came before it is."""
    async with (
        ScriptedUpstream(json_answer({})) as upstream,
        running_gateway(Settings(upstream=upstream.origin)) as gateway,
        raw_client(gateway.port) as client,
    ):
        await client.send(first + odd)
        answer = await client.rest()
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert answer.count(b"HTTP/1.1 ") == 1
    assert len(upstream.requests) == 1


PLAIN_HEADS = {
    "no host in HTTP/1.0": b"GET /health HTTP/1.0\r\n\r\n",
    "an empty line before it": b"\r\n\r\nGET /health HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
    "a port": b"GET /health HTTP/1.1\r\nHost: a-b.c:80\r\nConnection: close\r\n\r\n",
    "an address": b"GET /health HTTP/1.1\r\nHost: [::1]:80\r\nConnection: close\r\n\r\n",
    "white space around a host": b"GET /health HTTP/1.1\r\nHost: \t a \t\r\nConnection: close\r\n\r\n",
}


@pytest.mark.parametrize("plain", PLAIN_HEADS.values(), ids=PLAIN_HEADS)
@pytest.mark.parametrize("before", [b"", b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n", post(b"{}", "/health")])
async def test_and_what_only_looks_a_little_like_it_is_answered(before: bytes, plain: bytes) -> None:
    async with running_gateway(Settings()) as gateway, raw_client(gateway.port) as client:
        await client.send(before + plain)
        assert b'{"status":"ok"}' in (await client.rest()).rpartition(b"HTTP/1.1 200 OK")[2]


async def test_each_of_many_requests_in_pieces_of_any_length_is_answered() -> None:
    ask = b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n" + post(b'{"x":"GET /health  HTTP/1.1\\r\\n"}', "/v1/messages")
    asked = ask * 3 + b"GET /health HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
    async with (
        ScriptedUpstream(json_answer({})) as upstream,
        running_gateway(Settings(upstream=upstream.origin)) as one,
    ):
        for size in (1, 7, 33, 50, 1000):
            async with raw_client(one.port) as client:
                for at in range(0, len(asked), size):
                    await client.send(asked[at : at + size])
                    await asyncio.sleep(0)
                assert (await client.rest()).count(b"HTTP/1.1 200 OK") == 7


# --- behind a request -------------------------------------------------------------------------------------------------


async def test_what_is_not_http_behind_a_request_that_waits_is_not_its_answer() -> None:
    gate = asyncio.Event()
    async with (
        ScriptedUpstream(raw(gate, b'HTTP/1.1 200 OK\r\ncontent-length: 16\r\n\r\n{"is":"its own"}')) as upstream,
        running_gateway(Settings(upstream=upstream.origin)) as gateway,
        raw_client(gateway.port) as client,
    ):
        await client.send(post(BODY) + b"\x00junk\r\n\r\n")
        await upstream.arrived()
        await client.send(post(BODY))  # which is read no more
        gate.set()
        head, _, body = (await client.rest()).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 ")
    assert b"\r\nconnection: close" in head
    assert body == b'{"is":"its own"}'
    assert len(upstream.requests) == 1


async def test_a_thousand_wishes_to_upgrade_in_one_read_are_passed_over() -> None:
    wish = b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n"
    async with running_gateway(Settings()) as gateway, raw_client(gateway.port) as client:
        await client.send(wish * 1000 + b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert (await client.rest()).count(b"HTTP/1.1 200 ") == 1001


# --- HTTP/1.0 ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tools", [[], [SEARCH]], ids=["proxy", "loop"])
async def test_an_answer_to_http_1_0_has_no_chunks(tools: list[Any]) -> None:
    events = sse(text("one", " two"))
    body = json.dumps(asking(stream=True, tools=tools)).encode()
    ask = b"POST /v1/messages HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
    async with (
        ScriptedUpstream(sse_answer(events, pace=0.001)) as upstream,
        running_gateway(Settings(upstream=upstream.origin)) as gateway,
        raw_client(gateway.port) as client,
    ):
        await client.send(ask + body)
        head, _, got = (await client.rest()).partition(b"\r\n\r\n")
    assert b"transfer-encoding" not in head
    assert b"\r\nconnection: close" in head
    assert [frame.event for frame in SSEReader().feed(got)] == [event["type"] for event in events]


async def test_one_with_a_length_keeps_it() -> None:
    async with (
        ScriptedUpstream(json_answer({"a": 1})) as upstream,
        running_gateway(Settings(upstream=upstream.origin)) as gateway,
        raw_client(gateway.port) as client,
    ):
        await client.send(b"POST /v1/messages HTTP/1.0\r\nContent-Length: 2\r\n\r\n{}")
        head, _, got = (await client.rest()).partition(b"\r\n\r\n")
    assert b"\r\ncontent-length: 7" in head
    assert got == b'{"a":1}'


# --- white space ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("field", ["x-api-key: \t team-a \t", "authorization: Bearer team-a  "])
async def test_white_space_around_a_key_is_no_part_of_it(field: str) -> None:
    settings = Settings(api_keys=(SecretStr("team-a"),))
    async with running_gateway(settings) as gateway, raw_client(gateway.port) as client:
        await client.send(f"GET /metrics HTTP/1.1\r\nHost: x\r\n{field}\r\n\r\n".encode())
        assert (await client.head()).startswith(b"HTTP/1.1 200 ")
