"""What people say to a model, and what is said back, is in no log line and no metric; errors name no address."""

import asyncio
import gc
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from gateway.books.log import configure_logging
from gateway.settings import Settings
from gateway.turn.web_search import SearchCall, SearchOutcome
from tests.support.eventually import eventually
from tests.support.gateway import running_gateway
from tests.support.playbook import NATIVE, QUESTION, SEARCH
from tests.support.programs import free_port, messages_gateway
from tests.support.raw import raw_client
from tests.support.search import ScriptedSearch, found
from tests.support.upstream import (
    Answer,
    Scripted,
    ScriptedUpstream,
    SeenRequest,
    json_answer,
    message,
    raw,
    sse,
    sse_answer,
    text,
    thinking,
    tool_use,
)

pytestmark = pytest.mark.anyio

CANARY = "canary-7f3a"
CALL = tool_use("web_search", {"query": f"{CANARY} query", "z": CANARY})
BROKEN = {"type": "content_block_delta", "index": 9, "delta": {"type": "text_delta", "text": CANARY}}
FAILED = {"type": "error", "error": {"type": CANARY, "message": CANARY}}
SAID = (thinking(CANARY), text(CANARY))

UPSTREAM: dict[str, tuple[Answer, ...]] = {
    "an answer": (json_answer(message(*SAID)),),
    "a stream": (sse_answer(sse(*SAID)),),
    "a search": (json_answer(message(CALL)), json_answer(message(*SAID))),
    "a streamed search": (sse_answer(sse(CALL)), sse_answer(sse(*SAID))),
    "arguments that are none": (
        json_answer(message(tool_use("web_search", {"q": CANARY}))),
        json_answer(message(*SAID)),
    ),
    "a refusal": (json_answer(FAILED, 400),),
    "a failure": (json_answer(FAILED, 500),),
    "a page": (raw(b"HTTP/1.1 200 OK\r\ncontent-length: 11\r\n\r\n" + CANARY.encode()),),
    "no HTTP": (raw(CANARY.encode() + b"\r\n\r\n"),),
    "a broken header": (raw(b"HTTP/1.1 200 OK\r\n" + CANARY.encode() + b"\r\n\r\n"),),
    "a cut": (raw(b"HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n" + CANARY.encode()),),
    "a failure in the stream": (sse_answer([*sse(*SAID)[:3], FAILED]),),
    "an event out of place": (sse_answer([*sse(*SAID)[:3], BROKEN]),),
    "an event that is none": (sse_answer([f"data: {CANARY}\n\n".encode()]),),
    "a cut stream": (sse_answer(sse(*SAID)[:4], whole=False),),
    "a failure after a search": (json_answer(message(CALL)), json_answer(FAILED, 500)),
    "a cut after a streamed search": (sse_answer(sse(CALL)), sse_answer(sse(*SAID)[:4], whole=False)),
}
SEARCHES: dict[str, Scripted] = {
    "finds": json_answer({"results": [{"url": "https://example.com/" + CANARY, "title": CANARY, "content": CANARY}]}),
    "is refused": json_answer({"error": CANARY}, 403),
    "fails": json_answer({"error": CANARY}, 500),
    "answers nonsense": json_answer(CANARY.encode()),
    "sends elsewhere": raw(
        b"HTTP/1.1 302 F\r\nlocation: http://x/" + CANARY.encode() + b"\r\ncontent-length: 0\r\n\r\n"
    ),
    "hangs up": raw(),
}


def conversations() -> list[dict[str, Any]]:
    """Every request for every answer of upstream's: plain, with each kind of tool, in both transports."""
    asked = {"role": "user", "content": f"{CANARY} prompt"}
    base = {"model": "m", "max_tokens": 9, "system": CANARY, "messages": [asked], "metadata": {"user_id": CANARY}}
    hidden = {**SEARCH, "description": CANARY}
    requests = [
        {**base, "x-script": script, "tools": tools, "stream": stream}
        for script in UPSTREAM
        for tools in ([], [NATIVE], [hidden])
        for stream in (False, True)
    ]
    unsound: list[dict[str, Any]] = [
        {"tools": [hidden, hidden]},
        {"tools": [{**NATIVE, "max_uses": CANARY}]},
        {"tools": [{**NATIVE, "allowed_domains": [CANARY], "blocked_domains": [CANARY]}]},
        {"tools": [NATIVE], "messages": CANARY},
        {"tools": [NATIVE], "tool_choice": CANARY},
        {"messages": [{"role": "assistant", "content": [{"type": "web_search_tool_result", "tool_use_id": [CANARY]}]}]},
        {"messages": [{"role": "assistant", "content": [{"type": "server_tool_use", "name": "web_search"}] * 2}]},
        {"input_ids": [CANARY]},
        {"return_token_ids": CANARY},
        {"image_data": CANARY},
    ]
    return requests + [{**base, **more, "x-script": "an answer"} for more in unsound]


