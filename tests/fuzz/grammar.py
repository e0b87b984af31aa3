"""From bytes to hostile input: what is nearly right reaches further than noise."""

import json
from collections.abc import Sequence
from typing import Any, TypeVar

from tests.support.playbook import BASH, NATIVE, SEARCH
from tests.support.upstream import Block, message, sse, text, thinking, tool_use

T = TypeVar("T")

PIECES = ['{"query": "', "x", '"}', "{", "[", "}", " ", '"', "\\", "1"]
"""Of a call's arguments."""

MARK = "gateway.think.W3RydWUsIiIsIiIsdHJ1ZV0="
WORDS = [
    "", "a", " ", "\n\n", "<think>", "</think>", "<thi", "nk>", "é🚀", "\x00", "\u2028", "[", "{", '{"query": "', '"}',
    "web_search", "Find", "Bash", "srvtoolu_a", "srvtoolu__ed_a0_80", "srvtoolu_a__2", "call-1", MARK, "gateway.think.",
    "tool_use", "text", "thinking", "server_tool_use", "web_search_tool_result", "web_search_20250305", "end_turn",
    "max_tokens", "user", "assistant", "system", "auto", "any", "none", "https://example.com/", "text_delta",
]  # fmt: skip
NUMBERS = [0, 1, -1, 2, 7, 2**31, 2**63, 2**64, 10**400, 0.5, -0.0, 1e308]
NAMES = [
    "type", "index", "delta", "content_block", "message", "text", "thinking", "signature", "partial_json", "id", "name",
    "input", "content", "role", "usage", "input_tokens", "output_tokens", "stop_reason", "error", "model", "tools",
    "messages", "stream", "tool_choice", "max_uses", "allowed_domains", "blocked_domains", "user_location",
    "tool_use_id", "encrypted_content", "url", "title", "page_age", "input_ids", "return_token_ids", "image_data",
    "return_logprob", "return_routed_experts", "system", "max_tokens", "output_ids", "query", "input_schema",
]  # fmt: skip


