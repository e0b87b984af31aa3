"""An upstream that speaks `/v1/messages` as vLLM does, with a script where the model would be.

It refuses what vLLM refuses, in vLLM's words: tools without an `input_schema`, block types it does not know, a model it
does not serve, more `max_tokens` than its window. The script: a request that declares a search function and has no
result yet gets one call of it; a request with results gets an answer that names the version found in them; a request
without tools gets a title.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

SEARCH_FUNCTIONS = ("WebSearch", "web_search")
BLOCK_TYPES = {
    "image",
    "redacted_thinking",
    "text",
    "thinking",
    "tool_addition",
    "tool_reference",
    "tool_removal",
    "tool_result",
    "tool_use",
}
VERSION = re.compile(r"\b\d+\.\d+\.\d+\b")


class ScriptedVllm:
    """The upstream as an ASGI app; `requests` are the bodies it was sent, `refusals` its own 4xx answers, in order."""

    def __init__(self, *, model: str, max_model_len: int) -> None:
        self.model = model
        self.max_model_len = max_model_len
        self.requests: list[dict[str, Any]] = []
        self.refusals: list[str] = []
        self.app = Starlette(
            routes=[
                Route("/health", lambda _: Response(status_code=200)),
                Route("/version", lambda _: JSONResponse({"version": "0.32.0"})),
                Route("/v1/models", self._models),
                Route("/v1/messages", self._messages, methods=["POST"]),
            ]
        )

    def tool_results(self) -> list[str]:
        """The text of every tool result that reached the model, in order, each once."""
        seen: dict[str, str] = {}
        for body in self.requests:
            for block in _blocks(body):
                if block["type"] == "tool_result":
                    seen[block["tool_use_id"]] = _text_of(block["content"])
        return list(seen.values())

    async def _models(self, _: Request) -> Response:
        card = {"id": self.model, "object": "model", "owned_by": "vllm", "max_model_len": self.max_model_len}
        return JSONResponse({"object": "list", "data": [card]})

    async def _messages(self, request: Request) -> Response:
        body = await request.json()
        self.requests.append(body)
        refusal = self._refusal(body)
        if refusal is not None:
            self.refusals.append(bytes(refusal.body).decode())
            return refusal
        message = self._answer(body)
        if body.get("stream"):
            return StreamingResponse(_events(message), media_type="text/event-stream; charset=utf-8")
        return JSONResponse(message)

    def _refusal(self, body: dict[str, Any]) -> JSONResponse | None:
        for index, tool in enumerate(body.get("tools") or []):
            if "input_schema" not in tool:
                return _invalid(f"body.tools.{index}.input_schema", "missing", "Field required")
        for number, message in enumerate(body["messages"]):
            if isinstance(message["content"], list):
                for index, block in enumerate(message["content"]):
                    if block["type"] not in BLOCK_TYPES:
                        where = f"body.messages.{number}.content.{index}.type"
                        return _invalid(where, "literal_error", f"Input should be one of {sorted(BLOCK_TYPES)}")
        if body["model"] != self.model:
            text = f"The model `{body['model']}` does not exist. Valid aliases: {self.model}."
            return _refused(404, "NotFoundError", text)
        if body["max_tokens"] > self.max_model_len:
            asked = f"max_completion_tokens={body['max_tokens']}"
            text = f"{asked} cannot be greater than max_model_len={self.max_model_len}. Please lower it."
            return _refused(400, "BadRequestError", text)
        thinking = body.get("thinking") or {}
        if thinking.get("type") == "enabled" and not 1024 <= thinking["budget_tokens"] < body["max_tokens"]:
            return _refused(400, "BadRequestError", "thinking.budget_tokens must be >= 1024 and < max_tokens")
        return None

    def _answer(self, body: dict[str, Any]) -> dict[str, Any]:
        number = len(self.requests)
        declared = {tool["name"] for tool in body.get("tools") or []}
        search = next((name for name in SEARCH_FUNCTIONS if name in declared), None)
        results = [block for block in _blocks(body) if block["type"] == "tool_result"]
        stop, content = "end_turn", []
        if search and not results:
            stop = "tool_use"
            call = {"type": "tool_use", "id": f"chatcmpl-tool-{number:016x}", "name": search}
            content = [
                {"type": "thinking", "thinking": "\nI should look this up.\n", "signature": f"{number:032x}"},
                {"type": "text", "text": "\n\n"},
                {**call, "input": {"query": "latest stable Rust release"}},
            ]
        elif search:
            found = VERSION.search(_text_of(results[-1]["content"]))
            answer = f"The latest stable Rust release is {found.group()}." if found else "The search found no version."
            content = [{"type": "text", "text": answer}]
        else:
            content = [{"type": "text", "text": json.dumps({"title": "Latest Rust release"})}]
        return {
            "id": f"chatcmpl-{number:016x}",
            "type": "message",
            "role": "assistant",
            "content": content,
            "model": self.model,
            "stop_reason": stop,
            "usage": {"input_tokens": 1000 + number, "output_tokens": 10 + number},
        }


def _blocks(body: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for message in body["messages"]:
        if isinstance(message["content"], list):
            yield from message["content"]


def _text_of(content: str | list[dict[str, Any]]) -> str:
    return content if isinstance(content, str) else "\n".join(block.get("text", "") for block in content)


def _invalid(where: str, kind: str, message: str) -> JSONResponse:
    """vLLM's body for a request its schema refuses; unlike its other errors it has no top-level `type`."""
    text = f"1 validation error:\n  {{'type': '{kind}', 'loc': '{where}', 'msg': '{message}'}}"
    error = {"message": text, "type": "Bad Request", "param": where, "code": 400}
    return JSONResponse({"error": error}, status_code=400)


def _refused(status: int, kind: str, message: str) -> JSONResponse:
    return JSONResponse({"type": "error", "error": {"type": kind, "message": message}}, status_code=status)


def _events(message: dict[str, Any]) -> Iterator[str]:
    """The message as vLLM streams it: one event a token, `index` last in each."""
    usage = message["usage"]
    start = {**message, "content": [], "stop_reason": None, "stop_sequence": None}
    start["usage"] = {"input_tokens": usage["input_tokens"], "output_tokens": 0}
    yield _sse({"type": "message_start", "message": start})
    for index, block in enumerate(message["content"]):
        for event in _block_events(block):
            yield _sse({**event, "index": index})
    delta = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    yield _sse({"type": "message_delta", "delta": delta, "usage": usage})
    yield _sse({"type": "message_stop"})


def _block_events(block: dict[str, Any]) -> Iterator[dict[str, Any]]:
    opening: dict[str, Any]
    deltas: list[dict[str, Any]]
    match block["type"]:
        case "thinking":
            opening = {"type": "thinking", "thinking": ""}
            deltas = [{"type": "thinking_delta", "thinking": piece} for piece in _tokens(block["thinking"])]
            deltas.append({"type": "signature_delta", "signature": block["signature"]})
        case "tool_use":
            opening = {**block, "input": {}}
            pieces = _tokens(json.dumps(block["input"]))
            deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
        case _:
            opening = {"type": "text", "text": ""}
            deltas = [{"type": "text_delta", "text": piece} for piece in _tokens(block["text"])]
    yield {"type": "content_block_start", "content_block": opening}
    for delta in deltas:
        yield {"type": "content_block_delta", "delta": delta}
    yield {"type": "content_block_stop"}


def _tokens(text: str) -> list[str]:
    return re.findall(r"\s*\S+|\s+", text)


def _sse(event: dict[str, Any]) -> str:
    return f"event: {event['type']}\ndata: {json.dumps(event, separators=(',', ':'))}\n\n"
