"""The excerpts of docs/turns.md: small conversations through the real gateway, and how they are written down.

Each scenario returns its excerpts by name. A page holds one as a fence after ``<!-- wire: SCENARIO.NAME -->``.
``python -m tests.support.wire`` writes them into the page; the test holds the page to them.
"""

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from gateway.settings import Settings
from gateway.tools.base import Cause, SearchBackend, SearchFailed, SearchQuery
from gateway.tools.canned import CannedSearch
from gateway.turn.web_search import SearchResult
from tests.support.gateway import RunningGateway, running_gateway
from tests.support.upstream import (
    Answer,
    Block,
    ScriptedUpstream,
    json_answer,
    message,
    sse,
    sse_answer,
    text,
    thinking,
    tool_use,
)

PAGE = Path(__file__).parents[2] / "docs" / "turns.md"
MARK = re.compile(r"(<!-- wire: ([a-z-]+)\.([a-z-]+) -->\n```[a-z]+\n)(.*?)(^```$)", re.MULTILINE | re.DOTALL)

Json = dict[str, Any]
Excerpts = dict[str, str]

QUESTION = "What is the latest stable Rust release?"
TYPED: Json = {"type": "web_search_20250305", "name": "web_search"}
FUNCTION: Json = {
    "name": "web_search",
    "description": "Search the web.",
    "input_schema": {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]},
}
BASH: Json = {"name": "Bash", "input_schema": {"type": "object", "properties": {"command": {"type": "string"}}}}
FOUND = SearchResult(
    title="Announcing Rust 1.95.0",
    url="https://blog.rust-lang.org/2026/04/16/Rust-1.95.0/",
    snippet="The Rust team is happy to announce a new version of Rust, 1.95.0.",
    page_age="2026-04-16",
)

THINKS = thinking("I should", " search.", signature="f99d3be7a1804f88")
SEARCHES = tool_use("web_search", ['{"query": ', '"latest stable rust"}'], id="chatcmpl-tool-9f12")
ANSWERS = text("It is", " Rust 1.95.0.")
RUNS = tool_use("Bash", ['{"command": "rustc -V"}'], id="chatcmpl-tool-77aa")


class _Broken:
    """A search backend whose key is refused."""

    name = "brave"
    label = "Brave Search"

    async def search(self, query: SearchQuery) -> list[SearchResult]:
        raise SearchFailed(Cause.KEY_REJECTED, self.label)

    async def aclose(self) -> None:
        """Nothing to close."""


class Talk:
    """One gateway, its scripted upstream, and the client's side of the conversation."""

    def __init__(self, gateway: RunningGateway, upstream: ScriptedUpstream) -> None:
        self._gateway = gateway
        self._upstream = upstream

    async def send(self, *tools: Json, **fields: Any) -> tuple[Json, str]:
        """The request's body, and the answer's text."""
        body = {"model": "qwen3", "max_tokens": 1024, "messages": [{"role": "user", "content": QUESTION}]}
        body |= {"tools": list(tools)} if tools else {}
        body |= fields
        response = await self._gateway.client.post("/v1/messages", json=body)
        self.status = response.status_code
        return body, response.text

    def asked(self, number: int) -> Json:
        """The body of an upstream request, counted from 1."""
        body: Json = self._upstream.requests[number - 1].json
        return body


Scenario = Callable[[], Awaitable[Excerpts]]


async def _talk(stack: AsyncExitStack, *answers: Answer, backend: SearchBackend | None = None, **settings: Any) -> Talk:
    upstream = await stack.enter_async_context(ScriptedUpstream(*answers))
    backend = backend or CannedSearch(default=[FOUND])
    known = Settings(upstream=upstream.origin, seal_keys=("docs",), log_level="error", **settings)
    return Talk(await stack.enter_async_context(running_gateway(known, backend=backend)), upstream)


def _json(*blocks: Block, **fields: Any) -> Answer:
    return json_answer(message(*blocks, **fields))


def _stream(*blocks: Block, **fields: Any) -> Answer:
    return sse_answer(sse(*blocks, **fields))


async def hidden() -> Excerpts:
    """A function named web_search, as a stream."""
    async with AsyncExitStack() as stack:
        talk = await _talk(
            stack,
            _stream(THINKS, text("\n\n"), SEARCHES, id="chatcmpl-1", input_tokens=160, output_tokens=30),
            _stream(ANSWERS, id="chatcmpl-2", input_tokens=240, output_tokens=12),
        )
        body, answer = await talk.send(FUNCTION, stream=True)
        return {
            "request": written(body),
            "answer": events(answer),
            "second-round": written({"messages": talk.asked(2)["messages"]}),
        }