class Draw:
    """Choices made by bytes; once they have run out, the first of every choice."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def over(self) -> bool:
        return self._at >= len(self._data)

    def number(self, limit: int) -> int:
        """From 0 up to, not with, ``limit``."""
        if self.over:
            return 0
        self._at += 1
        return self._data[self._at - 1] % limit

    def pick(self, options: Sequence[T]) -> T:
        return options[self.number(len(options))]

    def seldom(self) -> bool:
        return self.number(8) == 7

    def rest(self) -> bytes:
        data, self._at = self._data[self._at :], len(self._data)
        return data

    def text(self) -> str:
        return "".join(self.pick(WORDS) for _ in range(self.number(4)))

    def value(self, depth: int = 3) -> Any:
        """Any JSON value, made of words that mean something here."""
        match self.number(8 if depth else 5):
            case 0:
                return self.pick(WORDS)
            case 1:
                return self.pick(NUMBERS)
            case 2:
                return self.pick([None, True, False])
            case 3:
                return self.text()
            case 4:
                return self.pick([[], {}])
            case 5:
                return [self.value(depth - 1) for _ in range(self.number(4))]
        return {self.pick(NAMES): self.value(depth - 1) for _ in range(self.number(5))}

    def bent(self, value: Any) -> Any:
        """``value`` with something in it changed, somewhere."""
        if isinstance(value, dict) and value and not self.seldom():
            name = self.pick(list(value))
            match self.number(8):
                case 0:
                    return {key: inner for key, inner in value.items() if key != name}
                case 1:
                    return {**value, self.pick(NAMES): self.value()}
                case 2:
                    return {**value, name: self.value()}
            return {**value, name: self.bent(value[name])}
        if isinstance(value, list) and value and not self.seldom():
            at = self.number(len(value))
            match self.number(8):
                case 0:
                    return value[:at] + value[at + 1 :]
                case 1:
                    return [*value[:at], value[at], *value[at:]]
                case 2:
                    return [*value[:at], self.value(), *value[at:]]
                case 3:
                    return [*value[at:], *value[:at]]
            return [*value[:at], self.bent(value[at]), *value[at + 1 :]]
        return self.value()

    def sometimes_bent(self, value: Any) -> Any:
        for _ in range(self.pick([0, 1, 1, 2, 3])):
            value = self.bent(value)
        return value

    # Conversations

    def blocks(self) -> list[Block]:
        return [self._block(place) for place in range(self.number(4))]

    def _block(self, place: int) -> Block:
        match self.number(5):
            case 0:
                return text(*[self.pick(WORDS) for _ in range(1 + self.number(4))], "")
            case 1:
                return thinking(self.text(), "")
            case 2:
                return tool_use("Bash", {"command": self.text()}, id=f"call-{place}")
        name = self.pick(["web_search", "Find"])
        identity = f"call-{self.number(2)}"
        if self.number(2):
            return tool_use(name, [self.pick(PIECES) for _ in range(self.number(6))], id=identity)
        return tool_use(name, {"query": "x"}, id=identity)

    def events(self) -> list[Any]:
        """A round's events, few or none of them wrong."""
        events: Any = sse(*self.blocks(), stop_reason=self.pick([None, "end_turn", "tool_use", "max_tokens"]))
        bent = self.sometimes_bent(events)
        return bent if isinstance(bent, list) else [bent]

    def message(self) -> Any:
        return self.sometimes_bent(message(*self.blocks(), stop_reason=self.pick([None, "end_turn", "max_tokens"])))

    def tools(self) -> list[Any]:
        find = {"name": "Find", "input_schema": {"type": "object"}}
        native = {**NATIVE, **self.pick([{}, {"max_uses": 1}, {"allowed_domains": ["example.com"]}])}
        return self.pick([[native], [SEARCH], [native, find, BASH], [find], [native, BASH], [BASH]])

    def history(self) -> list[Any]:
        """Messages with blocks of ours, as they come back."""
        blocks: list[Any] = [
            {"type": "server_tool_use", "id": self.pick(WORDS[18:22]), "name": "web_search", "input": {"query": "x"}},
            {"type": "web_search_tool_result", "tool_use_id": self.pick(WORDS[18:22]), "content": self.pick(RESULTS)},
            {"type": "thinking", "thinking": self.text(), "signature": self.pick([MARK, "f99d"])},
            {"type": "text", "text": self.text()},
            {"type": "tool_use", "id": "call-1", "name": "Bash", "input": {}},
        ]
        messages: list[Any] = []
        for _ in range(1 + self.number(3)):
            messages.append({"role": "user", "content": self.pick([self.text(), [ANSWERED]])})
            content = [self.pick(blocks) for _ in range(self.number(6))]
            messages.append({"role": "assistant", "content": content})
        return messages + self.pick([[], [{"role": "user", "content": [ANSWERED]}], [{"role": "user", "content": "q"}]])

    def request(self) -> bytes:
        """A ``/v1/messages`` body, or what somebody may take for one."""
        if self.seldom():
            return self.rest()
        body: Any = {"model": "m", "max_tokens": 9, "messages": self.history(), "tools": self.tools()}
        if self.seldom():
            body |= self.pick([{"return_token_ids": True}, {"messages": [], "tools": [], "input_ids": [1, 2]}])
        written = json.dumps(self.sometimes_bent(body), ensure_ascii=self.seldom()).encode("utf-8", "surrogatepass")
        if self.seldom():
            at = self.number(256) * len(written) // 256
            return written[:at] + self.rest()
        return written


ANSWERED = {"type": "tool_result", "tool_use_id": "call-1", "content": "a.txt"}
RESULTS: list[Any] = [
    [],
    {"type": "web_search_tool_result_error", "error_code": "unavailable"},
    [{"type": "web_search_result", "url": "https://example.com/", "title": "A", "encrypted_content": "QUJD" * 20}],
    [{"type": "web_search_result", "url": "https://example.com/", "title": "A", "encrypted_content": "é"}],
    [{"type": "web_search_result"}],
]
