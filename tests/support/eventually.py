"""Waiting for what happens beside the test."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable


async def eventually(condition: Callable[[], object | Awaitable[object]], *, within_s: float = 5) -> None:
    """Return once ``condition`` holds; TimeoutError if it does not in time."""
    async with asyncio.timeout(within_s):
        while True:
            holds = condition()
            if await holds if inspect.isawaitable(holds) else holds:
                return
            await asyncio.sleep(0.005)
