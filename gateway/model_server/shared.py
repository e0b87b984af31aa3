"""Questions that several want the answer to: each is asked once at a time."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Hashable
from typing import Any

Question = Callable[[], Coroutine[Any, Any, None]]
"""Asks, and keeps what it learns where those who wait look for it. It raises nothing."""


class Shared:
    """The questions that are on their way, by what tells them apart."""

    def __init__(self) -> None:
        self._asked: dict[Hashable, asyncio.Task[None]] = {}

    def ask(self, key: Hashable, question: Question) -> Awaitable[None]:
        """Ask, unless that is being asked already. Await it for the answer, or do not.

        One who waits and is cancelled ends nobody else's question.
        """
        task = self._asked.get(key)
        if task is None:
            task = self._asked[key] = asyncio.ensure_future(question())
            task.add_done_callback(lambda _: self._asked.pop(key))
        return asyncio.shield(task)

    async def aclose(self) -> None:
        """End what is on its way."""
        asked = list(self._asked.values())
        for task in asked:
            task.cancel()
        await asyncio.gather(*asked, return_exceptions=True)
