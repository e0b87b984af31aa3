"""What the doctor asks the model server: whether it is there, what it serves, and how a model's words come back."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from dataclasses import dataclass

import httpx

from gateway.commands.doctor.answers import Heard, read_answer, reasoning, tool_calls
from gateway.commands.doctor.check import Check
from gateway.errors import UpstreamBroken, UpstreamError
from gateway.model_server import ModelServer
from gateway.model_server.listing import Listing, ServedModel
from gateway.model_server.templates import Verdict, find_out, read_count
from gateway.server.reach import LOOPBACK, address_of, origin_at
from gateway.settings import Settings
from gateway.wire.rewrite import ModelMap

USUAL_PORTS = (8000, 8001, 8080, 30000, 23333)
"""Where model servers listen unless told otherwise (vLLM 8000, SGLang 30000, LMDeploy 23333)."""

CLAUDE_CODE_MAX_TOKENS = (32_000, 128_000)
"""What Claude Code asks for: with a model name that it does not know, and with its default ones."""
CLAUDE_CODE_PROMPT_TOKENS = 20_000
"""About what its first request fills of the window, with the tools it declares."""

_TOOL = {
    "name": "web_search",
    "description": "Search the web.",
    "input_schema": {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]},
}
_VERSION = {"anthropic-version": "2023-06-01"}
_QUESTION = "What is the latest stable Rust release?"


@dataclass(frozen=True, slots=True)
class Patience:
    """How long upstream may take, in seconds: to say that it is there, and for a model's answer."""

    listing_s: float = 10
    answer_s: float = 60


async def examine_upstream(settings: Settings, patience: Patience) -> AsyncIterator[Check]:
    """Reachable, speaks Messages, model and window, tool calls, reasoning; ends early where the rest cannot be."""
    if _is_own_address(settings):
        yield Check("upstream", "problem", f"{settings.upstream} is the gateway's own address", _ADDRESS)
        return
    key = settings.upstream_api_key
    # Half of the patience is for the connection, lest a host that takes none pass for a server that does not answer.
    connect_timeout_s = min(settings.connect_timeout_s, patience.listing_s / 2)
    secret = key.get_secret_value() if key else None
    try:
        async with (
            aclosing(ModelServer(settings.upstream, key=secret, connect_timeout_s=connect_timeout_s)) as server,
            asyncio.timeout(patience.listing_s),
        ):
            listing = await server.list_models()
    except TimeoutError:
        yield _mute(settings.upstream, patience.listing_s)
        return
    except UpstreamError as error:
        yield await _unreachable(settings, error)
        return
    served = listing.models
    if not served:
        yield _no_models(settings, listing)
        return
    async with httpx.AsyncClient(
        base_url=settings.upstream,
        headers={"authorization": f"Bearer {secret}"} if secret else {},
        trust_env=False,
        timeout=httpx.Timeout(None, connect=connect_timeout_s),
    ) as client:
        yield Check("upstream", "ok", f"{settings.upstream} serves {', '.join(model.id for model in served)}")
        names = ModelMap(settings.model_map)
        model = next((model for model in served if model.id in settings.model_map.values()), served[0])
        for check in (*_window(model, settings), *_names(served, model, names, settings)):
            yield check
        async for check in _conversation(client, model, settings, patience):
            yield check


_ADDRESS = "--upstream http://HOST:PORT, the address of the model server (without /v1)"


def _is_own_address(settings: Settings) -> bool:
    host, port = address_of(settings.upstream)
    here = {settings.host, *(LOOPBACK if settings.host in (*LOOPBACK, "0.0.0.0", "::") else ())}
    return port == settings.port and host in here


async def _unreachable(settings: Settings, error: UpstreamError) -> Check:
    upstream = settings.upstream
    if isinstance(error, UpstreamBroken):
        what = f"{upstream} takes connections, but does not answer in HTTP ({error})"
        return Check("upstream", "problem", what, _ADDRESS)
    found = await _elsewhere(upstream)
    what = f"nothing answers at {upstream}"
    if found:
        return Check("upstream", "problem", f"{what}, but a model server does at {found}", f"--upstream {found}")
    start = "start the model server (messages-gateway serve --model NAME starts vLLM), or correct the address: "
    return Check("upstream", "problem", what, start + _ADDRESS)


def _mute(upstream: str, within_s: float) -> Check:
    what = (
        f"{upstream} takes connections, but has not answered within {within_s:g} s: it is still loading the model, "
        "or hangs"
    )
    fix = (
        "look at its log: wait until it says that the model is loaded and try again; where the log has stood still for "
        "minutes, restart it"
    )
    return Check("upstream", "problem", what, fix)


async def _elsewhere(upstream: str) -> str | None:
    """A model server on another port of this machine."""
    host, _ = address_of(upstream)
    if host not in LOOPBACK:
        return None
    origins = [origin_at(host, port) for port in USUAL_PORTS]

    async def serves(origin: str) -> bool:
        try:
            async with aclosing(ModelServer(origin)) as server, asyncio.timeout(2):
                listing = await server.list_models()
        except (UpstreamError, TimeoutError):
            return False
        return bool(listing.models) or listing.status == 401  # vLLM with an API key

    found = await asyncio.gather(*(serves(origin) for origin in origins))
    return next((origin for origin, there in zip(origins, found, strict=True) if there), None)


def _no_models(settings: Settings, listing: Listing) -> Check:
    upstream = settings.upstream
    if listing.refused:
        set_one = "export GATEWAY_UPSTREAM_API_KEY=…, the key that the model server was started with"
        if settings.upstream_api_key:
            return Check("upstream", "problem", f"{upstream} rejects GATEWAY_UPSTREAM_API_KEY", set_one)
        return Check("upstream", "problem", f"{upstream} wants a key", set_one)
    what = f"{upstream} answers, but its /v1/models is no list of models (HTTP {listing.status})"
    return Check("upstream", "problem", what, _ADDRESS)


