"""What the tests here say upstream said, and how a client reads what comes of it."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Json = dict[str, Any]

RECORDED = sorted(Path(__file__).parent.joinpath("recorded").glob("*.json"))
"""One conversation with a real vLLM 0.32.0 a file, at temperature 0, as both of its routes answered it.

``request``: the Messages body. ``message``, ``messages_events``: what /v1/messages made of it, JSON and SSE.
``chat_answer``, ``chat_chunks``: the same from /v1/chat/completions with token ids and log-probabilities.
"""


def recorded(path: Path) -> Json:
    conversation: Json = json.loads(path.read_text())
    return conversation


def chunk(ids: list[int], finish: str | None = None, stop: str | int | None = None, **delta: Any) -> Json:
    """A chat completion chunk: what became visible, and the tokens sampled for it."""
    choice: Json = {"index": 0, "delta": delta, "token_ids": ids, "logprobs": None, "finish_reason": finish}
    if finish is not None:
        choice["stop_reason"] = stop
    content = [{"token": str(token), "logprob": -token / 100} for token in ids]
    return {"id": "chatcmpl-1", "model": "qwen3", "choices": [choice | {"logprobs": {"content": content}}]}


def first_chunk(prompt: int = 3) -> Json:
    return {
        "id": "chatcmpl-1",
        "model": "qwen3",
        "choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}],
        "prompt_token_ids": list(range(prompt)),
        "usage": {"prompt_tokens": prompt, "completion_tokens": 0, "total_tokens": prompt},
    }


def usage_chunk(completion: int, prompt: int = 3, **details: Any) -> Json:
    usage = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
    return {"id": "chatcmpl-1", "model": "qwen3", "choices": [], "usage": usage | details}


def call_delta(index: int, arguments: str | None, *, id: str | None = None, name: str | None = None) -> Json:
    function = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}
    return {"index": index, "type": "function", "function": function} | ({"id": id} if id else {})


@dataclass
class Folded:
    """A stream as a client reads it: the blocks, how it ended, the tokens it carried."""

    content: list[Json] = field(default_factory=list)
    stop_reason: str | None = None
    stop_sequence: str | None = None
    usage: Json = field(default_factory=dict)
    output_ids: list[int] = field(default_factory=list)
    output_token_logprobs: list[Any] = field(default_factory=list)


def fold(events: list[Json]) -> Folded:
    """Read a whole stream; an event out of place fails."""
    folded = Folded()
    assert [events[0]["type"], events[-2]["type"], events[-1]["type"]] == [
        "message_start",
        "message_delta",
        "message_stop",
    ]
    open_index = None
    for event in events[1:-2]:
        match event["type"]:
            case "content_block_start":
                assert open_index is None
                open_index = event["index"]
                assert open_index == len(folded.content)
                block = dict(event["content_block"])
                if block["type"] == "tool_use":
                    block["input"] = ""
                folded.content.append(block)
            case "content_block_delta":
                assert event["index"] == open_index
                _add(folded.content[-1], event["delta"])
                folded.output_ids += event.get("output_ids", [])
                folded.output_token_logprobs += event.get("output_token_logprobs", [])
            case "content_block_stop":
                assert event["index"] == open_index
                open_index = None
            case other:
                raise AssertionError(f"{other} inside a message")
    assert open_index is None
    folded.stop_reason = events[-2]["delta"]["stop_reason"]
    folded.stop_sequence = events[-2]["delta"]["stop_sequence"]
    folded.usage = events[-2]["usage"]
    return folded


def _add(block: Json, delta: Json) -> None:
    for source, target in (
        ("text", "text"),
        ("thinking", "thinking"),
        ("partial_json", "input"),
        ("signature", "signature"),
    ):
        if source in delta:
            block[target] = block.get(target, "") + delta[source]


def without_random(content: list[Json]) -> list[Json]:
    """Blocks without what no two answers share: call ids and signatures."""
    return [{key: value for key, value in block.items() if key not in ("id", "signature")} for block in content]


def riding(events: list[Json]) -> list[tuple[str, list[int]]]:
    """Each delta that is visible or carries ids: what it adds, and the ids on it."""
    return [
        (addition, event.get("output_ids", []))
        for event in events
        if event["type"] == "content_block_delta" and event["delta"]["type"] != "signature_delta"
        for kind, addition in event["delta"].items()
        if kind != "type"
    ]
