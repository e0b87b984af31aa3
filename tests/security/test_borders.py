"""What web pages may ask of a gateway on the machine that their browser runs on, and what their browsers are told."""

import json
from typing import Any

import httpx
import pytest
from pydantic import SecretStr

from gateway.settings import Settings
from tests.support.gateway import RunningGateway, running_gateway
from tests.support.playbook import NATIVE, SEARCH, asking
from tests.support.raw import raw_client
from tests.support.search import ScriptedSearch, found
from tests.support.upstream import ScriptedUpstream, json_answer, message, raw, sse, sse_answer, text

pytestmark = pytest.mark.anyio

APP = "https://app.example"
KEYS = (SecretStr("team-a"),)
PREFLIGHT = {"access-control-request-method": "POST", "access-control-request-headers": "x-api-key,content-type"}


def refused(answer: httpx.Response, setting: str) -> bool:
    """Whether it is a 403 in Anthropic's envelope whose sentence names the setting."""
    return answer.status_code == 403 and (
        answer.json()["error"]["type"] == "permission_error" and setting in answer.json()["error"]["message"]
    )


# --- names of the gateway ---------------------------------------------------------------------------------------------

ALLOWED = ("llm.example.com", "*.dev.example")
NAMES = [
    *(
        "localhost",
        "LocalHost:9000",
        "127.0.0.1:9000",
        "[::1]:9000",
        "192.168.1.5",
        "gateway",
        "gateway.",
        "a.localhost",
    ),
    *("nas.local", "llm.corp.internal:80", "box.home.arpa", "llm.example.com", "LLM.example.com:443", "a.dev.example"),
]
FOREIGN = [
    *("evil.example", "evil.example:9000", "evil.example.", "localhost.evil.example", "127.0.0.1.evil.example"),
    *("a.llm.example.com", "evillocal.x", "0177.0.0.1"),
]


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/models", "/metrics", "/openapi.json", "/nowhere"])
@pytest.mark.parametrize("name", [*NAMES, *FOREIGN])
async def test_on_loopback_a_name_of_the_internet_is_refused(name: str, path: str) -> None:
    async with (
        ScriptedUpstream(json_answer({})) as upstream,
        running_gateway(Settings(upstream=upstream.origin, allowed_hosts=ALLOWED)) as gateway,
    ):
        method = "POST" if path == "/v1/messages" else "GET"
        answers = [await gateway.client.request(method, path, headers={"host": name}) for _ in range(2)]
    for answer in answers:
        assert refused(answer, "--allowed-hosts") == (name in FOREIGN)
        assert name in FOREIGN or answer.status_code == (404 if path == "/nowhere" else 200)
    assert len(upstream.requests) == (0 if name in FOREIGN or not path.startswith("/v1") else 2)


@pytest.mark.parametrize(("method", "path"), [("GET", "/health"), ("GET", "/ready"), ("GET", "/"), ("HEAD", "/")])
async def test_what_probes_ask_is_answered_under_any_name(method: str, path: str) -> None:
    async with (
        ScriptedUpstream(json_answer({})) as upstream,
        running_gateway(Settings(upstream=upstream.origin)) as gateway,
    ):
        answer = await gateway.client.request(method, path, headers={"host": "probed.example.com"})
    assert answer.status_code == 200


@pytest.mark.parametrize("settings", [{"host": "0.0.0.0"}, {"host": "192.168.1.5"}, {"api_keys": KEYS}], ids=str)
async def test_elsewhere_or_with_keys_every_name_is_answered(settings: dict[str, Any]) -> None:
    async with (
        ScriptedUpstream(json_answer({})) as upstream,
        running_gateway(Settings(upstream=upstream.origin, **settings)) as gateway,
    ):
        headers = {"host": "llm.example.com", "x-api-key": "team-a"}
        assert (await gateway.client.post("/v1/messages", headers=headers)).status_code == 200


async def test_http_1_0_may_come_without_a_name() -> None:
    async with running_gateway(Settings()) as gateway, raw_client(gateway.port) as client:
        await client.send(b"GET /openapi.json HTTP/1.0\r\n\r\n")
        assert (await client.head()).startswith(b"HTTP/1.1 200 ")


# --- pages ------------------------------------------------------------------------------------------------------------


