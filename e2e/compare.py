"""The same requests through this gateway and its peers, side by side: `make compare`.

One upstream that refuses what vLLM refuses, with a script where the model would be; one search backend with canned
results. Each server stands in front of them in turn, is asked the same things, and what a client can see of the
answers is printed as a table. Nothing is judged here: it is a record of what each server did. The peers are installed
from PyPI at first use, into the folder that `make bench` uses.
"""

import asyncio
import json
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import click
import httpx
from rich.box import MARKDOWN
from rich.console import Console
from rich.table import Table

from bench import peers
from bench.process import StartFailed, free_port, running
from e2e.compare_upstream import BASH, ENDLESS, MIXED, MODEL, TWO_SEARCHES, Upstream, found_in
from e2e.processes import serving

TYPED = {"type": "web_search_20250305", "name": "web_search"}
FUNCTION = {
    "name": "web_search",
    "description": "Search the web.",
    "input_schema": {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]},
}
TIMEOUT_S = 60
ASKED_WITHIN_S = 3
LET_GO_WITHIN_S = 10


@dataclass(frozen=True)
class Sent:
    """What a client got: the status, the message (folded from the events where it was a stream), and the events."""

    status: int
    message: dict[str, Any]
    events: list[tuple[float, dict[str, Any]]]

    @property
    def blocks(self) -> str:
        """The message's block types, the same one after another counted."""
        if self.status != 200 or "content" not in self.message:
            error = self.message.get("error")
            told = error.get("message") if isinstance(error, dict) else None
            return f"HTTP {self.status}: {str(told or 'no message').strip().splitlines()[0][:60]}"
        return _runs([str(block["type"]) for block in self.message["content"]]) or "no block"


@dataclass(frozen=True)
class Server:
    """A server under comparison; `start` yields its origin, given the upstream's."""

    name: str
    start: Callable[[str, Path], Any]


class Conversation:
    """What the questions need: the server's client, and the upstream behind it."""

    def __init__(self, client: httpx.AsyncClient, upstream: Upstream) -> None:
        self.client = client
        self.upstream = upstream

    async def ask(self, script: str, *tools: dict[str, Any], stream: bool = False, **fields: Any) -> Sent:
        """One request; the upstream plays `script`."""
        self.upstream.begin(script)
        body = {
            "model": MODEL,
            "max_tokens": 1000,
            "stream": stream,
            "tools": list(tools),
            "messages": [{"role": "user", "content": "What is the latest stable Rust release?"}],
            **fields,
        }
        if not stream:
            response = await self.client.post("/v1/messages", json=body)
            return Sent(response.status_code, _object(response.content), [])
        return await self._streamed(body)

    async def _streamed(self, body: dict[str, Any]) -> Sent:
        events: list[tuple[float, dict[str, Any]]] = []
        async with self.client.stream("POST", "/v1/messages", json=body) as response:
            if response.status_code != 200:
                return Sent(response.status_code, _object(await response.aread()), [])
            async for line in response.aiter_lines():
                if line.startswith("data:") and line[5:].strip() != "[DONE]":
                    events.append((time.monotonic(), json.loads(line[5:])))
        return Sent(200, _fold([event for _, event in events]), events)


Question = Callable[[Conversation], Awaitable[str]]


async def typed_tool(talk: Conversation) -> str:
    return (await talk.ask(TWO_SEARCHES, TYPED)).blocks


async def links(talk: Conversation) -> str:
    sent = await talk.ask(TWO_SEARCHES, TYPED)
    if sent.status != 200:
        return sent.blocks
    found = [
        item
        for block in sent.message.get("content", ())
        if block["type"] == "web_search_tool_result" and isinstance(block["content"], list)
        for item in block["content"]
    ]
    usage = sent.message.get("usage") or {}
    counted = (usage.get("server_tool_use") or {}).get("web_search_requests", "absent")
    return f"{_count(len(found), 'link')}; web_search_requests {counted}; {_searches(talk)}"


async def function_json(talk: Conversation) -> str:
    return (await talk.ask(TWO_SEARCHES, FUNCTION)).blocks


async def function_stream(talk: Conversation) -> str:
    return (await talk.ask(TWO_SEARCHES, FUNCTION, stream=True)).blocks


