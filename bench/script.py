"""What the upstream double says: the bytes of its answers, spelt as one server or another spells them."""

import json
from dataclasses import asdict, dataclass
from typing import Any, Literal

Spelling = Literal["vllm", "llama.cpp", "blanks"]
"""`vllm`, and SGLang: compact, `index` last. `llama.cpp`, and Anthropic's own: compact, `index` before the payload.
`blanks`: as Python's json writes unless told otherwise, a blank after each colon and comma."""

Kind = Literal["text", "arguments"]

CALL_ID = "chatcmpl-bench-"
"""How the ids of the double's calls begin: a request that holds one comes after the searches."""

RESULT_CHARS = 1000


@dataclass(frozen=True, slots=True)
class Plan:
    """A stream: `events` deltas (None: until told to finish), `lead` of them at once and the rest `interval_s` apart.

    Its deltas are of text, or of the arguments of a call that is the client's. With `searches` an answer begins with a
    round that thinks for `thinking` events, `interval_s` apart, and asks for so many searches side by side; each finds
    `results`.
    """

    events: int | None = 1
    lead: int = 1
    interval_s: float = 0.02
    searches: int = 0
    thinking: int = 0
    results: int = 1
    kind: Kind = "text"
    spelling: Spelling = "vllm"

    def encode(self) -> bytes:
        return json.dumps(asdict(self)).encode()


def event(data: dict[str, Any], spelling: Spelling = "vllm") -> bytes:
    """One SSE event; `data` has its members in vLLM's order."""
    if spelling == "llama.cpp" and "index" in data:
        data = {"type": data["type"], "index": data["index"], **data}
    separators = None if spelling == "blanks" else (",", ":")
    return b"event: %s\ndata: %s\n\n" % (data["type"].encode(), json.dumps(data, separators=separators).encode())


def chunk(payload: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(payload), payload)


def message(**fields: Any) -> dict[str, Any]:
    usage = {"input_tokens": 175, "output_tokens": 0}
    empty = {"id": "chatcmpl-5b0c7a41d2f8936e", "type": "message", "role": "assistant", "content": [], "model": "qwen3"}
    return empty | {"stop_reason": None, "stop_sequence": None, "usage": usage} | fields


TEXT = {"type": "text", "text": ""}
THINKING = {"type": "thinking", "thinking": ""}
CLIENT_CALL = {"type": "tool_use", "id": "chatcmpl-tool-2", "name": "Bash", "input": {}}
NUMBERED = " %d.%d.%d"
"""Of the stream, the event, and when it was sent: filled in for every delta."""
DELTAS = {
    "text": {"type": "text_delta", "text": NUMBERED},
    "thinking": {"type": "thinking_delta", "thinking": NUMBERED},
    "arguments": {"type": "input_json_delta", "partial_json": NUMBERED},
}


class Round:
    """The bytes of one streamed round: `opening`, any number of `delta` (to be filled in), `ending`."""

    def __init__(self, plan: Plan, *, searching: bool) -> None:
        self.spelling = plan.spelling
        start = self._event({"type": "message_start", "message": message()})
        if searching:
            self.events: int | None = plan.thinking
            self.lead = 0
            opening, self.delta, closing = self._block(THINKING, "thinking") if plan.thinking else (b"", b"", b"")
            calls = b"".join(self._search(number, bool(plan.thinking)) for number in range(plan.searches))
            self.ending = closing + calls + self._end("tool_use")
        else:
            self.events, self.lead = plan.events, plan.lead
            block, stop = (TEXT, "end_turn") if plan.kind == "text" else (CLIENT_CALL, "tool_use")
            opening, self.delta, closing = self._block(block, plan.kind)
            self.ending = closing + self._end(stop)
        self.opening = start + opening

    def _event(self, data: dict[str, Any]) -> bytes:
        return event(data, self.spelling)

    def _block(self, block: dict[str, Any], kind: str) -> tuple[bytes, bytes, bytes]:
        return (
            self._event({"type": "content_block_start", "content_block": block, "index": 0}),
            self._event({"type": "content_block_delta", "delta": DELTAS[kind], "index": 0}),
            self._event({"type": "content_block_stop", "index": 0}),
        )

    def _search(self, number: int, after_thinking: bool) -> bytes:
        index = number + after_thinking
        call = {"type": "tool_use", "id": f"{CALL_ID}{number}", "name": "web_search", "input": {}}
        query = json.dumps({"query": f"latest stable Rust release {number}"})
        delta = {"type": "input_json_delta", "partial_json": query}
        return (
            self._event({"type": "content_block_start", "content_block": call, "index": index})
            + self._event({"type": "content_block_delta", "delta": delta, "index": index})
            + self._event({"type": "content_block_stop", "index": index})
        )

    def _end(self, stop_reason: str) -> bytes:
        delta = {"stop_reason": stop_reason, "stop_sequence": None}
        usage = {"input_tokens": 175, "output_tokens": 64}
        return self._event({"type": "message_delta", "delta": delta, "usage": usage}) + self._event(
            {"type": "message_stop"}
        )


def found(results: int) -> bytes:
    """A search's answer in Brave's shape; one short result, or that many of `RESULT_CHARS` each."""
    text = "The latest stable release. " * (RESULT_CHARS // 27 if results > 1 else 1)
    pages = [
        {
            "title": f"Rust 1.{number}" + ": what is new in it" * (8 if results > 1 else 0),
            "url": f"https://example.com/rust/{number}",
            "description": text,
        }
        for number in range(results)
    ]
    return json.dumps({"type": "search", "web": {"type": "search", "results": pages}}).encode()


STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\nserver: uvicorn\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
    b"transfer-encoding: chunked\r\n\r\n"
)
END = b"0\r\n\r\n"
ANSWER = [{"type": "text", "text": "Hello! How can I help you today?"}]
JSON_BODY = json.dumps(message(content=ANSWER, stop_reason="end_turn"), separators=(",", ":")).encode()
MODELS = json.dumps({"object": "list", "data": [{"id": "qwen3", "object": "model", "max_model_len": 262144}]}).encode()


def json_answer(body: bytes) -> bytes:
    head = b"HTTP/1.1 200 OK\r\nserver: uvicorn\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
    return head % len(body) + body
