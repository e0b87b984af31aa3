"""A whole message as the events of a stream: for what upstream only gives in one piece."""

import json
from typing import Any

from gateway.tokens.blocks import text_block, thinking_block

Json = dict[str, Any]


def message_events(message: Json) -> list[Json]:
    """The events that fold to ``message``.

    A JSON answer does not say which block a token belongs to, so all its ids ride on the first delta;
    ``routed_experts`` is on ``message_delta``.
    """
    usage = message["usage"]
    start = {key: message[key] for key in ("id", "type", "role", "model")}
    start |= {"content": [], "stop_reason": None, "stop_sequence": None, "usage": usage | {"output_tokens": 0}}
    events: list[Json] = [{"type": "message_start", "message": start}]
    carried = {key: message[key] for key in ("output_ids", "output_token_logprobs") if key in message}
    for index, block in enumerate(message["content"]):
        opened, deltas = _block(block)
        events.append({"type": "content_block_start", "index": index, "content_block": opened})
        for delta in deltas:
            events.append({"type": "content_block_delta", "index": index, "delta": delta} | carried)
            carried = {}
        events.append({"type": "content_block_stop", "index": index})
    end = {"type": "message_delta", "delta": {key: message[key] for key in ("stop_reason", "stop_sequence")}}
    end |= {"usage": usage}
    if "routed_experts" in message:
        end["routed_experts"] = message["routed_experts"]
    return [*events, end, {"type": "message_stop"}]


def _block(block: Json) -> tuple[Json, list[Json]]:
    """How a block starts, and the deltas that fill it."""
    if block["type"] == "text":
        return text_block(), [{"type": "text_delta", "text": block["text"]}]
    if block["type"] == "thinking":
        return thinking_block(), [
            {"type": "thinking_delta", "thinking": block["thinking"]},
            {"type": "signature_delta", "signature": block["signature"]},
        ]
    arguments = json.dumps(block["input"], ensure_ascii=False)
    return block | {"input": {}}, [{"type": "input_json_delta", "partial_json": arguments}]
