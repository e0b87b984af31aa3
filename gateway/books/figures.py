"""The tokens that an answer says it took, read from its first and last bytes, from where its format has them.

A JSON answer has them in its ``usage``; a stream in that of an event, of its ``message`` (the Messages API's first
event) or of its ``response`` (the Responses API). What a model wrote, a tool's input say, may have members of any name,
and is not looked at.
"""

from collections.abc import Iterator
from typing import Any

import msgspec

_MOST_CANDIDATES = 4
"""So many places are tried that may be a JSON answer's ``usage``, from the end."""


def read_figures(beginning: bytes, end: bytes) -> tuple[int | None, int | None]:
    """Input and output tokens of an answer that begins and ends so; None where it does not say."""
    if beginning.lstrip()[:1] == b"{":
        usage = _usage_at_top(end)
        return usage.input() if usage else None, usage.output() if usage else None
    taken = made = None
    for event in _events(beginning, end):
        for usage in event.usages():
            taken = usage.input() if taken is None else taken
            made = usage.output() if made is None else made
        if taken is not None and made is not None:
            break
    return taken, made


class _Usage(msgspec.Struct):
    """As the Messages API calls them, or else as OpenAI's routes do."""

    input_tokens: Any = None
    output_tokens: Any = None
    prompt_tokens: Any = None
    completion_tokens: Any = None

    def input(self) -> int | None:
        return _number(self.prompt_tokens if self.input_tokens is None else self.input_tokens)

    def output(self) -> int | None:
        return _number(self.completion_tokens if self.output_tokens is None else self.output_tokens)


class _Within(msgspec.Struct):
    usage: _Usage | None = None


class _Event(msgspec.Struct):
    usage: _Usage | None = None
    message: _Within | None = None
    response: _Within | None = None

    def usages(self) -> Iterator[_Usage]:
        for holder in (self, self.message, self.response):
            if holder is not None and holder.usage is not None:
                yield holder.usage


_ANSWER = msgspec.json.Decoder(_Within)
_EVENT = msgspec.json.Decoder(_Event)
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def _number(value: object) -> int | None:
    return value if type(value) is int and 0 <= value < 10**15 else None


def _usage_at_top(end: bytes) -> _Usage | None:
    """The ``usage`` of the object that ends so.

    What follows a member's name makes an object only if the member is one of the outermost: behind any other, too many
    brackets are closed.
    """
    at = len(end)
    for _ in range(_MOST_CANDIDATES):
        at = end.rfind(b'"usage"', 0, at)
        if at < 0:
            break
        try:
            return _ANSWER.decode(b"{" + end[at:]).usage
        except _UNREADABLE:
            continue
    return None


def _events(beginning: bytes, end: bytes) -> Iterator[_Event]:
    """The last events, from the end, and then the first; of those that were cut, none."""
    for part in (reversed(end.splitlines()), beginning.splitlines()):
        for line in part:
            if line.startswith(b"data:") and b"usage" in line:
                try:
                    yield _EVENT.decode(line[5:])
                except _UNREADABLE:
                    continue
