"""The upstream of `make compare`: vLLM's refusals, a script that searches, and the search engine itself."""

import asyncio
import json
from collections.abc import AsyncIterable, AsyncIterator
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from e2e.scripted_vllm import ScriptedVllm

MODEL = "qwen3"
TWO_SEARCHES = "two searches, one after the other, then the answer"
MIXED = "a search and a call of Bash in one round"
ENDLESS = "a search in every round that may have one"
BASH = {"name": "Bash", "input_schema": {"type": "object", "properties": {"command": {"type": "string"}}}}
QUERIES = ("rust release 0", "rust release 1")
"""What the two searches ask."""
PACE_S = 0.02
"""Between two events of a stream."""
JSON_STEPS = 20
"""A JSON answer takes as long as so many events."""

_RESULT = {"title": "Announcing Rust 1.95.0", "url": "https://blog.rust-lang.org/2026/04/16/Rust-1.95.0/"}
_ANSWER = "The latest stable Rust release is 1.95.0, announced on 16 April 2026 on the Rust blog."


class Upstream(ScriptedVllm):
    """The upstream as an ASGI app. What it saw since `begin` is in its attributes."""

    def __init__(self) -> None:
        super().__init__(model=MODEL, max_model_len=40_960)
        self.app.router.routes += [Route("/search", self._searxng), Route("/res/v1/web/search", self._brave)]
        self.begin(TWO_SEARCHES)

    def begin(self, script: str, *, slow: bool = False) -> None:
        """A new request is to come: play this script to it, `slow` with a second between two events."""
        self.script = script
        self.pace_s = 1.0 if slow else PACE_S
        self.rounds = 0
        self.output_tokens = 0
        self.queries: list[str] = []
        self.first_body: dict[str, Any] = {}
        self.answering = asyncio.Event()
        self.dropped = asyncio.Event()

    async def _messages(self, request: Request) -> Response:
        self.first_body = self.first_body or await request.json()
        response = await super()._messages(request)
        if response.status_code == 200:
            self.answering.set()
            if isinstance(response, StreamingResponse):
                response.body_iterator = self._paced(response.body_iterator)
            else:
                await self._work(request)
        return response

    async def _work(self, request: Request) -> None:
        for _ in range(JSON_STEPS):
            if await request.is_disconnected():
                self.dropped.set()
                return
            await asyncio.sleep(self.pace_s)

    async def _paced(self, events: AsyncIterable[Any]) -> AsyncIterator[Any]:
        try:
            async for event in events:
                yield event
                await asyncio.sleep(self.pace_s)
        except asyncio.CancelledError:
            self.dropped.set()
            raise

    def _answer(self, body: dict[str, Any]) -> dict[str, Any]:
        self.rounds += 1
        content = self._content(body)
        calls = any(block["type"] == "tool_use" for block in content)
        tokens = 20 + self.rounds
        self.output_tokens += tokens
        return {
            "id": f"chatcmpl-{self.rounds:016x}",
            "type": "message",
            "role": "assistant",
            "content": content,
            "model": self.model,
            "stop_reason": "tool_use" if calls else "end_turn",
            "usage": {"input_tokens": 100 * self.rounds, "output_tokens": tokens},
        }

    def _content(self, body: dict[str, Any]) -> list[dict[str, Any]]:
        """What the script's model says."""
        name = next((tool["name"] for tool in body.get("tools") or [] if "search" in tool["name"].lower()), None)
        free = name is not None and (body.get("tool_choice") or {}).get("type") != "none"
        done = _results(body)
        thought = {"type": "thinking", "thinking": "I should look this up.", "signature": f"{self.rounds:032x}"}
        if free and self.script == ENDLESS:
            return [thought, self._call(name, f"rust release {done}")]
        if free and self.script == MIXED and not done:
            bash = {"type": "tool_use", "id": "chatcmpl-tool-bash", "name": "Bash", "input": {"command": "rustc -V"}}
            return [self._call(name, "latest rust"), bash]
        if free and self.script == TWO_SEARCHES and done < 2:
            said = {"type": "text", "text": "One more look." if done else "Let me look."}
            return [thought, said, self._call(name, QUERIES[done])]
        return [{"type": "text", "text": _ANSWER}]

    def _call(self, name: str | None, query: str) -> dict[str, Any]:
        call = {"type": "tool_use", "id": f"chatcmpl-tool-{self.rounds:016x}", "name": name}
        return {**call, "input": {"query": query}}

    async def _searxng(self, request: Request) -> Response:
        self.queries.append(request.query_params["q"])
        query = request.query_params["q"]
        return JSONResponse({"query": query, "results": [{**_RESULT, "content": snippet(query)}]})

    async def _brave(self, request: Request) -> Response:
        self.queries.append(request.query_params["q"])
        page = {**_RESULT, "description": snippet(request.query_params["q"])}
        return JSONResponse({"type": "search", "web": {"type": "search", "results": [page]}})


def snippet(query: str) -> str:
    """What the search engine says to a query."""
    return f"Rust 1.95.0 is out, as found for {query}."


def found_in(messages: list[dict[str, Any]]) -> str:
    """How many of the two searches' results are in a conversation as it came upstream, and as what."""
    kinds: dict[str, str] = {}
    for message in messages:
        for block in message["content"] if isinstance(message["content"], list) else []:
            kinds |= {query: block["type"] for query in QUERIES if snippet(query) in json.dumps(block)}
    found = f"results of {len(kinds)} of {len(QUERIES)} searches"
    return f"{found}, as {' and '.join(sorted(set(kinds.values())))}" if kinds else found


def _results(body: dict[str, Any]) -> int:
    """The tool results since the last user message that is a question."""
    count = 0
    for message in body["messages"]:
        if message["role"] == "user":
            blocks = message["content"] if isinstance(message["content"], list) else []
            found = sum(block["type"] == "tool_result" for block in blocks)
            count = count + found if found else 0
    return count
