"""What never reaches a cassette: credentials, wherever they stand, and who the user is.

One set of rules serves three uses: the recorder takes out what they find, ``scan`` reports what they still find in a
file, and the player applies them to a request before it compares it with the recorded one.
"""

import json
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from recorder.cassette import Cassette, Json, Turn, compact_json, parse_json
from recorder.credentials import (
    REDACTED,
    SECRET_FIELD,
    SECRET_HEADER,
    SECRET_QUERY_FIELD,
    Search,
    cut_out,
    find_secrets,
    header_credentials,
)
from recorder.messages import delta_text, with_delta_text
from recorder.rules import SCHEMA_TYPES, Spans
from recorder.spool import Spool

_BATCH = 1 << 16


def redact_text(text: str, known: tuple[str, ...] = ()) -> tuple[str, list[str]]:
    """``text`` without its credentials, and the kind of each one found. ``known`` are credentials found by value."""
    spans = find_secrets(text, known)
    return cut_out(text, spans), [kind for _, _, kind in spans]


def redact_json(value: Json, path: str = "") -> tuple[Json, list[str]]:
    """A JSON value likewise; what was found is named by its path."""
    sweep = _Sweep()
    return _redact(value, path, sweep), sweep.found


def redact_turn(turn: Turn) -> Turn:
    """The turn as it may be written, with what was taken out in its ``redacted``."""
    request, response = turn.request, turn.response
    sweep = _Sweep(header_credentials(request.headers))
    body = _redact(_anonymous(request.body, sweep), "request.body", sweep)
    text = None if request.text is None else _redact(request.text, "request.text", sweep)
    path = _redact(request.path, "request.path", sweep)
    query = {
        name: _secret(f"request.query_params.{name}", sweep)
        if SECRET_QUERY_FIELD.fullmatch(name) and value != REDACTED
        else value
        for name, value in _redact(request.query_params, "request.query_params", sweep).items()
    }
    return replace(
        turn,
        request=replace(
            request,
            path=path,
            query_params=query,
            headers=_headers(request.headers, "request", sweep),
            body=body,
            text=text,
        ),
        response=replace(
            response,
            headers=_headers(response.headers, "response", sweep),
            content=_stream(response.content, sweep) if response.is_stream else _content(response.content, sweep),
        ),
        redacted=[*turn.redacted, *sweep.found],
    )


def redact_request_body(body: Json, headers: Mapping[str, str] | None = None) -> Json:
    """A request's body as a cassette would hold it; ``headers`` are the request's, where they are known."""
    sweep = _Sweep(header_credentials(headers or {}))
    return _redact(_anonymous(body, sweep), "", sweep)


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


@dataclass(slots=True)
class _Sweep:
    """One pass over a turn: the credentials that are known by value, and the places where one was found."""

    known: tuple[str, ...] = ()
    found: list[str] = field(default_factory=list)

    def note(self, place: str) -> None:
        self.found.append(place)


def _secret(path: str, sweep: _Sweep) -> str:
    sweep.note(path)
    return REDACTED


def _redact(value: Json, path: str, sweep: _Sweep) -> Json:
    if isinstance(value, str):
        text, kinds = redact_text(value, sweep.known)
        for kind in kinds:
            sweep.note(f"{path}: {kind}")
        return text
    if isinstance(value, list):
        return [_redact(item, f"{path}.{number}", sweep) for number, item in enumerate(value)]
    if isinstance(value, dict):
        return _fields(value, path, sweep)
    return value


def _fields(value: dict[str, Json], path: str, sweep: _Sweep) -> dict[str, Json]:
    """An object, each of its keys too: several that are credentials stay several fields."""
    clean: dict[str, Json] = {}
    for key, item in value.items():
        name, kinds = redact_text(str(key), sweep.known)
        for kind in kinds:
            sweep.note(f"{path}: {kind} as a field's name")
        while kinds and name in value | clean:
            name += "'"
        # a token of the model's stands beside its log probability
        redacted = _redact if key == "token" and "logprob" in value else partial(_field, name)
        clean[name] = redacted(item, f"{path}.{name}", sweep)
    return clean


def _field(key: str, value: Json, path: str, sweep: _Sweep) -> Json:
    if SECRET_FIELD.fullmatch(key) and not _is_harmless(value):
        return _below_secret(value, path, sweep)
    return _redact(value, path, sweep)


def _below_secret(value: Json, path: str, sweep: _Sweep) -> Json:
    """What a field with the name of a credential holds: each text in it is one."""
    if isinstance(value, str):
        return value if value in ("", REDACTED) else _secret(path, sweep)
    if isinstance(value, list):
        return [_below_secret(item, f"{path}.{number}", sweep) for number, item in enumerate(value)]
    if isinstance(value, dict):
        return {name: _below_secret(item, f"{path}.{name}", sweep) for name, item in value.items()}
    return value


