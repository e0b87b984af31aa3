"""``messages-gateway claude``: Claude Code, pointed at this gateway, with the environment it needs."""

import asyncio
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, aclosing, suppress
from types import FrameType

import click
import httpx
from pydantic import SecretStr

from gateway.commands.child import Child
from gateway.commands.tuning import tunings
from gateway.errors import MessagesGatewayError, UpstreamBroken, UpstreamError
from gateway.model_server import ModelServer
from gateway.model_server.listing import Listing, ServedModel
from gateway.server.reach import origin_at
from gateway.settings import ENV_PREFIX, Settings

START_TIMEOUT_S = 30.0
STOP_GRACE_S = 10.0
_TIMEOUT_S = 10.0
_POLL_S = 0.1
_DUMMY_TOKEN = "none-needed"
_ELSEWHERE = ("CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX", "CLAUDE_CODE_USE_FOUNDRY")
"""Switches of Claude Code that make it pass a base URL by."""


class CannotStart(MessagesGatewayError):
    """Claude Code cannot be started. The message says why, and what to type."""


def run(settings: Settings, serve: Sequence[str], model: str | None, arguments: Sequence[str]) -> int:
    """Run Claude Code with ``arguments``; its exit status.

    Where no gateway answers, one is started with the arguments ``serve``, which led to ``settings``, and stopped at the
    end. ``model`` None takes the first that is served. Raises CannotStart, ChildFailed.
    """
    program = shutil.which("claude")
    if program is None:
        raise CannotStart("claude is not on PATH: npm install -g @anthropic-ai/claude-code")
    if settings.port == 0:
        settings = settings.model_copy(update={"port": _free_port(settings.host)})
    with ExitStack() as stack:
        if not _answers(settings):
            stack.enter_context(_start_gateway(settings, serve))
        served = _model(_url(settings), settings.api_keys, model)
        _say_tunings(served)
        return _run(program, arguments, environment(settings, served, os.environ))


def exports(settings: Settings, model: str | None) -> str:
    """The environment as lines for a shell. Nothing is started; upstream is asked where no gateway answers."""
    if settings.port == 0:
        raise CannotStart("--print-env needs the port of the gateway: --port 9000")
    if _answers(settings):
        served = _model(_url(settings), settings.api_keys, model)
    else:
        served = _model(settings.upstream, [settings.upstream_api_key] if settings.upstream_api_key else [], model)
    _say_tunings(served)
    pairs = environment(settings, served, os.environ).items()
    return "\n".join(f"export {name}={shlex.quote(value)}" for name, value in pairs)


def environment(settings: Settings, served: ServedModel, environ: Mapping[str, str]) -> dict[str, str]:
    """What Claude Code needs to use a model through the gateway, in place of what ``environ`` says of the same.

    What only suits the model is left to ``environ`` where that has it.
    """
    model = served.id
    key = settings.api_keys[0].get_secret_value() if settings.api_keys else _DUMMY_TOKEN
    return {
        "ANTHROPIC_BASE_URL": _url(settings),
        "ANTHROPIC_AUTH_TOKEN": key,
        # A key of Anthropic's own in the environment would go along, and to upstream where the gateway has no keys.
        "ANTHROPIC_API_KEY": "",
        "ANTHROPIC_MODEL": model,
        "ANTHROPIC_DEFAULT_HAIKU_MODEL": model,
        "ANTHROPIC_DEFAULT_SONNET_MODEL": model,
        "ANTHROPIC_DEFAULT_OPUS_MODEL": model,
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        **{one.name: one.value for one in tunings(served, environ)},
        **{name: "" for name in _ELSEWHERE if name in environ},
    }


def _say_tunings(served: ServedModel) -> None:
    """Not among the lines for a shell: some take no comment there."""
    for one in tunings(served, os.environ):
        click.echo(f"messages-gateway: {one.name}={one.value} ({one.why})", err=True)