async def asked_by(origin: str, name: str, settings: dict[str, Any]) -> tuple[httpx.Response, int]:
    """The answer to a page of that origin that asks by that name, and how often upstream was asked."""
    async with (
        ScriptedUpstream(json_answer({})) as upstream,
        running_gateway(Settings(upstream=upstream.origin, **settings)) as gateway,
    ):
        headers = {"origin": origin, "host": name, "x-api-key": "team-a"}
        answer = await gateway.client.post("/v1/messages", headers=headers)
    return answer, len(upstream.requests)


@pytest.mark.parametrize(
    ("origin", "name", "settings"),
    [
        ("http://localhost:3000", "127.0.0.1:9000", {}),
        ("http://[::1]:3000", "localhost:9000", {}),
        ("https://127.0.0.9", "localhost:9000", {}),
        ("http://nas.local:8080", "nas.local:9000", {}),
        ("https://llm.example.com", "LLM.example.com", {"host": "0.0.0.0"}),
        ("https://llm.example.com", "llm.example.com", {"allowed_hosts": ("*",)}),
        (APP, "localhost", {"cors_origins": (APP,)}),
        ("https://x.app.example", "localhost", {"cors_origins": ("https://*.app.example",)}),
        ("http://[2001:db8::1]:3000", "localhost", {"cors_origins": ("http://[2001:db8::1]:3000",)}),
        ("null", "localhost", {"cors_origins": ("null",)}),
        ("vscode-webview://1234", "localhost", {"cors_origins": ("vscode-webview://*",)}),
        ("https://whoever.example", "localhost", {"cors_origins": ("*",)}),
        ("https://whoever.example", "localhost", {"api_keys": KEYS}),
        ("https://whoever.example", "localhost", {"api_keys": KEYS, "cors_origins": (APP,)}),
    ],
)
async def test_a_page_that_may_ask(origin: str, name: str, settings: dict[str, Any]) -> None:
    answer, requests = await asked_by(origin, name, settings)
    assert (answer.status_code, requests) == (200, 1)


@pytest.mark.parametrize(
    ("origin", "name", "settings"),
    [
        ("https://evil.example", "127.0.0.1:9000", {}),
        ("null", "localhost", {}),
        ("", "localhost", {}),
        ("vscode-webview://localhost", "localhost", {}),
        ("https://localhost.evil.example", "localhost", {}),
        ("http://localhost:3000", "llm.corp", {"host": "0.0.0.0"}),
        ("https://evil.example", "localhost", {"cors_origins": (APP,)}),
        (APP + ".evil.example", "localhost", {"cors_origins": (APP,)}),
        ("http://app.example", "localhost", {"cors_origins": (APP,)}),
    ],
)
async def test_a_page_that_may_not(origin: str, name: str, settings: dict[str, Any]) -> None:
    answer, requests = await asked_by(origin, name, settings)
    assert refused(answer, "--cors-origins")
    assert requests == 0


async def test_a_page_elsewhere_runs_no_search_on_this_machine() -> None:
    """A browser sends text/plain across sites without asking first."""
    search = ScriptedSearch(default=found("x"))
    call = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "q"}}
    body = asking(stream=False, tools=[NATIVE], messages=[{"role": "assistant", "content": [call]}])
    async with (
        ScriptedUpstream(json_answer(message(text("hi")))) as upstream,
        running_gateway(Settings(upstream=upstream.origin), search=search) as gateway,
    ):
        headers = {"content-type": "text/plain", "origin": "https://evil.example"}
        answer = await gateway.client.post("/v1/messages", content=json.dumps(body), headers=headers)
    assert refused(answer, "--cors-origins")
    assert (search.calls, upstream.requests) == ([], [])


# --- what a body is declared as ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/messages/count_tokens"])
@pytest.mark.parametrize("declared", ["text/plain", "application/x-www-form-urlencoded", "application/jsonx", ""])
async def test_a_body_not_declared_as_json_goes_to_upstream_as_it_came(declared: str, path: str) -> None:
    body = json.dumps(asking(stream=False, tools=[NATIVE])).encode()
    async with (
        ScriptedUpstream(json_answer({"error": "Unsupported Media Type"}, 415)) as upstream,
        running_gateway(Settings(upstream=upstream.origin), search=ScriptedSearch()) as gateway,
    ):
        answer = await gateway.client.post(path, content=body, headers={"content-type": declared})
    assert answer.status_code == 415
    assert [seen.body for seen in upstream.requests] == [body]


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/messages/count_tokens"])
@pytest.mark.parametrize("rule", [{"model_map": {"a": "b"}}, {"max_tokens_cap": 9}], ids=str)
async def test_with_a_rule_in_force_it_is_400(rule: dict[str, Any], path: str) -> None:
    async with (
        ScriptedUpstream(json_answer({})) as upstream,
        running_gateway(Settings(upstream=upstream.origin, **rule)) as gateway,
    ):
        answer = await gateway.client.post(path, content=b'{"model":"a"}', headers={"content-type": "text/plain"})
    assert (answer.status_code, answer.json()["error"]["type"]) == (400, "invalid_request_error")
    assert "content-type" in answer.json()["error"]["message"]
    assert upstream.requests == []


