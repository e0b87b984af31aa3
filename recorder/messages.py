"""Event streams of the Messages API, and the message that one amounts to. Opens nothing, waits for nothing.

What an event is: https://html.spec.whatwg.org/multipage/server-sent-events.html. Which events make a message, and in
what order: Anthropic's streaming documentation; `_NEXT` is that order as a table.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal

import jiter

from recorder.cassette import Json, parse_json
from recorder.errors import StreamError

_DELTA_FIELDS = {"text_delta": "text", "thinking_delta": "thinking", "input_json_delta": "partial_json"}


@dataclass(frozen=True, slots=True)
class Event:
    """One SSE event: its ``event`` field ("" where it has none) and its ``data`` lines, joined."""

    name: str
    data: str


def read_events(lines: Iterable[bytes]) -> Iterator[Event]:
    """The events of a stream given line by line; one that no blank line ends is none."""
    name, data = "", list[str]()
    for line in lines:
        text = line.decode("utf-8", "replace").rstrip("\r\n")
        if not text:
            if name or data:
                yield Event(name, "\n".join(data))
            name, data = "", []
            continue
        key, _, value = text.partition(":")
        value = value.removeprefix(" ")
        if key == "event":
            name = value
        elif key == "data":
            data.append(value)


def delta_text(event: Json) -> tuple[int, str] | None:
    """(block index, text) of an event that adds to a block's text, thinking or arguments."""
    if not isinstance(event, dict) or not isinstance(delta := event.get("delta"), dict):
        return None
    text, index = delta.get(_DELTA_FIELDS.get(str(delta.get("type")), "")), event.get("index")
    return (index, text) if isinstance(text, str) and isinstance(index, int) else None


def with_delta_text(event: dict[str, Json], text: str) -> dict[str, Json]:
    """That event with another text."""
    delta = event["delta"]
    return {**event, "delta": {**delta, _DELTA_FIELDS[delta["type"]]: text}}


State = Literal["begin", "message", "block", "stopping", "ended", "failed"]

_NEXT: dict[State, dict[str, State]] = {
    "begin": {"message_start": "message", "error": "failed"},
    "message": {"content_block_start": "block", "message_delta": "stopping", "error": "failed"},
    "block": {"content_block_delta": "block", "content_block_stop": "message", "error": "failed"},
    "stopping": {"message_delta": "stopping", "message_stop": "ended", "error": "failed"},
    "ended": {},
    "failed": {},
}
"""state -> event -> state. An event that is not here cannot be; `ping` may come at any time."""


@dataclass(slots=True)
class MessageBuilder:
    """Folds events into the message that a JSON answer would have been.

    ``message`` is what has come so far, ``error`` the error that an `error` event carried.
    """

    state: State = "begin"
    message: dict[str, Json] = field(default_factory=dict)
    error: dict[str, Json] | None = None
    _pieces: list[str] = field(default_factory=list)

    @property
    def finished(self) -> bool:
        """Has the message come whole?"""
        return self.state == "ended"

    def feed(self, event: Json) -> None:
        """Take the next event's data. Raises StreamError where it cannot come now, or is not shaped as it must be."""
        if not isinstance(event, dict) or not isinstance(kind := event.get("type"), str):
            raise StreamError("an event without a type")
        if kind == "ping":
            return
        if kind not in _NEXT[self.state]:
            raise StreamError(f"{kind} {_WHEN[self.state]}")
        try:
            self._take(kind, event)
        except (KeyError, TypeError, AttributeError) as error:
            raise StreamError(f"{kind} is not shaped as it must be ({error})") from error
        self.state = _NEXT[self.state][kind]

    def _take(self, kind: str, event: dict[str, Json]) -> None:
        match kind:
            case "message_start":
                self.message = {**event["message"]}
                self.message["content"] = list(self.message["content"])
            case "content_block_start":
                self._expect_index(event, len(self.message["content"]))
                self.message["content"].append({**event["content_block"]})
                self._pieces = []
            case "content_block_delta":
                self._expect_index(event, len(self.message["content"]) - 1)
                self._add(self.message["content"][-1], event["delta"])
            case "content_block_stop":
                self._expect_index(event, len(self.message["content"]) - 1)
                self._close(self.message["content"][-1])
            case "message_delta":
                self.message.update(event["delta"])
                self.message["usage"] = {**self.message.get("usage", {}), **(event.get("usage") or {})}
            case "error":
                self.error = {**event["error"]}

    def _add(self, block: dict[str, Json], delta: dict[str, Json]) -> None:
        match delta["type"]:
            case "text_delta" | "thinking_delta" | "input_json_delta" as kind:
                self._pieces.append(delta[_DELTA_FIELDS[kind]])
            case "signature_delta":
                block["signature"] = delta["signature"]
            case "citations_delta":
                block["citations"] = [*(block.get("citations") or []), delta["citation"]]

    def _close(self, block: dict[str, Json]) -> None:
        """A block's pieces become its text; joined once, for there can be very many."""
        text, self._pieces = "".join(self._pieces), []
        if block["type"] in ("text", "thinking"):
            block[block["type"]] += text
        elif text:
            block["input"] = read_arguments(text)

    def _expect_index(self, event: dict[str, Json], expected: int) -> None:
        if event["index"] != expected:
            raise StreamError(f"{event['type']} with index {event['index']} where {expected} must come")


_WHEN: dict[State, str] = {
    "begin": "before message_start",
    "message": "while no block is open",
    "block": "while a block is open",
    "stopping": "after message_delta",
    "ended": "after message_stop",
    "failed": "after error",
}


def read_arguments(text: str) -> Json:
    """A call's arguments; of a call cut short, what its beginning says; {} where that is nothing."""
    try:
        return jiter.from_json(text.encode(), partial_mode=True)
    except ValueError:
        return {}


def fold(lines: Iterable[bytes]) -> MessageBuilder:
    """The message of a whole stream. Raises StreamError, the event's number in it."""
    builder = MessageBuilder()
    for number, event in enumerate(read_events(lines), start=1):
        data = parse_json(event.data.encode())
        try:
            builder.feed(data)
        except StreamError as error:
            raise StreamError(f"event {number}: {error}") from error
    return builder


def is_blank(block: Json) -> bool:
    """Is it a text block of nothing but white space?"""
    return isinstance(block, dict) and block.get("type") == "text" and not str(block.get("text", "")).strip()
