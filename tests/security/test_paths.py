"""No spelling of a path leads upstream to where the gateway does not."""

import json

import pytest

from gateway.settings import Settings
from tests.support.gateway import running_gateway
from tests.support.raw import raw_client
from tests.support.upstream import ScriptedUpstream, json_answer

pytestmark = pytest.mark.anyio

ADMIN = [
    "/v1/load_lora_adapter",
    "/v1/messages/../load_lora_adapter",
    "/v1/messages/..",
    "/v1/messages/%2e%2e/load_lora_adapter",
    "/v1/messages/%2E%2E%2Fload_lora_adapter",
    "/v1/messages/.%2e/load_lora_adapter",
    "/v1/messages/%252e%252e/load_lora_adapter",
    "/v1/messages/%25252e%25252e%25252fload_lora_adapter",
    "/v1/messages/" + "%" + "25" * 40 + "2e./load_lora_adapter",
    "/v1/messages/..%2fload_lora_adapter",
    "/v1/messages/..%5cload_lora_adapter",
    "/v1/messages/..\\load_lora_adapter",
    "/v1/messages\\..\\load_lora_adapter",
    "/v1/messages/..;/load_lora_adapter",
    "/v1/messages/..;a=b/load_lora_adapter",
    "/v1/messages/%2e%2e;/load_lora_adapter",
    "/v1/messages/..%3b/load_lora_adapter",
    "/v1/messages;/../load_lora_adapter",
    "/v1/messages/;/load_lora_adapter",
    "/v1/messages//../load_lora_adapter",
    "/v1//load_lora_adapter",
    "//v1/load_lora_adapter",
    "//evil.example/v1/messages/x",
    "/v1/messages/%00/../load_lora_adapter",
    "/v1/messages/x%00",
    "/v1/messages/x%0d%0aX-Evil:%201",
    "/v1/messages/%2f..%2fload_lora_adapter",
    "/V1/load_lora_adapter",
    "/v1/models%2f..%2fload_lora_adapter",
    "http://evil.example/v1/load_lora_adapter",
    "http://evil.example/v1/messages/../load_lora_adapter",
    "*",
]


@pytest.mark.parametrize("target", ADMIN)
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_an_admin_route_is_nowhere(method: str, target: str) -> None:
    async with (
        ScriptedUpstream(json_answer({})) as upstream,
        running_gateway(Settings(upstream=upstream.origin)) as gateway,
        raw_client(gateway.port) as client,
    ):
        await client.send(f"{method} {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
        head, _, body = (await client.rest()).partition(b"\r\n\r\n")
    assert head[:13] in (b"HTTP/1.1 404 ", b"HTTP/1.1 400 ")
    assert json.loads(body)["type"] == "error"
    assert upstream.requests == []


@pytest.mark.parametrize(
    "line",
    [
        "CONNECT evil.example:80",
        "CONNECT /v1/messages",
        "GET evil.example",
        "GET v1/models",
        "GET ?a",
        "GET /v1/mod\xe9ls",
    ],
)
async def test_a_target_that_is_no_path_is_400(line: str) -> None:
    async with (
        ScriptedUpstream(json_answer({})) as upstream,
        running_gateway(Settings(upstream=upstream.origin)) as gateway,
        raw_client(gateway.port) as client,
    ):
        await client.send(f"{line} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode("latin-1"))
        assert (await client.rest()).startswith(b"HTTP/1.1 400 ")
    assert upstream.requests == []


@pytest.mark.parametrize("target", ["http://evil.example/v1/models", "http://user:word@evil.example:99/v1/models"])
async def test_an_absolute_target_leads_to_upstream_and_nowhere_else(target: str) -> None:
    async with (
        ScriptedUpstream(json_answer({"data": []})) as upstream,
        running_gateway(Settings(upstream=upstream.origin, allowed_hosts=("evil.example",))) as gateway,
        raw_client(gateway.port) as client,
    ):
        await client.send(f"GET {target} HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n".encode())
        assert (await client.rest()).startswith(b"HTTP/1.1 200 ")
    assert upstream.requests[0].target == "/v1/models"
    assert upstream.requests[0].header(b"host") == upstream.origin.removeprefix("http://").encode()


@pytest.mark.parametrize("target", ["/v1/models?x=/../../load_lora_adapter", "/v1/models#/../load_lora_adapter"])
async def test_what_follows_the_path_is_no_path(target: str) -> None:
    async with (
        ScriptedUpstream(json_answer({"data": []})) as upstream,
        running_gateway(Settings(upstream=upstream.origin)) as gateway,
        raw_client(gateway.port) as client,
    ):
        await client.send(f"GET {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
        await client.rest()
    assert upstream.requests[0].target.partition("?")[0] == "/v1/models"
