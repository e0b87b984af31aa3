"""The model map and the token cap hold for whatever upstream can read, not for the usual spelling alone."""

from typing import Any

import pytest

from gateway.settings import Settings
from tests.support.gateway import running_gateway
from tests.support.playbook import SEARCH
from tests.support.upstream import ScriptedUpstream, json_answer, message, text

pytestmark = pytest.mark.anyio

JSON = {"content-type": "application/json"}
RULES: list[dict[str, Any]] = [
    {"max_tokens_cap": 4096},
    {"max_tokens_cap": "auto"},
    {"model_map": {"claude-*": "qwen3"}},
]
PATHS = ["/v1/messages", "/v1/messages/count_tokens", "/v1/messages?beta=true", "/v1/%6dessages"]
TEXT = '{"model":"claude-x","max_tokens":64000,"messages":[]}'


def upstream() -> ScriptedUpstream:
    return ScriptedUpstream(json_answer(message(text("hi"))))


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("value", ["64000", "64000.0", "6.4e4", '"64000"', '" 64_000 "', '5,"max_tokens":64000'])
@pytest.mark.parametrize("tools", ["[]", f'[{{"type":"web_search_20250305","name":"{SEARCH["name"]}"}}]'])
async def test_no_spelling_of_a_number_evades_the_cap(path: str, value: str, tools: str) -> None:
    body = f'{{"model":"qwen3","max_tokens":{value},"tools":{tools},"messages":[{{"role":"user","content":"hi"}}]}}'
    async with (
        upstream() as server,
        running_gateway(Settings(upstream=server.origin, max_tokens_cap=4096)) as gateway,
    ):
        answer = await gateway.client.post(path, content=body, headers=JSON)
    assert answer.status_code == 200
    assert [request.json["max_tokens"] for request in server.requests] == [4096]


@pytest.mark.parametrize("rule", RULES, ids=["a cap", "the window", "a map"])
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    "encoding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be"]
)
async def test_no_encoding_evades_them(rule: dict[str, Any], path: str, encoding: str) -> None:
    async with upstream() as server, running_gateway(Settings(upstream=server.origin, **rule)) as gateway:
        answer = await gateway.client.post(path, content=TEXT.encode(encoding), headers=JSON)
    assert answer.status_code == 400
    assert "must be JSON in plain UTF-8" in answer.json()["error"]["message"]
    assert server.requests == []


@pytest.mark.parametrize("rule", RULES, ids=["a cap", "the window", "a map"])
@pytest.mark.parametrize(
    "kind", ["", "text/plain", "application/x-www-form-urlencoded", "application/jsonp", "application/vnd.api+json"]
)
async def test_what_is_not_declared_as_json_is_refused(rule: dict[str, Any], kind: str) -> None:
    async with upstream() as server, running_gateway(Settings(upstream=server.origin, **rule)) as gateway:
        answer = await gateway.client.post("/v1/messages", content=TEXT, headers={"content-type": kind})
    assert answer.status_code == 400
    assert answer.json()["error"]["message"].startswith("content-type: must be application/json")
    assert server.requests == []


@pytest.mark.parametrize("kind", ["application/json", "Application/JSON; charset=utf-8", "application/json ;x=y"])
async def test_json_is_known_by_any_of_its_names(kind: str) -> None:
    async with upstream() as server, running_gateway(Settings(upstream=server.origin, max_tokens_cap=9)) as gateway:
        await gateway.client.post("/v1/messages", content=TEXT, headers={"content-type": kind})
    assert [request.json["max_tokens"] for request in server.requests] == [9]


@pytest.mark.parametrize("body", [TEXT.encode("utf-16"), TEXT.encode("utf-8-sig"), b"", b"{", b"\xff"])
async def test_without_rules_any_body_passes_as_it_came(body: bytes) -> None:
    async with upstream() as server, running_gateway(Settings(upstream=server.origin)) as gateway:
        await gateway.client.post("/v1/messages", content=body, headers={"content-type": "text/plain"})
    assert [request.body for request in server.requests] == [body]


async def test_a_name_in_other_letters_is_mapped_all_the_same() -> None:
    body = '{"model":"qwen3","mod\\u0065l":"cl\\u0061ude-x","messages":[]}'
    settings: dict[str, Any] = {"model_map": {"claude-*": "qwen3"}}
    async with upstream() as server, running_gateway(Settings(upstream=server.origin, **settings)) as gateway:
        await gateway.client.post("/v1/messages", content=body, headers=JSON)
    assert [request.json["model"] for request in server.requests] == ["qwen3"]
