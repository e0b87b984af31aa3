"""The fold of a turn's events into its JSON message: what a stream would have carried, as one object."""

from collections.abc import Iterable
from typing import Any

from gateway.turn.calls import read_input
from gateway.turn.lifecycle import PIECE, Event


class Fold:
    """Takes the client's events in order; ``message`` is whole once ``message_stop`` has come."""

    def __init__(self) -> None:
        self.message: dict[str, Any] = {}
        self._pieces: list[str] = []
        self._block: dict[str, Any] = {}

    def take(self, events: Iterable[Event | bytes]) -> None:
        """Fold more events (dicts: a JSON answer never has bytes that pass as they are)."""
        for event in events:
            if isinstance(event, dict):
                self._take(event)

    def _take(self, event: Event) -> None:
        match event["type"]:
            case "message_start":
                self.message = dict(event["message"])
                self.message["content"] = []
            case "content_block_start":
                self._block = dict(event["content_block"])
                self._pieces = []
                self.message["content"].append(self._block)
            case "content_block_delta":
                self._delta(event["delta"])
            case "content_block_stop":
                if self._pieces:
                    self._block["input"] = read_input("".join(self._pieces))
            case "message_delta":
                self.message.update(event["delta"])
                self.message["usage"] = {**(self.message.get("usage") or {}), **event["usage"]}
                self.message.update({name: event[name] for name in event.keys() - {"type", "delta", "usage"}})

    def _delta(self, delta: Event) -> None:
        match delta["type"]:
            case "input_json_delta":
                self._pieces.append(delta["partial_json"])
            case "signature_delta":
                self._block["signature"] = delta["signature"]
            case "text_delta" | "thinking_delta" as kind:
                self._block[PIECE[kind]] += delta[PIECE[kind]]
