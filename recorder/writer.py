"""Writes a cassette turn by turn, so that at any moment the file is a whole one.

A turn that is being written must not be half a turn when the process is killed. So it is first written as the text of a
top-level field of its own, cut anywhere still YAML, which readers do not look at:

    turns:
      - filename: t1
        …
    staged: |
      - filename: t2
        request:

and when it is all there, nine bytes become a comment of the same length, `#--------`, and the text above it is a turn.
"""

import base64
import codecs
import json
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import yaml

from recorder.cassette import Json, Request, Response, Turn, compact_json, parse_json
from recorder.errors import RecordingError
from recorder.redact import redact_json, redact_turn

_STAGED = b"staged: |\n"
_COMMITTED = b"#--------\n"
_NO_TURNS = b"turns: []\n"
_TURNS = b"turns:   \n"
_BATCH = 1 << 16
_DEEPEST = 60


class CassetteWriter:
    """Replaces the file, and appends turns to it, redacted. Raises RecordingError where it cannot be written."""

    def __init__(self, path: Path, recorded: dict[str, Json]) -> None:
        self.path = path
        self.turns = 0
        self.redacted: list[str] = []
        head = _dump({"recorded": redact_json(recorded)[0]}).encode() + _NO_TURNS
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
            self._write_at(0, head)
        except OSError as error:
            raise RecordingError(f"{path}: {error.strerror}") from error
        self._turns_at = len(head) - len(_NO_TURNS)
        self._end = len(head)

    def append(self, request: Request, response: Response) -> Turn:
        """Write the next turn; it is in the file when this returns. Returns it as written."""
        turn = redact_turn(Turn(f"t{self.turns + 1}", request, response))
        try:
            end = self._stage(turn)
            if self.turns == 0:
                self._write_at(self._turns_at, _TURNS)
            self._write_at(self._end, _COMMITTED)
        except OSError as error:
            with suppress(OSError):
                os.ftruncate(self._file, self._end)
            raise RecordingError(f"{self.path}: {error.strerror}") from error
        self._end = end
        self.turns += 1
        self.redacted += [f"{turn.filename}: {what}" for what in turn.redacted]
        return turn

    def close(self) -> None:
        """No turn can be appended any more."""
        os.close(self._file)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _stage(self, turn: Turn) -> int:
        """Write a turn so that nobody sees it yet; returns where it ends."""
        offset = self._end
        offset += self._write_at(offset, _COMMITTED)
        self._write_at(self._end, _STAGED)
        for batch in _batches(turn_yaml(turn)):
            offset += self._write_at(offset, batch)
        return offset

    def _write_at(self, offset: int, data: bytes) -> int:
        written = 0
        while written < len(data):
            written += os.pwrite(self._file, data[written:], offset + written)
        return written


def turn_yaml(turn: Turn) -> Iterator[str]:
    """A turn as lines of YAML, an item of the list ``turns``."""
    request, response = turn.request, turn.response
    yield from _indented(_dump({"filename": turn.filename}), "  - ", "    ")
    asked: dict[str, Json] = {
        "method": request.method,
        "path": request.path,
        "query_params": request.query_params,
        "headers": request.headers,
    }
    if request.text is not None:
        asked["text"] = request.text
    elif request.body is not None:
        asked |= _request_body(request.body)
    yield from _indented(_dump({"request": asked}), "    ", "    ")
    head: dict[str, Json] = {"status_code": response.status_code, "headers": response.headers}
    if response.elapsed_ms is not None:
        head["elapsed_ms"] = round(response.elapsed_ms, 1)
    if not response.is_stream:
        head |= _response_body(response.content.read())
    yield "    response:\n"
    while head:  # one at a time and let go of, for a body can be large
        name = next(iter(head))
        yield from _indented(_dump({name: head.pop(name)}), "      ", "      ")
    if response.is_stream:
        yield from _stream_yaml(response)
    if turn.redacted:
        yield from _indented(_dump({"redacted": turn.redacted}), "    ", "    ")


