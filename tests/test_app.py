"""Which request goes where, who may ask, and how each one ends."""

import asyncio
import json
from typing import Any

import httpx
import pytest
from pydantic import SecretStr

from gateway.app import Gateway
from gateway.server.serve import loopback
from gateway.settings import Settings
from tests.support.eventually import eventually
from tests.support.gateway import RunningGateway, running_gateway
from tests.support.playbook import SEARCH
from tests.support.raw import post, raw_client
from tests.support.search import Held, ScriptedSearch, found
from tests.support.upstream import (
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

KEYS = (SecretStr("team-a"), SecretStr("team-b"))


def error_of(answer: httpx.Response) -> tuple[int, str]:
    """Status and error type of an answer in Anthropic's envelope."""
    value = answer.json()
    assert value["type"] == "error"
    assert value["error"]["message"]
    return answer.status_code, value["error"]["type"]


async def counted(gateway: RunningGateway, **labels: str) -> float:
    """The requests counted under these labels."""
    text = (await gateway.client.get("/metrics", headers={"x-api-key": "team-a"})).text
    total = 0.0
    for line in text.splitlines():
        if line.startswith("messages_gateway_requests_total{") and all(f'{k}="{v}"' in line for k, v in labels.items()):
            total += float(line.rpartition(" ")[2])
    return total


# --- routes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v1/messages/count_tokens"),
        ("GET", "/v1/models"),
        ("GET", "/v1/models/qwen3"),
        ("GET", "/v1/models/Qwen%2FQwen3-8B"),
        ("POST", "/v1/messages/batches"),
        ("GET", "/v1/messages/batches/b1/results"),
        ("DELETE", "/v1/messages/batches/b1"),
        ("POST", "/v1/chat/completions"),
        ("POST", "/v1/completions"),
        ("POST", "/v1/responses"),
        ("GET", "/v1/responses/r1"),
        ("POST", "/v1/embeddings"),
    ],
)
async def test_what_is_proxied(method: str, path: str) -> None:
    async with (
        ScriptedUpstream(json_answer({"from": "upstream"})) as upstream,
        running_gateway(Settings(upstream=upstream.origin)) as gateway,
    ):
        answer = await gateway.client.request(method, path + "?q=1")
    assert answer.json() == {"from": "upstream"}
    assert [(seen.method, seen.target) for seen in upstream.requests] == [(method, path + "?q=1")]


