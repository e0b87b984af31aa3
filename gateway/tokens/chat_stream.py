"""A chat completion's stream as the events that vLLM's ``/v1/messages`` makes of it, with the token ids it drops."""

from typing import Any

import msgspec

from gateway.tokens.answer import stop_of, usage_of
from gateway.tokens.blocks import text_block, thinking_block
from gateway.tokens.chat_answer import chat_logprobs
from gateway.tokens.chunks import ChunkStream
from gateway.tokens.fields import TokenFields
from gateway.tokens.trajectory import TokenLogprob

Json = dict[str, Any]


class ChatStream(ChunkStream):
    """A chat completion's chunks."""

    def __init__(self, fields: TokenFields) -> None:
        super().__init__(fields)
        self._fresh: tuple[list[int], list[TokenLogprob] | None] = ([], None)
        self._call_ids: dict[int, str] = {}
        self._called = False
        self._arguments: list[str] = []  # of the latest call: only the last can be cut short
        self._later_text: list[str] = []  # text that came while a call was open: its own block, after the call's

    def _start(self, chunk: Json) -> list[Json]:
        # The first chunk names the role; what it says is never part of the message.
        self.tokens.input_ids = chunk.get("prompt_token_ids")
        return self._writer.start(chunk.get("id"), chunk.get("model"), usage_of(chunk.get("usage")))

    def _choice(self, choice: Json) -> list[Json]:
        self._sampled(choice)
        delta = choice.get("delta") or {}
        events: list[Json] = []
        if delta.get("reasoning"):
            events += self._visible("thinking", delta["reasoning"])
        if delta.get("content"):
            if self._writer.kind == "tool_use":
                self._later_text.append(delta["content"])
            else:
                events += self._visible("text", delta["content"])
        for call in delta.get("tool_calls") or ():
            events += self._call(call)
        self._writer.add_ids(*self._fresh)
        # While text waits for its block, ids wait with it.
        return events if self._later_text else events + self._writer.flush_ids()

    def _sampled(self, choice: Json) -> None:
        ids = choice.get("token_ids") or []
        logprobs = chat_logprobs(choice, ids) if self._fields.return_logprob else None
        self.tokens.add(ids, logprobs)
        self._fresh = (ids, logprobs)

    def _visible(self, kind: str, addition: str) -> list[Json]:
        events: list[Json] = []
        if self._writer.kind != kind:
            events += self._open(thinking_block() if kind == "thinking" else text_block())
        return events + self._add(addition)

    def _call(self, call: Json) -> list[Json]:
        function = call.get("function") or {}
        events: list[Json] = []
        call_id = call.get("id")
        if call_id is None:
            call_id = self._call_ids.get(call["index"])
        else:
            self._call_ids[call["index"]] = call_id
            name = function.get("name")
            if self._writer.open_id != call_id and name is not None:
                self._called, self._arguments = True, []
                events += self._open({"type": "tool_use", "id": call_id, "name": name, "input": {}})
        # Arguments of a call whose block is not the open one have nowhere to go; vLLM drops them too.
        if function.get("arguments") and call_id is not None and self._writer.open_id == call_id:
            self._arguments.append(function["arguments"])
            events += self._add(function["arguments"])
        return events

    def _open(self, block: Json) -> list[Json]:
        return self._later_text_block() + self._writer.open(block)

    def _later_text_block(self) -> list[Json]:
        if not self._later_text:
            return []
        text = "".join(self._later_text)
        self._later_text = []
        return self._writer.open(text_block()) + self._writer.add(text)

    def _add(self, addition: str) -> list[Json]:
        self._writer.add_ids(*self._fresh)
        self._fresh = ([], None)
        return self._writer.add(addition)

    def _stop(self, usage: Json) -> list[Json]:
        complete = self._called and _is_json("".join(self._arguments))
        stop_reason, stop_sequence = stop_of(self._finish, called=self._called, calls_complete=complete)
        return self._later_text_block() + self._writer.finish(stop_reason, stop_sequence, usage)


def _is_json(text: str) -> bool:
    try:
        msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True
