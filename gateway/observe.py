"""What an operator sees: one log line a request, and the metrics. Never prompt text, never a key."""

import json
import logging
import os
import re
import sys
import traceback
from dataclasses import dataclass, field
from datetime import UTC, datetime
from time import perf_counter
from typing import Any, Literal, TextIO

import msgspec
import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

Outcome = Literal[
    "ok",
    "client_error",
    "upstream_error",
    "upstream_unreachable",
    "timeout",
    "cut",
    "client_gone",
    "gateway_error",
]
"""How a request ended; exactly one each.

``client_error``: a 4xx, ours or upstream's. ``upstream_error``: upstream answered 5xx, or no message. ``timeout``:
upstream stalled. ``cut``: the answer broke off after it had begun.
"""


def outcome_of(status: int) -> Outcome:
    """How a request ended that upstream answered with ``status``."""
    if status < 400:
        return "ok"
    return "client_error" if status < 500 else "upstream_error"


QUIET_ROUTES = frozenset({"/", "/health", "/ready", "/metrics"})
"""What probes ask all day: logged at debug level."""

MULTIPROCESS_DIR = "PROMETHEUS_MULTIPROC_DIR"
"""The variable by which prometheus-client keeps its values in files that all worker processes share."""

_WARNED = frozenset({"upstream_error", "upstream_unreachable", "timeout", "cut", "gateway_error"})
_PLAIN = re.compile(r"[A-Za-z0-9_.:/@+*,-]+")
_LONGEST_NAME = 200


@dataclass(slots=True)
class Record:
    """What becomes of one request, for its log line and the metrics.

    ``route`` is one of a fixed few. ``model`` is the client's name for it. ``turn`` says that the loop answers, not the
    proxy. ``rounds`` counts upstream requests, ``tools`` has the name of each gateway tool run, ``upstream_ms`` is the
    time from sending to the last byte, summed over rounds; token counts are None where upstream gave none.
    ``answered``: the response head has gone to the client, ``status`` in it.
    """

    route: str
    model: str = ""
    turn: bool = False
    rounds: int = 0
    tools: list[str] = field(default_factory=list)
    upstream_ms: float = 0.0
    total_ms: float = 0.0
    input_tokens: int | None = None
    output_tokens: int | None = None
    outcome: Outcome = "ok"
    status: int = 0
    answered: bool = False
    started: float = field(default_factory=perf_counter)


class Metrics:
    """The Prometheus metrics of this process; with several workers, of all of them (see :data:`MULTIPROCESS_DIR`).

    Labels come from fixed sets: no client can make one up.
    """

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        in_registry: dict[str, Any] = {"namespace": "messages_gateway", "registry": self._registry}
        self._requests = Counter(
            "requests", "Requests by how they ended.", ["route", "outcome", "status"], **in_registry
        )
        self.in_flight = Gauge(
            "requests_in_flight", "Requests being answered.", multiprocess_mode="livesum", **in_registry
        )
        self._rounds = Histogram(
            "turn_rounds", "Upstream requests behind one turn.", buckets=(1, 2, 3, 4, 6, 8, 10, 15, 20), **in_registry
        )
        self._tool_calls = Counter(
            "tool_calls", "Gateway tool calls by how they ended.", ["tool", "outcome"], **in_registry
        )
        self._upstream = Histogram(
            "upstream_seconds",
            "Time upstream took for a request, all rounds together.",
            ["route"],
            buckets=(0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600),
            **in_registry,
        )
        tokens = Counter("tokens", "Tokens as upstream counted them.", ["direction"], **in_registry)
        self._input_tokens = tokens.labels("input")
        self._output_tokens = tokens.labels("output")
        # labels() costs more than the increment: each child is looked up once.
        self._request_children: dict[tuple[str, str, int], Counter] = {}
        self._upstream_children: dict[str, Histogram] = {}

    def finish(self, record: Record) -> None:
        """Count a request that is over."""
        key = (record.route, record.outcome, record.status // 100)
        child = self._request_children.get(key)
        if child is None:
            status = f"{key[2]}xx" if key[2] else "none"
            child = self._request_children[key] = self._requests.labels(key[0], key[1], status)
        child.inc()
        if record.rounds:
            upstream = self._upstream_children.get(record.route)
            if upstream is None:
                upstream = self._upstream_children[record.route] = self._upstream.labels(record.route)
            upstream.observe(record.upstream_ms / 1000)
        if record.turn:
            self._rounds.observe(record.rounds)
        if record.input_tokens:
            self._input_tokens.inc(record.input_tokens)
        if record.output_tokens:
            self._output_tokens.inc(record.output_tokens)

    def tool_call(self, tool: str, error: str | None) -> None:
        """Count a gateway tool's call: ``error`` is its error code, None if it returned."""
        self._tool_calls.labels(tool, error or "ok").inc()

    def render(self) -> bytes:
        """The metrics in Prometheus' text format."""
        if MULTIPROCESS_DIR not in os.environ:
            return generate_latest(self._registry)
        everybody = CollectorRegistry()
        MultiProcessCollector(everybody)  # type: ignore[no-untyped-call]  # the package leaves it without types
        return generate_latest(everybody)


def log_request(log: structlog.typing.FilteringBoundLogger, record: Record) -> None:
    """The one line of a request."""
    if record.outcome in _WARNED:
        write = log.warning
    elif record.route in QUIET_ROUTES:
        write = log.debug
    else:
        write = log.info
    write(
        "request",
        route=record.route,
        status=record.status,
        outcome=record.outcome,
        model=record.model[:_LONGEST_NAME].encode("utf-8", "replace").decode(),
        rounds=record.rounds,
        tools=",".join(record.tools),
        upstream_ms=round(record.upstream_ms, 1),
        total_ms=round(record.total_ms, 1),
        input_tokens=record.input_tokens,
        output_tokens=record.output_tokens,
    )


def describe(error: BaseException) -> dict[str, str]:
    """An unexpected error for the log: its type and where it came from. Not its words, which may quote a prompt."""
    frames = traceback.extract_tb(error.__traceback__)[-6:]
    places = " > ".join(f"{os.path.basename(frame.filename)}:{frame.lineno} {frame.name}" for frame in frames)
    return {"error": type(error).__name__, "at": places}


def configure_logging(level: str, form: Literal["text", "json"], file: TextIO | None = None) -> None:
    """Set up the log of the process: to ``file``, by default standard error, one line an event."""
    number = logging.getLevelNamesMapping()[level.upper()]
    structlog.configure(
        processors=[_render_json if form == "json" else _render_text],
        wrapper_class=structlog.make_filtering_bound_logger(number),
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
        event = record.getMessage().strip().split("\n")[0]
        if event not in self._KNOWN:
            error = record.exc_info[1] if record.exc_info else None
            structlog.get_logger().log(record.levelno, event, logger=record.name, **(describe(error) if error else {}))


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _render_text(_: object, method: str, event: structlog.typing.EventDict) -> str:
    words = [_now(), method, _text(event.pop("event"))]
    words += [f"{key}={_text(value)}" for key, value in event.items()]
    return " ".join(words)


def _text(value: object) -> str:
    if isinstance(value, str):
        if _PLAIN.fullmatch(value):
            return value
        return json.dumps(value).replace("\x7f", "\\u007f") if value else "-"
    return "-" if value is None else str(value)


def _render_json(_: object, method: str, event: structlog.typing.EventDict) -> str:
    return msgspec.json.encode({"time": _now(), "level": method, **event}).decode()
