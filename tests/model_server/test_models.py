"""Upstream's models in Anthropic's shape, as the SDK reads it."""

import json

import anthropic
import httpx
import pytest
from anthropic.types import ModelInfo

from gateway.errors import InvalidRequest, NotFound
from gateway.model_server.listing import ServedModel, read_listing
from gateway.model_server.models import client_models, find_model, model_info, model_page
from gateway.settings import Settings
from gateway.wire.rewrite import ModelMap
from tests.support.gateway import running_gateway
from tests.support.upstream import Scripted, ScriptedUpstream, SeenRequest, json_answer

VLLM = {
    "object": "list",
    "data": [
        {"id": "qwen3", "object": "model", "created": 1796019709, "owned_by": "vllm", "max_model_len": 40960},
        {"id": "lora", "object": "model", "created": 1796019709, "parent": "qwen3"},
        {"id": "other", "object": "model"},
    ],
}
SERVED = read_listing(200, [], json.dumps(VLLM).encode()).served()
NAMES = ModelMap(
    {"claude-*": "qwen3", "claude-opus-4-8": "other", "small": "other", "gone": "nowhere", "qwen3": "other"}
)


def test_a_model_has_every_field_that_the_sdk_knows() -> None:
    info = model_info(SERVED[0])
    ModelInfo.model_validate(info)
    assert set(info) == set(ModelInfo.model_fields)
    assert info["created_at"] == "2026-11-30T06:21:49Z"
    assert info["max_input_tokens"] == 40960


def test_literal_names_of_the_map_are_listed_and_globs_are_not() -> None:
    # claude-opus-4-8 is listed, but the glob before it matches first: it stands for qwen3.
    listed = {model.id: model.window for model in client_models(SERVED, NAMES)}
    assert listed == {
        "qwen3": 40960,
        "lora": 40960,
        "other": None,
        "claude-opus-4-8": 40960,
        "small": None,
        "gone": None,
    }


@pytest.mark.parametrize(
    ("query", "ids", "more"),
    [
        ({}, "abcde", False),
        ({"limit": "2"}, "ab", True),
        ({"limit": "5"}, "abcde", False),
        ({"limit": "1000"}, "abcde", False),
        ({"limit": "2", "after_id": "b"}, "cd", True),
        ({"limit": "2", "after_id": "d"}, "e", False),
        ({"after_id": "e"}, "", False),
        ({"after_id": "nope"}, "", False),
        ({"limit": "2", "before_id": "d"}, "bc", True),
        ({"limit": "2", "before_id": "c"}, "ab", False),
        ({"before_id": "a"}, "", False),
    ],
)
def test_pages(query: dict[str, str], ids: str, more: bool) -> None:
    page = model_page([ServedModel(name) for name in "abcde"], query)
    assert [entry["id"] for entry in page["data"]] == list(ids)
    assert (page["has_more"], page["first_id"], page["last_id"]) == (more, ids[:1] or None, ids[-1:] or None)


@pytest.mark.parametrize("limit", ["0", "1001", "-1", "x", "", "1e3", "²", "9" * 5000])
def test_a_limit_that_is_none_is_400(limit: str) -> None:
    with pytest.raises(InvalidRequest, match="limit"):
        model_page([], {"limit": limit})


def test_one_model() -> None:
    assert find_model(SERVED, "lora")["id"] == "lora"
    with pytest.raises(NotFound):
        find_model(SERVED, "nope")


@pytest.mark.anyio
async def test_the_sdk_lists_and_retrieves() -> None:
    async with (
        ScriptedUpstream(json_answer(VLLM)) as upstream,
        running_gateway(
            Settings(upstream=upstream.origin, model_map={"claude-x": "qwen3", "org/m": "other"})
        ) as gateway,
        anthropic.AsyncAnthropic(base_url=gateway.url, api_key="k") as client,
    ):
        listed = [model.id async for model in client.models.list(limit=2)]
        one = await client.models.retrieve("claude-x")
        slashed = await client.models.retrieve("org/m")
        with pytest.raises(anthropic.NotFoundError):
            await client.models.retrieve("nope")
    assert listed == ["qwen3", "lora", "other", "claude-x", "org/m"]
    assert (one.id, one.max_tokens, slashed.id) == ("claude-x", 40960, "org/m")
    sent = {(seen.target, seen.header(b"authorization") or seen.header(b"x-api-key")) for seen in upstream.requests}
    assert {target for target, _ in sent} == {"/v1/models"}
    assert all(key in (b"k", b"Bearer k") for _, key in sent)


@pytest.mark.anyio
async def test_other_clients_get_upstreams_own_list() -> None:
    body = json.dumps(VLLM, indent=1).encode()
    async with (
        ScriptedUpstream(json_answer(body)) as upstream,
        running_gateway(Settings(upstream=upstream.origin, model_map={"claude-x": "qwen3"})) as gateway,
    ):
        assert (await gateway.client.get("/v1/models?limit=1")).content == body
    assert upstream.requests[0].target == "/v1/models?limit=1"


@pytest.mark.anyio
async def test_upstreams_error_passes() -> None:
    async with (
        ScriptedUpstream(json_answer(b'{"error":"Unauthorized"}', 401, [("www-authenticate", "Bearer")])) as upstream,
        running_gateway(Settings(upstream=upstream.origin)) as gateway,
    ):
        answer = await gateway.client.get("/v1/models", headers={"anthropic-version": "2023-06-01"})
    assert (answer.status_code, answer.content) == (401, b'{"error":"Unauthorized"}')
    assert answer.headers["www-authenticate"] == "Bearer"


@pytest.mark.anyio
async def test_a_status_that_http_does_not_have_is_no_answer() -> None:
    async with (
        ScriptedUpstream(json_answer({"data": []}, 700)) as upstream,
        running_gateway(Settings(upstream=upstream.origin)) as gateway,
    ):
        answer = await gateway.client.get("/v1/models", headers={"anthropic-version": "2023-06-01"})
    assert (answer.status_code, answer.json()["error"]["type"]) == (502, "api_error")


@pytest.mark.anyio
async def test_each_client_is_told_what_upstream_tells_it() -> None:
    """Whatever is known already: a key that upstream does not know gets its 401, and another key its own list."""

    def answer(request: SeenRequest) -> Scripted:
        key = request.header(b"x-api-key")
        return json_answer(VLLM) if key == b"staff" else json_answer({"data": [{"id": "qwen3"}]}, 200 if key else 401)

    async with ScriptedUpstream(answer) as upstream, running_gateway(Settings(upstream=upstream.origin)) as gateway:

        async def models(credentials: dict[str, str]) -> httpx.Response:
            return await gateway.client.get("/v1/models", headers={"anthropic-version": "2023-06-01", **credentials})

        staff, guest = await models({"x-api-key": "staff"}), await models({"x-api-key": "guest"})
        nobody = await models({})
    assert [model["id"] for model in staff.json()["data"]] == ["qwen3", "lora", "other"]
    assert [model["id"] for model in guest.json()["data"]] == ["qwen3"]
    assert nobody.status_code == 401
