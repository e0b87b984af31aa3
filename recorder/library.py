"""The turns of several cassettes, found by request.

What is looked at for every request is a few bytes a turn: the digest of the recorded request and of each beginning of
its history. The requests and answers themselves lie in a temporary file, for a cassette can be larger than memory
should be.
"""

import json
import tempfile
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import Any, BinaryIO, cast

from recorder.cassette import Cassette, Json, Request, Turn
from recorder.errors import CassetteError
from recorder.headers import OF_THE_EXCHANGE
from recorder.matching import Difference, describe, differences, digest, normalise


@dataclass(slots=True)
class RecordedTurn:
    """A turn on the shelf: ``ends`` holds the offset at which each SSE event of the answer ends."""

    cassette: str
    turn: str
    method: str
    path: str
    history: list[bytes]
    request: tuple[int, int]
    status_code: int
    headers: dict[str, str]
    is_stream: bool
    content: tuple[int, int]
    ends: "array[int]"
    event_ms: "array[float]"
    elapsed_ms: float | None
    plays: int = 0

    @property
    def name(self) -> str:
        """For a person: which turn, of which cassette."""
        return f"{self.turn} of {self.cassette}"


@dataclass(slots=True)
class Library:
    """Reads every cassette once, when it is made. Raises CassetteError. To be closed."""

    paths: Sequence[str | Path]
    ignore: Sequence[str] = ()
    turns: list[RecordedTurn] = field(default_factory=list)
    models: dict[str, int | None] = field(default_factory=dict)
    version: str | None = None
    _by_digest: dict[bytes, list[RecordedTurn]] = field(default_factory=dict)
    _file: BinaryIO = field(default_factory=lambda: cast(BinaryIO, tempfile.TemporaryFile()))  # noqa: SIM115

    def __post_init__(self) -> None:
        try:
            self._read_all()
        except BaseException:
            self.close()
            raise

    def _read_all(self) -> None:
        for path in self.paths:
            cassette = Cassette(path)
            recorded = cassette.recorded()
            self.version = self.version or recorded.get("version")
            for turn in cassette:
                self._shelve(cassette.name, turn, recorded)
        if not self.turns:
            raise CassetteError(f"{', '.join(map(str, self.paths))}: no turn to play")

    def close(self) -> None:
        """Let the temporary file go."""
        self._file.close()

    def find(self, request: Request) -> RecordedTurn | None:
        """The turn recorded for this request. Of several the one played least, so that they come in recorded order."""
        found = self._by_digest.get(digest(self._normalised(request)), [])
        turn = min(found, key=lambda turn: turn.plays, default=None)
        if turn is not None:
            turn.plays += 1
        return turn

    def knows(self, method: str, path: str) -> bool:
        """Has any request of that method and path been recorded?"""
        return any((turn.method, turn.path) == (method, path) for turn in self.turns)

    def explain(self, request: Request) -> str:
        """Why no turn answers: the turn whose conversation this request shares most of, and where it differs."""
        normalised = self._normalised(request)
        candidates = [turn for turn in self.turns if (turn.method, turn.path) == (request.method, request.path)]
        nearest = max(candidates, key=lambda turn: _kinship(turn.history, _history(normalised), turn.plays))
        found = list(differences(json.loads(self._read(*nearest.request)), normalised))
        places = "1 place" if len(found) == 1 else f"{len(found)} places"
        return (
            f"no recorded turn answers this request. The nearest is {nearest.name}, "
            f"which differs in {places}:\n{_describe(found)}"
        )

    def events(self, turn: RecordedTurn) -> Iterator[bytes]:
        """The bytes of each event of the answer; a body that is no stream is one."""
        start, (offset, size) = 0, turn.content
        for end in turn.ends or [size]:
            yield self._read(offset + start, end - start)
            start = end

    def _normalised(self, request: Request) -> Json:
        body = request.text if request.body is None else request.body
        return normalise(request.method, request.path, request.query_params, body, self.ignore, request.headers)

    def _shelve(self, cassette: str, turn: Turn, recorded: dict[str, Json]) -> None:
        request, response = turn.request, turn.response
        normalised = self._normalised(request)
        ends = array("Q", _event_ends(response.content.lines())) if response.is_stream else array("Q")
        shelved = RecordedTurn(
            cassette=cassette,
            turn=turn.filename,
            method=request.method,
            path=request.path,
            history=_history(normalised),
            request=self._write([json.dumps(normalised).encode()]),
            status_code=response.status_code,
            headers={name: value for name, value in response.headers.items() if name not in OF_THE_EXCHANGE},
            is_stream=response.is_stream,
            content=self._write(response.content.chunks()),
            ends=ends,
            event_ms=response.event_ms if len(response.event_ms) == len(ends) else array("d"),
            elapsed_ms=response.elapsed_ms,
        )
        self.turns.append(shelved)
        self._by_digest.setdefault(digest(normalised), []).append(shelved)
        if isinstance(request.body, dict) and isinstance(model := request.body.get("model"), str):
            self.models.setdefault(model, recorded.get("max_model_len"))

    def _write(self, chunks: Any) -> tuple[int, int]:
        start = self._file.seek(0, 2)
        for chunk in chunks:
            self._file.write(chunk)
        return start, self._file.tell() - start

    def _read(self, offset: int, size: int) -> bytes:
        self._file.seek(offset)
        return self._file.read(size)


def _history(normalised: Json) -> list[bytes]:
    """The digest of each message: equal beginnings are equal conversations so far."""
    body = normalised["body"]
    messages = body.get("messages") if isinstance(body, dict) else None
    return [digest(message) for message in messages] if isinstance(messages, list) else []


def _kinship(recorded: list[bytes], received: list[bytes], plays: int) -> tuple[int, int, int]:
    """How near a request is to a recorded turn: messages in common, then length, then not yet played."""
    shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(recorded, received, strict=False)))
    return shared, -abs(len(recorded) - len(received)), -plays


def _event_ends(lines: Iterator[bytes]) -> Iterator[int]:
    offset = start = 0
    for line in lines:
        offset += len(line)
        if line in (b"\n", b"\r\n"):
            yield offset
            start = offset
    if offset > start:
        yield offset


def _describe(found: list[Difference]) -> str:
    return describe(found, "recorded", "received")