@pytest.mark.parametrize(
    "path",
    [
        "/v1/load_lora_adapter",
        "/scale_elastic_ep",
        "/v1",
        "/v1/",
        "/version",
        "/v2/messages",
        "/v1/messages/",
        "/v1/models/",
        "//v1/messages",
        "/v1//models",
        "/v1/messages/../load_lora_adapter",
        "/v1/messages/%2e%2e/load_lora_adapter",
        "/v1/messages/%2E./load_lora_adapter",
        "/v1/messages/..%2fload_lora_adapter",
        "/v1/messages/%252e%252e/load_lora_adapter",
        "/v1/messages/..%5cload_lora_adapter",
        "/v1/messages/./batches",
        "/v1/chat/completions/x",
        "/v1/embeddings%2f..%2fload_lora_adapter",
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_everything_else_is_404(method: str, path: str) -> None:
    async with (
        ScriptedUpstream(json_answer({})) as upstream,
        running_gateway(Settings(upstream=upstream.origin)) as gateway,
        raw_client(gateway.port) as client,
    ):
        await client.send(f"{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
        head, _, body = (await client.rest()).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 404 ")
    assert json.loads(body)["error"]["type"] == "not_found_error"
    assert upstream.requests == []


async def test_the_operator_says_what_else_is_proxied() -> None:
    async with ScriptedUpstream(json_answer({})) as upstream:
        settings = Settings(upstream=upstream.origin, proxy_paths=("/tokenize", "/v1/audio/*"))
        async with running_gateway(settings) as gateway:
            for path, status in {"/tokenize": 200, "/v1/audio/speech": 200, "/v1/embeddings": 404}.items():
                assert (await gateway.client.post(path)).status_code == status


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", "/v1/messages", {"POST"}),
        ("DELETE", "/v1/messages", {"POST"}),
        ("OPTIONS", "/v1/messages", {"POST"}),
        ("GET", "/v1/messages/count_tokens", {"POST"}),
        ("POST", "/v1/models", {"GET", "HEAD"}),
        ("POST", "/health", {"GET", "HEAD"}),
        ("PUT", "/", {"GET", "HEAD"}),
    ],
)
async def test_a_wrong_method_is_405(method: str, path: str, allowed: set[str]) -> None:
    async with running_gateway(Settings()) as gateway:
        answer = await gateway.client.request(method, path)
    assert error_of(answer) == (405, "invalid_request_error")
    assert set(answer.headers["allow"].split(", ")) == allowed


async def test_an_encoded_path_is_the_path_it_stands_for() -> None:
    async with ScriptedUpstream(json_answer(message(text("hi")))) as upstream:
        search = ScriptedSearch()
        async with running_gateway(Settings(upstream=upstream.origin), search=search) as gateway:
            answer = await gateway.client.post("/v1/%6Dessages", json={"model": "qwen3", "messages": []})
    assert answer.json() == message(text("hi"))


async def test_a_gateway_says_that_it_is_here() -> None:
    async with running_gateway(Settings(api_keys=KEYS)) as gateway:
        assert (await gateway.client.head("/")).status_code == 200
        assert (await gateway.client.head("/api/hello")).status_code == 200
        assert (await gateway.client.get("/")).json()["name"] == "messages-gateway"
        assert (await gateway.client.get("/health")).json() == {"status": "ok"}
        assert (await gateway.client.get("/openapi.json")).json()["openapi"] == "3.1.0"


@pytest.mark.parametrize(
    ("script", "status"),
    [
        (raw(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"), 200),
        (json_answer({}, 404), 200),
        (json_answer({}, 503), 503),
    ],
    ids=["well", "has no such path, but is there", "unwell"],
)
async def test_ready_tells_whether_upstream_is(script: Any, status: int) -> None:
    async with (
        ScriptedUpstream(script) as upstream,
        running_gateway(Settings(upstream=upstream.origin, api_keys=KEYS)) as gateway,
    ):
        answer = await gateway.client.get("/ready")
        assert upstream.requests[0].target == "/health"
    assert answer.status_code == status


async def test_a_gateway_without_upstream_is_not_ready() -> None:
    async with ScriptedUpstream() as upstream:
        nobody = upstream.origin
    async with running_gateway(Settings(upstream=nobody)) as gateway:
        assert error_of(await gateway.client.get("/ready")) == (503, "api_error")


async def test_what_is_not_http_gets_the_envelope_too() -> None:
    async with running_gateway(Settings()) as gateway, raw_client(gateway.port) as client:
        await client.send(b"GARBAGE\r\n\r\n")
        head, _, body = (await client.rest()).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    assert json.loads(body)["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    "head",
    [
        b"POST /v1/messages HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"POST /v1/messages HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
        b"POST /v1/messages HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        b"POST /v1/messages HTTP/1.1\r\nHost: x\r\nTransfer-Encoding : chunked\r\n\r\n",
    ],
)
async def test_a_request_of_two_lengths_goes_nowhere(head: bytes) -> None:
    async with (
        ScriptedUpstream(json_answer({})) as upstream,
        running_gateway(Settings(upstream=upstream.origin)) as gateway,
        raw_client(gateway.port) as client,
    ):
        await client.send(head + b"0\r\n\r\nGET /v1/models HTTP/1.1\r\n\r\n")
        assert (await client.head()).startswith(b"HTTP/1.1 400 ")
    assert upstream.requests == []


# --- size -----------------------------------------------------------------------------------------------------------


async def test_a_body_over_the_limit_is_413_before_it_is_sent() -> None:
    async with (
        ScriptedUpstream(json_answer({})) as upstream,
        running_gateway(Settings(upstream=upstream.origin, max_body_bytes=10)) as gateway,
        raw_client(gateway.port) as client,
    ):
        await client.send(b"POST /v1/messages HTTP/1.1\r\nHost: x\r\nContent-Length: 11\r\n\r\n")
        assert (await client.head()).startswith(b"HTTP/1.1 413 ")
    assert upstream.requests == []


async def test_a_chunked_body_over_the_limit_is_413() -> None:
    async def pieces() -> Any:
        for _ in range(3):
            yield b"12345"

    async with (
        ScriptedUpstream(json_answer({})) as upstream,
        running_gateway(Settings(upstream=upstream.origin, max_body_bytes=10)) as gateway,
    ):
        answer = await gateway.client.post("/v1/messages", content=pieces())
        assert error_of(answer) == (413, "request_too_large")
        assert (await gateway.client.post("/v1/messages", content=b"1234567890")).status_code == 200
    assert [seen.body for seen in upstream.requests] == [b"1234567890"]


# --- keys -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "headers",
    [
        {"x-api-key": "team-a"},
        {"x-api-key": "team-b"},
        {"authorization": "Bearer team-b"},
        {"authorization": "bearer  team-a"},
        {"x-api-key": "other", "authorization": "Bearer team-a"},
    ],
)
async def test_a_client_with_a_key_is_served_and_its_key_stays_here(headers: dict[str, str]) -> None:
    async with (
        ScriptedUpstream(json_answer({})) as upstream,
        running_gateway(Settings(upstream=upstream.origin, api_keys=KEYS)) as gateway,
    ):
        for path in ("/v1/messages", "/v1/messages/count_tokens", "/v1/embeddings"):
            assert (await gateway.client.post(path, headers=headers)).status_code == 200
    for seen in upstream.requests:
        assert seen.header(b"x-api-key") is None
        assert seen.header(b"authorization") is None


@pytest.mark.parametrize(
    "headers",
    [{}, {"x-api-key": ""}, {"x-api-key": "team-"}, {"authorization": "Basic team-a"}, {"authorization": "team-a"}],
)
@pytest.mark.parametrize(
    "path", ["/v1/messages", "/v1/messages/count_tokens", "/v1/models", "/v1/embeddings", "/metrics"]
)
async def test_a_client_without_one_is_401(path: str, headers: dict[str, str]) -> None:
    async with (
        ScriptedUpstream(json_answer({})) as upstream,
        running_gateway(Settings(upstream=upstream.origin, api_keys=KEYS)) as gateway,
    ):
        method = "GET" if path in ("/v1/models", "/metrics") else "POST"
        answer = await gateway.client.request(method, path, headers=headers)
    assert error_of(answer) == (401, "authentication_error")
    assert answer.headers["x-should-retry"] == "false"
    assert "team-a" not in answer.text
    assert upstream.requests == []


async def test_without_gateway_keys_the_clients_credentials_go_upstream() -> None:
    async with (
        ScriptedUpstream(json_answer({})) as upstream,
        running_gateway(Settings(upstream=upstream.origin)) as gateway,
    ):
        await gateway.client.post("/v1/messages", headers={"x-api-key": "k", "authorization": "Bearer t"})
    assert upstream.requests[0].header(b"x-api-key") == b"k"
    assert upstream.requests[0].header(b"authorization") == b"Bearer t"


async def test_the_upstream_key_goes_in_their_place() -> None:
    async with ScriptedUpstream(json_answer({"data": []})) as upstream:
        settings = Settings(upstream=upstream.origin, upstream_api_key=SecretStr("up"), api_keys=KEYS)
        async with running_gateway(settings) as gateway:
            headers = {"x-api-key": "team-a", "anthropic-version": "2023-06-01"}
            await gateway.client.post("/v1/messages", headers=headers)
            await gateway.client.get("/v1/models", headers=headers)
            await gateway.client.get("/ready")
    assert [seen.header(b"authorization") for seen in upstream.requests] == [b"Bearer up"] * 3
    assert [seen.header(b"x-api-key") for seen in upstream.requests] == [None] * 3


# --- turns ----------------------------------------------------------------------------------------------------------

SEARCHING = {
    "model": "qwen3",
    "max_tokens": 50,
    "messages": [{"role": "user", "content": "news?"}],
    "tools": [SEARCH],
}


async def test_a_request_with_a_gateway_tool_is_answered_by_the_loop() -> None:
    async with ScriptedUpstream(
        json_answer(message(tool_use("web_search", {"query": "news"}))), json_answer(message(text("None.")))
    ) as upstream:
        search = ScriptedSearch(default=found("No results."))
        async with running_gateway(Settings(upstream=upstream.origin), search=search) as gateway:
            answer = await gateway.client.post("/v1/messages", json=SEARCHING)
            assert await counted(gateway, route="/v1/messages", outcome="ok", status="2xx") == 1
    assert [block["text"] for block in answer.json()["content"]] == ["None."]
    assert search.queries == ["news"]
    assert search.closed


async def test_a_turn_goes_by_the_model_map_too() -> None:
    async with ScriptedUpstream(sse_answer(sse(text("hi")))) as upstream:
        settings = Settings(upstream=upstream.origin, model_map={"claude-*": "qwen3"}, max_tokens_cap=20)
        async with running_gateway(settings, search=ScriptedSearch()) as gateway:
            request = {**SEARCHING, "model": "claude-x", "stream": True}
            answer = await gateway.client.post("/v1/messages", json=request)
    assert (upstream.requests[0].json["model"], upstream.requests[0].json["max_tokens"]) == ("qwen3", 20)
    assert '"model":"claude-x"' in answer.text


async def test_count_tokens_of_a_typed_tool_is_translated() -> None:
    request = {
        "model": "claude-x",
        "messages": [{"role": "user", "content": "hi"}],
        "tools": [{"type": "web_search_20250305", "name": "web_search"}],
    }
    async with ScriptedUpstream(json_answer({"input_tokens": 7})) as upstream:
        settings = Settings(upstream=upstream.origin, model_map={"claude-*": "qwen3"})
        async with running_gateway(settings) as gateway:
            answer = await gateway.client.post("/v1/messages/count_tokens", json=request)
    assert answer.json() == {"input_tokens": 7}
    sent = upstream.requests[0].json
    assert sent["model"] == "qwen3"
    assert sent["tools"][0]["input_schema"]["properties"]["query"]


async def test_a_search_is_let_go_when_the_client_goes() -> None:
    held = Held(found("late"))
    search = ScriptedSearch(default=held)
    async with (
        ScriptedUpstream(json_answer(message(tool_use("web_search", {"query": "news"})))) as upstream,
        running_gateway(Settings(upstream=upstream.origin), search=search) as gateway,
    ):
        async with raw_client(gateway.port) as client:
            await client.send(post(json.dumps(SEARCHING).encode()))
            await asyncio.wait_for(held.started.wait(), 5)
            client.leave()
            await eventually(lambda: search.cancelled == ["news"], within_s=1)
        assert await counted(gateway, outcome="client_gone") == 1


# --- endings --------------------------------------------------------------------------------------------------------


async def test_an_unexpected_error_is_500_and_tells_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> None:
        raise KeyError("the prompt of team-a")

    monkeypatch.setattr("gateway.handling.messages.classify", fail)
    async with running_gateway(Settings()) as gateway:
        answer = await gateway.client.post("/v1/messages", json={})
        assert error_of(answer) == (500, "api_error")
        assert await counted(gateway, outcome="gateway_error", status="5xx") == 1
    assert "prompt" not in answer.text
    log = capsys.readouterr()
    assert "KeyError" in log.out + log.err
    assert "the prompt of team-a" not in log.out + log.err


async def test_every_request_has_one_outcome() -> None:
    answers = [
        json_answer({}),
        json_answer({}, 404),
        json_answer({}, 500),
        raw(b"garbage\r\n\r\n"),
        raw(then="stall"),
        sse_answer([b"x"], whole=False),
        sse_answer([b'event: error\ndata: {"type":"error"}\n\n']),
    ]
    async with ScriptedUpstream(*answers) as upstream:
        settings = Settings(upstream=upstream.origin, first_byte_timeout_s=0.05)
        async with running_gateway(settings) as gateway:
            for _ in answers[:5]:
                await gateway.client.post("/v1/messages")
            with pytest.raises(httpx.RemoteProtocolError):
                await gateway.client.post("/v1/messages")
            await gateway.client.post("/v1/messages")
            outcomes = ("ok", "client_error", "upstream_error", "timeout", "cut")
            seen = {outcome: await counted(gateway, route="/v1/messages", outcome=outcome) for outcome in outcomes}
            assert seen == {"ok": 1, "client_error": 1, "upstream_error": 3, "timeout": 1, "cut": 1}
            assert await counted(gateway, route="/v1/messages") == len(answers)
            assert "messages_gateway_requests_in_flight 1.0" in (await gateway.client.get("/metrics")).text


async def test_a_request_that_outlives_the_servers_patience_is_told() -> None:
    async with ScriptedUpstream(raw(then="stall")) as upstream, httpx.AsyncClient(timeout=5) as client:
        async with loopback(Gateway(Settings(upstream=upstream.origin)), drain_s=0.05) as url:
            pending = asyncio.create_task(client.post(url + "/v1/messages"))
            await upstream.arrived()
        answer = await pending
        await upstream.closed_by_client(within_s=1)
    assert error_of(answer) == (529, "overloaded_error")
