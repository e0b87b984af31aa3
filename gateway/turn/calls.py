"""Views of calls to the gateway's own tools: one that shows nothing, and one that shows the block of its kind."""

from bisect import bisect_left
from typing import Any

import jiter

from gateway.turn import jsonvalue
from gateway.turn.delta import Delta
from gateway.turn.kind import AnyTool
from gateway.turn.lifecycle import Event
from gateway.turn.presentation import Cursor, Out, View

LIVE_CHARS = 4096
"""Up to here each piece of the arguments is shown as it comes. It is read together with all before it, so that of
longer ones, which hardly a tool needs, pieces wait for an eighth of what there is: the work stays in proportion."""


class CallView(View):
    """A call to a gateway tool, hidden: nothing of it is visible.

    ``input`` is what the valid beginning of the arguments says, ``arguments`` what they were in the end. A start that
    has its ``input`` already is taken at its word only where no delta has any: they would say it again.
    """

    hidden = True
    call_id: str | None = None
    """The client's id of the call, None where the client does not see it."""

    def __init__(self, start: Event, cursor: Cursor, tool: AnyTool) -> None:
        super().__init__(start, cursor)
        self.tool = tool
        self.id: str = start["id"]
        self.name: str = start["name"]
        self._live = ""
        self._waiting_pieces: list[str] = []
        self._waiting_chars = 0
        self._broken = False

    def open(self, out: Out) -> None:
        """The block has started; nothing is shown."""

    def delta(self, delta: Delta, out: Out) -> None:
        if self._allowed is not None and delta.kind not in self._allowed:
            raise self._impossible()
        self._argument(delta.piece, out)

    def close(self, out: Out) -> None:
        if self.start.get("input") and not self.pieces.text():
            self._argument(jsonvalue.write(self.start["input"]).decode(), out)
        self._take_waiting(out)

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
        said = self.pieces.text()
        if not said:
            return {}
        try:
            value = jsonvalue.read(said.encode())
        except jsonvalue.Unreadable:
            return None
        return value if isinstance(value, dict) else None

    def _argument(self, piece: str, out: Out) -> None:
        if piece:
            self.pieces.add(piece)
        if not (self._live or self._waiting_pieces):
            piece = piece.lstrip(" \t\r\n")
        if self._broken or not piece:
            return
        self._waiting_pieces.append(piece)
        self._waiting_chars += len(piece)
        if len(self._live) < LIVE_CHARS or self._waiting_chars * 8 >= len(self._live):
            self._take_waiting(out)

    def _take_waiting(self, out: Out) -> None:
        """Show the waiting pieces, up to the first with which this is no valid beginning of an object."""
        pieces, self._waiting_pieces, self._waiting_chars = self._waiting_pieces, [], 0
        if not pieces:
            return
        valid = len(pieces)
        if self._breaks(pieces):
            self._broken = True
            valid = bisect_left(range(valid), True, key=lambda last: self._breaks(pieces[: last + 1]))
        if valid:
            piece = "".join(pieces[:valid])
            self._live += piece
            self._show(piece, out)

    def _breaks(self, pieces: list[str]) -> bool:
        """Whether with these pieces this is no valid beginning of an object."""
        text = self._live + "".join(pieces)
        return not (text.startswith("{") and _begins_object(text))

    def _show(self, piece: str, out: Out) -> None:
        """Make a live piece visible: a hidden call shows none."""


class NativeCallView(CallView):
    """A call to a gateway tool, native: the block of its kind, whose arguments stream as they come."""

    hidden = False

    def __init__(self, start: Event, cursor: Cursor, tool: AnyTool, call_id: str) -> None:
        super().__init__(start, cursor, tool)
        self.call_id: str = call_id

    def open(self, out: Out) -> None:
        self._index = self._cursor.open(self.tool.call_block(self.call_id), out)
        self._show_waiting(out)

    def delta(self, delta: Delta, out: Out) -> None:
        self.waiting.take(delta.event)
        super().delta(delta, out)
        self._show_waiting(out)

    def close(self, out: Out) -> None:
        super().close(out)
        self._show_waiting(out)
        self._cursor.close(self._index, out)

    def _show(self, piece: str, out: Out) -> None:
        delta = {"type": "input_json_delta", "partial_json": piece}
        self._cursor.delta(self._index, delta, out, self.waiting.leave())

    def _show_waiting(self, out: Out) -> None:
        """Token ids of markup, or of arguments that are not shown."""
        if self.waiting.tokens:
            self._show("", out)


def read_input(text: str) -> Any:
    """What the ``anthropic`` SDK's accumulator reads of the pieces of a block's ``input``; {} where there are none.

    That reads no value nested over 200 deep; a whole one is read all the same, for a stream has it whole, too.
    """
    if not text:
        return {}
    try:
        return jiter.from_json(text.encode(), partial_mode=True)
    except ValueError:
        try:
            return jsonvalue.read(text.encode())
        except jsonvalue.Unreadable:
            return {}


def _begins_object(text: str) -> bool:
    try:
        jiter.from_json(text.encode(), partial_mode=True, allow_inf_nan=False)
    except ValueError:
        return False
    return True
