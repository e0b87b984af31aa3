"""The model map and the token cap: they change only those JSON values of a request, in place, byte for byte else.

Sans-IO. :func:`read_request` finds where the values stand, :meth:`Request.rewritten` replaces them;
:func:`name_in_message` and :class:`NameInStream` put the client's model name back into the answer.
"""

import fnmatch
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec
from pydantic import TypeAdapter, ValidationError

from gateway.errors import InvalidRequest

MIN_THINKING_BUDGET = 1024
"""Least ``thinking.budget_tokens`` vLLM takes; it must also be under ``max_tokens``."""

_KEY = re.compile(rb'[ \t\r\n]*"(?:[^"\\]|\\.)*"[ \t\r\n]*:[ \t\r\n]*', re.DOTALL)
_COMMA = re.compile(rb"[ \t\r\n]*,")
_OPEN = re.compile(r"[ \t\r\n]*\{[ \t\r\n]*")
_COLON = re.compile(r"[ \t\r\n]*:[ \t\r\n]*")
_NEXT = re.compile(r"[ \t\r\n]*([,}])[ \t\r\n]*")
_MEMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_DECODER = json.JSONDecoder()
_INTEGER = re.compile(rb"-?[0-9]{1,18}")
_LIKE_A_NUMBER = re.compile(rb'["0-9-]')
_AS_UPSTREAM_READS = TypeAdapter(int)
"""What upstream's own models take for an integer, by the library that they are made with."""
_GLOB_CHARACTERS = re.compile(r"[*?\[]")


@dataclass(frozen=True, slots=True)
class Span:
    """Where a JSON value stands in a body: ``body[start:end]``."""

    start: int
    end: int


class ModelMap:
    """Globs of client model names, each with the upstream model it stands for; the first match wins."""

    def __init__(self, pairs: Mapping[str, str]) -> None:
        self._rules = [(re.compile(fnmatch.translate(glob)), model) for glob, model in pairs.items()]
        self.literals = tuple(name for name in pairs if not _GLOB_CHARACTERS.search(name))
        """The names without a wildcard, in the map's order."""

    def __bool__(self) -> bool:
        return bool(self._rules)

    def upstream_name(self, model: str) -> str:
        """The upstream model behind a client's name: the name itself where nothing matches."""
        return next((target for glob, target in self._rules if glob.match(model)), model)


@dataclass(frozen=True, slots=True)
class Request:
    """A Messages request's body with the values that may change located in it; None where it has no such value.

    ``max_tokens`` and ``budget_tokens`` are set where upstream takes them for integers (``64000.0``, ``6.4e4`` and
    ``"64000"``, too); the rest is upstream's to judge.
    """

    body: bytes
    model: str | None = None
    model_span: Span | None = None
    max_tokens: int | None = None
    max_tokens_span: Span | None = None
    budget_tokens: int | None = None
    budget_tokens_span: Span | None = None

    def rewritten(self, model: str | None, cap: int | None) -> bytes:
        """The body with another ``model`` (None: as it is) and no more than ``cap`` tokens (None: no cap).

        A thinking budget that fitted the client's ``max_tokens`` is lowered to fit the new one.
        """
        changes: list[tuple[Span, bytes]] = []
        if self.model_span and model is not None and model != self.model:
            changes.append((self.model_span, _encode(model)))
        if self.max_tokens_span and self.max_tokens is not None and cap is not None and self.max_tokens > cap:
            changes.append((self.max_tokens_span, b"%d" % cap))
            if (
                self.budget_tokens_span
                and self.budget_tokens is not None
                and cap <= self.budget_tokens < self.max_tokens
            ):
                changes.append((self.budget_tokens_span, b"%d" % max(MIN_THINKING_BUDGET, cap - 1)))
        return _replace(self.body, changes)


def read_request(body: bytes) -> Request:
    """Locate model, max_tokens and thinking.budget_tokens; of a key that stands twice the last, as upstream does.

    Raises :class:`InvalidRequest` for a body that is not JSON in UTF-8, or begins with a byte order mark. Upstream may
    read more than that (UTF-16, say), and what is not read here is not changed.
    """
    try:
        text = body.decode("utf-8")  # the walk looks at the values that may change only
        spans = _members(body, 0, len(body))
        if spans is None:
            json.loads(text)
            return Request(body)  # JSON, but no object
    except (ValueError, RecursionError):
        raise InvalidRequest(
            "the body must be JSON in plain UTF-8: a model map or a token cap is in force here, for which it is read"
        ) from None
    model, model_span = _string(body, spans.get("model"))
    max_tokens, max_tokens_span = _integer(body, spans.get("max_tokens"))
    thinking = spans.get("thinking")
    inner = _members(body, thinking.start, thinking.end) if thinking else None
    budget_tokens, budget_tokens_span = _integer(body, (inner or {}).get("budget_tokens"))
    return Request(body, model, model_span, max_tokens, max_tokens_span, budget_tokens, budget_tokens_span)


