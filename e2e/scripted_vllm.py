"""An upstream that speaks `/v1/messages` as vLLM does, with a script where the model would be.

It refuses what vLLM refuses, in vLLM's words: tools without an `input_schema`, block types it does not know, a model it
does not serve, more `max_tokens` than its window. What it answers is `scripted_model`'s; its usage counts the prompt,
four characters a token, and what of it an earlier prompt begins with too.
"""

import json
import re
from bisect import bisect_left
from collections.abc import Iterator
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from e2e.scripted_model import CHARS_A_TOKEN, Script, answer, prompt_of, text_of

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


class ScriptedVllm:
    """The upstream as an ASGI app; `requests` are the bodies it was sent, `refusals` its own 4xx answers, in order.

    `prompts` are the prompts of the requests it answered, `cached` how many characters of each an earlier one began
    with.
    """

    def __init__(self, *, model: str, max_model_len: int, script: Script | None = None) -> None:
        self.model = model
        self.max_model_len = max_model_len
        self.requests: list[dict[str, Any]] = []
        self.refusals: list[str] = []
        self.prompts: list[str] = []
        self.cached: list[int] = []
        self._script = script or {}
        self.app = Starlette(
            routes=[
                Route("/health", lambda _: Response(status_code=200)),
                Route("/version", lambda _: JSONResponse({"version": "0.32.0"})),
                Route("/v1/models", self._models),
                Route("/v1/messages", self._messages, methods=["POST"]),
                Route("/v1/messages/count_tokens", self._count, methods=["POST"]),
            ]
        )

    def tool_results(self) -> list[str]:
        """The text of every tool result that reached the model, in order, each once."""
        seen: dict[str, str] = {}
        for body in self.requests:
            for block in _blocks(body):
                if block["type"] == "tool_result":
                    seen[block["tool_use_id"]] = text_of(block.get("content"))
        return list(seen.values())

    async def _models(self, _: Request) -> Response:
        card = {"id": self.model, "object": "model", "owned_by": "vllm", "max_model_len": self.max_model_len}
        return JSONResponse({"object": "list", "data": [card]})

    async def _count(self, request: Request) -> Response:
        body = await request.json()
        refusal = self._refusal({"max_tokens": 1, **body})
        return refusal or JSONResponse({"input_tokens": len(prompt_of(body)) // CHARS_A_TOKEN})

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
        prompt = prompt_of(body)
        self.cached.append(max((_begins_alike(prompt, earlier) for earlier in self.prompts), default=0))
        self.prompts.append(prompt)
        content = answer(body, self._script)
        for block in content:
            if block["type"] == "tool_use":
                block["id"] = f"chatcmpl-tool-{number:016x}"
            elif block["type"] == "thinking":
                block["signature"] = f"{number:032x}"
        return {
            "id": f"chatcmpl-{number:016x}",
            "type": "message",
            "role": "assistant",
            "content": content,
            "model": self.model,
            "stop_reason": "tool_use" if content[-1]["type"] == "tool_use" else "end_turn",
            "usage": {"input_tokens": len(prompt) // CHARS_A_TOKEN, "output_tokens": 10 + number},
        }


def _blocks(body: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for message in body["messages"]:
        if isinstance(message["content"], list):
            yield from message["content"]


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


def _begins_alike(one: str, other: str) -> int:
    """How many characters both begin with."""
    shorter = min(len(one), len(other))
    return bisect_left(range(shorter), True, key=lambda length: one[: length + 1] != other[: length + 1])
