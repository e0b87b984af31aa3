"""The model map and the token cap, on a request's way upstream."""

from typing import Any

import pytest

from gateway.model_server import ModelRules, ModelServer
from gateway.settings import Settings
from gateway.wire.rewrite import ModelMap
from tests.support.gateway import running_gateway
from tests.support.upstream import Scripted, ScriptedUpstream, json_answer

pytestmark = pytest.mark.anyio


def listing(**windows: int) -> Scripted:
    return json_answer({"data": [{"id": name, "max_model_len": window} for name, window in windows.items()]})


@pytest.mark.parametrize(
    ("cap", "body", "after", "asked"),
    [
        (None, b'{"model":"claude","max_tokens":9000}', b'{"model":"qwen3","max_tokens":9000}', 0),
        (100, b'{"model":"claude","max_tokens":9000}', b'{"model":"qwen3","max_tokens":100}', 0),
        ("auto", b'{"model":"claude","max_tokens":9000}', b'{"model":"qwen3","max_tokens":4096}', 1),
        ("auto", b'{"model":"claude","max_tokens":5}', b'{"model":"qwen3","max_tokens":5}', 1),
        ("auto", b'{"model":"claude"}', b'{"model":"qwen3"}', 0),
        ("auto", b'{"model":5,"max_tokens":9000}', b'{"model":5,"max_tokens":9000}', 0),
        ("auto", b'{"max_tokens":9000}', b'{"max_tokens":9000}', 0),
        ("auto", b"[1]", b"[1]", 0),
    ],
)
async def test_map_and_cap_together(cap: Any, body: bytes, after: bytes, asked: int) -> None:
    async with ScriptedUpstream(listing(qwen3=4096)) as server:
        upstream = ModelServer(server.origin)
        rules = ModelRules(ModelMap({"claude": "qwen3"}), cap, upstream)
        sent, client_model = await rules.apply(body, [(b"content-type", b"application/json")])
        await upstream.aclose()
    assert sent == after
    assert client_model == ("claude" if b'"qwen3"' in after else None)
    assert len(server.requests) == asked


async def test_a_request_for_more_than_the_window_is_lowered_on_its_way() -> None:
    async with ScriptedUpstream(listing(qwen3=40960), json_answer({"model": "qwen3"})) as upstream:
        settings = Settings(upstream=upstream.origin, model_map={"claude-*": "qwen3"}, max_tokens_cap="auto")
        async with running_gateway(settings) as gateway:
            request = {
                "model": "claude-x",
                "max_tokens": 64000,
                "thinking": {"type": "enabled", "budget_tokens": 63999},
            }
            answer = await gateway.client.post("/v1/messages", json=request, headers={"authorization": "Bearer t"})
    listed, sent = upstream.requests
    assert listed.header(b"authorization") == b"Bearer t"
    thinking = {"type": "enabled", "budget_tokens": 40959}
    assert sent.json == {"model": "qwen3", "max_tokens": 40960, "thinking": thinking}
    assert answer.json() == {"model": "claude-x"}
