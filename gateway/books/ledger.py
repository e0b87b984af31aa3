"""The books on the requests: which are open, and who is told when they are over."""

import asyncio

from starlette.types import Scope

from gateway.books.observer import Observers, TurnBegun
from gateway.books.record import Record

FLUSH_S = 0.05
"""How long a finished request waits for its line. Many at once cost a fraction of one by one: the code that renders
them is then in the processor's cache, and they are one write."""


class Ledger:
    """Opens and closes the record of every request; the observers are told of each end exactly once."""

    def __init__(self, observers: Observers) -> None:
        self._observers = observers
        self._open = 0
        self._closed: list[Record] = []
        self._timer: asyncio.TimerHandle | None = None

    @property
    def in_flight(self) -> int:
        """Requests that are not over."""
        return self._open

    def open(self, route: str, scope: Scope) -> Record:
        """A request has come: its ASGI ``scope``."""
        self._open += 1
        self._arm()
        record = Record(route)
        record.comes_with(scope["headers"])
        if self._observers.turn_began:
            begun = TurnBegun(scope["method"], scope["raw_path"], scope["headers"])
            for tell in self._observers.turn_began:
                tell(record, begun)
        return record

    def close(self, record: Record) -> None:
        """It is over."""
        self._open -= 1
        record.ends()
        self._closed.append(record)
        self._arm()

    def flush(self) -> None:
        """Tell of what is over now, without waiting."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        closed, self._closed = self._closed, []
        for record in closed:
            record.look()
        for tell in self._observers.turns_ended:
            tell(closed, self._open)

    def _arm(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(FLUSH_S, self.flush)
