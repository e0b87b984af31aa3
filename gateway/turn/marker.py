"""The signature of a ``thinking`` block that was ``<think>`` text: it says how to write the text again.

It holds whether the tag closed, the white space before ``<think>`` and after ``</think>``, and whether visible text
followed in the same block. It is no secret and needs no key: a client that forges one only rewrites its own history.
"""

import base64
import binascii
import json
from dataclasses import dataclass

import msgspec

OPENING = "<think>"
CLOSING = "</think>"
PREFIX = "gateway.think."


@dataclass(frozen=True, slots=True)
class ThinkMark:
    """What stood around a ``<think>`` text. ``text_follows``: the block went on with visible text after ``after``."""

    closed: bool
    before: str
    after: str
    text_follows: bool

    def signature(self) -> str:
        """The mark as a ``signature``."""
        written = json.dumps([self.closed, self.before, self.after, self.text_follows], separators=(",", ":"))
        return PREFIX + base64.urlsafe_b64encode(written.encode()).decode()

    def text(self, thinking: str) -> str:
        """The text up to and with the white space after the tag, as upstream wrote it."""
        return f"{self.before}{OPENING}{thinking}{CLOSING if self.closed else ''}{self.after}"


def read_mark(signature: object) -> ThinkMark | None:
    """The mark in a ``signature``; None where it is not one of ours."""
    if not isinstance(signature, str) or not signature.startswith(PREFIX):
        return None
    try:
        written = base64.b64decode(signature[len(PREFIX) :].encode("ascii"), altchars=b"-_", validate=True)
        return ThinkMark(*_PARTS.decode(written))
    except (UnicodeError, binascii.Error, msgspec.DecodeError, RecursionError):
        return None


_PARTS = msgspec.json.Decoder(tuple[bool, str, str, bool])
