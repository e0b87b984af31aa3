"""What an upstream can do wrong, or just unusually: for each row of the table the answer that does it.

A fault is made of the answer that would have been right: the same message, as JSON or as a stream.
"""

import gzip
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tests.support.upstream import (
    Answer,
    Block,
    Piece,
    Scripted,
    Then,
    chunk,
    encode_event,
    head,
    json_answer,
    message,
    raw,
    sse,
    text,
)

JSON = [("content-type", "application/json")]
STREAM = [("content-type", "text/event-stream; charset=utf-8"), ("x-request-id", "r1")]
PAGE = b"<html><body>Bad gateway</body></html>"


@dataclass(frozen=True)
class Right:
    """The answer that would have been right."""

    blocks: Sequence[Block]
    stream: bool

    @property
    def events(self) -> list[bytes]:
        return [encode_event(event) for event in sse(*self.blocks)]

    @property
    def body(self) -> bytes:
        if self.stream:
            return b"".join(self.events)
        return json.dumps(message(*self.blocks), ensure_ascii=False).encode()

    @property
    def half(self) -> bytes:
        """The body up to its middle: of a stream, up to the end of an event."""
        return b"".join(self.events[:4]) if self.stream else self.body[: len(self.body) // 2]

    def answer(self, *, then: Then = "keep") -> "Fault":
        return chunked(self, self.body, then=then)

    @property
    def fields(self) -> list[tuple[str, str]]:
        return STREAM if self.stream else JSON


@dataclass(frozen=True)
class Fault:
    """``answer`` makes the faulty answer; ``body`` is what of its body a byte-for-byte proxy would pass on."""

    answer: Answer
    body: bytes = b""


Build = Callable[[Right], Fault]
FAULTS: dict[str, Build] = {}
STREAM_ONLY: set[str] = set()
"""Faults that only a stream can have."""


def fault(name: str, *, stream_only: bool = False) -> Callable[[Build], Build]:
    def keep(build: Build) -> Build:
        FAULTS[name] = build
        if stream_only:
            STREAM_ONLY.add(name)
        return build

    return keep


REFUSES = "refuses the connection"
BETWEEN = "closes the connection between two rounds"


def chunked(right: Right, *pieces: Piece, whole: bool = True, then: Then = "close") -> Fault:
    """An answer with these chunks as its body."""
    sent = [piece for piece in pieces if isinstance(piece, bytes)]
    script: list[Piece] = [head(200, [*right.fields, ("transfer-encoding", "chunked")])]
    script += [chunk(piece) if isinstance(piece, bytes) else piece for piece in pieces]
    if whole:
        script.append(b"0\r\n\r\n")
    return Fault(Scripted(script, then), b"".join(sent))


def rewritten(change: Callable[[bytes], bytes]) -> Build:
    """The right stream, its bytes written in another way."""
    return lambda right: chunked(right, *[change(event) for event in right.events])


def refused(status: int, *headers: tuple[str, str]) -> Build:
    body = json.dumps({"type": "error", "error": {"type": "SomeError", "message": "not now"}}).encode()
    return lambda right: Fault(json_answer(body, status, headers), body)


# --- before the answer has begun ------------------------------------------------------------------------------------

FAULTS[REFUSES] = lambda right: Fault(raw())  # nobody will ask for it
FAULTS["closes before its head"] = lambda right: Fault(raw(then="close"))
FAULTS["resets before its head"] = lambda right: Fault(raw(then="reset"))
FAULTS["stalls before its head"] = lambda right: Fault(raw(then="stall"))
FAULTS["closes in its head"] = lambda right: Fault(raw(b"HTTP/1.1 200 OK\r\ncontent-le", then="close"))
FAULTS["stalls in its head"] = lambda right: Fault(raw(b"HTTP/1.1 200 OK\r\ncontent-le", then="stall"))
FAULTS["sends what is not HTTP"] = lambda right: Fault(raw(b"220 smtp.example.com ESMTP\r\n\r\n"))
FAULTS["sends a head of 70 KB"] = lambda right: Fault(raw(head(200, [("x-long", "x" * 70_000)]) + right.body))

for status in (429, 500, 529):
    FAULTS[f"answers {status}"] = refused(status)
    FAULTS[f"answers {status} with Retry-After"] = refused(status, ("retry-after", "7"))
FAULTS["answers 503 with a page"] = lambda right: Fault(json_answer(PAGE, 503, [("content-type", "text/html")]), PAGE)
FAULTS["answers 700"] = refused(700)
FAULTS["answers 307"] = refused(307, ("location", "http://elsewhere.invalid/v1/messages"))


# --- 200, but not the answer ----------------------------------------------------------------------------------------


def answered(headers: list[tuple[str, str]], body: bytes, *, length: int | None = None, then: Then = "keep") -> Fault:
    fields = [*headers, ("content-length", str(len(body) if length is None else length))]
    return Fault(raw(head(200, fields) + body, then=then), body)


FAULTS["answers 200 with a page"] = lambda right: answered([("content-type", "text/html")], PAGE)
FAULTS["answers 200 with nothing"] = lambda right: answered(right.fields, b"")
FAULTS["answers 200 with a list"] = lambda right: answered(JSON, b"[1, 2]")
FAULTS["answers 200 with gzip"] = lambda right: answered(
    [*right.fields, ("content-encoding", "gzip")], gzip.compress(right.body)
)


@fault("answers JSON to a stream's request, and a stream to JSON's")
def _(right: Right) -> Fault:
    other = Right(right.blocks, not right.stream)
    return answered(other.fields, other.body)


# --- a body that breaks off -----------------------------------------------------------------------------------------


def breaks_off(then: Then, *pieces: Callable[[Right], bytes]) -> Build:
    """The body comes this far. A moment passes before the end: a reset would take what has not been read with it."""
    return lambda right: chunked(right, *[piece(right) for piece in pieces], 0.01, whole=False, then=then)


ENDS: dict[str, Then] = {"closes": "close", "resets": "reset", "stalls": "stall"}
for what, then in ENDS.items():
    FAULTS[f"{what} before the first byte of its body"] = breaks_off(then)
    FAULTS[f"{what} in the middle of its body"] = breaks_off(then, lambda right: right.half)
    fault(f"{what} in the middle of an event", stream_only=True)(
        breaks_off(then, lambda right: right.half + right.events[4][:20])
    )


@fault("ends before its message does", stream_only=True)
def _(right: Right) -> Fault:
    return chunked(right, right.half)


@fault("closes after message_stop, without the last chunk", stream_only=True)
def _(right: Right) -> Fault:
    return chunked(right, *right.events, whole=False)


@fault("stalls after message_stop", stream_only=True)
def _(right: Right) -> Fault:
    return chunked(right, *right.events, whole=False, then="stall")


@fault("names a content-length that is too large")
def _(right: Right) -> Fault:
    return answered(right.fields, right.body, length=len(right.body) + 10, then="close")


@fault("names a content-length that is too small")
def _(right: Right) -> Fault:
    length = len(right.half)
    return Fault(answered(right.fields, right.body, length=length).answer, right.body[:length])


@fault("names two content-lengths")
def _(right: Right) -> Fault:
    return answered([*right.fields, ("content-length", "5")], right.body)


@fault("sends a chunk size that is none")
def _(right: Right) -> Fault:
    fields = [*right.fields, ("transfer-encoding", "chunked")]
    return Fault(raw(head(200, fields) + chunk(right.half), 0.01, b"zz\r\nmore\r\n"), right.half)


# --- a body that says what it must not ------------------------------------------------------------------------------


def said(right: Right, *wrong: bytes) -> Fault:
    """The first half of a stream, then this, then the rest."""
    return chunked(right, *right.events[:4], *wrong, *right.events[4:])


@fault("sends an event that is not JSON", stream_only=True)
def _(right: Right) -> Fault:
    return said(right, b"event: content_block_delta\ndata: {oops\n\n")


@fault("sends an event out of place", stream_only=True)
def _(right: Right) -> Fault:
    return said(right, right.events[0])


@fault("sends an error event, overloaded_error", stream_only=True)
def _(right: Right) -> Fault:
    error = {"type": "error", "error": {"type": "overloaded_error", "message": "busy"}}
    return chunked(right, *right.events[:4], encode_event(error))


@fault("sends an error event of another type", stream_only=True)
def _(right: Right) -> Fault:
    error = {"type": "error", "error": {"type": "InternalServerError", "message": "out of memory"}}
    return chunked(right, *right.events[:4], encode_event(error))


@fault("sends invalid UTF-8")
def _(right: Right) -> Fault:
    if right.stream:
        start, stop = right.events[3].split(b'":"', 1)
        return chunked(right, *right.events[:3], start + b'":"\xff\xfe' + stop, *right.events[4:])
    return answered(right.fields, right.body.replace(b'"role"', b'"r\xffle"'))


@fault("sends an event of 20 MB", stream_only=True)
def _(right: Right) -> Fault:
    large = Right([text("x" * 20_000_000, ""), *right.blocks], right.stream)
    return chunked(right, large.body)


# --- unusual, and right ---------------------------------------------------------------------------------------------


@fault(BETWEEN)
def _(right: Right) -> Fault:
    return right.answer()


@fault("sends 103 first")
def _(right: Right) -> Fault:
    whole = answered(right.fields, right.body)
    assert isinstance(whole.answer, Scripted)
    return Fault(raw(b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n", *whole.answer.pieces), right.body)


@fault("ends its body by closing")
def _(right: Right) -> Fault:
    return Fault(raw(head(200, right.fields) + right.body, then="close"), right.body)


@fault("sends every byte by itself")
def _(right: Right) -> Fault:
    return chunked(right, *[right.body[at : at + 1] for at in range(len(right.body))])


fault("ends lines with CR LF", stream_only=True)(rewritten(lambda event: event.replace(b"\n", b"\r\n")))
fault("ends lines with CR", stream_only=True)(rewritten(lambda event: event.replace(b"\n", b"\r")))
fault("spreads an event's data over several lines", stream_only=True)(
    rewritten(lambda event: event.replace(b'"type":', b'\ndata: "type":'))
)
fault("sends comments and fields that nobody knows", stream_only=True)(
    rewritten(lambda event: b": keep-alive\nretry: 5\nid: 7\nx-y: z\n" + event + b": more\n\n")
)
fault("writes fields without the space", stream_only=True)(rewritten(lambda event: event.replace(b": ", b":", 2)))
fault("names no events", stream_only=True)(rewritten(lambda event: event.partition(b"\n")[2]))


@fault("begins with a byte order mark", stream_only=True)
def _(right: Right) -> Fault:
    return chunked(right, b"\xef\xbb\xbf" + right.body)
