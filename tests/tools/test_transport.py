"""httpx over the gateway's own connections: what is asked and answered, and how each failure is told."""

import asyncio
import socket

import httpx
import pytest

from gateway.tools.transport import DirectTransport, transport_to
from tests.support.upstream import ScriptedUpstream, json_answer, raw

pytestmark = pytest.mark.anyio

PROXIES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in PROXIES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


def client_of(origin: str, connect_timeout_s: float = 5) -> httpx.AsyncClient:
    transport = transport_to(origin, connect_timeout_s=connect_timeout_s)
    assert isinstance(transport, DirectTransport)
    return httpx.AsyncClient(transport=transport, headers={"x-key": "k"}, base_url=origin)


async def test_requests_and_answers_are_those_of_httpx_on_one_connection() -> None:
    async with (
        ScriptedUpstream(json_answer({"a": 1}, 201, [("x-b", "c")])) as server,
        client_of(server.origin) as client,
    ):
        for _ in range(2):
            answer = await client.post("/search?q=caf%C3%A9", json={"q": "rust"})
            assert (answer.status_code, answer.headers["x-b"], answer.json()) == (201, "c", {"a": 1})
        assert server.connections == 1
    request = server.requests[1]
    assert (request.method, request.target, request.json) == ("POST", "/search?q=caf%C3%A9", {"q": "rust"})
    assert request.header(b"x-key") == b"k"
    assert [name for name, _ in request.headers].count(b"host") == 1
    assert [name for name, _ in request.headers].count(b"content-length") == 1


async def test_a_redirect_is_an_answer() -> None:
    async with (
        ScriptedUpstream(json_answer({}, 302, [("location", "http://127.0.0.1:1/")])) as server,
        client_of(server.origin) as client,
    ):
        assert (await client.get("/")).status_code == 302


async def test_a_server_that_is_not_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    async with client_of(f"http://127.0.0.1:{port}") as client:
        with pytest.raises(httpx.ConnectError):
            await client.get("/")


async def test_a_server_that_is_too_slow_to_connect() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        async with client_of(f"https://127.0.0.1:{silent.getsockname()[1]}", connect_timeout_s=0.05) as client:
            with pytest.raises(httpx.ConnectTimeout):
                await client.get("/")


@pytest.mark.parametrize(
    "cut",
    [
        raw(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf"),
        raw(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nhalf\r\n", then="reset"),
        raw(b""),
        raw(b"SSH-2.0-OpenSSH_9.2\r\n"),
    ],
)
async def test_an_answer_that_is_cut_or_none(cut: object) -> None:
    async with ScriptedUpstream(cut) as server, client_of(server.origin) as client:  # type: ignore[arg-type]
        with pytest.raises(httpx.RemoteProtocolError):
            await client.get("/")


async def test_who_stops_waiting_closes_the_connection() -> None:
    async with (
        ScriptedUpstream(raw(b"HTTP/1.1 200 OK\r\n", then="stall")) as server,
        client_of(server.origin) as client,
    ):
        asking = asyncio.create_task(client.get("/"))
        await server.arrived()
        asking.cancel()
        await server.closed_by_client()


@pytest.mark.parametrize(
    ("variables", "direct"),
    [
        ({}, True),
        ({"HTTPS_PROXY": "http://proxy:3128"}, False),
        ({"ALL_PROXY": "http://proxy:3128"}, False),
        ({"HTTP_PROXY": "http://proxy:3128"}, True),
        ({"HTTPS_PROXY": "http://proxy:3128", "NO_PROXY": "search.example"}, True),
        ({"HTTPS_PROXY": "http://proxy:3128", "NO_PROXY": "other.example"}, False),
    ],
    ids=str,
)
def test_a_proxy_is_httpxs_own_to_use(variables: dict[str, str], direct: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    transport = transport_to("https://api.search.example/v1", connect_timeout_s=1)
    assert isinstance(transport, DirectTransport) == direct