# The model


def _window(model: ServedModel, settings: Settings) -> Iterator[Check]:
    if model.window is None:
        yield Check("window", "note", f"{model.id}: upstream does not say how long its window is")
        return
    about = f"{model.id} has a window of {model.window:,} tokens"
    cap = settings.max_tokens_cap
    asked = [tokens for tokens in CLAUDE_CODE_MAX_TOKENS if tokens > model.window]
    if isinstance(cap, int) and cap > model.window:
        yield Check("window", "note", f"{about}, less than --max-tokens-cap {cap}", "--max-tokens-cap auto")
    elif cap is None and asked:
        wish = " or ".join(f"{tokens:,}" for tokens in asked)
        what = f"{about}; Claude Code asks for answers of up to {wish}, which upstream rejects"
        yield Check("window", "note", what, "--max-tokens-cap auto")
    else:
        yield Check("window", "ok", about)
    if model.window < CLAUDE_CODE_PROMPT_TOKENS:
        what = f"Claude Code's first request alone takes some {CLAUDE_CODE_PROMPT_TOKENS:,} tokens"
        yield Check("window", "note", what, "serve the model with a longer window (vLLM: --max-model-len)")


def _names(served: list[ServedModel], model: ServedModel, names: ModelMap, settings: Settings) -> Iterator[Check]:
    ids = {model.id for model in served}
    for pattern, target in settings.model_map.items():
        if target not in ids:
            what = f"--model-map {pattern}={target}: upstream serves no {target}"
            yield Check("model names", "problem", what, f"--model-map '{pattern}={model.id}'")
    default = "claude-opus-5-5"
    if default not in ids and names.upstream_name(default) == default:
        what = f"Claude Code's own names, such as {default}, are not served"
        fix = f"--model-map 'claude-*={model.id}', or start it with messages-gateway claude"
        yield Check("model names", "note", what, fix)


# The conversation


async def _conversation(
    client: httpx.AsyncClient, model: ServedModel, settings: Settings, patience: Patience
) -> AsyncIterator[Check]:
    async def ask(body: dict[str, object]) -> Heard:
        return await _ask(client, body, patience.answer_s)

    hello = await ask({"model": model.id, "max_tokens": 64, "messages": [_user("hello")]})
    if hello.status in (404, 405):
        what = f"{settings.upstream} has no /v1/messages"
        yield Check("messages", "problem", what, "a server that speaks it: vLLM from 0.11.1 on (pip install -U vllm)")
        return
    if hello.timed_out:
        yield _mute_model(model.id, patience.answer_s)
        return
    if not hello.is_message:
        yield Check("messages", "problem", f"POST /v1/messages: {hello.trouble}", "the model server's log says more")
        return
    yield Check("messages", "ok", "/v1/messages answers with a message")
    yield await _deferred(client, model, settings, patience)
    asking = {
        "model": model.id,
        "max_tokens": min(2048, (model.window or 2048) // 2),
        "temperature": 0,
        "messages": [_user(_QUESTION)],
        "tools": [_TOOL],
    }
    free = await ask({**asking, "tool_choice": {"type": "auto"}})
    forced = free if free.timed_out else await ask({**asking, "tool_choice": {"type": "tool", "name": _TOOL["name"]}})
    yield tool_calls(model, free, forced)
    yield reasoning(model, [hello, free, forced])


def _mute_model(model: str, within_s: float) -> Check:
    what = f"{model} is listed, but does not answer a hello within {within_s:g} s: the server is busy or hangs"
    fix = (
        "look at its log: wait for the requests that run or wait there (vLLM: Running, Waiting); where there are none, "
        "or no tokens come, restart it"
    )
    return Check("messages", "problem", what, fix)


async def _deferred(client: httpx.AsyncClient, model: ServedModel, settings: Settings, patience: Patience) -> Check:
    """What the template does with deferred tools, and what is therefore sent to it."""
    name = "deferred tools"

    async def count(body: dict[str, object]) -> int | None:
        answer = await client.post("/v1/messages/count_tokens", json=body, headers=_VERSION)
        return read_count(answer.status_code, answer.content)

    try:
        async with asyncio.timeout(patience.answer_s):
            verdict = await find_out(model.id, count)
    except (UpstreamError, TimeoutError, httpx.TransportError):
        verdict = Verdict("expand", "upstream does not count tokens")
    chosen = settings.deferred_tools
    if chosen == "pass" and verdict.mode != "pass":
        what = f"--deferred-tools pass, but {verdict.why}"
        return Check(name, "problem", what, "--deferred-tools auto")
    told = {"expand": "told in words where they are found", "pass": "left to the template", "declare": "declared"}
    by = "" if chosen == "auto" else f" (--deferred-tools {chosen})"
    return Check(name, "ok", f"{told[verdict.mode if chosen == 'auto' else chosen]}{by}: {verdict.why}")


def _user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


async def _ask(client: httpx.AsyncClient, body: dict[str, object], within_s: float) -> Heard:
    try:
        async with asyncio.timeout(within_s):
            answer = await client.post("/v1/messages", json=body, headers=_VERSION)
        return read_answer(answer)
    except TimeoutError:
        return Heard(0, trouble=f"no answer within {within_s:g} s", timed_out=True)
    except httpx.TransportError as error:
        return Heard(0, trouble=f"the connection broke ({type(error).__name__})")
