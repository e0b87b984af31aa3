"""What never reaches a cassette: credentials, wherever they stand, and who the user is.

One set of rules serves three uses: the recorder takes out what they find, ``scan`` reports what they still find in a
file, and the player applies them to a request before it compares it with the recorded one.
"""

import json
import re
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from io import StringIO
from pathlib import Path

from recorder.cassette import Cassette, Json, Turn, compact_json, parse_json
from recorder.messages import delta_text, with_delta_text
from recorder.spool import Spool

REDACTED = "[redacted]"
_BATCH = 1 << 16

_HEADERS = re.compile(
    r"auth|cookie|token|secret|passw|credential|session|signature|(api|access|subscription|private)[-_]?key"
)
_NAME = (
    r"(?:api[-_]?key|access[-_]?key|secret[-_]?key|private[-_]?key|secret|password|passwd"
    r"|(?:access|refresh|auth|session|bearer)[-_]?token|id_token|credentials?|authorization)"
)
_NAME_HINTS = ("key", "secret", "passw", "token", "credential", "authorization")
_FIELD = re.compile(rf"(?:[\w-]*[_-])?{_NAME}", re.IGNORECASE)
_QUERY_NAME = rf"(?:{_FIELD.pattern}|key|token|auth|sig|signature|x-amz-[\w-]+)"
_QUERY_FIELD = re.compile(_QUERY_NAME, re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class _Rule:
    """A pattern whose last group (or whole match) is secret.

    ``hints`` are a cheap test, in lower case. Where upper and lower case are one, the pattern is in lower case and so
    is the text it is given: much quicker than IGNORECASE.
    """

    kind: str
    hints: tuple[str, ...]
    pattern: re.Pattern[str]
    lower: bool


def _rule(kind: str, hints: str | tuple[str, ...], pattern: str, *, lower: bool = False) -> _Rule:
    return _Rule(kind, (hints,) if isinstance(hints, str) else hints, re.compile(pattern), lower)


_RULES = (
    _rule(
        "private key",
        "private key-----",
        r"-----BEGIN [A-Z ]*PRIVATE KEY-----[^\"']*?(?:-----END[A-Z ]*-----|(?=[\"'])|\Z)",
    ),
    _rule("API key", "sk-", r"\bsk-[A-Za-z0-9_-]{16,}"),
    _rule("API key", "tvly-", r"\btvly-[A-Za-z0-9_-]{10,}"),
    _rule("API key", "bsa", r"\bBSA[A-Za-z0-9_-]{20,}"),
    _rule("API key", "hf_", r"\bhf_[A-Za-z0-9]{20,}"),
    _rule("API key", "gsk_", r"\bgsk_[A-Za-z0-9]{20,}"),
    _rule("API key", "xai-", r"\bxai-[A-Za-z0-9]{20,}"),
    _rule("API key", "nvapi-", r"\bnvapi-[A-Za-z0-9_-]{20,}"),
    _rule("API key", "aiza", r"\bAIza[A-Za-z0-9_-]{30,}"),
    _rule("access key", "akia", r"\bAKIA[A-Z0-9]{16}\b"),
    _rule(
        "access token",
        ("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"),
        r"\b(?:gh[pousr]_|github_pat_)[A-Za-z0-9_]{20,}",
    ),
    _rule("access token", "glpat-", r"\bglpat-[A-Za-z0-9_-]{16,}"),
    _rule("access token", "xox", r"\bxox[abeprs]-[A-Za-z0-9-]{10,}"),
    _rule("access token", "eyj", r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*"),
    _rule("credential", "bearer", r"\bbearer\s+((?=[^\s\"'\\]*\d)[\w.~+/=-]{12,})", lower=True),
    _rule("credential", "basic", r"\bauthorization\W{1,4}basic\s+([\w+/=-]{8,})", lower=True),
    _rule("password in a URL", "://", r"://[^/\s:@\"'\\]*:([^/\s@\"'\\]+)@"),
    _rule("key in a URL", "=", rf"[?&;]{_QUERY_NAME}=([^&;#\s\"'<>\\`)]+)", lower=True),
    _rule("key in JSON", '"', rf"\"{_FIELD.pattern}\\?\"\s*:\s*\\?\"([^\"\\]{{8,}})", lower=True),
    _rule("assigned key", _NAME_HINTS, rf"{_NAME}\s*[=:]\s*[\"']?((?=[^\s\"']*\d)[\w.~+/-]{{12,}})", lower=True),
)


def redact_text(text: str) -> tuple[str, list[str]]:
    """``text`` without its credentials, and the kind of each one found."""
    spans = _secrets(text)
    return _cut(text, spans), [kind for _, _, kind in spans]


def redact_json(value: Json, path: str = "") -> tuple[Json, list[str]]:
    """A JSON value likewise; what was found is named by its path."""
    found: list[str] = []
    return _redact(value, path, found.append), found


def redact_turn(turn: Turn) -> Turn:
    """The turn as it may be written, with what was taken out in its ``redacted``."""
    request, response = turn.request, turn.response
    found: list[str] = []
    note = found.append
    body = _redact(_anonymous(request.body, note), "request.body", note)
    text = None if request.text is None else _redact(request.text, "request.text", note)
    path = _redact(request.path, "request.path", note)
    query = {
        name: _secret(f"request.query_params.{name}", note)
        if _QUERY_FIELD.fullmatch(name) and value != REDACTED
        else value
        for name, value in _redact(request.query_params, "request.query_params", note).items()
    }
    return replace(
        turn,
        request=replace(
            request,
            path=path,
            query_params=query,
            headers=_headers(request.headers, "request", note),
            body=body,
            text=text,
        ),
        response=replace(
            response,
            headers=_headers(response.headers, "response", note),
            content=_stream(response.content, note) if response.is_stream else _content(response.content, note),
        ),
        redacted=[*turn.redacted, *found],
    )


def redact_request_body(body: Json) -> Json:
    """A request's body as a cassette would hold it."""
    return _redact(_anonymous(body, _ignore), "", _ignore)


def scan(path: Path) -> Iterator[str]:
    """Where a file still holds a credential, one sentence each; never the credential. Raises CassetteError."""
    with path.open(encoding="utf-8", errors="replace") as file:
        for first, text in _batches(file):
            for start, _, kind in _secrets(text):
                yield f"line {_line(first, text, start) + 1}: {kind}"
    cassette = Cassette(path)
    yield from redact_json(cassette.recorded(), "recorded")[1]
    for turn in cassette:
        known = len(turn.redacted)
        for finding in redact_turn(turn).redacted[known:]:
            yield f"{turn.filename}: {finding}"


Note = Callable[[str], None]


def _ignore(_: str) -> None:
    pass


def _secret(path: str, note: Note) -> str:
    note(path)
    return REDACTED


def _redact(value: Json, path: str, note: Note) -> Json:
    if isinstance(value, str):
        text, kinds = redact_text(value)
        for kind in kinds:
            note(f"{path}: {kind}")
        return text
    if isinstance(value, list):
        return [_redact(item, f"{path}.{number}", note) for number, item in enumerate(value)]
    if isinstance(value, dict):
        return {key: _field(key, item, f"{path}.{key}", note) for key, item in value.items()}
    return value


def _field(key: str, value: Json, path: str, note: Note) -> Json:
    if isinstance(value, str) and value not in ("", REDACTED) and _FIELD.fullmatch(key):
        return _secret(path, note)
    return _redact(value, path, note)


def _anonymous(body: Json, note: Note) -> Json:
    """The body without ``metadata.user_id``."""
    if not isinstance(body, dict) or not isinstance(body.get("metadata"), dict):
        return body
    metadata = body["metadata"]
    if metadata.get("user_id", REDACTED) in (REDACTED, None):
        return body
    return {**body, "metadata": {**metadata, "user_id": _secret("request.body.metadata.user_id", note)}}


def _headers(headers: dict[str, str], whose: str, note: Note) -> dict[str, str]:
    kept: dict[str, str] = {}
    for name, value in headers.items():
        path = f"{whose}.headers.{name}"
        if _HEADERS.search(name.lower()):
            note(path)
        else:
            kept[name] = _redact(value, path, note)
    return kept


def _content(content: Spool, note: Note) -> Spool:
    """A body that is no stream. Bytes without a finding stay as they are."""
    data, found = content.read(), list[str]()
    value = parse_json(data)
    if value is None:
        text = data.decode("utf-8", "surrogateescape")
        clean = str(_redact(text, "response.body", found.append)).encode("utf-8", "surrogateescape")
    else:
        redacted = _redact(value, "response.body", found.append)
        clean = compact_json(redacted) if found else data
    for finding in found:
        note(finding)
    return Spool(clean) if found else content


def _stream(content: Spool, note: Note) -> Spool:
    """An event stream: line by line, and each block's text as one, for a secret can come in pieces."""
    cuts = _cuts_across_deltas(content, note)
    lines = (
        _cut_delta(line, cuts[number]) if number in cuts else line
        for number, line in enumerate(_decoded(content.lines()))
    )
    clean, found = Spool(), bool(cuts)
    for first, text in _batches(lines):
        spans = _secrets(text)
        for start, _, kind in spans:
            note(f"response.sse.{_line(first, text, start)}: {kind}")
        found = found or bool(spans)
        clean.write(_cut(text, spans).encode("utf-8", "surrogateescape"))
    return clean if found else content


def _line(first: int, text: str, position: int) -> int:
    """The number of the line that a position of a batch is in."""
    return first + text.count("\n", 0, position)


def _decoded(lines: Iterator[bytes]) -> Iterator[str]:
    return (line.decode("utf-8", "surrogateescape") for line in lines)


def _batches(lines: Iterable[str]) -> Iterator[tuple[int, str]]:
    """Many lines at a time, and the number of the first, counted from 0: a search costs little more than for one."""
    batch: list[str] = []
    size = first = 0
    for line in lines:
        batch.append(line)
        size += len(line)
        if size >= _BATCH:
            yield first, "".join(batch)
            first += len(batch)
            batch, size = [], 0
    yield first, "".join(batch)


_Spans = list[tuple[int, int, str]]


@dataclass(slots=True)
class _BlockText:
    """A block's deltas as one text; where in it each ends, and in which line of the stream each stands."""

    text: StringIO = field(default_factory=StringIO)
    ends: "array[int]" = field(default_factory=lambda: array("Q"))
    lines: "array[int]" = field(default_factory=lambda: array("Q"))

    def add(self, line: int, text: str) -> None:
        self.text.write(text)
        self.ends.append(self.text.tell())
        self.lines.append(line)

    def parts(self, start: int, end: int) -> Iterator[tuple[int, int, int]]:
        """(line, start, end within its delta) of every delta that has a part of this span."""
        number = bisect_right(self.ends, start)
        while number < len(self.ends) and (begin := self.ends[number - 1] if number else 0) < end:
            yield self.lines[number], max(start - begin, 0), min(end, self.ends[number]) - begin
            number += 1


def _cuts_across_deltas(content: Spool, note: Note) -> dict[int, _Spans]:
    """Line number -> the parts of its delta that belong to a secret; only the first part of each has a kind."""
    blocks: dict[int, _BlockText] = {}
    for number, line in enumerate(content.lines()):
        if line.startswith(b"data:") and (delta := delta_text(parse_json(line[5:]))):
            index, text = delta
            blocks.setdefault(index, _BlockText()).add(number, text)
    cuts: dict[int, _Spans] = {}
    for index, block in blocks.items():
        for start, end, kind in _secrets(block.text.getvalue()):
            for part, (number, left, right) in enumerate(block.parts(start, end)):
                cuts.setdefault(number, []).append((left, right, "" if part else kind))
            note(f"response.sse: {kind} in block {index}")
    return cuts


def _cut_delta(line: str, spans: _Spans) -> str:
    """A ``data:`` line without those parts of its delta; the first part of a secret leaves the mark."""
    event = json.loads(line[5:])
    found = delta_text(event)
    if found is None:
        return line
    return f"data: {compact_json(with_delta_text(event, _cut(found[1], spans))).decode()}\n"


def _secrets(text: str) -> _Spans:
    """(start, end, kind) of every secret, in order; what overlaps is one."""
    # the one letter that grows in lower case would shift the rest
    lower, found = text.replace("\u0130", "I").lower(), list[tuple[int, int, str]]()
    for rule in _RULES:
        if any(hint in lower for hint in rule.hints):
            for match in rule.pattern.finditer(lower if rule.lower else text):
                group = match.lastindex or 0
                if match[group] != REDACTED:
                    found.append((match.start(group), match.end(group), rule.kind))
    spans: _Spans = []
    for start, end, kind in sorted(found):
        if spans and start < spans[-1][1]:
            spans[-1] = (spans[-1][0], max(end, spans[-1][1]), spans[-1][2])
        else:
            spans.append((start, end, kind))
    return spans


def _cut(text: str, spans: _Spans) -> str:
    """``text`` with a mark in place of each span; of a span without a kind nothing stays."""
    parts, end = [], 0
    for start, stop, kind in spans:
        parts += [text[end:start], REDACTED if kind else ""]
        end = stop
    return "".join([*parts, text[end:]])
