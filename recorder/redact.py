"""What never reaches a cassette: credentials, wherever they stand, and who the user is.

One set of rules serves three uses: the recorder takes out what they find, ``scan`` reports what they still find in a
file, and the player applies them to a request before it compares it with the recorded one.
"""

import json
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from io import StringIO
from pathlib import Path

from recorder.cassette import Cassette, Json, Turn, compact_json, parse_json
from recorder.credentials import REDACTED, SECRET_FIELD, SECRET_HEADER, SECRET_QUERY_FIELD, Spans, cut_out, find_secrets
from recorder.messages import delta_text, with_delta_text
from recorder.spool import Spool

_BATCH = 1 << 16


def redact_text(text: str) -> tuple[str, list[str]]:
    """``text`` without its credentials, and the kind of each one found."""
    spans = find_secrets(text)
    return cut_out(text, spans), [kind for _, _, kind in spans]


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
        if SECRET_QUERY_FIELD.fullmatch(name) and value != REDACTED
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
            for start, _, kind in find_secrets(text):
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
    if isinstance(value, str) and value not in ("", REDACTED) and SECRET_FIELD.fullmatch(key):
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
        if SECRET_HEADER.search(name.lower()):
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
        spans = find_secrets(text)
        for start, _, kind in spans:
            note(f"response.sse.{_line(first, text, start)}: {kind}")
        found = found or bool(spans)
        clean.write(cut_out(text, spans).encode("utf-8", "surrogateescape"))
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


def _cuts_across_deltas(content: Spool, note: Note) -> dict[int, Spans]:
    """Line number -> the parts of its delta that belong to a secret; only the first part of each has a kind."""
    blocks: dict[int, _BlockText] = {}
    for number, line in enumerate(content.lines()):
        if line.startswith(b"data:") and (delta := delta_text(parse_json(line[5:]))):
            index, text = delta
            blocks.setdefault(index, _BlockText()).add(number, text)
    cuts: dict[int, Spans] = {}
    for index, block in blocks.items():
        for start, end, kind in find_secrets(block.text.getvalue()):
            for part, (number, left, right) in enumerate(block.parts(start, end)):
                cuts.setdefault(number, []).append((left, right, "" if part else kind))
            note(f"response.sse: {kind} in block {index}")
    return cuts


def _cut_delta(line: str, spans: Spans) -> str:
    """A ``data:`` line without those parts of its delta; the first part of a secret leaves the mark."""
    event = json.loads(line[5:])
    found = delta_text(event)
    if found is None:
        return line
    return f"data: {compact_json(with_delta_text(event, cut_out(found[1], spans))).decode()}\n"
