"""What is known of a model server: asked over sockets, once for all who want to know, by whoever needs it first."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from gateway.model_server import ModelServer
from gateway.settings import Settings
from tests.support.eventually import eventually
from tests.support.gateway import running_gateway
from tests.support.upstream import Answer, Scripted, ScriptedUpstream, SeenRequest, json_answer, raw

pytestmark = pytest.mark.anyio

ERROR = {"error": {"message": "no"}}
BEARER = [(b"authorization", b"Bearer k")]


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@asynccontextmanager
async def asking(upstream: ScriptedUpstream, **options: Any) -> AsyncIterator[ModelServer]:
    server = ModelServer(upstream.origin, **options)
    try:
        yield server
    finally:
        await server.aclose()


def targets(upstream: ScriptedUpstream) -> list[str]:
    return [request.target for request in upstream.requests]


def listing(**windows: int) -> Scripted:
    return json_answer({"data": [{"id": name, "max_model_len": window} for name, window in windows.items()]})


def served_by(owner: str) -> Answer:
    return json_answer({"object": "list", "data": [{"id": "qwen3", "owned_by": owner, "max_model_len": 4096}]})


# --- the windows of its models --------------------------------------------------------------------------------------


async def test_windows_are_asked_for_once() -> None:
    async with ScriptedUpstream(listing(qwen3=4096, big=9000)) as upstream, asking(upstream) as server:
        asked = await asyncio.gather(*(server.window(name, [(b"x-api-key", b"k")]) for name in ("qwen3", "big")))
        assert asked == [4096, 9000]
        assert await server.window("qwen3", []) == 4096
    assert [(seen.target, seen.header(b"x-api-key")) for seen in upstream.requests] == [("/v1/models", b"k")]


async def test_an_unknown_model_is_asked_for_again_but_not_all_the_time() -> None:
    clock = Clock()
    async with (
        ScriptedUpstream(listing(qwen3=4096), listing(qwen3=4096, new=8192)) as upstream,
        asking(upstream, clock=clock) as server,
    ):
        assert await server.window("qwen3", []) == 4096
        for name in ("new", "made-up", "made-up-2"):
            assert await server.window(name, []) is None
        clock.now = server.RETRY_S
        assert await server.window("new", []) == 8192
        assert await server.window("made-up", []) is None
    assert len(upstream.requests) == 2


async def test_an_old_list_serves_while_a_new_one_is_asked_for() -> None:
    clock, held = Clock(), asyncio.Event()
    body = b'{"data":[{"id":"qwen3","max_model_len":8192}]}'
    late = raw(held, b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body) + body, then="keep")
    async with ScriptedUpstream(listing(qwen3=4096), late) as upstream, asking(upstream, clock=clock) as server:
        assert await server.window("qwen3", []) == 4096
        clock.now = server.REFRESH_S
        assert await server.window("qwen3", []) == 4096
        assert await server.window("qwen3", []) == 4096
        held.set()

        async def is_new() -> bool:
            return await server.window("qwen3", []) == 8192

        await eventually(is_new)
    assert len(upstream.requests) == 2


async def test_an_old_list_outlives_a_server_that_is_unwell() -> None:
    clock = Clock()
    async with (
        ScriptedUpstream(listing(qwen3=4096), json_answer(ERROR, 500)) as upstream,
        asking(upstream, clock=clock) as server,
    ):
        assert await server.window("qwen3", []) == 4096
        clock.now = server.REFRESH_S
        assert await server.window("qwen3", []) == 4096
        await eventually(lambda: len(upstream.requests) == 2)
        assert await server.window("qwen3", []) == 4096


@pytest.mark.parametrize("script", [json_answer({}, 500), json_answer({"data": 5}), raw(b"garbage\r\n\r\n")])
async def test_a_server_that_cannot_say_is_not_asked_at_once_again(script: Scripted) -> None:
    async with ScriptedUpstream(script) as upstream, asking(upstream) as server:
        assert await server.window("qwen3", []) is None
        assert await server.window("qwen3", []) is None
    assert len(upstream.requests) == 1


async def test_bad_credentials_of_one_client_do_not_keep_the_next_from_asking() -> None:
    async with ScriptedUpstream(json_answer({}, 401), listing(qwen3=4096)) as upstream, asking(upstream) as server:
        assert await server.window("qwen3", [(b"authorization", b"Bearer bad")]) is None
        assert await server.window("qwen3", [(b"authorization", b"Bearer good")]) == 4096


async def test_nobody_waits_for_the_answer_to_anothers_credentials() -> None:
    held = asyncio.Event()

    def answer(request: SeenRequest) -> Scripted:
        if request.header(b"authorization") == b"Bearer good":
            return listing(qwen3=4096)
        return raw(held, b"HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\n\r\n", then="keep")

    async with ScriptedUpstream(answer) as upstream, asking(upstream) as server:
        bad = [asyncio.create_task(server.window("qwen3", [(b"authorization", b"Bearer bad")])) for _ in range(20)]
        await eventually(lambda: len(upstream.requests) == 1)
        async with asyncio.timeout(5):
            assert await server.window("qwen3", [(b"authorization", b"Bearer good")]) == 4096
        held.set()
        await asyncio.gather(*bad)
    assert len(upstream.requests) == 2


async def test_one_who_leaves_takes_nobodys_answer_away() -> None:
    held = asyncio.Event()
    body = b'{"data":[{"id":"qwen3","max_model_len":4096}]}'
    late = raw(held, b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body) + body, then="keep")
    async with ScriptedUpstream(late) as upstream, asking(upstream) as server:
        first, second = (asyncio.create_task(server.window("qwen3", [])) for _ in range(2))
        await eventually(lambda: len(upstream.requests) == 1)
        first.cancel()
        held.set()
        assert await second == 4096
    assert len(upstream.requests) == 1


async def test_what_one_client_was_told_another_does_not_take_away() -> None:
    """A server may list for each key what that key can use."""

    def answer(request: SeenRequest) -> Scripted:
        return listing(small=1024) if request.header(b"x-api-key") == b"guest" else listing(small=1024, big=9000)

    async with ScriptedUpstream(answer) as upstream, asking(upstream) as server:
        assert await server.window("big", [(b"x-api-key", b"staff")]) == 9000
        told = (await server.list_models([(b"x-api-key", b"guest")])).served()
        assert [model.id for model in told] == ["small"]
        assert await server.window("big", [(b"x-api-key", b"staff")]) == 9000
    assert len(upstream.requests) == 2


async def test_names_without_end_are_not_kept() -> None:
    many = {f"m{number}": number + 1 for number in range(ModelServer.MAX_MODELS)}
    clock = Clock()
    async with (
        ScriptedUpstream(listing(old=4096), listing(**many), listing(new=1)) as upstream,
        asking(upstream, clock=clock) as server,
    ):
        assert await server.window("old", []) == 4096
        await server.list_models([])
        assert await server.window("m0", []) == 1
        assert await server.window("old", []) is None


# --- its dialect ----------------------------------------------------------------------------------------------------


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
async def test_the_dialect_is_asked_for_once(answers: list[Answer], dialect: Any, asked: list[str]) -> None:
    async with ScriptedUpstream(*answers) as upstream, asking(upstream) as server:
        assert [*await asyncio.gather(server.dialect(BEARER), server.dialect(BEARER))] == [dialect, dialect]
        assert await server.dialect([]) == dialect
    assert targets(upstream) == asked
    assert upstream.requests[0].header(b"authorization") == b"Bearer k"
    assert upstream.requests[0].header(b"anthropic-version") is None


async def test_one_list_tells_windows_and_dialect() -> None:
    async with ScriptedUpstream(served_by("lmdeploy")) as upstream, asking(upstream) as server:
        assert await server.window("qwen3", BEARER) == 4096
        assert await server.dialect(BEARER) == "lmdeploy"
    assert targets(upstream) == ["/v1/models"]


async def test_a_clients_own_question_tells_them_too() -> None:
    async with ScriptedUpstream(served_by("lmdeploy")) as upstream, asking(upstream) as server:
        await server.list_models(BEARER)
        assert await server.dialect([]) == "lmdeploy"
        assert await server.window("qwen3", []) == 4096
    assert targets(upstream) == ["/v1/models"]


@pytest.mark.parametrize(
    "no_answer", [json_answer(ERROR, 401), json_answer(ERROR, 403), json_answer(ERROR, 503), raw(then="close")]
)
async def test_what_says_nothing_about_the_server_is_not_remembered(no_answer: Answer) -> None:
    # A connection closed without an answer is tried once more by the client of upstream.
    async with ScriptedUpstream(no_answer, no_answer) as upstream, asking(upstream) as server:
        assert await server.dialect([]) == "vllm"
        upstream.answers = (served_by("lmdeploy"),)
        assert await server.dialect([]) == "lmdeploy"


async def test_a_server_that_is_not_there_is_asked_again() -> None:
    async with ScriptedUpstream(served_by("lmdeploy")) as upstream:
        pass
    async with asking(upstream) as server:
        assert await server.dialect([]) == "vllm"


@pytest.mark.parametrize("setting", ["vllm", "lmdeploy"])
async def test_what_the_operator_says_is_not_asked(setting: Any) -> None:
    server = ModelServer("http://127.0.0.1:1", dialect=setting)
    assert await server.dialect([]) == setting
    await server.aclose()


# --- whether it is there --------------------------------------------------------------------------------------------


async def test_its_word_holds_for_a_second() -> None:
    clock = Clock()
    async with (
        ScriptedUpstream(json_answer({}), json_answer({}, 503)) as upstream,
        asking(upstream, clock=clock) as server,
    ):
        assert await server.is_ready()
        clock.now = server.READY_KEPT_S / 2
        assert await server.is_ready()
        clock.now = server.READY_KEPT_S
        assert not await server.is_ready()
    assert targets(upstream) == ["/health", "/health"]


async def test_a_hundred_probes_are_one_connection_of_upstreams() -> None:
    held = asyncio.Event()
    well = raw(held, b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n", b"ok", then="keep")
    async with (
        ScriptedUpstream(well) as upstream,
        running_gateway(Settings(upstream=upstream.origin)) as gateway,
    ):
        asked = [asyncio.create_task(gateway.client.get("/ready")) for _ in range(100)]
        await eventually(lambda: len(upstream.requests) == 1)
        held.set()
        assert {answer.status_code for answer in await asyncio.gather(*asked)} == {200}
    assert targets(upstream) == ["/health"]
    assert upstream.accepted == 1


@pytest.mark.parametrize("body", [b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n", b"HTTP/1.1 200 OK\r\n\r\n"])
async def test_a_server_that_says_200_and_is_cut_is_there(body: bytes) -> None:
    async with ScriptedUpstream(raw(body, b"o")) as upstream, asking(upstream) as server:
        assert await server.is_ready()


async def test_only_the_gateways_own_key_is_shown_to_ask_whether_it_is_there() -> None:
    async with ScriptedUpstream(json_answer({})) as upstream, asking(upstream, key="own") as server:
        await server.is_ready()
    assert upstream.requests[0].header(b"authorization") == b"Bearer own"
    async with (
        ScriptedUpstream(json_answer({}, 401)) as upstream,
        running_gateway(Settings(upstream=upstream.origin)) as gateway,
    ):
        assert (await gateway.client.get("/ready", headers={"x-api-key": "clients"})).status_code == 200
    assert upstream.requests[0].header(b"x-api-key") is None


async def test_closing_ends_a_question_that_is_on_its_way() -> None:
    async with ScriptedUpstream(raw(then="stall")) as upstream:
        server = ModelServer(upstream.origin)
        waiting = asyncio.create_task(server.window("qwen3", []))
        await eventually(lambda: len(upstream.requests) == 1)
        async with asyncio.timeout(5):
            await server.aclose()
        with pytest.raises(asyncio.CancelledError):
            await waiting
