"""The token cap by the model's window: upstream is asked once, and not again for every name a client makes up."""

import asyncio
from typing import Any

import pytest

from gateway.model_server.windows import ModelRules, Windows
from gateway.settings import Settings
from gateway.upstream import Upstream
from gateway.wire.rewrite import ModelMap
from tests.support.gateway import running_gateway
from tests.support.upstream import Scripted, ScriptedUpstream, json_answer, raw

pytestmark = pytest.mark.anyio


def listing(**windows: int) -> Scripted:
    return json_answer({"data": [{"id": name, "max_model_len": window} for name, window in windows.items()]})


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


async def test_upstream_is_asked_once() -> None:
    async with ScriptedUpstream(listing(qwen3=4096, big=9000)) as server:
        upstream = Upstream(server.origin)
        windows = Windows(upstream)
        asked = await asyncio.gather(*(windows.of(name, [(b"x-api-key", b"k")]) for name in ("qwen3", "big", "qwen3")))
        await upstream.aclose()
    assert asked == [4096, 9000, 4096]
    assert [(seen.target, seen.header(b"x-api-key")) for seen in server.requests] == [("/v1/models", b"k")]


async def test_an_unknown_model_is_asked_for_again_but_not_all_the_time() -> None:
    clock = Clock()
    async with ScriptedUpstream(listing(qwen3=4096), listing(qwen3=4096, new=8192)) as server:
        upstream = Upstream(server.origin)
        windows = Windows(upstream, clock)
        assert await windows.of("qwen3", []) == 4096
        for name in ("new", "made-up", "made-up-2"):
            assert await windows.of(name, []) is None
        clock.now = windows.RETRY_S
        assert await windows.of("new", []) == 8192
        assert await windows.of("made-up", []) is None
        await upstream.aclose()
    assert len(server.requests) == 2


@pytest.mark.parametrize("script", [json_answer({}, 500), json_answer({"data": 5}), raw(b"garbage\r\n\r\n")])
async def test_an_upstream_that_cannot_say_means_no_cap(script: Scripted) -> None:
    async with ScriptedUpstream(script) as server:
        upstream = Upstream(server.origin)
        windows = Windows(upstream)
        assert await windows.of("qwen3", []) is None
        assert await windows.of("qwen3", []) is None
        await upstream.aclose()
    assert len(server.requests) == 1


async def test_bad_credentials_of_one_client_do_not_keep_the_next_from_asking() -> None:
    async with ScriptedUpstream(json_answer({}, 401), listing(qwen3=4096)) as server:
        upstream = Upstream(server.origin)
        windows = Windows(upstream)
        assert await windows.of("qwen3", [(b"authorization", b"Bearer bad")]) is None
        assert await windows.of("qwen3", [(b"authorization", b"Bearer good")]) == 4096
        await upstream.aclose()


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
        upstream = Upstream(server.origin)
        rules = ModelRules(ModelMap({"claude": "qwen3"}), cap, Windows(upstream))
        sent, client_model = await rules.apply(body, [])
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
