"""messages-recorder record: the options of a recording, and the recording."""

import asyncio
import json
import os
import shlex
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import click
import httpx
import yaml

from recorder.cassette import Json, Turn
from recorder.conversation import Script
from recorder.errors import RecordingError
from recorder.provenance import provenance
from recorder.proxy import RecordingProxy
from recorder.record import outcome
from recorder.record import record as record_script
from recorder.serving import bind, origin, serving, stopped_by_signal
from recorder.writer import CassetteWriter

_API_KEY = "GATEWAY_UPSTREAM_API_KEY"
_TIMEOUT = httpx.Timeout(600, connect=10)
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


def _json_object(ctx: click.Context, param: click.Parameter, value: str | None) -> dict[str, Json]:
    if value is None:
        return {}
    try:
        parsed = json.loads(value)
    except ValueError as error:
        raise click.BadParameter(f"not JSON: {error}") from error
    if not isinstance(parsed, dict):
        raise click.BadParameter("no JSON object")
    return parsed


def _tool_choice(ctx: click.Context, param: click.Parameter, value: str | None) -> dict[str, Json] | None:
    if value is None or value in ("auto", "any", "none"):
        return {"type": value} if value else None
    if value.startswith("{"):
        return _json_object(ctx, param, value)
    return {"type": "tool", "name": value.removeprefix("tool:")}


def _thinking(ctx: click.Context, param: click.Parameter, value: str | None) -> dict[str, Json] | None:
    if value is None or value in ("adaptive", "disabled"):
        return {"type": value} if value else None
    if not value.isdigit():
        raise click.BadParameter(f"{value!r} is neither a budget in tokens nor `adaptive` nor `disabled`")
    return {"type": "enabled", "budget_tokens": int(value)}


@click.command()
@click.option("--mode", type=click.Choice(["messages", "proxy"]), default="messages", show_default=True)
@click.option("--upstream", default="http://127.0.0.1:8000", show_default=True, help="Origin of the Messages server.")
@click.option("--output", required=True, type=click.Path(dir_okay=False, path_type=Path), help="The cassette.")
@click.option("--listen", type=click.IntRange(0, 65535), help="Port of the recording proxy; 0 takes a free one.")
@click.option("--model", help="Model of the requests.")
@click.option("--turns", type=click.IntRange(1), help="The most exchanges.  [default: till the prompts run out]")
@click.option("--prompt", "prompts", multiple=True, help="Repeatable; without it, standard input, one a line.")
@click.option("--stream/--no-stream", default=True, show_default=True)
@click.option("--system", help="The system prompt.")
@click.option("--tools", type=_FILE, help="JSON or YAML: the list of tool definitions.")
@click.option("--tool-outputs", type=_FILE, help="JSON or YAML: tool name -> the text it answers.")
@click.option("--tool-choice", callback=_tool_choice, metavar="auto|any|none|NAME|JSON", help="NAME forces that tool.")
@click.option("--thinking", callback=_thinking, metavar="BUDGET|adaptive|disabled")
@click.option("--max-tokens", type=click.IntRange(1), default=1024, show_default=True)
@click.option("--temperature", type=float)
@click.option("--extra-body", callback=_json_object, metavar="JSON", help="Fields to add to every request.")
@click.pass_context
def record(ctx: click.Context, /, mode: str, upstream: str, output: Path, **options: Any) -> None:
    """Record a conversation.

    `messages` asks an upstream the prompts and answers its tool calls, each exchange a turn. `proxy` passes
    requests of whatever client on to the upstream, and keeps both sides until it is interrupted. Credentials are not
    recorded; the upstream's key, if it needs one, is taken from GATEWAY_UPSTREAM_API_KEY.
    """
    typed = shlex.join(["messages-recorder", *(ctx.find_root().obj or [])])
    if mode == "proxy":
        if options["listen"] is None:
            raise click.UsageError("--mode proxy needs --listen PORT")
        with _client(upstream) as client:
            recorded = provenance(client, options["model"], typed)
        with CassetteWriter(output, recorded) as writer:
            asyncio.run(_serve_proxy(upstream, options["listen"], writer))
    else:
        if not options["model"]:
            raise click.UsageError("--mode messages needs --model NAME")
        prompts, typed = _prompts(options["prompts"], typed)
        script = _script(prompts, options)
        with _client(upstream) as client:
            recorded = provenance(client, options["model"], typed)
            with CassetteWriter(output, recorded) as writer:
                try:
                    record_script(script, client, writer, _say_turn)
                finally:
                    _summary(writer)


