"""The doctor against upstreams and search providers in every state a newcomer meets."""

import json
import socket
from collections.abc import Callable
from typing import Any

import pytest
from rich.console import Console

from gateway.commands.doctor import Check, Patience, examine, report
from gateway.commands.doctor import upstream as upstream_module
from gateway.settings import Settings
from tests.support.upstream import (
    Block,
    Scripted,
    ScriptedUpstream,
    SeenRequest,
    json_answer,
    message,
    raw,
    text,
    thinking,
    tool_use,
)

pytestmark = pytest.mark.anyio

CALL = tool_use("web_search", {"query": "latest stable Rust release"})
FOUND = {"results": [{"title": "Rust", "url": "https://blog.rust-lang.org/", "content": "1.95.0"}]}
NO_PARSER = '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'


@pytest.fixture(autouse=True)
def no_neighbours(monkeypatch: pytest.MonkeyPatch) -> None:
    """No model server of this machine's is found by chance."""
    monkeypatch.setattr(upstream_module, "USUAL_PORTS", ())


def served(*ids: str, window: int | None = 131_072, owner: str = "vllm") -> Scripted:
    entries = [{"id": id, "root": id, "owned_by": owner, "max_model_len": window} for id in ids]
    return json_answer({"object": "list", "data": entries})


def rejected(words: str, status: int = 400) -> Scripted:
    return json_answer({"type": "error", "error": {"type": "BadRequestError", "message": words}}, status)


def vllm(
    *hello: Block,
    free: Scripted | None = None,
    forced: Scripted | None = None,
    models: Scripted | None = None,
) -> Callable[[SeenRequest], Scripted]:
    """A model server: what it says to hello, to a tool it may call, and to one that it must."""

    def answer(request: SeenRequest) -> Scripted:
        if request.target == "/v1/models":
            return models or served("Qwen/Qwen3-8B")
        if request.target.startswith("/search"):
            return json_answer(FOUND)
        choice = request.json.get("tool_choice", {}).get("type")
        if choice is None:
            return json_answer(message(*(hello or (thinking("A greeting."), text("Hello!")))))
        return (free if choice == "auto" else forced) or json_answer(message(thinking("I search."), CALL))

    return answer


def settings_for(server: ScriptedUpstream, **others: Any) -> Settings:
    """The scripted server as upstream and as search provider; a setting that is None is left out."""
    given = {
        "upstream": server.origin,
        "search_provider": "searxng",
        "search_base_url": server.origin,
        "model_map": {"claude-*": "Qwen/Qwen3-8B"},
        "seal_keys": ("seal-key",),
        **others,
    }
    return Settings(**{name: value for name, value in given.items() if value is not None})


async def examined(server: ScriptedUpstream, **others: Any) -> dict[str, Check]:
    """The checks by name; of two with one name, the graver."""
    checks: dict[str, Check] = {}
    async for check in examine(settings_for(server, **others)):
        if check.name not in checks or check.status == "problem":
            checks[check.name] = check
    return checks


def problems(checks: dict[str, Check]) -> list[str]:
    return [name for name, check in checks.items() if check.status == "problem"]


async def test_all_is_well() -> None:
    async with ScriptedUpstream(vllm()) as upstream:
        checks = await examined(upstream)
    assert {check.status for check in checks.values()} == {"ok"}
    assert checks["upstream"].message == f"{upstream.origin} serves Qwen/Qwen3-8B"
    assert checks["window"].message == "Qwen/Qwen3-8B has a window of 131,072 tokens"
    assert checks["search"].message.startswith("searxng answers: 1 results")
    assert list(checks) == [
        *("upstream", "window", "messages", "deferred tools", "tool calls", "reasoning"),
        *("search", "client keys", "web pages", "seal keys"),
    ]


EXPANDING = "the template writes a deferred tool out where it is referenced"
IN_THE_HEAD = "the template writes deferred tools into the prompt's head"


