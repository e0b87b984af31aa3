"""The books on the requests: which are open, and for each that is over its log line and its place in the metrics."""

import asyncio
import time
from time import perf_counter

from gateway.books.log import RequestLog
from gateway.books.metrics import Metrics
from gateway.books.record import Record

FLUSH_S = 0.05
"""How long a finished request waits for its line. Many at once cost a fraction of one by one: the code that renders
them is then in the processor's cache, and they are one write."""


class Ledger:
    """Opens and closes the record of every request; exactly one line and one count each."""

    def __init__(self, metrics: Metrics, log: RequestLog) -> None:
        self._metrics = metrics
        self._log = log
        self._open = 0
        self._closed: list[Record] = []
        self._timer: asyncio.TimerHandle | None = None

    @property
    def in_flight(self) -> int:
        """Requests that are not over."""
        return self._open

    def open(self, route: str) -> Record:
        """A request has come."""
        self._open += 1
        self._arm()
        return Record(route)

    def close(self, record: Record) -> None:
        """It is over."""
        self._open -= 1
        record.total_ms = (perf_counter() - record.started) * 1000
        record.ended_at = time.time()
        self._closed.append(record)
        self._arm()

    def flush(self) -> None:
        """Write what is over now, without waiting."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        closed, self._closed = self._closed, []
        self._metrics.in_flight.set(self._open)
        for record in closed:
            record.look()
        self._metrics.finish(closed)
        self._log.write(closed)

    def _arm(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(FLUSH_S, self.flush)