def _stream_yaml(response: Response) -> Iterator[str]:
    """The fields of a stream, one line or number at a time."""
    if response.event_ms:
        yield "      event_ms: [\n"
        for start in range(0, len(response.event_ms), 16):
            yield f"        {', '.join(f'{ms:.1f}' for ms in response.event_ms[start : start + 16])},\n"
        yield "      ]\n"
    if not _is_utf8(response.content.chunks()):
        yield f"      base64: {base64.b64encode(response.content.read()).decode()}\n"
    if not response.content.size:
        yield "      sse: []\n"
        return
    yield "      sse:\n"
    for line in response.content.lines():
        yield from _line_yaml(line.decode("utf-8", "replace"))


def _line_yaml(line: str) -> Iterator[str]:
    """A line of a stream as a block where YAML can hold it so, which is easiest to read; else quoted."""
    text = line[:-1]
    if line.endswith("\n") and text and text[0] not in " \t" and text.isprintable():
        yield f"        - |\n          {line}"
    else:
        yield f"        - {_quoted(line)}\n"


@lru_cache(maxsize=8)  # the blank line between two events, above all
def _quoted(line: str) -> str:
    return yaml.dump(line, Dumper=yaml.CSafeDumper, default_style='"', width=1 << 30, allow_unicode=True).strip()


def _request_body(body: Json) -> dict[str, Json]:
    return {"body": body} if _storable(body) else {"text": json.dumps(body)}


def _response_body(data: bytes) -> dict[str, Json]:
    """The fields that give these bytes back."""
    if not data:
        return {}
    body = parse_json(data)
    fields: dict[str, Json] = {} if body is None or not _storable(body) else {"body": body}
    if fields and compact_json(body) == data:
        return fields
    try:
        return fields | {"text": data.decode()}
    except UnicodeDecodeError:
        return fields | {"base64": base64.b64encode(data).decode()}


def _storable(value: Json, depth: int = 0) -> bool:
    """Can YAML hold it? Not half a surrogate pair, and not what is nested deeper than a reader's stack."""
    if isinstance(value, str):
        return not any("\ud800" <= character <= "\udfff" for character in value)
    if isinstance(value, dict):
        return depth < _DEEPEST and all(_storable(key) and _storable(item, depth + 1) for key, item in value.items())
    if isinstance(value, list):
        return depth < _DEEPEST and all(_storable(item, depth + 1) for item in value)
    return True


def _is_utf8(chunks: Iterable[bytes]) -> bool:
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        for chunk in chunks:
            decoder.decode(chunk)
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    return True


def _batches(lines: Iterable[str]) -> Iterator[bytes]:
    batch: list[bytes] = []
    size = 0
    for line in lines:
        batch.append(line.encode())
        size += len(batch[-1])
        if size >= _BATCH:
            yield b"".join(batch)
            batch, size = [], 0
    yield b"".join(batch)


def _indented(text: str, first: str, rest: str) -> Iterator[str]:
    start = 0
    while end := text.find("\n", start) + 1:
        yield f"{rest if start else first}{text[start:end]}" if end - start > 1 else "\n"
        start = end


def _dump(value: dict[str, Json]) -> str:
    text: str = yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110)
    return text


class _Dumper(yaml.CSafeDumper):
    """Texts of several lines as blocks, and no aliases: a turn is to be read by itself."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _represent_text(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=_style(text))


def _style(text: str) -> str | None:
    """Blocks for what has several lines; quotes for what YAML may take for a line break or cannot show."""
    if not all(line.replace("\t", " ").isprintable() for line in text.split("\n")):
        return '"'
    # a block that ends in blank lines would need its document closed behind it
    return "|" if "\n" in text and text.strip() and not text.endswith("\n\n") else None


_Dumper.add_representer(str, _represent_text)