@pytest.mark.parametrize("declared", ["application/json", "application/json; charset=utf-8", "Application/JSON ;x=y"])
async def test_however_it_is_declared_json_is_read(declared: str) -> None:
    async with (
        ScriptedUpstream(json_answer({})) as upstream,
        running_gateway(Settings(upstream=upstream.origin, model_map={"a": "b"})) as gateway,
    ):
        await gateway.client.post("/v1/messages", content=b'{"model":"a"}', headers={"content-type": declared})
    assert upstream.requests[0].body == b'{"model":"b"}'


# --- preflights -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", [{}, {"api_keys": KEYS}], ids=["no keys", "keys"])
@pytest.mark.parametrize(
    "path", ["/v1/messages", "/v1/messages/count_tokens", "/v1/models", "/v1/models/m", "/v1/chat/completions"]
)
async def test_where_no_origin_is_listed_upstream_answers_a_preflight(path: str, settings: dict[str, Any]) -> None:
    says = raw(b"HTTP/1.1 200 OK\r\naccess-control-allow-origin: *\r\ncontent-length: 2\r\n\r\nOK", then="keep")
    async with (
        ScriptedUpstream(says) as upstream,
        running_gateway(Settings(upstream=upstream.origin, **settings)) as gateway,
    ):
        answer = await gateway.client.options(path, headers={"origin": "http://localhost:3000", **PREFLIGHT})
    assert (answer.status_code, answer.text, answer.headers["access-control-allow-origin"]) == (200, "OK", "*")
    assert [(seen.method, seen.target) for seen in upstream.requests] == [("OPTIONS", path)]
    assert upstream.requests[0].header(b"access-control-request-method") == b"POST"


@pytest.mark.parametrize(("path", "status"), [("/metrics", 405), ("/nowhere", 404), ("/v1/load_lora_adapter", 404)])
async def test_a_preflight_of_what_upstream_is_not_asked_for_goes_nowhere(path: str, status: int) -> None:
    async with (
        ScriptedUpstream(json_answer({})) as upstream,
        running_gateway(Settings(upstream=upstream.origin)) as gateway,
    ):
        answer = await gateway.client.options(path, headers={"origin": "http://localhost:3000", **PREFLIGHT})
    assert answer.status_code == status
    assert upstream.requests == []


@pytest.mark.parametrize("settings", [{}, {"cors_origins": (APP,)}], ids=["none listed", "another listed"])
async def test_a_preflight_of_a_page_that_may_not_ask_is_403(settings: dict[str, Any]) -> None:
    async with (
        ScriptedUpstream(json_answer({})) as upstream,
        running_gateway(Settings(upstream=upstream.origin, **settings)) as gateway,
    ):
        answer = await gateway.client.options("/v1/messages", headers={"origin": "https://evil.example", **PREFLIGHT})
    assert refused(answer, "--cors-origins")
    assert "access-control-allow-origin" not in answer.headers
    assert upstream.requests == []


@pytest.mark.parametrize("keys", [{}, {"api_keys": KEYS}], ids=["no keys", "keys"])
@pytest.mark.parametrize("path", ["/v1/messages", "/v1/models/m", "/v1/embeddings", "/metrics"])
async def test_with_origins_listed_it_is_answered_here_and_needs_no_key(path: str, keys: dict[str, Any]) -> None:
    async with (
        ScriptedUpstream(json_answer({})) as upstream,
        running_gateway(Settings(upstream=upstream.origin, cors_origins=(APP,), **keys)) as gateway,
    ):
        answer = await gateway.client.options(path, headers={"origin": APP, **PREFLIGHT})
    assert (answer.status_code, answer.content) == (204, b"")
    assert answer.headers["access-control-allow-origin"] == APP
    assert "POST" in answer.headers["access-control-allow-methods"].split(", ")
    assert answer.headers["access-control-allow-headers"] == "x-api-key,content-type"
    assert answer.headers["vary"] == "origin"
    assert upstream.requests == []


