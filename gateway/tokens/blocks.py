"""The events of one message, its blocks in order, with token ids riding on the deltas.

Lifecycle: start, then blocks one after another, then finish. A block stays open until the next one starts or the
message ends, so that ids without visible text (markup, the end of the turn) find a delta to ride on:

======================  =======================================
ids come                they ride
======================  =======================================
with visible text       on its delta
without, block open     on an empty delta of that block
without, none open      on the next delta, whatever it is
and no block ever does  on the one empty text block made for them
======================  =======================================
"""

import uuid
from typing import Any

from gateway.tokens.fields import TokenFields
from gateway.tokens.trajectory import TokenLogprob

Json = dict[str, Any]

DELTAS = {
    "text": ("text_delta", "text"),
    "thinking": ("thinking_delta", "thinking"),
    "tool_use": ("input_json_delta", "partial_json"),
}
"""For each kind of block: the type of its deltas and the key of what they add."""


def text_block() -> Json:
    return {"type": "text", "text": ""}


def thinking_block() -> Json:
    return {"type": "thinking", "thinking": "", "signature": ""}


def new_signature() -> str:
    """A thinking block's signature. It seals nothing: open models have none to check, clients want one."""
    return uuid.uuid4().hex


class BlockWriter:
    """Writes the events of one message."""

    def __init__(self, fields: TokenFields) -> None:
        self._fields = fields
        self._index = -1
        self._open: Json = {}  # none
        self._ids: list[int] = []
        self._logprobs: list[TokenLogprob] = []

    @property
    def kind(self) -> str | None:
        """The type of the open block."""
        return self._open.get("type")

    @property
    def open_id(self) -> str | None:
        """The id of the open ``tool_use`` block."""
        return self._open.get("id")

    def start(self, message_id: Any, model: Any, usage: Json) -> list[Json]:
        message = {
            "id": message_id,
            "type": "message",
            "role": "assistant",
            "content": [],
            "model": model,
            "stop_reason": None,
            "stop_sequence": None,
            "usage": usage,
        }
        return [{"type": "message_start", "message": message}]

    def add_ids(self, ids: list[int], logprobs: list[TokenLogprob] | None) -> None:
        """Sampled tokens that the next delta carries."""
        self._ids += ids
        self._logprobs += logprobs or ()

    def open(self, block: Json) -> list[Json]:
        """Start a block; the one before it stops."""
        events = self._close()
        self._open = block
        self._index += 1
        events.append({"type": "content_block_start", "index": self._index, "content_block": block})
        return events

    def add(self, addition: str) -> list[Json]:
        """Add to the open block."""
        kind, key = DELTAS[self._open["type"]]
        delta = {"type": kind, key: addition}
        return [{"type": "content_block_delta", "index": self._index, "delta": delta} | self._take_ids()]

    def flush_ids(self) -> list[Json]:
        """Send the ids that wait with an empty delta, where a block is open to take it."""
        wanted = self._fields.return_token_ids or self._fields.return_logprob
        return self.add("") if wanted and self._ids and self._open else []

    def finish(self, stop_reason: str | None, stop_sequence: str | None, usage: Json) -> list[Json]:
        """Stop the open block and say how the message ended. A message without a block gets an empty text block."""
        events = [] if self._index >= 0 else self.open(text_block())
        events += self.flush_ids()
        events += self._close()
        delta = {"stop_reason": stop_reason, "stop_sequence": stop_sequence}
        events.append({"type": "message_delta", "delta": delta, "usage": usage})
        return events

    def _close(self) -> list[Json]:
        if not self._open:
            return []
        events: list[Json] = []
        if self._open["type"] == "thinking":
            delta = {"type": "signature_delta", "signature": new_signature()}
            events.append({"type": "content_block_delta", "index": self._index, "delta": delta})
        events.append({"type": "content_block_stop", "index": self._index})
        self._open = {}
        return events

    def _take_ids(self) -> Json:
        carried: Json = {}
        if self._ids and self._fields.return_token_ids:
            carried["output_ids"] = self._ids
        if self._ids and self._fields.return_logprob:
            carried["output_token_logprobs"] = self._logprobs
        self._ids, self._logprobs = [], []
        return carried
