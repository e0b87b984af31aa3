"""Presentation: what the client sees of each content block, as it comes.

A view stands for one upstream block while it is open. It keeps the block for the next round's request (``value``) and
writes what is visible of it to the client's message, whose blocks are numbered by a :class:`Cursor` of their own.
``hidden`` and ``native`` calls are two views of the same thing (:mod:`gateway.turn.calls`); the turn knows no other
difference between them while a round streams.

Token ids that a delta carries stay with it (:mod:`gateway.turn.riding`).
"""

from typing import ClassVar

from gateway.errors import UpstreamBroken
from gateway.turn.delta import Delta
from gateway.turn.lifecycle import DELTAS, Event
from gateway.turn.marker import CLOSING, OPENING, ThinkMark
from gateway.turn.pieces import Pieces
from gateway.turn.riding import EMPTY_DELTAS, Tokens, Waiting

Out = list[Event | bytes]
"""What goes to the client: events, or the bytes of one that needs no change."""


class Cursor:
    """Numbers the client's blocks 0, 1, 2… over all the rounds of a turn, and opens and closes them."""

    def __init__(self) -> None:
        self.next = 0

    def open(self, block: Event, out: Out) -> int:
        """Start a visible block; returns its index."""
        index = self.next
        self.next = index + 1
        out.append({"type": "content_block_start", "content_block": block, "index": index})
        return index

    @staticmethod
    def delta(index: int, delta: Event, out: Out, tokens: Tokens | None = None) -> None:
        """One delta of a visible block, with the ``tokens`` that it carries."""
        event = {"type": "content_block_delta", "delta": delta, "index": index}
        out.append(event | tokens if tokens else event)

    @staticmethod
    def close(index: int, out: Out) -> None:
        """End a visible block."""
        out.append({"type": "content_block_stop", "index": index})


class View:
    """One upstream block, passed on as it is."""

    hidden: ClassVar[bool] = False

    def __init__(self, start: Event, cursor: Cursor) -> None:
        self.start = start
        self.kind: str = start["type"]
        self.pieces = Pieces()
        self._cursor = cursor
        self._allowed = DELTAS.get(self.kind)
        self._index = -1
        self.waiting = Waiting()

    def follow(self, before: "View") -> None:
        """The block comes after ``before``, whose token ids may still wait for a visible delta."""
        if not self.hidden:
            self.waiting, before.waiting = before.waiting, self.waiting

    def open(self, out: Out) -> None:
        """The block has started."""
        self._index = self._cursor.open(self.start, out)
        if self.waiting.tokens and self.kind in EMPTY_DELTAS:
            self._cursor.delta(self._index, EMPTY_DELTAS[self.kind], out, self.waiting.leave())

    def delta(self, delta: Delta, out: Out) -> None:
        """A delta of the block. Raises :class:`UpstreamBroken` for one that such a block cannot have."""
        if self._allowed is not None and delta.kind not in self._allowed:
            raise self._impossible()
        if delta.piece:
            self.pieces.add(delta.piece)
        out.append(delta.at(self._index))

    def close(self, out: Out) -> None:
        """The block has ended."""
        self._cursor.close(self._index, out)

    def value(self) -> Event | None:
        """The whole block, for the next round's request; None for one that is not kept."""
        return self.start

    def _impossible(self) -> UpstreamBroken:
        return UpstreamBroken(f"Upstream sent a delta that a {self.kind} block cannot have.")


class ThinkingView(View):
    """A ``thinking`` block. It always has its text and a ``signature``, empty at its start."""

    def __init__(self, start: Event, cursor: Cursor) -> None:
        self._signature = _text_of(start, "signature")
        self._thinking = _text_of(start, "thinking")
        super().__init__({**start, "thinking": self._thinking, "signature": self._signature}, cursor)

    def delta(self, delta: Delta, out: Out) -> None:
        if self._allowed is not None and delta.kind not in self._allowed:
            raise self._impossible()
        if delta.kind == "signature_delta":
            self._signature = delta.piece
        else:
            self.pieces.add(delta.piece)
        out.append(delta.at(self._index))

    def value(self) -> Event:
        thinking = self._thinking + self.pieces.text()
        return {**self.start, "thinking": thinking, "signature": self._signature}