def _prompts(given: Sequence[str], typed: str) -> tuple[list[str], str]:
    """The prompts, and the command that gives them again."""
    if given:
        return list(given), typed
    prompts = [line.strip() for line in sys.stdin if line.strip()]
    if not prompts:
        raise click.UsageError("no prompt: give --prompt, or lines on standard input")
    return prompts, f"printf '%s\\n' {shlex.join(prompts)} | {typed}"


def _script(prompts: list[str], options: dict[str, Any]) -> Script:
    fields = {
        "model": options["model"],
        "max_tokens": options["max_tokens"],
        "temperature": _as_typed(options["temperature"]),
        "stream": options["stream"],
        "system": options["system"],
        "messages": [],
        "tools": _load(options["tools"], list),
        "tool_choice": options["tool_choice"],
        "thinking": options["thinking"],
    }
    given = {name: value for name, value in fields.items() if value is not None} | options["extra_body"]
    outputs = _load(options["tool_outputs"], dict) or {}
    turns = options["turns"] or sys.maxsize
    return Script(prompts, turns, given, {str(name): str(text) for name, text in outputs.items()})


def _as_typed(number: float | None) -> float | None:
    """0 goes out as 0, not as 0.0."""
    return int(number) if number is not None and number.is_integer() else number


def _load(path: Path | None, kind: type) -> Any:
    if path is None:
        return None
    try:
        value = yaml.safe_load(path.read_bytes())
    except yaml.YAMLError as error:
        raise RecordingError(f"{path}: neither JSON nor YAML: {' '.join(str(error).split())}") from error
    if not isinstance(value, kind):
        raise RecordingError(f"{path}: no {'list of tools' if kind is list else 'mapping of tool name to text'}")
    return value


def _client(upstream: str) -> httpx.Client:
    key = os.environ.get(_API_KEY)
    headers = {"accept-encoding": "identity", **({"authorization": f"Bearer {key}"} if key else {})}
    return httpx.Client(base_url=upstream, headers=headers, timeout=_TIMEOUT)


async def _serve_proxy(upstream: str, port: int, writer: CassetteWriter) -> None:
    sock = bind("127.0.0.1", port)
    proxy = RecordingProxy(upstream, writer, _say_exchange)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(proxy.aclose)
        await stack.enter_async_context(serving(proxy, sock, on_stop=proxy.stop))
        click.echo(f"recording into {writer.path} on {origin(sock)}")
        await stopped_by_signal()
    _summary(writer)


def _say_turn(turn: Turn, problem: str) -> None:
    message, _ = outcome(turn.response)
    calls = [block for block in message["content"] if block.get("type") == "tool_use"] if message else []
    asked = ", ".join(f"{call.get('name')} {json.dumps(call.get('input'), ensure_ascii=False)}" for call in calls)
    what = problem or asked or f"stop {message and message.get('stop_reason')}"
    click.echo(f"{turn.filename}  {turn.response.elapsed_ms or 0:.0f} ms  {what}", err=True)


def _say_exchange(name: str, turn: Turn | None) -> None:
    click.echo(f"{turn.filename}  {name}  {turn.response.status_code}" if turn else name, err=True)


def _summary(writer: CassetteWriter) -> None:
    click.echo(f"{writer.turns} turns in {writer.path}", err=True)
    for what in writer.redacted:
        click.echo(f"redacted {what}", err=True)
