"""Clients that are slow or silent: none of them stays for ever, and none that goes on is dropped."""

import asyncio

import httpx
import pytest

from gateway.app import Gateway
from gateway.handling.watch import GRACE_S
from gateway.server import connection
from gateway.server import serve as server
from gateway.settings import Settings
from tests.support.raw import post, raw_client
from tests.support.upstream import ScriptedUpstream, encode_event, json_answer, raw, sse_answer

pytestmark = pytest.mark.anyio

STALLED_S = 0.2


@pytest.fixture(autouse=True)
def little_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "STALLED_S", STALLED_S)


def port_of(url: str) -> int:
    return int(url.rpartition(":")[2])


async def test_a_client_that_takes_nothing_of_its_answer_is_dropped() -> None:
    flood = sse_answer([encode_event({"type": "ping", "data": "x" * 65536})] * 400, whole=False, then="stall")
    async with (
        ScriptedUpstream(flood) as upstream,
        server.loopback(Gateway(Settings(upstream=upstream.origin))) as url,
        raw_client(port_of(url)) as client,
    ):
        await client.send(post(b"{}"))
        await upstream.closed_by_client()
        async with httpx.AsyncClient(base_url=url, verify=False) as other:
            assert 'outcome="client_gone"' in (await other.get("/metrics")).text


async def test_a_client_that_takes_it_slowly_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    # Longer than kernels take to tell a sender that there is room again.
    monkeypatch.setattr(connection, "STALLED_S", 0.6)
    body = b"x" * 20_000_000
    async with (
        ScriptedUpstream(json_answer(body)) as upstream,
        server.loopback(Gateway(Settings(upstream=upstream.origin))) as url,
        raw_client(port_of(url)) as client,
    ):
        await client.send(post(b"{}", "/v1/messages", "Connection: close"))
        got = await client.head()
        while piece := await client.reader.read(1_000_000):
            got += piece
            await asyncio.sleep(0.005)
    assert got.endswith(b"\r\n\r\n" + body)


@pytest.mark.parametrize("sent", [b"POST /v1/mess", post(b"{}")[:-2], post(b"{}")[:-1]], ids=["head", "body", "rest"])
async def test_a_client_that_sends_half_a_request_is_dropped(sent: bytes) -> None:
    async with (
        ScriptedUpstream(json_answer({})) as upstream,
        server.loopback(Gateway(Settings(upstream=upstream.origin))) as url,
        raw_client(port_of(url)) as client,
    ):
        await client.send(sent)
        assert await client.rest() == b""
        assert upstream.requests == []


async def test_a_client_that_sends_it_slowly_is_not() -> None:
    async with (
        ScriptedUpstream(json_answer({})) as upstream,
        server.loopback(Gateway(Settings(upstream=upstream.origin))) as url,
        raw_client(port_of(url)) as client,
    ):
        request = post(b"{}" + b" " * 500)
        for at in range(0, len(request), 50):
            await client.send(request[at : at + 50])
            await asyncio.sleep(STALLED_S / 8)
        assert b" 200 " in await client.head()
        # And what comes after is its own affair: an answer that takes longer than that is waited for.
        await client.until(b"{}")
        await asyncio.sleep(STALLED_S * 1.5)
        await client.send(request)
        assert b" 200 " in await client.head()


async def test_a_client_that_sends_nothing_at_all_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "KEEP_ALIVE_S", 0.1)
    async with server.loopback(Gateway(Settings())) as url, raw_client(port_of(url)) as client:
        assert await client.rest() == b""


async def test_an_answer_may_take_longer_than_that() -> None:
    async with (
        ScriptedUpstream(sse_answer([b"one", STALLED_S * 2, b"two"])) as upstream,
        server.loopback(Gateway(Settings(upstream=upstream.origin))) as url,
        raw_client(port_of(url)) as client,
    ):
        await client.send(post(b"{}", "/v1/messages", "Connection: close"))
        assert (await client.rest()).endswith(b"3\r\ntwo\r\n0\r\n\r\n")


@pytest.mark.parametrize("after_s", [0, 3 * GRACE_S], ids=["at once", "while it is watched"])
async def test_a_client_that_leaves_with_another_request_behind_is_noticed(after_s: float) -> None:
    """The first request is the one that is being answered."""
    async with (
        ScriptedUpstream(raw(then="stall")) as upstream,
        server.loopback(Gateway(Settings(upstream=upstream.origin))) as url,
    ):
        async with raw_client(port_of(url)) as client:
            await client.send(post(b"{}") + post(b"{}") + post(b"{}"))
            await upstream.arrived()
            await asyncio.sleep(after_s)
        await upstream.closed_by_client()
        async with httpx.AsyncClient(base_url=url, verify=False) as other:
            assert 'outcome="client_gone"' in (await other.get("/metrics")).text
    assert len(upstream.requests) == 1


async def test_what_is_not_http_behind_a_request_does_not_stand_in_its_answer() -> None:
    ping = encode_event({"type": "ping"})
    async with (
        ScriptedUpstream(sse_answer([ping], whole=False, then="stall")) as upstream,
        server.loopback(Gateway(Settings(upstream=upstream.origin))) as url,
        raw_client(port_of(url)) as client,
    ):
        await client.send(post(b"{}"))
        await client.until(ping)
        await client.send(b"\x00\x01 what is this\r\n\r\n")
        assert b"HTTP/1.1" not in await client.rest()
