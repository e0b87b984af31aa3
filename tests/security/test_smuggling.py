"""One request is one request and one answer one answer, on both sides: nobody hides another one in it."""

import pytest

from gateway.settings import Settings
from tests.support.gateway import running_gateway
from tests.support.raw import post, raw_client
from tests.support.upstream import Scripted, ScriptedUpstream, json_answer, raw

pytestmark = pytest.mark.anyio

BODY = b'{"model":"m"}'
CHUNKED = b"Transfer-Encoding: chunked"
HIDDEN = b"GET /v1/models?hidden HTTP/1.1\r\nHost: x\r\n\r\n"


def request(*fields: bytes, body: bytes = BODY, version: bytes = b"1.1") -> bytes:
    return b"\r\n".join([b"POST /v1/messages HTTP/" + version, b"Host: x", *fields, b"", body])


@pytest.mark.parametrize(
    "doubtful",
    {
        "both lengths": request(b"Content-Length: 13", CHUNKED, body=b"0\r\n\r\n"),
        "both, the other way round": request(CHUNKED, b"Content-Length: 5", body=b"0\r\n\r\n"),
        "two lengths": request(b"Content-Length: 13", b"Content-Length: 0"),
        "the same length twice": request(b"Content-Length: 13", b"Content-Length: 13"),
        "a list of lengths": request(b"Content-Length: 13, 13"),
        "a signed length": request(b"Content-Length: +13"),
        "a negative length": request(b"Content-Length: -1"),
        "a hexadecimal length": request(b"Content-Length: 0xd"),
        "an empty length": request(b"Content-Length:"),
        "a length beyond all": request(b"Content-Length: 99999999999999999999999"),
        "a space before the colon": request(b"Content-Length : 13"),
        "a tab before the colon": request(b"Transfer-Encoding\t: chunked", body=b"0\r\n\r\n"),
        "a folded header": request(b"X-A: b", b" Content-Length: 0", b"Content-Length: 13"),
        "a folded coding": request(b"Transfer-Encoding:", b" chunked", b"Content-Length: 13"),
        "a line ended by LF": request(b"X-A: b\nContent-Length: 0", b"Content-Length: 13"),
        "a line ended by CR": request(b"X-A: b\rContent-Length: 0", b"Content-Length: 13"),
        "all lines ended by LF": request(b"Content-Length: 13").replace(b"\r\n", b"\n"),
        "a NUL": request(b"X-A: b\x00", b"Content-Length: 13"),
        "an unknown coding": request(b"Transfer-Encoding: xchunked", body=b"0\r\n\r\n"),
        "a coding after chunked": request(b"Transfer-Encoding: chunked, identity", body=b"0\r\n\r\n"),
        "a coding before chunked": request(b"Transfer-Encoding: gzip, chunked", body=b"0\r\n\r\n"),
        "chunked and another": request(
            b"Transfer-Encoding: chunked", b"Transfer-Encoding: identity", body=b"0\r\n\r\n"
        ),
        "chunked twice": request(CHUNKED, CHUNKED, body=b"0\r\n\r\n"),
        "a disguised coding": request(b"Transfer-Encoding: \x0bchunked", body=b"0\r\n\r\n"),
        "a quoted coding": request(b'Transfer-Encoding: "chunked"', body=b"0\r\n\r\n"),
        "chunked in HTTP/1.0": request(CHUNKED, body=b"0\r\n\r\n", version=b"1.0"),
    }.items(),
    ids=lambda item: item[0],
)
async def test_a_request_whose_end_is_in_doubt_ends_its_connection(
    doubtful: tuple[str, bytes],
) -> None:
    async with (
        ScriptedUpstream(json_answer({})) as upstream,
        running_gateway(Settings(upstream=upstream.origin)) as gateway,
        raw_client(gateway.port) as client,
    ):
        await client.send(doubtful[1] + HIDDEN)
        answer = await client.rest()
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert answer.count(b"HTTP/1.1 ") == 1
    assert upstream.requests == []