def _url(settings: Settings) -> str:
    """Where a client on this machine finds the gateway."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(settings.host, settings.host)
    return origin_at(host, settings.port)


def _free_port(host: str) -> int:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, 0), family=family) as listener:
        port: int = listener.getsockname()[1]
        return port


def _client(origin: str) -> httpx.Client:
    return httpx.Client(base_url=origin, trust_env=False, timeout=_TIMEOUT_S)


# The gateway


def _answers(settings: Settings) -> bool:
    """Whether a gateway answers there. Raises CannotStart where something else does."""
    url = _url(settings)
    try:
        with _client(url) as client:
            health, about = client.get("/health"), client.get("/")
    except (httpx.ConnectError, httpx.ConnectTimeout):
        return False
    except httpx.TransportError:
        raise CannotStart(f"{_not_ours(url)}: it does not answer, or not in HTTP") from None
    if health.status_code == 200 and _name_of(about) == "messages-gateway":
        return True
    raise CannotStart(_not_ours(url))


def _not_ours(url: str) -> str:
    return f"what listens at {url} is not a messages-gateway (choose another port with --port)"


def _name_of(about: httpx.Response) -> str | None:
    try:
        answer = about.json()
    except ValueError:
        return None
    return answer.get("name") if isinstance(answer, dict) else None


def _start_gateway(settings: Settings, serve: Sequence[str]) -> Child:
    """A gateway with these settings, from the moment it answers. Raises ChildFailed, CannotStart."""
    arguments = [*serve, f"--port={settings.port}"]
    if settings.max_tokens_cap is None:
        arguments.append("--max-tokens-cap=auto")  # Claude Code asks for more than many windows hold
    if "log_level" not in settings.model_fields_set:
        arguments.append("--log-level=warning")
    argv = [sys.executable, "-m", "gateway", "serve", *arguments]
    child = Child("the gateway", argv, os.environ, grace_s=STOP_GRACE_S)
    try:
        click.echo(f"messages-gateway: started one at {_url(settings)}, log in {child.log}", err=True)
        deadline = time.monotonic() + START_TIMEOUT_S
        while not _answers(settings):
            child.check()
            if time.monotonic() > deadline:
                raise CannotStart(f"the gateway did not answer within {START_TIMEOUT_S:.0f} s; its log: {child.log}")
            time.sleep(_POLL_S)
    except BaseException:
        child.stop()
        raise
    return child


# The model


def _model(origin: str, keys: Sequence[SecretStr], name: str | None) -> ServedModel:
    """The model of that ``name``, by default the first, that the gateway, or upstream itself, lists at ``origin``.

    It wants one of ``keys``, if any. A name can be used without a list.
    """
    key = keys[0] if keys else None
    if name is not None:
        listed: list[ServedModel] = []
        with suppress(CannotStart):
            listed = _ask_for_models(origin, key)
        return next((model for model in listed if model.id == name), ServedModel(name))
    models = _ask_for_models(origin, key)
    if not models:
        raise CannotStart("upstream serves no model")
    if len(models) > 1:
        others = ", ".join(model.id for model in models[1:])
        click.echo(f"messages-gateway: using {models[0].id}; --model takes another: {others}", err=True)
    return models[0]


def _ask_for_models(origin: str, key: SecretStr | None) -> list[ServedModel]:
    try:
        listing = asyncio.run(_list_models(ModelServer(origin, key=key.get_secret_value() if key else None)))
    except (UpstreamError, TimeoutError):
        raise CannotStart(_unreachable(origin)) from None
    if listing.refused:
        raise CannotStart(
            f"{origin} wants a key: set GATEWAY_API_KEYS to one of the gateway's keys, or GATEWAY_UPSTREAM_API_KEY to "
            "upstream's"
        )
    if listing.status != 200:
        raise CannotStart(_unreachable(origin))
    try:
        return listing.served()
    except UpstreamBroken as error:
        raise CannotStart(error.message) from None


async def _list_models(server: ModelServer) -> Listing:
    async with aclosing(server), asyncio.timeout(_TIMEOUT_S):
        return await server.list_models()


def _unreachable(origin: str) -> str:
    return (
        f"no list of models from {origin}: is the model server running, and is --upstream its address? "
        "messages-gateway doctor says more. To choose a model without asking: --model NAME"
    )


# Claude Code


def _run(program: str, arguments: Sequence[str], settings: Mapping[str, str]) -> int:
    """Run it in this terminal; its exit status, 128 and the signal's number where one ended it."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(ENV_PREFIX)}

    def forward(signum: int, _: FrameType | None) -> None:
        process.send_signal(signum)

    # A Ctrl-C in the terminal reaches it too, which decides what that means; here it must end nothing.
    before = {signal.SIGINT: signal.signal(signal.SIGINT, lambda *_: None)}
    try:
        process = subprocess.Popen([program, *arguments], env={**env, **settings})
        for signum in (signal.SIGTERM, signal.SIGHUP):
            before[signum] = signal.signal(signum, forward)
        code = process.wait()
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)
    return code if code >= 0 else 128 - code