async def live(talk: Conversation) -> str:
    sent = await talk.ask(TWO_SEARCHES, TYPED, stream=True)
    at = [
        when
        for when, event in sent.events
        if event["type"] == "content_block_delta" and event["delta"]["type"] == "text_delta"
    ]
    return f"{_count(len(at), 'piece')} over {at[-1] - at[0]:.1f} s" if at else sent.blocks


async def max_uses(talk: Conversation) -> str:
    sent = await talk.ask(TWO_SEARCHES, {**TYPED, "max_uses": 1})
    if sent.status != 200:
        return sent.blocks
    return _searches(talk)


async def mixed(talk: Conversation) -> str:
    sent = await talk.ask(MIXED, TYPED, BASH)
    if sent.status != 200:
        return sent.blocks
    stop = sent.message.get("stop_reason")
    return f"{sent.blocks}; stop {stop}; {_searches(talk)}"


async def endless_typed(talk: Conversation) -> str:
    return await _endless(talk, TYPED)


async def endless_function(talk: Conversation) -> str:
    return await _endless(talk, FUNCTION)


async def _endless(talk: Conversation, tool: dict[str, Any]) -> str:
    sent = await talk.ask(ENDLESS, tool)
    if sent.status != 200:
        return sent.blocks
    text = "".join(block.get("text", "") for block in sent.message.get("content", ()))
    stop = sent.message.get("stop_reason")
    answer = "an answer" if text.strip() else "no answer"
    return f"HTTP {sent.status}, stop {stop}, {answer}; {_count(talk.upstream.rounds, 'round')}"


async def tokens(talk: Conversation) -> str:
    sent = await talk.ask(TWO_SEARCHES, TYPED)
    if sent.status != 200:
        return sent.blocks
    counted = (sent.message.get("usage") or {}).get("output_tokens")
    return f"{counted} of the {talk.upstream.output_tokens} that upstream counted"


async def history(talk: Conversation) -> str:
    first = await talk.ask(TWO_SEARCHES, TYPED)
    if first.status != 200:
        return first.blocks
    again = [
        {"role": "user", "content": "What is the latest stable Rust release?"},
        {"role": "assistant", "content": first.message["content"]},
        {"role": "user", "content": "Are you sure?"},
    ]
    second = await talk.ask(TWO_SEARCHES, TYPED, messages=again)
    if second.status != 200:
        return second.blocks
    return found_in(talk.upstream.first_body["messages"])


async def leaving(talk: Conversation) -> str:
    talk.upstream.begin(TWO_SEARCHES, slow=True)
    body = {
        "model": MODEL,
        "max_tokens": 1000,
        "stream": True,
        "tools": [TYPED],
        "messages": [{"role": "user", "content": "What is the latest stable Rust release?"}],
    }
    post = asyncio.create_task(talk.client.post("/v1/messages", json=body))
    try:
        await asyncio.wait_for(talk.upstream.answering.wait(), ASKED_WITHIN_S)
    except TimeoutError:
        post.cancel()
        return "upstream was not asked"
    post.cancel()
    left = time.monotonic()
    try:
        await asyncio.wait_for(talk.upstream.dropped.wait(), LET_GO_WITHIN_S)
    except TimeoutError:
        return f"not within {LET_GO_WITHIN_S} s"
    return f"after {time.monotonic() - left:.1f} s"


QUESTIONS: dict[str, Question] = {
    "Typed web_search tool, two searches: blocks in JSON": typed_tool,
    "… links and counts": links,
    "Function web_search, two searches: blocks in JSON": function_json,
    "… the same as a stream": function_stream,
    "Text of a stream, typed tool": live,
    "max_uses: 1, and the model wants two": max_uses,
    "A search and a client's call in one round": mixed,
    "A model that never stops searching, typed tool": endless_typed,
    "… function": endless_function,
    "Output tokens reported": tokens,
    "The message sent back: what the model gets of it": history,
    "The client leaves: upstream is let go": leaving,
}


@asynccontextmanager
async def started(name: str, start: peers.Start, port: int, log: Path) -> AsyncIterator[str]:
    """A server as a process of its own; yields its origin. Raises StartFailed."""
    manager = running(name, start.command, port, log=log, env=peers.environment(start.env))
    await asyncio.to_thread(manager.__enter__)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        await asyncio.to_thread(manager.__exit__, None, None, None)


