"""Views of calls to the gateway's own tools: one that shows nothing, and one that shows a ``server_tool_use`` block."""

from typing import Any

import jiter

from gateway.turn import jsonvalue
from gateway.turn.lifecycle import Event
from gateway.turn.presentation import Cursor, Out, View, size_of
from gateway.turn.riding import PLAIN_DELTA

MAX_ARGUMENT_CHARS = 16_384
"""Longer arguments are none: a search needs a fraction of it, and each piece is read together with all before it."""


class CallView(View):
    """A call to a gateway tool, hidden: nothing of it is visible.

    ``input`` is what the valid beginning of the arguments says, ``arguments`` what they were in the end.
    """

    hidden = True

    def __init__(self, start: Event, cursor: Cursor) -> None:
        super().__init__(start, cursor)
        self.id: str = start["id"]
        self.name: str = start["name"]
        self._live = ""
        self._broken = False
        self._too_long = False

    def open(self, out: Out) -> None:
        if self.start.get("input"):
            self._argument(jsonvalue.write(self.start["input"]).decode(), out)

    def delta(self, event: Event, raw: bytes | None, out: Out) -> int:
        piece = self._piece(event)
        self._argument(piece, out)
        return size_of(piece)

    def close(self, out: Out) -> None:
        pass

    def value(self) -> Event:
        return {"type": "tool_use", "id": self.id, "name": self.name, "input": self.input}

    @property
    def input(self) -> dict[str, Any]:
        """What the valid beginning of the arguments says; {} where there is none."""
        value: dict[str, Any] = read_input(self._live)
        return value

    @property
    def arguments(self) -> dict[str, Any] | None:
        """The arguments, None if they did not end as a JSON object."""
        if not self.pieces:
            return {}
        if self._too_long:
            return None
        try:
            value = jiter.from_json("".join(self.pieces).encode())
        except ValueError:
            return None
        return value if isinstance(value, dict) else None

    def _argument(self, piece: str, out: Out) -> None:
        if piece:
            self.pieces.append(piece)
        if self._broken:
            return
        if not self._live:
            piece = piece.lstrip(" \t\r\n")
        room = MAX_ARGUMENT_CHARS - len(self._live)
        if len(piece) > room:
            self._too_long = True
            piece = piece[:room]
        if not piece:
            return
        longer = self._live + piece
        if not longer.startswith("{") or not _begins_object(longer):
            self._broken = True
            return
        self._live = longer
        self._show(piece, out)

    def _show(self, piece: str, out: Out) -> None:
        """Make a live piece visible: a hidden call shows none."""


class ServerCallView(CallView):
    """A call to a gateway tool, native: a ``server_tool_use`` block whose arguments stream as they come."""

    hidden = False

    def __init__(self, start: Event, cursor: Cursor, server_id: str) -> None:
        super().__init__(start, cursor)
        self.server_id = server_id

    def open(self, out: Out) -> None:
        block = {"type": "server_tool_use", "id": self.server_id, "name": self.name, "input": {}}
        self._index = self._cursor.open(block, out)
        super().open(out)
        self._show_waiting(out)

    def delta(self, event: Event, raw: bytes | None, out: Out) -> int:
        if len(event) > PLAIN_DELTA:
            self.waiting.take(event)
        size = super().delta(event, raw, out)
        self._show_waiting(out)
        return size

    def close(self, out: Out) -> None:
        self._cursor.close(self._index, out)

    def _show(self, piece: str, out: Out) -> None:
        delta = {"type": "input_json_delta", "partial_json": piece}
        self._cursor.delta(self._index, delta, out, self.waiting.leave())

    def _show_waiting(self, out: Out) -> None:
        """Token ids of markup, or of arguments that are not shown."""
        if self.waiting.tokens:
            self._show("", out)


def read_input(text: str) -> Any:
    """What the ``anthropic`` SDK's accumulator reads of the pieces of a block's ``input``; {} where there are none."""
    if not text:
        return {}
    try:
        return jiter.from_json(text.encode(), partial_mode=True)
    except ValueError:
        return {}


def _begins_object(text: str) -> bool:
    try:
        jiter.from_json(text.encode(), partial_mode=True)
    except ValueError:
        return False
    return True
