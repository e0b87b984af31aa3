"""The client's side of HTTP: what is one request to a proxy before the gateway is the same one here."""

import asyncio
import json

import pytest
from pydantic import SecretStr

from gateway.server.strict import MAX_HEAD_BYTES
from gateway.settings import Settings
from tests.support.gateway import running_gateway
from tests.support.raw import post, raw_client
from tests.support.upstream import ScriptedUpstream, json_answer, sse, sse_answer, text

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
