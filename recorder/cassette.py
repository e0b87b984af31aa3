"""A cassette: a conversation in a YAML file, as the HTTP exchanges that it took, which the format calls turns.

The fields that every reader of the format knows:

    turns:
    - filename: t1
      request: {method, path, query_params, headers, body}
      response: {status_code, headers, sse: [lines, each with its newline]}    # or body: {…} for JSON

Fields of our own, beside them:

    recorded: {at, server, version, model, how}     where it came from, and the command that makes it again
    request.text        a body that is not JSON, or JSON that YAML cannot hold
    response.event_ms   when each SSE event was whole, in milliseconds since the request was sent
    response.elapsed_ms the same for the end of the answer
    response.text, response.base64
                        the exact bytes, where `body` as compact JSON, or `sse` as UTF-8, would not give them
    redacted            what was taken out of this turn

A cassette can be larger than memory should be, so turns are read one at a time, and the lines of a stream go one by one
into a compressed buffer.
"""

import base64
import json
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import UnionType
from typing import Any

import yaml
from yaml.composer import Composer

from recorder.errors import CassetteError
from recorder.spool import Spool

Json = Any
"""A JSON value: dict, list, str, int, float, bool or None."""


@dataclass(slots=True)
class Request:
    """The request of a turn. ``body`` is its JSON value, None where there is none; ``text`` a body that is not JSON."""

    method: str
    path: str
    query_params: dict[str, Any] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)
    body: Json = None
    text: str | None = None


@dataclass(slots=True)
class Response:
    """The answer of a turn: ``content`` is the body's bytes, as they crossed the wire, of an event stream or not.

    ``event_ms`` holds one time per SSE event, or none at all; times are milliseconds since the request was sent.
    """

    status_code: int
    headers: dict[str, str] = field(default_factory=dict)
    content: Spool = field(default_factory=Spool)
    is_stream: bool = False
    event_ms: "array[float]" = field(default_factory=lambda: array("d"))
    elapsed_ms: float | None = None

    def json(self) -> Json:
        """The body as a JSON value; None where it is not JSON."""
        return parse_json(self.content.read())


@dataclass(slots=True)
class Turn:
    """One HTTP exchange. ``redacted`` names what was taken out of it before it was written."""

    filename: str
    request: Request
    response: Response
    redacted: list[str] = field(default_factory=list)


def parse_json(data: bytes) -> Json:
    """``data`` as a JSON value, None where it is none (or null)."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def compact_json(value: Json) -> bytes:
    """JSON as Messages servers write it: no white space, UTF-8.

    Raises UnicodeEncodeError for half of a surrogate pair, which UTF-8 cannot hold.
    """
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


class Cassette:
    """A cassette file. Iterating reads it from the beginning, one turn at a time; raises CassetteError."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    @property
    def name(self) -> str:
        """The file's name."""
        return self.path.name

    def recorded(self) -> dict[str, Json]:
        """Where it came from: ``at``, ``server``, ``version``, ``model``, ``how``, those that are known."""
        with self._reader() as reader:
            for key in reader.mapping("the file"):
                if key == "turns":
                    break
                value = reader.value()
                if key == "recorded" and isinstance(value, dict):
                    return value
        return {}

    def __iter__(self) -> Iterator[Turn]:
        with self._reader() as reader:
            found = False
            for key in reader.mapping("the file"):
                if key == "turns":
                    found = True
                    yield from reader.turns()
                else:
                    reader.value()
            if not found:
                raise _Wrong("no cassette: it has no `turns`")

    @contextmanager
    def _reader(self) -> Iterator["_Reader"]:
        try:
            with self.path.open("rb") as file:
                reader = _Reader(file)
                try:
                    reader.open_document()
                    yield reader
                finally:
                    reader.dispose()
        except OSError as error:
            raise CassetteError(f"{self.path}: {error.strerror}") from error
        except (yaml.YAMLError, UnicodeError) as error:
            raise CassetteError(f"{self.path}: not YAML: {_one_line(error)}") from error
        except _Wrong as error:
            raise CassetteError(f"{self.path}: {error}") from error


class _Wrong(Exception):
    """What is wrong in the file, without its name."""