async def native() -> Excerpts:
    """The typed tool, as JSON; and the answer sent back."""
    async with AsyncExitStack() as stack:
        talk = await _talk(
            stack,
            _json(THINKS, SEARCHES, id="chatcmpl-1", input_tokens=160, output_tokens=30),
            _json(ANSWERS, id="chatcmpl-2", input_tokens=240, output_tokens=12),
            _json(text("Yes."), id="chatcmpl-3"),
        )
        body, answer = await talk.send({**TYPED, "max_uses": 3})
        first = json.loads(answer)
        history = [*body["messages"], {"role": "assistant", "content": first["content"]}]
        await talk.send(TYPED, messages=[*history, {"role": "user", "content": "Are you sure?"}])
        return {
            "request": written(body),
            "upstream-tools": written({"tools": talk.asked(1)["tools"]}),
            "answer": written(first),
            "sent-back": written({"messages": talk.asked(3)["messages"]}),
        }


async def native_stream() -> Excerpts:
    """The typed tool, as a stream."""
    async with AsyncExitStack() as stack:
        talk = await _talk(stack, _stream(SEARCHES), _stream(ANSWERS))
        _, answer = await talk.send(TYPED, stream=True)
        return {"answer": events(answer)}


async def mixed() -> Excerpts:
    """A search and a client's call in one round, both presentations."""
    async with AsyncExitStack() as stack:
        typed = await _talk(stack, _json(SEARCHES, RUNS))
        _, shown = await typed.send(TYPED, BASH)
        hidden = await _talk(stack, _json(SEARCHES, RUNS))
        _, alone = await hidden.send(FUNCTION, BASH)
        return {"native": written(_only(shown, "content")), "hidden": written(_only(alone, "content"))}


async def paused() -> Excerpts:
    """Native tools only, and no round left."""
    async with AsyncExitStack() as stack:
        talk = await _talk(stack, _json(SEARCHES), max_rounds=1)
        _, answer = await talk.send(TYPED)
        return {"answer": written(_only(answer, "content"))}


async def answered() -> Excerpts:
    """Native tools only, no round left, and a client that does not go on from a pause."""
    async with AsyncExitStack() as stack:
        talk = await _talk(stack, _json(SEARCHES), _json(ANSWERS), max_rounds=2, at_max_rounds="answer")
        _, answer = await talk.send(TYPED)
        asked = talk.asked(2)
        return {
            "request": written({"messages": asked["messages"][-1:], "tool_choice": asked["tool_choice"]}),
            "answer": written(_only(answer, "content")),
        }


async def last_round() -> Excerpts:
    """A hidden tool, and no round left: what the model is told."""
    async with AsyncExitStack() as stack:
        talk = await _talk(stack, _json(SEARCHES), _json(ANSWERS), max_rounds=2)
        await talk.send(FUNCTION)
        asked = talk.asked(2)
        return {"request": written({"messages": asked["messages"][-1:], "tool_choice": asked["tool_choice"]})}


async def failed_search() -> Excerpts:
    """A search that fails: what the client sees, what the model reads."""
    async with AsyncExitStack() as stack:
        talk = await _talk(stack, _json(SEARCHES), _json(text("I could not search.")), backend=_Broken())
        _, answer = await talk.send(TYPED)
        hidden = await _talk(stack, _json(SEARCHES), _json(text("I could not search.")), backend=_Broken())
        await hidden.send(FUNCTION)
        return {
            "answer": written(_only(answer, "content", "usage")),
            "model": written({"messages": hidden.asked(2)["messages"][-1:]}),
        }


async def failed_round() -> Excerpts:
    """Upstream refuses the second round of a stream."""
    refused = {"type": "error", "error": {"type": "BadRequestError", "message": "The prompt is too long."}}
    async with AsyncExitStack() as stack:
        talk = await _talk(stack, _stream(SEARCHES), json_answer(refused, 400))
        _, answer = await talk.send(TYPED, stream=True)
        return {"answer": events(answer, last=1)}


async def own_error() -> Excerpts:
    """A request that the loop must read and cannot."""
    async with AsyncExitStack() as stack:
        talk = await _talk(stack, _json(ANSWERS))
        _, answer = await talk.send(BASH, {**TYPED, "max_uses": 0})
        return {"answer": _sealed(f"HTTP {talk.status}\n{answer}\n")}