@pytest.mark.parametrize(
    "chunks",
    {
        "LF for an end": b"d\n" + BODY + b"\n0\n\n",
        "LF in an extension": b"d;a\nb\r\n" + BODY + b"\r\n0\r\n\r\n",
        "a sign": b"+d\r\n" + BODY + b"\r\n0\r\n\r\n",
        "0x": b"0xd\r\n" + BODY + b"\r\n0\r\n\r\n",
        "more than 64 bits": b"1000000000000000d\r\n" + BODY + b"\r\n0\r\n\r\n",
        "too little data": b"20\r\n" + BODY + b"\r\n0\r\n\r\n",
        "too much data": b"3\r\n" + BODY + b"\r\n0\r\n\r\n",
        "a space": b"d \r\n" + BODY + b"\r\n0\r\n\r\n",
    }.items(),
    ids=lambda item: item[0],
)
async def test_chunks_that_others_may_count_otherwise_bring_nothing_upstream(chunks: tuple[str, bytes]) -> None:
    async with (
        ScriptedUpstream(json_answer({})) as upstream,
        running_gateway(Settings(upstream=upstream.origin)) as gateway,
        raw_client(gateway.port) as client,
    ):
        await client.send(request(CHUNKED, body=chunks[1]) + HIDDEN)
        assert (await client.rest()).startswith(b"HTTP/1.1 400 ")
    assert upstream.requests == []


async def test_a_request_within_a_body_stays_a_body() -> None:
    inner = b"0\r\n\r\n" + HIDDEN
    chunked = b"%x;ext=1\r\n%b\r\n0\r\nX-Trailer: 1\r\n\r\n" % (len(inner), inner)
    async with (
        ScriptedUpstream(json_answer({})) as upstream,
        running_gateway(Settings(upstream=upstream.origin)) as gateway,
        raw_client(gateway.port) as client,
    ):
        await client.send(post(inner))
        await client.head()
        await client.until(b"{}")
        await client.send(request(b"Transfer-Encoding: Chunked", b"Connection: close", body=chunked))
        await client.rest()
    assert [(seen.target, seen.body) for seen in upstream.requests] == [("/v1/messages", inner)] * 2
    for seen in upstream.requests:
        assert [value for name, value in seen.headers if name == b"content-length"] == [b"%d" % len(inner)]
        assert seen.header(b"transfer-encoding") is None
        assert seen.header(b"x-trailer") is None


@pytest.mark.parametrize(
    "answer",
    {
        "both lengths": b"content-length: 2\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        "two lengths": b"content-length: 2\r\ncontent-length: 40\r\n\r\n{}",
        "a negative length": b"content-length: -1\r\n\r\n{}",
        "a list of lengths": b"content-length: 2, 2\r\n\r\n{}",
        "a coding after chunked": b"transfer-encoding: chunked, gzip\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        "an unknown coding": b"transfer-encoding: xchunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        "a folded length": b"content-length:\r\n 2\r\n\r\n{}",
        "a space before the colon": b"content-length : 2\r\n\r\n{}",
    }.items(),
    ids=lambda item: item[0],
)
async def test_an_answer_whose_end_is_in_doubt_is_no_answer(answer: tuple[str, bytes]) -> None:
    async with (
        ScriptedUpstream(raw(b"HTTP/1.1 200 OK\r\n" + answer[1], then="keep")) as upstream,
        running_gateway(Settings(upstream=upstream.origin)) as gateway,
    ):
        got = await gateway.client.post("/v1/messages", json={})
    assert got.status_code == 502
    assert got.json()["error"]["type"] == "api_error"


async def test_an_answer_behind_an_answer_is_nobodys() -> None:
    first = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"
    stray: Scripted = raw(first + b'HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{"evil":1}', then="keep")
    async with (
        ScriptedUpstream(stray, json_answer({"second": 1})) as upstream,
        running_gateway(Settings(upstream=upstream.origin)) as gateway,
    ):
        answers = [(await gateway.client.post("/v1/messages", json={})).json() for _ in range(2)]
    assert answers == [{}, {"second": 1}]
    assert upstream.accepted == 2