def script_of(seen: SeenRequest) -> Answer:
    """The answer that the request names, the one for its place in the turn; a refusal of what is no conversation."""
    try:
        body = msgspec.json.decode(seen.body, type=Conversation)
    except msgspec.DecodeError:
        return json_answer({"error": {"message": CANARY}, "data": [{"id": "m"}]}, 400)
    script: tuple[Answer, ...] = UPSTREAM[body.script]
    rounds = sum(message["role"] == "assistant" for message in body.messages)
    answer: Answer = script[min(rounds, len(script) - 1)]
    return answer


class Conversation(msgspec.Struct, rename={"script": "x-script"}):
    messages: list[dict[str, Any]]
    script: str = "an answer"


async def ask_oddly(client: httpx.AsyncClient, port: int) -> None:
    """What is no conversation but can hold words of one."""
    await client.post("/v1/messages", content=CANARY.encode())
    await client.post("/v1/messages", content=b'{"tools": [' + CANARY.encode())
    await client.post(f"/v1/messages?q={CANARY}", json={"x-script": "an answer", "messages": []})
    await client.post("/v1/messages/count_tokens", json={"x-script": "an answer", "messages": [], "system": CANARY})
    await client.get(f"/v1/models/{CANARY}", headers={"anthropic-version": CANARY})
    await client.get(f"/{CANARY}", headers={"x-api-key": CANARY, "user-agent": CANARY})
    await client.request("DELETE", "/v1/messages", headers={"authorization": f"Bearer {CANARY}"})
    for garbage in (b"%s\r\n\r\n", b"POST /v1/messages HTTP/1.1\r\n%s\r\n\r\n", b"POST /%s HTTP/9\r\n\r\n"):
        async with raw_client(port) as raw_connection:
            await raw_connection.send(garbage % CANARY.encode())
            await raw_connection.rest()
    async with raw_client(port) as raw_connection:  # a client that goes in the middle of its request
        await raw_connection.send(
            b"POST /v1/messages HTTP/1.1\r\nhost: x\r\ncontent-length: 999\r\n\r\n" + CANARY.encode()
        )
        await asyncio.sleep(0.02)
        raw_connection.leave()
    await eventually(lambda: tells_of(client, "client_gone"))


async def tells_of(client: httpx.AsyncClient, outcome: str) -> bool:
    return f'outcome="{outcome}"' in (await client.get("/metrics")).text


@pytest.mark.parametrize("form", ["text", "json"])
async def test_a_debug_log_and_the_metrics_are_silent_on_what_was_said(form: str, tmp_path: Path) -> None:
    requests = conversations()
    port = free_port()
    async with ScriptedUpstream(script_of) as upstream, ScriptedUpstream(*SEARCHES.values()) as searxng:
        flags = ["--upstream", upstream.origin, "--upstream-dialect", "vllm", "--port", str(port)]
        flags += ["--search-provider", "searxng", "--search-base-url", searxng.origin]
        flags += ["--log-level", "debug", "--log-format", form]
        with messages_gateway("serve", *flags, path=tmp_path) as program:
            await asyncio.to_thread(program.says, "listening")
            async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=10, verify=False) as client:
                await eventually(lambda: answers(client), within_s=20)
                for body in requests:
                    await ask(client, body)
                await ask_oddly(client, port)
                metrics = (await client.get("/metrics")).text
            program.process.terminate()
            await asyncio.to_thread(program.end)
    assert len(searxng.requests) > len(SEARCHES)
    for outcome in ("ok", "client_error", "upstream_error", "cut"):
        assert f'outcome="{outcome}"' in metrics
    assert sum("/v1/messages" in line for line in program.said.splitlines()) > len(requests)
    assert CANARY not in metrics
    assert CANARY not in program.said


async def answers(client: httpx.AsyncClient) -> bool:
    try:
        return (await client.get("/health")).status_code == 200
    except httpx.TransportError:
        return False


async def ask(client: httpx.AsyncClient, body: dict[str, Any]) -> None:
    with suppress(httpx.RemoteProtocolError):  # an answer that broke off
        await client.post("/v1/messages", json=body)


# --- what nobody expected ---------------------------------------------------------------------------------------------


class BuggySearch:
    """Raises what a bug might: an error that quotes what it was given."""

    async def run(self, call: SearchCall) -> SearchOutcome:
        await asyncio.sleep(0)
        raise ValueError(f"cannot cope with {call.query}")

    async def aclose(self) -> None:
        raise AssertionError(CANARY)