async def think_text() -> Excerpts:
    """An upstream without a reasoning parser."""
    async with AsyncExitStack() as stack:
        talk = await _talk(stack, _json(text("<think>\nEasy.\n</think>\n\nIt is Rust 1.95.0.")))
        _, answer = await talk.send(FUNCTION)
        return {"answer": written(_only(answer, "content"))}


async def defined() -> Excerpts:
    """A client tool that Anthropic defines by its type."""
    async with AsyncExitStack() as stack:
        talk = await _talk(stack, _json(ANSWERS))
        await talk.send({"type": "bash_20250124", "name": "bash"})
        return {"upstream-tools": written({"tools": talk.asked(1)["tools"]})}


async def unknown_tool() -> Excerpts:
    """A server tool that nobody here has."""
    async with AsyncExitStack() as stack:
        talk = await _talk(stack, _json(ANSWERS))
        _, answer = await talk.send({"type": "code_execution_20250825", "name": "code_execution"})
        return {"answer": _sealed(f"HTTP {talk.status}\n{answer}\n")}


async def elsewhere() -> Excerpts:
    """A history with another server tool's blocks."""
    result = {"type": "bash_code_execution_result", "stdout": "1.95.0", "stderr": "", "return_code": 0, "content": []}
    history: list[Json] = [
        {"role": "user", "content": QUESTION},
        {
            "role": "assistant",
            "content": [
                {
                    "type": "server_tool_use",
                    "id": "srvtoolu_01A",
                    "name": "bash_code_execution",
                    "input": {"command": "rustc -V"},
                },
                {"type": "bash_code_execution_tool_result", "tool_use_id": "srvtoolu_01A", "content": result},
                {"type": "text", "text": "It is Rust 1.95.0."},
            ],
        },
        {"role": "user", "content": "Are you sure?"},
    ]
    async with AsyncExitStack() as stack:
        talk = await _talk(stack, _json(text("Yes.")))
        await talk.send(messages=history)
        asked = talk.asked(1)["messages"]
        return {
            "client": written({"messages": history[1:2]}),
            "upstream": written({"messages": asked[1:-1]}),
        }


SCENARIOS: dict[str, Scenario] = {
    "defined": defined,
    "unknown-tool": unknown_tool,
    "elsewhere": elsewhere,
    "hidden": hidden,
    "native": native,
    "native-stream": native_stream,
    "mixed": mixed,
    "paused": paused,
    "answered": answered,
    "last-round": last_round,
    "failed-search": failed_search,
    "failed-round": failed_round,
    "own-error": own_error,
    "think-text": think_text,
}


def _only(answer: str, *names: str) -> Json:
    value = json.loads(answer)
    return {name: value[name] for name in (*names, "stop_reason")}


def events(stream: str, last: int | None = None) -> str:
    """A stream as it crossed the wire, or its last events."""
    found = [event for event in _sealed(stream).split("\n\n") if event]
    return "\n\n".join(found if last is None else found[-last:]) + "\n"


def written(value: Json) -> str:
    """An object: a member a line, and in its lists of objects an object a line, likewise one level deeper."""
    return _sealed(_written(value, "")) + "\n"


def _written(value: Any, indent: str) -> str:
    inner = indent + "  "
    flat = json.dumps(value, ensure_ascii=False)
    if len(indent) + len(flat) <= 88:
        return flat
    if isinstance(value, dict):
        members = [f"{inner}{json.dumps(name)}: {_written(item, inner)}" for name, item in value.items()]
        return "{\n" + ",\n".join(members) + f"\n{indent}}}"
    if isinstance(value, list):
        items = [inner + _written(item, inner) for item in value]
        return "[\n" + ",\n".join(items) + f"\n{indent}]"
    return flat


def _sealed(shown: str) -> str:
    """With what is different every time left out: request ids and sealed results."""
    shown = re.sub(r"req_\w+", "req_…", shown)
    return re.sub(r'("encrypted_content": ?")[^"]+"', r'\1…"', shown)


async def excerpts() -> dict[tuple[str, str], str]:
    """Every excerpt by scenario and name."""
    return {
        (scenario, name): excerpt for scenario, play in SCENARIOS.items() for name, excerpt in (await play()).items()
    }


def main() -> None:
    """Write the excerpts into the page."""
    found = asyncio.run(excerpts())
    page = MARK.sub(lambda mark: mark[1] + found[mark[2], mark[3]] + mark[5], PAGE.read_text())
    PAGE.write_text(page)


if __name__ == "__main__":
    main()
