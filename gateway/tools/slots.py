"""Slots for calls that run at the same time, shared fairly by the turns that want them."""

import asyncio
from collections import deque
from contextvars import ContextVar
from types import TracebackType

_turn: ContextVar[object] = ContextVar("turn", default=None)


def calling_for(turn: object) -> None:
    """What runs in this task from now on, and in those that it starts, calls for ``turn``."""
    _turn.set(turn)


class Slots:
    """``async with slots:`` is one call; ``count`` run at the same time.

    Of the turns that wait, each has a call let in before any has its next: however many calls one makes, another's
    waits for no more than one of them.
    """

    def __init__(self, count: int) -> None:
        self._free = count
        self._waiting: dict[object, deque[asyncio.Future[None]]] = {}
        """By turn: the one whose call is next comes first. None is without calls."""

    async def __aenter__(self) -> None:
        if self._free:
            self._free -= 1
            return
        turn = _turn.get()
        admitted = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(turn, deque()).append(admitted)
        try:
            await admitted
        except asyncio.CancelledError:
            if admitted.cancelled():
                self._leave(turn, admitted)
            else:
                self._let_in_next()  # it had just been let in
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._let_in_next()

    def _let_in_next(self) -> None:
        if not self._waiting:
            self._free += 1
            return
        turn = next(iter(self._waiting))
        calls = self._waiting.pop(turn)
        admitted = calls.popleft()
        if calls:
            self._waiting[turn] = calls  # behind all others
        if admitted.cancelled():
            self._let_in_next()
        else:
            admitted.set_result(None)

    def _leave(self, turn: object, admitted: "asyncio.Future[None]") -> None:
        calls = self._waiting.get(turn)
        if calls is not None and admitted in calls:
            calls.remove(admitted)
            if not calls:
                del self._waiting[turn]
