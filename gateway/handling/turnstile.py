"""Lets in so many turns at a time, and no more."""

from types import TracebackType

from gateway.errors import Overloaded


class Turnstile:
    """``with turnstile:`` is one turn. Raises :class:`gateway.errors.Overloaded` where ``limit`` are under way."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._inside = 0

    def __enter__(self) -> None:
        if self._inside >= self._limit:
            raise Overloaded("the gateway is answering as many requests as it may; try again soon")
        self._inside += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._inside -= 1