def _is_harmless(value: Json) -> bool:
    """Is it a field's description, as the schema of a tool has it, or a token of the model's?"""
    if not isinstance(value, dict):
        return False
    kind = value.get("type")
    return "logprob" in value or (isinstance(kind, str) and kind.lower() in SCHEMA_TYPES)


def _anonymous(body: Json, sweep: _Sweep) -> Json:
    """The body without ``metadata.user_id``."""
    if not isinstance(body, dict) or not isinstance(body.get("metadata"), dict):
        return body
    metadata = body["metadata"]
    if metadata.get("user_id", REDACTED) in (REDACTED, None):
        return body
    return {**body, "metadata": {**metadata, "user_id": _secret("request.body.metadata.user_id", sweep)}}


def _headers(headers: dict[str, str], whose: str, sweep: _Sweep) -> dict[str, str]:
    kept: dict[str, str] = {}
    for name, value in headers.items():
        path = f"{whose}.headers.{name}"
        if SECRET_HEADER.search(name.lower()):
            sweep.note(path)
        else:
            kept[name] = _redact(value, path, sweep)
    return kept


def _content(content: Spool, sweep: _Sweep) -> Spool:
    """A body that is no stream. Bytes without a finding stay as they are.

    It is held whole, as bytes and as a value: to record a JSON answer takes about five times its size of memory.
    """
    data, before = content.read(), len(sweep.found)
    value = parse_json(data)
    if value is None:
        text = data.decode("utf-8", "surrogateescape")
        clean = str(_redact(text, "response.body", sweep)).encode("utf-8", "surrogateescape")
    else:
        redacted = _redact(value, "response.body", sweep)
        clean = compact_json(redacted) if len(sweep.found) > before else data
    return Spool(clean) if len(sweep.found) > before else content


def _stream(content: Spool, sweep: _Sweep) -> Spool:
    """An event stream: line by line, and each block's text as one, for a secret can come in pieces."""
    cuts = _cuts_across_deltas(content, sweep)
    lines = (
        _cut_delta(line, cuts[number]) if number in cuts else line
        for number, line in enumerate(_decoded(content.lines()))
    )
    clean, found = Spool(), bool(cuts)
    for first, text in _batches(lines):
        spans = find_secrets(text, sweep.known)
        for start, _, kind in spans:
            sweep.note(f"response.sse.{_line(first, text, start)}: {kind}")
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

    search: Search
    secrets: Spans = field(default_factory=list)
    ends: "array[int]" = field(default_factory=lambda: array("Q", [0]))
    lines: "array[int]" = field(default_factory=lambda: array("Q", [0]))

    def add(self, line: int, text: str) -> None:
        self.secrets += self.search.feed(text)
        self.ends.append(self.ends[-1] + len(text))
        self.lines.append(line)

    def parts(self, start: int, end: int) -> Iterator[tuple[int, int, int]]:
        """(line, start, end within its delta) of every delta that has a part of this span."""
        number = bisect_right(self.ends, start)
        while number < len(self.ends) and (begin := self.ends[number - 1]) < end:
            yield self.lines[number], max(start - begin, 0), min(end, self.ends[number]) - begin
            number += 1


def _cuts_across_deltas(content: Spool, sweep: _Sweep) -> dict[int, Spans]:
    """Line number -> the parts of its delta that belong to a secret; only the first part of each has a kind."""
    blocks: dict[int, _BlockText] = {}
    for number, line in enumerate(content.lines()):
        if line.startswith(b"data:") and (delta := delta_text(parse_json(line[5:]))):
            index, text = delta
            if index not in blocks:
                blocks[index] = _BlockText(Search(sweep.known))
            blocks[index].add(number, text)
    cuts: dict[int, Spans] = {}
    for index, block in blocks.items():
        for start, end, kind in [*block.secrets, *block.search.finish()]:
            for part, (number, left, right) in enumerate(block.parts(start, end)):
                cuts.setdefault(number, []).append((left, right, "" if part else kind))
            sweep.note(f"response.sse: {kind} in block {index}")
    return cuts


def _cut_delta(line: str, spans: Spans) -> str:
    """A ``data:`` line without those parts of its delta; the first part of a secret leaves the mark."""
    event = json.loads(line[5:])
    found = delta_text(event)
    if found is None:
        return line
    return f"data: {compact_json(with_delta_text(event, cut_out(found[1], spans))).decode()}\n"
