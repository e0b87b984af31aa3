"""The description says what is there, and what is there answers as described."""

from typing import Any

import pytest

from gateway.openapi import describe
from gateway.routes import ROUTES, operations
from gateway.settings import DEFAULT_PROXY_PATHS, Settings
from tests.support.gateway import running_gateway
from tests.support.upstream import ScriptedUpstream, json_answer, message, text

DOCUMENT = describe(operations(), DEFAULT_PROXY_PATHS)
OPERATIONS = [(path, method) for path, methods in DOCUMENT["paths"].items() for method in methods]


def test_every_route_is_described() -> None:
    assert set(DOCUMENT["paths"]) == {*(route.path for route in ROUTES), "/v1/models/{model_id}"}


def test_every_reference_leads_somewhere() -> None:
    def references(value: Any) -> list[str]:
        if isinstance(value, dict):
            return [
                found for key, inner in value.items() for found in ([inner] if key == "$ref" else references(inner))
            ]
        return [found for inner in value for found in references(inner)] if isinstance(value, list) else []

    for reference in references(DOCUMENT):
        target: Any = DOCUMENT
        for step in reference.removeprefix("#/").split("/"):
            target = target[step]
        assert target["type"] == "object"


@pytest.mark.anyio
@pytest.mark.parametrize(("path", "method"), OPERATIONS)
async def test_what_is_described_answers_as_described(path: str, method: str) -> None:
    if path.startswith("/v1/models"):
        upstream_says = json_answer({"data": [{"id": "qwen3"}]})
    else:
        upstream_says = json_answer(message(text("hi")))
    async with (
        ScriptedUpstream(upstream_says) as upstream,
        running_gateway(Settings(upstream=upstream.origin)) as gateway,
    ):
        url = path.replace("{model_id}", "qwen3")
        body = {"model": "qwen3", "messages": []} if method == "post" else None
        answer = await gateway.client.request(method, url, json=body, headers={"anthropic-version": "2023-06-01"})
    described = DOCUMENT["paths"][path][method]["responses"]["200"].get("content", {})
    assert answer.status_code == 200
    assert answer.headers["content-type"].partition(";")[0] in described or method == "head"
