"""A delta of a content block: nearly every event of a turn is one.

The usual ones are told by one pattern, with their members in any order and any blanks between, as one model server or
another writes them, and are never decoded: of another index only its digits are changed. All others are decoded, and
come out as the same :class:`Delta`.
"""

import re
from typing import Any

import msgspec

from gateway.errors import UpstreamBroken
from gateway.turn.lifecycle import PIECE, Event

_BLANKS = rb"[ \t]*+"
_COLON = _BLANKS + rb":" + _BLANKS
_STRING = rb'"([^"\\\x00-\x1f]*+(?:\\["\\/bfnrtu][^"\\\x00-\x1f]*+)*+)"'


def _object(members: int, *alternatives: bytes) -> bytes:
    """An object of so many members, each one of the alternatives."""
    member = rb"(?:%b)%b(?:,%b(?=\")|(?=\}))" % (b"|".join(alternatives), _BLANKS, _BLANKS)
    return rb"\{%b(?:%b){%d}\}" % (_BLANKS, member, members)


_USUAL = re.compile(
    rb"event: content_block_delta\ndata: %b\n\n"
    % _object(
        3,
        rb'"type"%b"(content_block_delta)"' % _COLON,
        rb'"delta"%b%b'
        % (
            _COLON,
            _object(
                2,
                rb'"type"%b"(text_delta|thinking_delta|input_json_delta|signature_delta)"' % _COLON,
                rb'"(text|thinking|partial_json|signature)"%b%b' % (_COLON, _STRING),
            ),
        ),
        rb'"index"%b(0|[1-9][0-9]{0,8})' % _COLON,
    )
).fullmatch
"""Each group is there exactly once, if all of them are: there are as many members as groups that stand for one."""
_INDEX = 5
_TEXT = msgspec.json.Decoder(str)
_KINDS = {(kind.encode(), name.encode()): kind for kind, name in PIECE.items()}


class Delta(msgspec.Struct, gc=False):
    """One delta: of the block ``index``, as upstream numbers it, a ``piece`` of text, ``size`` bytes of it.

    ``kind`` is its type; ``event`` the whole of it, where it was decoded. One that carries more than a piece always
    was. ``raw`` are its bytes, where they may go to the client, ``digits`` where in them the index stands.
    """

    kind: str
    piece: str
    size: int
    index: Any
    event: Event | None
    raw: bytes | None
    digits: tuple[int, int] | None = None

    def at(self, index: int) -> Event | bytes:
        """The delta as the client gets it, of its block ``index``: upstream's bytes, where there are any to send."""
        raw = self.raw
        if raw is not None:
            if index == self.index:
                return raw
            if self.digits is not None:
                start, end = self.digits
                return b"%b%d%b" % (raw[:start], index, raw[end:])
        assert self.event is not None
        self.event["index"] = index
        return self.event


def find_delta(event: bytes) -> Delta | None:
    """The usual delta that an event's bytes are; None for another, or anything else: that has to be decoded."""
    found = _USUAL(event)
    if found is None:
        return None
    type_, kind, name, piece, index = found.groups()
    known = _KINDS.get((kind, name))
    if known is None or index is None or type_ is None:
        return None
    try:
        text = _TEXT.decode(b'"%b"' % piece) if b"\\" in piece else piece.decode()
    except (msgspec.MsgspecError, UnicodeDecodeError):  # half a surrogate pair, say, which must not go on as it came
        return None
    return Delta(known, text, len(piece), int(index), None, event, found.span(_INDEX))


def read_delta(event: Event, raw: bytes | None) -> Delta:
    """A decoded ``content_block_delta``; ``raw`` are its own bytes, where they may go to the client.

    Raises :class:`UpstreamBroken` where its piece is missing.
    """
    delta = event.get("delta")
    kind = delta.get("type") if isinstance(delta, dict) else None
    if not isinstance(delta, dict) or not isinstance(kind, str):
        raise UpstreamBroken("Upstream sent a delta without a type.")
    name = PIECE.get(kind)
    piece = "" if name is None else delta.get(name)
    if not isinstance(piece, str):
        raise UpstreamBroken(f"Upstream sent a {kind} without its {name}.")
    return Delta(kind, piece, size_of(piece), event.get("index"), event, raw)


def size_of(text: str) -> int:
    """Bytes of a text in UTF-8."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