def name_in_message(body: bytes, name: str) -> bytes:
    """A JSON answer with its top-level ``model`` changed to ``name``; anything else passes as it is."""
    spans = _members(body, 0, len(body))
    _, span = _string(body, (spans or {}).get("model"))
    return _replace(body, [(span, _encode(name))]) if span else body


class NameInStream:
    """Changes ``message.model`` of a stream's ``message_start`` to the client's name, however the bytes are cut.

    Only the line that is being looked at is held back; after ``message_start`` bytes pass untouched.
    """

    _GIVE_UP_AFTER = 1 << 20

    def __init__(self, name: str) -> None:
        self._name = name
        self._held = b""
        self.done = False

    def feed(self, data: bytes) -> bytes:
        """The bytes that may go on."""
        if self.done:
            return data
        self._held += data
        passed = []
        while not self.done and (line := _line(self._held)):
            self._held = self._held[len(line) :]
            passed.append(self._patched(line))
        if len(self._held) > self._GIVE_UP_AFTER:
            self.done = True
        if self.done:
            passed.append(self.flush())
        return b"".join(passed)

    def flush(self) -> bytes:
        """What is still held back when the stream ends."""
        held, self._held = self._held, b""
        return held

    def _patched(self, line: bytes) -> bytes:
        if not line.startswith(b"data:") or b"message_start" not in line:
            return line
        spans = _members(line, len(b"data:"), len(line)) or {}
        message = spans.get("message")
        if _string(line, spans.get("type"))[0] != "message_start" or message is None:
            return line
        self.done = True
        _, model = _string(line, (_members(line, message.start, message.end) or {}).get("model"))
        return _replace(line, [(model, _encode(self._name))]) if model else line


def _line(data: bytes) -> bytes:
    """The first whole line with its end (LF, CR or CR LF), empty if there is none yet."""
    ends = [at for at in (data.find(b"\n"), data.find(b"\r")) if at >= 0]
    return data[: min(ends) + 1] if ends else b""


def _replace(body: bytes, changes: list[tuple[Span, bytes]]) -> bytes:
    for span, value in sorted(changes, key=lambda change: change[0].start, reverse=True):
        body = body[: span.start] + value + body[span.end :]
    return body


def _encode(name: str) -> bytes:
    return json.dumps(name, ensure_ascii=False).encode("utf-8", "backslashreplace")


def _string(body: bytes, span: Span | None) -> tuple[str | None, Span | None]:
    if span is None or body[span.start : span.start + 1] != b'"':
        return None, None
    return json.loads(body[span.start : span.end]), span


def _integer(body: bytes, span: Span | None) -> tuple[int | None, Span | None]:
    if span is None or not _LIKE_A_NUMBER.match(body, span.start):
        return None, None
    value = body[span.start : span.end]
    if _INTEGER.fullmatch(value):
        return int(value), span
    try:
        return _AS_UPSTREAM_READS.validate_python(json.loads(value)), span
    except (ValueError, ValidationError):
        return None, None


def _members(body: bytes, start: int, end: int) -> dict[str, Span] | None:
    """The members of the JSON object ``body[start:end]``, the last of equal keys; None if it is none."""
    spans = _members_by_msgspec(body, start, end)
    return _members_by_json(body, start, end) if spans is None else spans


def _members_by_msgspec(body: bytes, start: int, end: int) -> dict[str, Span] | None:
    """The fast way, which knows each value's bytes but not where they stand: so walk them in order.

    None where that does not work out: a key twice, or what msgspec refuses and others read (a lone surrogate, NaN).
    """
    try:
        members = _MEMBERS.decode(memoryview(body)[start:end])
    except (msgspec.DecodeError, RecursionError):
        return None
    spans: dict[str, Span] = {}
    at = body.index(b"{", start) + 1
    for name, raw in members.items():
        comma = _COMMA.match(body, at) if spans else None
        key = _KEY.match(body, comma.end() if comma else at)
        value = bytes(raw)
        if key is None or not body.startswith(value, key.end()):
            return None
        at = key.end() + len(value)
        spans[name] = Span(key.end(), at)
    return spans if body[at:end].strip() == b"}" else None


def _members_by_json(body: bytes, start: int, end: int) -> dict[str, Span] | None:
    """The same by the standard library's scanner, which reads what Python upstreams read."""
    text = body[start:end].decode("latin-1")  # a character a byte, so that positions are the body's
    opening = _OPEN.match(text)
    if opening is None:
        return None
    spans: dict[str, Span] = {}
    at = opening.end()
    try:
        while True:
            name, at = _DECODER.raw_decode(text, at)
            colon = _COLON.match(text, at)
            if not isinstance(name, str) or colon is None:
                return None
            _, at = _DECODER.raw_decode(text, colon.end())
            spans[name] = Span(start + colon.end(), start + at)
            following = _NEXT.match(text, at)
            if following is None:
                return None
            at = following.end()
            if following[1] == "}":
                return spans if at == len(text) else None
    except (ValueError, RecursionError):
        return None
