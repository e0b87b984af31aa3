"""Faults on demand: what a real upstream does on a bad day, so that a client can be seen to bear it."""

import json
import re
from dataclasses import dataclass
from typing import Literal, get_args

from recorder.errors import RecorderError

Kind = Literal["cut", "stall", "malformed", "status", "slow"]

_FAULT = re.compile(r"(?P<kind>[a-z]+):(?P<value>\d+(?:\.\d+)?)(?:@(?P<turn>.+))?")


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault, of every turn or of those named ``turn``.

    | kind | ``value`` |
    |---|---|
    | cut | the connection drops after that many events (of a JSON answer: bytes) |
    | stall | nothing more comes after that many |
    | malformed | the JSON of that event, counted from 1, is cut in half (a JSON answer is cut after that many bytes) |
    | status | that HTTP status, with an error envelope, in place of the answer |
    | slow | seconds until the first byte |
    """

    kind: Kind
    value: float
    turn: str | None = None

    def hits(self, turn: str) -> bool:
        """Is it a fault of that turn?"""
        return self.turn in (None, turn)


def parse_fault(text: str) -> Fault:
    """``KIND:VALUE`` or ``KIND:VALUE@TURN``, as in ``cut:3@t2``. Raises RecorderError."""
    match = _FAULT.fullmatch(text)
    if match is None or match["kind"] not in get_args(Kind):
        raise RecorderError(
            f"{text}: a fault is KIND:VALUE or KIND:VALUE@TURN, KIND one of {', '.join(get_args(Kind))}"
        )
    value = float(match["value"])
    if match["kind"] == "status" and not 400 <= value <= 599:
        raise RecorderError(f"{text}: the status of a fault is 400 to 599")
    if match["kind"] != "slow" and not value.is_integer():
        raise RecorderError(f"{text}: {match['kind']} takes a whole number")
    return Fault(match["kind"], value, match["turn"])  # type: ignore[arg-type]  # checked above


def malform(event: bytes) -> bytes:
    """The event with the JSON of its data cut in half; it still ends as an event does."""
    lines = event.splitlines(keepends=True)
    return b"".join(_half(line) if line.startswith(b"data:") else line for line in lines)


def _half(line: bytes) -> bytes:
    return line[: (len(line) + len(b"data:")) // 2] + b"\n"


def error_envelope(kind: str, message: str) -> bytes:
    """Anthropic's error body."""
    return json.dumps({"type": "error", "error": {"type": kind, "message": message}}, ensure_ascii=False).encode()
