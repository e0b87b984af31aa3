"""Which server is upstream: asked once, over sockets, and remembered only where upstream could tell."""

import asyncio
from typing import Any

import pytest

from gateway.model_server.dialect import UpstreamDialect
from gateway.upstream import Upstream
from tests.support.upstream import Answer, ScriptedUpstream, json_answer, raw

pytestmark = pytest.mark.anyio

ERROR = {"error": {"message": "no"}}


def served_by(owner: str) -> Answer:
    return json_answer({"object": "list", "data": [{"id": "qwen3", "owned_by": owner}]})


@pytest.mark.parametrize(
    ("answers", "dialect", "asked"),
    [
        ([served_by("vllm")], "vllm", ["/v1/models"]),
        ([served_by("lmdeploy")], "lmdeploy", ["/v1/models"]),
        ([served_by("somebody"), json_answer({"version": "0.32.0"})], "vllm", ["/v1/models", "/version"]),
        ([json_answer(ERROR, 404), json_answer(ERROR, 404)], "vllm", ["/v1/models", "/version"]),
        ([json_answer(b"<html>"), json_answer(b"<html>")], "vllm", ["/v1/models", "/version"]),
    ],
)
async def test_upstream_is_asked_once(answers: list[Answer], dialect: Any, asked: list[str]) -> None:
    async with ScriptedUpstream(*answers) as upstream:
        client = Upstream(upstream.origin)
        found = UpstreamDialect("auto", client)
        headers = [(b"authorization", b"Bearer k")]
        assert [*await asyncio.gather(found.find(headers), found.find(headers))] == [dialect, dialect]
        assert await found.find([]) == dialect
        await client.aclose()
    assert [request.target for request in upstream.requests] == asked
    assert upstream.requests[0].header(b"authorization") == b"Bearer k"
    assert upstream.requests[0].header(b"anthropic-version") is None


@pytest.mark.parametrize(
    "no_answer", [json_answer(ERROR, 401), json_answer(ERROR, 403), json_answer(ERROR, 503), raw(then="close")]
)
async def test_what_says_nothing_about_the_server_is_not_remembered(no_answer: Answer) -> None:
    # A connection closed without an answer is tried once more by the client of upstream.
    async with ScriptedUpstream(no_answer, no_answer) as upstream:
        client = Upstream(upstream.origin)
        found = UpstreamDialect("auto", client)
        assert await found.find([]) == "vllm"
        upstream.answers = (served_by("lmdeploy"),)
        assert await found.find([]) == "lmdeploy"
        await client.aclose()


async def test_an_upstream_that_is_not_there_is_asked_again() -> None:
    async with ScriptedUpstream(served_by("lmdeploy")) as upstream:
        pass
    client = Upstream(upstream.origin)
    found = UpstreamDialect("auto", client)
    assert await found.find([]) == "vllm"
    await client.aclose()


@pytest.mark.parametrize("setting", ["vllm", "lmdeploy"])
async def test_what_the_operator_says_is_not_asked(setting: Any) -> None:
    client = Upstream("http://127.0.0.1:1")
    assert await UpstreamDialect(setting, client).find([]) == setting
    await client.aclose()