@pytest.mark.usefixtures("logging_as_before")
@pytest.mark.parametrize("stream", [False, True])
async def test_a_bug_is_logged_by_its_place_and_told_to_nobody(
    stream: bool, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    configure_logging("debug", "text")
    calls = (CALL, tool_use("web_search", {"query": f"{CANARY} again"}, id="call-2"))
    answer = sse_answer(sse(*calls)) if stream else json_answer(message(*calls))
    async with ScriptedUpstream(answer) as upstream:
        search = BuggySearch()
        monkeypatch.setattr(search, "aclose", ScriptedSearch().aclose)
        async with running_gateway(Settings(upstream=upstream.origin, log_level="debug"), search=search) as gateway:
            body = {"model": "m", "max_tokens": 9, "messages": [QUESTION], "tools": [NATIVE], "stream": stream}
            if stream:
                with pytest.raises(httpx.RemoteProtocolError):
                    await gateway.client.post("/v1/messages", json=body)
            else:
                told = await gateway.client.post("/v1/messages", json=body)
                assert told.status_code == 500
                assert told.json()["error"] == {"type": "api_error", "message": "the gateway failed at this request"}
            gc.collect()  # the other search's task, whose error nobody asked for
            await asyncio.sleep(0)
            metrics = (await gateway.client.get("/metrics")).text
    out, err = capfd.readouterr()
    assert 'error "unexpected error"' in err
    assert "error=ValueError at=" in err
    assert CANARY not in out + err + metrics
    assert "Traceback" not in out + err


# --- errors name no address -------------------------------------------------------------------------------------------

PRIVATE = ["127.0.0.1", "localhost", ".invalid", "Errno", "Traceback", ".py", "site-packages", "/home", "Connection("]


def assert_private(told: str, *more: str) -> None:
    assert not [word for word in [*PRIVATE, *more] if word in told]


@pytest.mark.parametrize(
    ("tools", "stream"), [([], False), ([NATIVE], True), ([SEARCH], False)], ids=["proxied", "streamed", "hidden"]
)
async def test_an_upstream_that_fails_is_not_named(tools: list[dict[str, Any]], stream: bool) -> None:
    body = {"model": "m", "max_tokens": 9, "messages": [QUESTION], "tools": tools, "stream": stream}

    async def fails(origin: str) -> None:
        settings = Settings(upstream=origin, first_byte_timeout_s=0.2, connect_timeout_s=0.2)
        async with running_gateway(settings, search=ScriptedSearch()) as gateway:
            answer = await gateway.client.post("/v1/messages", json=body)
            ready = await gateway.client.get("/ready")
        assert answer.status_code in (502, 504)
        for told in (answer, ready):
            assert_private(str(told.headers) + told.text, origin.rpartition(":")[2])

    async with (
        ScriptedUpstream(raw()) as hangs_up,
        ScriptedUpstream(raw(then="reset")) as resets,
        ScriptedUpstream(raw(b"nonsense\r\n\r\n")) as babbles,
        ScriptedUpstream(raw(then="stall")) as stalls,
        asyncio.TaskGroup() as group,
    ):
        for upstream in (hangs_up, resets, babbles, stalls):
            group.create_task(fails(upstream.origin))
        for origin in (
            f"http://127.0.0.1:{free_port()}",
            f"https://localhost:{stalls.port}",
            "http://gpu-7.invalid:8000",
        ):
            group.create_task(fails(origin))


@pytest.mark.parametrize("tool", [NATIVE, SEARCH], ids=["native", "hidden"])
async def test_a_search_that_fails_names_no_address_to_client_or_model(tool: dict[str, Any]) -> None:
    rounds = [json_answer(message(tool_use("web_search", {"query": "rust"}))), json_answer(message(text("Done.")))]
    failures = [raw(), raw(then="reset"), raw(b"nonsense\r\n\r\n"), json_answer({}, 500), json_answer({}, 429)]
    async with ScriptedUpstream(*failures) as searxng:
        plain = free_port()
        for origin in [*([searxng.origin] * 7), f"http://127.0.0.1:{plain}", f"http://engine.invalid:{plain}"]:
            async with ScriptedUpstream(*rounds) as upstream:
                settings = Settings(upstream=upstream.origin, search_provider="searxng", search_base_url=origin)
                async with running_gateway(settings) as gateway:
                    body = {"model": "m", "max_tokens": 9, "messages": [QUESTION], "tools": [tool]}
                    answer = await gateway.client.post("/v1/messages", json=body)
            result = upstream.requests[1].json["messages"][-1]["content"][0]
            assert result["is_error"] is True
            for told in (answer.text, result["content"]):
                assert_private(told, str(searxng.port), str(plain), str(upstream.port))


async def test_what_the_gateway_says_of_itself_names_no_upstream() -> None:
    async with ScriptedUpstream(json_answer({"data": []})) as upstream:
        settings = Settings(upstream=upstream.origin, search_provider="searxng", search_base_url="http://127.0.0.1:1")
        async with running_gateway(settings, search=ScriptedSearch(default=found("None."))) as gateway:
            for path in ("/", "/health", "/ready", "/metrics", "/openapi.json", "/nowhere"):
                answer = await gateway.client.get(path)
                assert_private(str(answer.headers) + answer.text, str(upstream.port))
                assert "server" not in answer.headers
            assert json.loads((await gateway.client.get("/")).text).keys() == {"name", "version"}
