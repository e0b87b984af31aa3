"""The Prometheus metrics."""

import os
from collections.abc import Sequence
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

from gateway.books.observer import CallEnded, Observer
from gateway.books.record import Record

MULTIPROCESS_DIR = "PROMETHEUS_MULTIPROC_DIR"
"""The variable by which prometheus-client keeps its values in files that all worker processes share."""


class Metrics(Observer):
    """The Prometheus metrics of this process; with several workers, of all of them (see :data:`MULTIPROCESS_DIR`).

    Labels come from fixed sets: no client can make one up.
    """

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        in_registry: dict[str, Any] = {"namespace": "messages_gateway", "registry": self._registry}
        self._requests = Counter(
            "requests", "Requests by how they ended.", ["route", "outcome", "status"], **in_registry
        )
        self._in_flight = Gauge(
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
        # labels() costs more than the observation: each child is looked up once.
        self._upstream_children: dict[str, Histogram] = {}

    def turns_ended(self, records: Sequence[Record], in_flight: int) -> None:
        """Count requests that are over."""
        self._in_flight.set(in_flight)
        ends: dict[tuple[str, str, int], int] = {}
        input_tokens = output_tokens = 0
        for record in records:
            end = (record.route, record.outcome, record.status // 100)
            ends[end] = ends.get(end, 0) + 1
            input_tokens += record.input_tokens or 0
            output_tokens += record.output_tokens or 0
            if record.rounds:
                upstream = self._upstream_children.get(record.route)
                if upstream is None:
                    upstream = self._upstream_children[record.route] = self._upstream.labels(record.route)
                upstream.observe(record.upstream_ms / 1000)
            if record.turn:
                self._rounds.observe(record.rounds)
        for (route, outcome, hundreds), number in ends.items():
            self._requests.labels(route, outcome, f"{hundreds}xx" if hundreds else "none").inc(number)
        self._input_tokens.inc(input_tokens)
        self._output_tokens.inc(output_tokens)

    def call_ended(self, record: Record, ended: CallEnded) -> None:
        """Count a gateway tool's call, by its error code; one that was called off is not counted."""
        if ended.outcome is not None:
            self.tool_call(ended.call.kind, ended.outcome.error)

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
