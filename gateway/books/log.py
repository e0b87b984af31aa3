"""The log of the process: one line an event, as text or JSON. Never prompt text, never a key."""

import json
import logging
import os
import re
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Literal, TextIO

import msgspec
import structlog

from gateway.books.observer import Observer
from gateway.books.record import LONGEST_ID, Record

_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
_WARNED = frozenset({"upstream_error", "upstream_unreachable", "timeout", "cut", "overloaded", "gateway_error"})
_PLAIN = re.compile(r"[A-Za-z0-9_.:/@+*,-]+")
_LONGEST_NAME = 200
_LONGEST_WORD = 1000


class RequestLog(Observer):
    """Writes the one line of a request, as text or JSON, to ``file``.

    Not through structlog's processors, which cost as much as all else the gateway does for a small request; the lines
    look like those of :func:`configure_logging`.
    """

    def __init__(self, level: str, form: Literal["text", "json"], file: TextIO | None = None) -> None:
        self._least = _LEVELS[level]
        self._render = _line_as_json if form == "json" else _line_as_text
        self._write = structlog.WriteLogger(file or sys.stderr).msg

    def turns_ended(self, records: Sequence[Record], in_flight: int) -> None:
        """Write the lines of requests that are over, each if its level is to be logged."""
        lines = [self._render(level, record) for record in records if _LEVELS[level := _level(record)] >= self._least]
        if lines:
            self._write("\n".join(lines))


def _level(record: Record) -> str:
    """A warning where something failed that is not the client's doing."""
    if record.outcome in _WARNED:
        return "warning"
    return "debug" if record.quiet else "info"


def _line_as_text(level: str, record: Record) -> str:
    return (
        f"{_time(record.ended_at)} {level} request route={record.route} status={record.status} "
        f"outcome={record.outcome} model={_model_as_text(record.model[:_LONGEST_NAME])} "
        f"rounds={record.rounds} tools={_tools(record.tools)} "
        f"upstream_ms={record.upstream_ms:.1f} total_ms={record.total_ms:.1f} "
        f"input_tokens={'-' if record.input_tokens is None else record.input_tokens} "
        f"output_tokens={'-' if record.output_tokens is None else record.output_tokens} "
        f"request_id={_id_as_text(record.request_id)}"
        f"{_called(record) if record.client_id or record.traceparent else ''}"
    )


def _called(record: Record) -> str:
    """What the client calls the request, where it does."""
    words = ""
    if record.client_id:
        words += f" x_request_id={_id_as_text(record.client_id)}"
    if record.traceparent:
        words += f" traceparent={_id_as_text(record.traceparent)}"
    return words


def _line_as_json(level: str, record: Record) -> str:
    fields = {
        "time": _time(record.ended_at),
        "level": level,
        "event": "request",
        "route": record.route,
        "status": record.status,
        "outcome": record.outcome,
        "model": _printable(record.model[:_LONGEST_NAME]),
        "rounds": record.rounds,
        "tools": record.tools,
        "upstream_ms": round(record.upstream_ms, 1),
        "total_ms": round(record.total_ms, 1),
        "input_tokens": record.input_tokens,
        "output_tokens": record.output_tokens,
        "request_id": _printable(record.request_id[:LONGEST_ID]),
        "x_request_id": _printable(record.client_id[:LONGEST_ID]) or None,
        "traceparent": _printable(record.traceparent[:LONGEST_ID]) or None,
    }
    return msgspec.json.encode(fields).decode()


def _tools(counts: Mapping[str, int]) -> str:
    """As in ``web_search×17,clock``."""  # noqa: RUF002
    return ",".join(name if count == 1 else f"{name}×{count}" for name, count in counts.items()) or "-"  # noqa: RUF001


def _printable(name: str) -> str:
    """A word of somebody else's, which may be anything, without what breaks a line or moves a cursor."""
    return name if name.isprintable() else "".join(letter if letter.isprintable() else "\ufffd" for letter in name)


@lru_cache(maxsize=64)
def _model_as_text(name: str) -> str:
    return _text(_printable(name))


def _id_as_text(name: str) -> str:
    if len(name) <= LONGEST_ID and _PLAIN.fullmatch(name):  # as nearly every one is
        return name
    return _text(_printable(name[:LONGEST_ID]))


def describe(error: BaseException) -> dict[str, str]:
    """An unexpected error for the log: its type and where it came from. Not its words, which may quote a prompt."""
    frames = traceback.extract_tb(error.__traceback__)[-6:]
    places = " > ".join(f"{os.path.basename(frame.filename)}:{frame.lineno} {frame.name}" for frame in frames)
    return {"error": type(error).__name__, "at": places}


def configure_logging(level: str, form: Literal["text", "json"], file: TextIO | None = None) -> None:
    """Set up the log of the process: to ``file``, by default standard error, one line an event."""
    structlog.configure(
        processors=[_render_json if form == "json" else _render_text],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[level]),
        logger_factory=structlog.WriteLoggerFactory(file or sys.stderr),
        cache_logger_on_first_use=False,
    )
    # Other libraries log what they fetch, the query with it: only the server and the event loop are let in, and of
    # those what is no news is for debugging.
    logging.lastResort = None
    for name in ("uvicorn.error", "asyncio"):
        logger = logging.getLogger(name)
        logger.handlers = [_IntoStructlog()]
        logger.propagate = False
        logger.setLevel(logging.DEBUG if level == "debug" else logging.WARNING)


class _IntoStructlog(logging.Handler):
    """Passes standard log records on, with an exception's type and place in the stead of its words."""

    # The gateway ends an answer that upstream cut by not completing it, and has said so in the request's line.
    _KNOWN = frozenset({"ASGI callable returned without completing response."})

    def emit(self, record: logging.LogRecord) -> None:
        event = record.getMessage().strip().split("\n")[0][:_LONGEST_WORD]
        if event not in self._KNOWN:
            error = record.exc_info[1] if record.exc_info else None
            structlog.get_logger().log(record.levelno, event, logger=record.name, **(describe(error) if error else {}))


def _time(at: float | None = None) -> str:
    milliseconds = int((at or time.time()) * 1000)
    return f"{_second(milliseconds // 1000)}.{milliseconds % 1000:03}+00:00"


@lru_cache(maxsize=2)
def _second(at: int) -> str:
    """A second in ISO 8601, without its zone: worked out once for all the lines of it."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def _render_text(_: object, method: str, event: structlog.typing.EventDict) -> str:
    words = [_time(), method, _text(event.pop("event"))]
    words += [f"{key}={_text(value)}" for key, value in event.items()]
    return " ".join(words)


def _text(value: object) -> str:
    if isinstance(value, str):
        if _PLAIN.fullmatch(value):
            return value
        return json.dumps(value).replace("\x7f", "\\u007f") if value else "-"
    return "-" if value is None else str(value)


def _render_json(_: object, method: str, event: structlog.typing.EventDict) -> str:
    return msgspec.json.encode({"time": _time(), "level": method, **event}).decode()