class _Reader(Composer, yaml.CSafeLoader):
    """YAML events to turns. A value is made whole only where it is small; the lines of a stream are not."""

    def __init__(self, stream: Any) -> None:
        yaml.CSafeLoader.__init__(self, stream)
        Composer.__init__(self)

    def open_document(self) -> None:
        for kind in (yaml.StreamStartEvent, yaml.DocumentStartEvent):
            if not self.check_event(kind):
                raise _Wrong("no cassette: it is empty")
            self.get_event()

    def mapping(self, what: str) -> Iterator[str]:
        """The keys of the mapping that comes next; the caller takes each key's value before it asks for the next."""
        self._enter(yaml.MappingStartEvent, f"{what} is no mapping")
        while not self.check_event(yaml.MappingEndEvent):
            yield str(self.value())
        self.get_event()

    def items(self, what: str) -> Iterator[None]:
        """One step per item of the list that comes next, likewise."""
        self._enter(yaml.SequenceStartEvent, f"{what} is no list")
        while not self.check_event(yaml.SequenceEndEvent):
            yield
        self.get_event()

    def value(self) -> Json:
        """The whole value that comes next."""
        return self.construct_document(self.compose_node(None, 0))

    def typed(self, kind: type | UnionType, what: str) -> Any:
        line = self._line()
        value = self.value()
        if not isinstance(value, kind) or isinstance(value, bool):
            raise _Wrong(f"line {line}: {what} is no {_KINDS[kind]}")
        return value

    def turns(self) -> Iterator[Turn]:
        if self.check_event(yaml.ScalarEvent):
            self._none("turns")
            return
        for number, _ in enumerate(self.items("turns"), start=1):
            yield self._turn(number)

    def _turn(self, number: int) -> Turn:
        line, name = self._line(), f"t{number}"
        request: Request | None = None
        response: Response | None = None
        redacted: list[str] = []
        for key in self.mapping(f"turns.{number - 1}"):
            match key:
                case "filename":
                    name = str(self.value())
                case "request":
                    request = self._request(name)
                case "response":
                    response = self._response(name)
                case "redacted":
                    redacted = [str(item) for item in self.typed(list, f"{name}.redacted")]
                case _:
                    self.value()
        if request is None or response is None:
            raise _Wrong(f"line {line}: {name} has no {'request' if request is None else 'response'}")
        return Turn(name, request, response, redacted)

    def _request(self, turn: str) -> Request:
        line, request = self._line(), Request("", "")
        for key in self.mapping(f"{turn}.request"):
            where = f"{turn}.request.{key}"
            match key:
                case "method":
                    request.method = self.typed(str, where).upper()
                case "path":
                    request.path = self.typed(str, where)
                case "query_params":
                    request.query_params = self.typed(dict, where)
                case "headers":
                    request.headers = self._headers(where)
                case "body":
                    request.body = self.value()
                case "text":
                    request.text = self.typed(str, where)
                case _:
                    self.value()
        if not request.method or not request.path:
            raise _Wrong(f"line {line}: {turn}.request has no {'path' if request.method else 'method'}")
        if request.body is None and request.text is not None:
            request.body = parse_json(request.text.encode())
            request.text = request.text if request.body is None else None
        return request

    def _response(self, turn: str) -> Response:
        line, response = self._line(), Response(0)
        exact: bytes | None = None
        for key in self.mapping(f"{turn}.response"):
            where = f"{turn}.response.{key}"
            match key:
                case "status_code":
                    response.status_code = self.typed(int, where)
                case "headers":
                    response.headers = self._headers(where)
                case "body":
                    response.content = Spool(self._body(where))
                case "sse":
                    response.is_stream = True
                    for _ in self.items(where):
                        response.content.write(self._sse_line(where))
                case "text":
                    exact = self.typed(str, where).encode()
                case "base64":
                    exact = self._base64(where)
                case "event_ms":
                    for _ in self.items(where):
                        response.event_ms.append(float(self.typed(int | float, where)))
                case "elapsed_ms":
                    response.elapsed_ms = float(self.typed(int | float, where))
                case _:
                    self.value()
        if not response.status_code:
            raise _Wrong(f"line {line}: {turn}.response has no status_code")
        if exact is not None:
            response.content = Spool(exact)
        return response

    def _sse_line(self, where: str) -> bytes:
        line, event = self._line(), self.get_event()
        if not isinstance(event, yaml.ScalarEvent):
            raise _Wrong(f"line {line}: {where} is no list of lines")
        return str(event.value).encode()

    def _headers(self, where: str) -> dict[str, str]:
        return {str(name).lower(): str(value) for name, value in self.typed(dict, where).items()}

    def _body(self, where: str) -> bytes:
        line, value = self._line(), self.value()
        try:
            return b"" if value is None else compact_json(value)
        except (TypeError, ValueError) as error:
            raise _Wrong(f"line {line}: {where} is no JSON value: {error}") from error

    def _base64(self, where: str) -> bytes:
        line, value = self._line(), self.typed(str, where)
        try:
            return base64.b64decode(value, validate=True)
        except ValueError as error:
            raise _Wrong(f"line {line}: {where} is no base64: {error}") from error

    def _enter(self, kind: type, complaint: str) -> None:
        if not self.check_event(kind):
            raise _Wrong(f"line {self._line()}: {complaint}")
        self.get_event()

    def _none(self, what: str) -> None:
        line = self._line()
        if self.value() is not None:
            raise _Wrong(f"line {line}: {what} is no list")

    def _line(self) -> int:
        mark = getattr(self.peek_event(), "start_mark", None)
        return int(mark.line) + 1 if mark else 0


_KINDS: dict[Any, str] = {str: "text", dict: "mapping", list: "list", int: "integer", int | float: "number"}


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