@pytest.mark.parametrize(
    ("template", "setting", "status", "message"),
    [
        ("counts nothing", "auto", "ok", "told in words where they are found: upstream does not count tokens"),
        ("expands", "auto", "ok", f"left to the template: {EXPANDING}"),
        ("expands", "declare", "ok", f"declared (--deferred-tools declare): {EXPANDING}"),
        ("prints all", "auto", "ok", f"told in words where they are found: {IN_THE_HEAD}"),
        ("prints all", "pass", "problem", f"--deferred-tools pass, but {IN_THE_HEAD}"),
    ],
)
async def test_what_becomes_of_deferred_tools(template: str, setting: str, status: str, message: str) -> None:
    server = vllm()

    def counting(request: SeenRequest) -> Scripted:
        if not request.target.endswith("/count_tokens"):
            return server(request)
        if template == "counts nothing":
            return rejected("Not Found", 404)
        tools = {tool["name"]: tool for tool in request.json["tools"]}
        referenced = [name for name in tools if f'"tool_name":"{name}"' in request.body.decode().replace(": ", ":")]
        shown = [name for name, tool in tools.items() if template == "prints all" or not tool.get("defer_loading")]
        return json_answer({"input_tokens": sum(len(tools[name]["description"]) for name in [*shown, *referenced])})

    async with ScriptedUpstream(counting) as upstream:
        checks = await examined(upstream, deferred_tools=setting)
    assert (checks["deferred tools"].status, checks["deferred tools"].message) == (status, message)


async def test_the_first_mistake_no_tool_parser_in_vllm() -> None:
    script = vllm(
        text("<think>\nA greeting.\n</think>\n\nHello!"), free=rejected(NO_PARSER), forced=rejected(NO_PARSER)
    )
    async with ScriptedUpstream(script) as upstream:
        checks = await examined(upstream)
    assert problems(checks) == ["tool calls", "reasoning"]
    assert checks["tool calls"].fix == "restart vLLM with --enable-auto-tool-choice --tool-call-parser hermes"
    assert checks["reasoning"].fix == "restart vLLM with --reasoning-parser qwen3"


