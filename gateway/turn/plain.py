"""The event that nearly every event of a turn is: one piece of text or thinking, written the way vLLM writes it.

It is told by one pattern, without decoding; whatever does not match it is read the long way, so that the pattern may
be as narrow as it likes. It takes no ``\\u`` escape and no other order of keys.
"""

import re
from dataclasses import dataclass

from gateway.turn import jsonvalue

_PLAIN = re.compile(
    rb'event: content_block_delta\ndata: {"type":"content_block_delta","delta":{"type":"(text|thinking)_delta",'
    rb'"(?:\1)":"((?:[^"\\\x00-\x1f]|\\["\\/bfnrt])*)"},"index":(0|[1-9]\d{0,8})}\n\n'
).fullmatch


@dataclass(slots=True)
class PlainDelta:
    """One delta. ``kind`` is its block's: ``text`` or ``thinking``; ``index`` the block's own."""

    kind: str
    piece: str
    index: int


def read_plain(chunk: bytes) -> PlainDelta | None:
    """The one plain delta that ``chunk`` is, and nothing besides; None for anything else."""
    found = _PLAIN(chunk)
    if found is None:
        return None
    kind, piece, index = found.groups()
    try:
        text = jsonvalue.read(b'"%b"' % piece) if b"\\" in piece else piece.decode()
    except (jsonvalue.Unreadable, UnicodeDecodeError):
        return None
    return PlainDelta(kind.decode(), text, int(index))