async def test_an_origin_that_is_not_listed_is_allowed_nothing_though_there_are_keys() -> None:
    upstream_says = json_answer({}, headers=[("access-control-allow-origin", "*")])
    async with (
        ScriptedUpstream(upstream_says) as upstream,
        running_gateway(Settings(upstream=upstream.origin, cors_origins=(APP,), api_keys=KEYS)) as gateway,
    ):
        page = {"origin": "https://other.example", "x-api-key": "team-a"}
        preflight = await gateway.client.options("/v1/messages", headers={**page, **PREFLIGHT})
        answer = await gateway.client.post("/v1/messages", headers=page)
    for one in (preflight, answer):
        assert "access-control-allow-origin" not in one.headers
        assert one.headers["vary"] == "origin"
    assert answer.status_code == 200


async def test_options_that_is_no_preflight_is_as_it_was() -> None:
    async with running_gateway(Settings(cors_origins=("*",))) as gateway:
        answer = await gateway.client.options("/v1/messages", headers={"origin": APP})
    assert answer.status_code == 405
    assert answer.headers["access-control-allow-origin"] == APP


# --- answers ----------------------------------------------------------------------------------------------------------


def marked(answer: httpx.Response) -> bool:
    """Whether a page of a listed origin may read the answer, and its request's id."""
    fields = answer.headers
    return (
        fields.get_list("access-control-allow-origin") == [APP]
        and "origin" in fields["vary"].lower().split(", ")
        and fields["access-control-expose-headers"] == "request-id"
    )


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("tools", [[], [SEARCH]], ids=["proxy", "turn"])
async def test_every_answer_to_a_listed_origin_says_so(tools: list[Any], stream: bool) -> None:
    own = [("access-control-allow-origin", "*"), ("vary", "accept-encoding")]
    blocks = message(text("hi"))
    says = sse_answer(sse(text("hi")), headers=own) if stream else json_answer(blocks, headers=own)
    async with (
        ScriptedUpstream(says, json_answer({}, 404, headers=own)) as upstream,
        running_gateway(Settings(upstream=upstream.origin, cors_origins=(APP,)), search=ScriptedSearch()) as gateway,
    ):
        client = gateway.client
        body = asking(stream=stream, tools=tools)
        for status in (200, 404):
            answer = await client.post("/v1/messages", json=body, headers={"origin": APP})
            assert answer.status_code == status
            assert marked(answer)
        for path in ("/v1/models", "/health", "/metrics", "/nowhere", "/v1/messages"):
            assert marked(await client.get(path, headers={"origin": APP}))
        # Who is no page is told nothing of it.
        assert "access-control-expose-headers" not in (await client.post("/v1/messages", json=body)).headers


async def test_errors_of_the_gateways_own_say_so_too() -> None:
    async with ScriptedUpstream() as nobody:
        upstream = nobody.origin
    settings = Settings(upstream=upstream, cors_origins=(APP,), api_keys=KEYS, max_body_bytes=100)
    async with running_gateway(settings) as gateway:
        statuses = {}
        for content, key in ((b"{}", "other"), (b"x" * 101, "team-a"), (b"{}", "team-a")):
            headers = {"origin": APP, "x-api-key": key}
            answer = await gateway.client.post("/v1/messages", content=content, headers=headers)
            statuses[answer.status_code] = marked(answer)
    assert statuses == {401: True, 413: True, 502: True}


async def test_a_page_reads_a_stream_of_many_events_whole() -> None:
    events = sse(text(*(f"word {number} " for number in range(50))))
    async with (
        ScriptedUpstream(sse_answer(events, pace=0.001)) as upstream,
        running_gateway(Settings(upstream=upstream.origin, cors_origins=(APP,))) as gateway,
    ):
        first = await _texts(gateway, {"origin": APP})
        other = await _texts(gateway, {})
    assert first == other


async def _texts(gateway: RunningGateway, headers: dict[str, str]) -> bytes:
    body = asking(stream=True, tools=[])
    return (await gateway.client.post("/v1/messages", json=body, headers=headers)).content