def gateway(upstream: str, port: int, scratch: Path) -> peers.Start:
    program = Path(sys.executable).with_name("messages-gateway")
    search = ["--search-provider", "searxng", "--search-base-url", upstream]
    return peers.Start([str(program), "serve", "--upstream", upstream, "--port", str(port), *search])


def litellm(upstream: str, port: int, scratch: Path) -> peers.Start:
    """With its search loop on (`websearch_interception`), as its documentation configures it."""
    program = peers.install(peers.LITELLM) / "litellm"
    model = {"model": f"anthropic/{MODEL}", "api_base": upstream, "api_key": peers.SEARCH_KEY}
    config = {
        "model_list": [{"model_name": MODEL, "litellm_params": model}],
        "search_tools": [
            {"search_tool_name": "here", "litellm_params": {"search_provider": "searxng", "api_base": upstream}}
        ],
        "litellm_settings": {
            "callbacks": ["websearch_interception"],
            "websearch_interception_params": {"enabled_providers": ["anthropic"], "search_tool_name": "here"},
        },
    }
    file = scratch / "litellm-search.json"
    file.write_text(json.dumps(config))
    env = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true"}
    return peers.Start([str(program), "--config", str(file), "--host", "127.0.0.1", "--port", str(port)], env)


SERVERS: dict[str, Callable[[str, int, Path], peers.Start]] = {
    f"messages-gateway {version('messages-gateway')}": gateway,
    peers.AGENTIC_API.replace("==", " "): lambda *where: peers.agentic_api(log=False).start(*where),
    peers.LITELLM.replace("[proxy]==", " "): litellm,
}


async def compare() -> Table:
    """Ask every server everything."""
    table = Table(box=MARKDOWN)
    table.add_column("asked", no_wrap=True)
    answers: dict[str, dict[str, str]] = {}
    upstream = Upstream()
    async with serving(upstream.app) as origin:
        answers["no gateway"] = await everything(origin, upstream)
        for name, start in SERVERS.items():
            with tempfile.TemporaryDirectory(prefix="compare-") as folder:
                port = free_port()
                command = await asyncio.to_thread(start, origin, port, Path(folder))
                async with started(name, command, port, Path(folder) / "log") as gateway_origin:
                    answers[name] = await everything(gateway_origin, upstream)
    for name in answers:
        table.add_column(name)
    for question in QUESTIONS:
        table.add_row(question, *(answer[question] for answer in answers.values()))
    return table


async def everything(origin: str, upstream: Upstream) -> dict[str, str]:
    """Every question's answer from the server at `origin`."""
    headers = {"anthropic-version": "2023-06-01", "x-api-key": "any"}
    found = {}
    for name, question in QUESTIONS.items():
        async with httpx.AsyncClient(base_url=origin, headers=headers, timeout=TIMEOUT_S) as client:
            try:
                found[name] = await question(Conversation(client, upstream))
            except httpx.HTTPError as error:
                found[name] = type(error).__name__
    return found


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}{'es' if what.endswith('ch') else 's'}"


def _searches(talk: Conversation) -> str:
    return f"{_count(len(talk.upstream.queries), 'search')} ran"


def _object(body: bytes) -> dict[str, Any]:
    try:
        value = json.loads(body)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _runs(kinds: list[str]) -> str:
    """`a`, `a`, `b` as `2 a, b`."""
    runs: list[list[Any]] = []
    for kind in kinds:
        if runs and runs[-1][1] == kind:
            runs[-1][0] += 1
        else:
            runs.append([1, kind])
    return ", ".join(kind if count == 1 else f"{count} {kind}" for count, kind in runs)


def _fold(events: list[dict[str, Any]]) -> dict[str, Any]:
    """The message that a stream's events make, as far as the questions look at it."""
    message: dict[str, Any] = {"content": []}
    for event in events:
        match event["type"]:
            case "message_start":
                message |= {**event["message"], "content": []}
            case "content_block_start":
                message["content"].append(event["content_block"])
            case "message_delta":
                message |= {**event["delta"], "usage": {**message.get("usage", {}), **event.get("usage", {})}}
            case "error":
                message["content"].append({"type": "error"})
    return message


@click.command()
def main() -> None:
    """Ask this gateway and its peers the same things, and print what each did."""
    try:
        table = asyncio.run(compare())
    except StartFailed as error:
        raise click.ClickException(str(error)) from error
    Console(width=250, highlight=False).print(table)


if __name__ == "__main__":
    main()