class TextView(View):
    """A ``text`` block: starts with its first visible character, and not at all if it has none.

    With ``sniff`` (no text of the round has been visible yet) text that begins with ``<think>`` becomes a
    ``thinking`` block up to ``</think>``.
    """

    def __init__(self, start: Event, cursor: Cursor, *, sniff: bool) -> None:
        super().__init__({**start, "text": ""}, cursor)
        begun = _text_of(start, "text")
        self._held = [begun] if begun else []
        """All of the text so far, while none of it is shown."""
        self._lead = ""
        """Of that, what stands behind the white space: the beginning of a tag."""
        self._sniff = sniff
        self._early: list[Delta] = []
        """Citations of the text that is held."""
        self._think: _Think | None = None
        if begun:
            self.pieces.add(begun)

    @property
    def visible(self) -> bool:
        """Whether the block has anything but white space."""
        return self._index >= 0 or self._think is not None

    def open(self, out: Out) -> None:
        if self._held:
            self._advance(self._held.pop(), out)

    def delta(self, delta: Delta, out: Out) -> None:
        if self._allowed is not None and delta.kind not in self._allowed:
            raise self._impossible()
        if delta.kind == "text_delta":
            self.pieces.add(delta.piece)
        if self._index >= 0:
            out.append(delta.at(self._index))
        elif delta.kind == "text_delta":
            self.waiting.take(delta.event)
            self._advance(delta.piece, out)
        else:
            self._early.append(delta)

    def close(self, out: Out) -> None:
        if self._think is not None:
            self._think.finish(out)
        elif self._index < 0 and self._lead:
            self._begin("".join(self._held), out)
        if self._index >= 0:
            self._cursor.close(self._index, out)

    def value(self) -> Event | None:
        text = self.pieces.text()
        return {**self.start, "text": text} if text.strip() else None

    def _advance(self, piece: str, out: Out) -> None:
        """Text while no text block is visible: white space, a tag that may begin, or thinking."""
        if self._think is None:
            self._held.append(piece)
            visible = self._lead + piece if self._lead else piece.lstrip()
            if not visible or (self._sniff and len(visible) < len(OPENING) and OPENING.startswith(visible)):
                self._lead = visible
                return
            held = "".join(self._held)
            if not (self._sniff and visible.startswith(OPENING)):
                self._begin(held, out)
                return
            self._think = _Think(held[: -len(visible)], self._cursor, self.waiting, out)
            piece = visible[len(OPENING) :]
        text = self._think.feed(piece, out)
        if text:
            self._think = None
            self._begin(text, out)

    def _begin(self, text: str, out: Out) -> None:
        self._held.clear()
        self._index = self._cursor.open(self.start, out)
        self._cursor.delta(self._index, {"type": "text_delta", "text": text}, out, self.waiting.leave())
        out += [delta.at(self._index) for delta in self._early]


class _Think:
    """The visible ``thinking`` block of a ``<think>`` text. Token ids of the tags ride on empty deltas of it."""

    def __init__(self, before: str, cursor: Cursor, waiting: Waiting, out: Out) -> None:
        self._before = before
        self._cursor = cursor
        self._waiting = waiting
        self._held = ""
        self._after: list[str] | None = None
        self._index = cursor.open({"type": "thinking", "thinking": "", "signature": ""}, out)

    def feed(self, piece: str, out: Out) -> str:
        """More of the text. Returns the text that follows the thinking, once it begins; the block is then closed."""
        if self._after is None:
            thinking, tag, rest = (self._held + piece).partition(CLOSING)
            if not tag:
                cut = len(thinking) - _tail(thinking)
                self._held = thinking[cut:]
                self._say(thinking[:cut], out)
                return ""
            self._held = ""
            if thinking:
                self._say(thinking, out)
            self._after = []
            piece = rest
        text = piece.lstrip()
        self._after.append(piece[: len(piece) - len(text)])
        if text:
            self._close(ThinkMark(True, self._before, "".join(self._after), text_follows=True), out)
        else:
            self._say("", out)
        return text

    def finish(self, out: Out) -> None:
        """The text has ended and nothing visible followed."""
        closed = self._after is not None
        if not closed:
            self._say(self._held, out)
        self._close(ThinkMark(closed, self._before, "".join(self._after or []), text_follows=False), out)

    def _say(self, thinking: str, out: Out) -> None:
        if thinking or self._waiting.tokens:
            delta = {"type": "thinking_delta", "thinking": thinking}
            self._cursor.delta(self._index, delta, out, self._waiting.leave())

    def _close(self, mark: ThinkMark, out: Out) -> None:
        self._cursor.delta(self._index, {"type": "signature_delta", "signature": mark.signature()}, out)
        self._cursor.close(self._index, out)


def _text_of(start: Event, name: str) -> str:
    """What a block's start has already of its text."""
    value = start.get(name)
    if value is not None and not isinstance(value, str):
        raise UpstreamBroken(f"Upstream started a block whose {name} is no text.")
    return value or ""


def _tail(text: str) -> int:
    """How many characters at the end of ``text`` may be the beginning of ``</think>``."""
    for length in range(min(len(CLOSING) - 1, len(text)), 0, -1):
        if text.endswith(CLOSING[:length]):
            return length
    return 0