async def test_the_second_mistake_a_wrong_port(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    wrong = f"http://127.0.0.1:{port}"
    async with ScriptedUpstream(vllm()) as server:
        alone = await examined(server, upstream=wrong)
        monkeypatch.setattr(upstream_module, "USUAL_PORTS", (port, server.port))
        beside = await examined(server, upstream=wrong)
    assert alone["upstream"].message == f"nothing answers at {wrong}"
    assert "--upstream http://HOST:PORT" in str(alone["upstream"].fix)
    assert "messages" not in alone
    assert beside["upstream"].message == f"nothing answers at {wrong}, but a model server does at {server.origin}"
    assert beside["upstream"].fix == f"--upstream {server.origin}"


async def test_the_third_mistake_no_search_key() -> None:
    async with ScriptedUpstream(vllm()) as upstream:
        checks = await examined(upstream, search_provider="brave")
    assert problems(checks) == ["search"]
    assert checks["search"].message == "--search-provider brave needs a key"
    assert str(checks["search"].fix).startswith("set GATEWAY_SEARCH_API_KEY")


@pytest.mark.parametrize(
    ("script", "message_part"),
    [
        (json_answer({"detail": "Not Found"}, 404), "no list of models (HTTP 404)"),
        (json_answer(b"<html>"), "no list of models (HTTP 200)"),
        (raw(b"SSH-2.0-OpenSSH_9.6\r\n"), "does not answer in HTTP"),
        (json_answer({"error": "Unauthorized"}, 401), "wants a key"),
    ],
)
async def test_something_else_at_that_port(script: Scripted, message_part: str) -> None:
    async with ScriptedUpstream(script) as upstream:
        checks = await examined(upstream)
    assert message_part in checks["upstream"].message
    assert checks["upstream"].status == "problem"
    assert checks["upstream"].fix


async def test_a_server_that_takes_connections_and_does_not_answer() -> None:
    mute = raw(b"", then="stall")
    async with ScriptedUpstream(mute) as upstream, ScriptedUpstream(vllm()) as search:
        settings = settings_for(search, upstream=upstream.origin)
        checks = [check async for check in examine(settings, Patience(listing_s=0.05))]
    assert checks[0].message == (
        f"{upstream.origin} takes connections, but has not answered within 0.05 s: it is still loading the model, or "
        "hangs"
    )
    assert checks[0].status == "problem"
    assert "restart it" in str(checks[0].fix)
    assert [request.target for request in upstream.requests] == ["/v1/models"]
    assert checks[1].name == "search"  # the rest is looked at all the same


async def test_a_listing_that_trickles_has_no_more_time() -> None:
    trickle = raw(b"HTTP/1.1 200 OK\r\n", *(piece for _ in range(100) for piece in (0.02, b"x: y\r\n")), then="stall")
    async with ScriptedUpstream(trickle) as upstream:
        first = await anext(examine(settings_for(upstream), Patience(listing_s=0.1)))
    assert "has not answered within 0.1 s" in first.message


async def test_a_model_that_is_listed_and_does_not_answer() -> None:
    script = vllm()
    mute = raw(b"", then="stall")
    async with ScriptedUpstream(lambda request: script(request) if request.method == "GET" else mute) as upstream:
        checks = {check.name: check async for check in examine(settings_for(upstream), Patience(answer_s=0.05))}
    assert checks["upstream"].status == "ok"
    assert checks["messages"].message == (
        "Qwen/Qwen3-8B is listed, but does not answer a hello within 0.05 s: the server is busy or hangs"
    )
    assert "log" in str(checks["messages"].fix)
    assert "tool calls" not in checks


async def test_a_model_that_takes_too_long_over_a_tool_is_asked_once() -> None:
    async with ScriptedUpstream(vllm(free=raw(b"", then="stall"))) as upstream:
        checks = {check.name: check async for check in examine(settings_for(upstream), Patience(answer_s=0.2))}
    assert checks["tool calls"].status == "note"
    assert checks["tool calls"].message.startswith("no answer within 0.2 s to a request with a tool")
    assert checks["reasoning"].status == "ok"
    assert len([request for request in upstream.requests if request.target == "/v1/messages"]) == 2


async def test_the_gateways_own_address_is_no_upstream() -> None:
    async with ScriptedUpstream(vllm()) as upstream:
        checks = await examined(upstream, port=upstream.port)
    assert checks["upstream"].message == f"{upstream.origin} is the gateway's own address"
    assert not any(request.target == "/v1/models" for request in upstream.requests)


async def test_the_key_goes_upstream_and_is_never_shown() -> None:
    echo = rejected("Incorrect API key provided: upstream-secret", 401)
    async with ScriptedUpstream(lambda request: vllm()(request) if request.method == "GET" else echo) as upstream:
        checks = await examined(upstream, upstream_api_key="upstream-secret", api_keys=("client-secret",))
    assert upstream.requests[0].header(b"authorization") == b"Bearer upstream-secret"
    assert checks["messages"].message == "POST /v1/messages: HTTP 401: the key is refused"
    assert "secret" not in str(checks)
    assert checks["client keys"].message == "1 key is set: clients must present one"


async def test_a_refused_upstream_key() -> None:
    async with ScriptedUpstream(json_answer({"error": "Unauthorized"}, 401)) as upstream:
        checks = await examined(upstream, upstream_api_key="upstream-secret")
    assert checks["upstream"].message == f"{upstream.origin} rejects GATEWAY_UPSTREAM_API_KEY"


async def test_a_server_without_messages() -> None:
    script = vllm()
    missing = json_answer({"detail": "Not Found"}, 404)
    async with ScriptedUpstream(lambda request: script(request) if request.method == "GET" else missing) as upstream:
        checks = await examined(upstream)
    assert problems(checks) == ["messages"]
    assert "pip install -U vllm" in str(checks["messages"].fix)
    assert "tool calls" not in checks


@pytest.mark.parametrize(
    ("free", "forced", "status", "message_part"),
    [
        (message(text('<tool_call>\n{"name": "web_search"}')), message(CALL), "problem", "comes back as text"),
        (message(text("[TOOL_CALLS]web_search{}")), message(text("[TOOL_CALLS]")), "problem", "comes back as text"),
        (message(text("It is 1.95.")), message(text("It is 1.95.")), "problem", "does not come back as tool_use"),
        (message(text("It is 1.95.")), message(CALL), "ok", "left to itself the model made none"),
        (
            message(thinking("Well, "), stop_reason="max_tokens"),
            message(thinking("Well, "), stop_reason="max_tokens"),
            "note",
            "cut off before it began",
        ),
    ],
)
async def test_how_calls_come_back(
    free: dict[str, Any], forced: dict[str, Any], status: str, message_part: str
) -> None:
    async with ScriptedUpstream(vllm(free=json_answer(free), forced=json_answer(forced))) as upstream:
        checks = await examined(upstream)
    assert checks["tool calls"].status == status
    assert message_part in checks["tool calls"].message


async def test_the_tool_is_offered_then_forced() -> None:
    async with ScriptedUpstream(vllm()) as upstream:
        await examined(upstream)
    asked = [request.json for request in upstream.requests if request.target == "/v1/messages"]
    assert [body.get("tool_choice") for body in asked] == [
        None,
        {"type": "auto"},
        {"type": "tool", "name": "web_search"},
    ]


@pytest.mark.parametrize(
    ("id", "owner", "fix"),
    [
        (
            "openai/gpt-oss-20b",
            "vllm",
            "restart vLLM with --enable-auto-tool-choice --tool-call-parser openai",
        ),
        (
            "my-model",
            "vllm",
            "restart vLLM with --enable-auto-tool-choice --tool-call-parser NAME (NAME for your model: "
            "https://docs.vllm.ai/en/latest/features/tool_calling/)",
        ),
        (
            "Qwen/Qwen3-8B",
            "sglang",
            "restart the model server with its parser for this model (vLLM: --enable-auto-tool-choice "
            "--tool-call-parser hermes)",
        ),
    ],
)
async def test_the_flags_are_those_of_the_model_and_its_server(id: str, owner: str, fix: str) -> None:
    none = rejected(NO_PARSER)
    async with ScriptedUpstream(vllm(free=none, forced=none, models=served(id, owner=owner))) as upstream:
        checks = await examined(upstream, model_map={"claude-*": id})
    assert checks["tool calls"].fix == fix


@pytest.mark.parametrize(
    ("window", "cap", "status", "fix"),
    [
        (131_072, None, "ok", None),
        (40_960, None, "note", "--max-tokens-cap auto"),
        (40_960, "auto", "ok", None),
        (40_960, 65_536, "note", "--max-tokens-cap auto"),
        (None, None, "note", None),
    ],
)
async def test_the_window_and_what_claude_code_asks_for(
    window: int | None, cap: str | int | None, status: str, fix: str | None
) -> None:
    async with ScriptedUpstream(vllm(models=served("Qwen/Qwen3-8B", window=window))) as upstream:
        checks = await examined(upstream, max_tokens_cap=cap)
    assert (checks["window"].status, checks["window"].fix) == (status, fix)


async def test_model_names_that_nobody_serves() -> None:
    async with ScriptedUpstream(vllm()) as upstream:
        wrong = await examined(upstream, model_map={"claude-*": "qwen3"})
        none = await examined(upstream, model_map={})
    assert wrong["model names"].status == "problem"
    assert wrong["model names"].fix == "--model-map 'claude-*=Qwen/Qwen3-8B'"
    assert none["model names"].status == "note"
    assert str(none["model names"].fix).startswith("--model-map 'claude-*=Qwen/Qwen3-8B'")


async def test_a_search_provider_that_refuses() -> None:
    script = vllm()
    forbidden = json_answer({}, 403)
    async with ScriptedUpstream(
        lambda request: forbidden if request.target.startswith("/search") else script(request)
    ) as upstream:
        checks = await examined(upstream)
    assert checks["search"].message == "searxng: format disabled"
    assert "search.formats" in str(checks["search"].fix)


async def test_notes_on_what_others_can_reach_and_what_does_not_last() -> None:
    async with ScriptedUpstream(vllm()) as upstream:
        checks = await examined(upstream, host="0.0.0.0", seal_keys=None)
    assert checks["client keys"].fix == "export GATEWAY_API_KEYS=$(openssl rand -hex 32)"
    assert checks["seal keys"].fix == "export GATEWAY_SEAL_KEYS=$(openssl rand -hex 32)"
    assert problems(checks) == []


async def test_a_misspelt_variable_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GATEWAY_SEARCH_KEY", "search-secret")
    async with ScriptedUpstream(vllm()) as upstream:
        checks = await examined(upstream)
    assert checks["environment"].message == "GATEWAY_SEARCH_KEY is set, and there is no such setting"


async def test_lines_for_people_and_json_for_machines(capsys: pytest.CaptureFixture[str]) -> None:
    async with ScriptedUpstream(vllm(free=rejected(NO_PARSER), forced=rejected(NO_PARSER))) as upstream:
        settings = settings_for(upstream, seal_keys=None)
        well = await report(settings, Console(width=40), as_json=False)
        lines = capsys.readouterr().out.splitlines()
        assert not well
        assert f"ok      upstream     {upstream.origin} serves Qwen/Qwen3-8B" in lines
        at = lines.index("problem tool calls   the model server runs without a tool call parser")
        assert lines[at + 1].strip() == "→ restart vLLM with --enable-auto-tool-choice --tool-call-parser hermes"

        await report(settings, Console(), as_json=True)
    value = json.loads(capsys.readouterr().out)
    assert value["ok"] is False
    assert {"ok", "problem", "note"} == {check["status"] for check in value["checks"]}
    assert all(set(check) == {"name", "status", "message", "fix"} for check in value["checks"])


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({}, "--cors-origins lists others); nor requests under a name of the internet (--allowed-hosts lists some)"),
        ({"allowed_hosts": ("a.b",), "cors_origins": ("https://c.d",)}, "(https://c.d); nor requests under a name"),
        ({"host": "0.0.0.0"}, "--cors-origins lists others)"),
        ({"cors_origins": ("https://c.d", "*")}, "any may use the model"),
        ({"api_keys": ("client-secret",)}, ""),
    ],
    ids=str,
)
async def test_which_pages_and_names_are_turned_away(settings: dict[str, Any], words: str) -> None:
    async with ScriptedUpstream(vllm()) as upstream:
        checks = await examined(upstream, **settings)
    if not words:
        assert "web pages" not in checks
    else:
        assert words in checks["web pages"].message
        assert checks["web pages"].status == ("note" if words.startswith("any") else "ok")


@pytest.mark.parametrize(
    ("settings", "left"),
    [({}, False), ({"gateway_tools": ("web_search",)}, False), ({"gateway_tools": ()}, True)],
    ids=str,
)
async def test_a_function_that_is_left_to_the_client_is_told(settings: dict[str, Any], left: bool) -> None:
    async with ScriptedUpstream(vllm()) as upstream:
        checks = await examined(upstream, **settings)
    assert ("tools" in checks) is left
    if left:
        assert checks["tools"].status == "note"
        assert checks["tools"].message.startswith("web_search: a function of that name is left to the client")
        assert checks["tools"].fix == "--gateway-tools web_search takes it over"
