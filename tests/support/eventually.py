"""Waiting for what happens beside the test."""

import asyncio
from collections.abc import Callable


async def eventually(condition: Callable[[], object], *, within_s: float = 5) -> None:
    """Return once ``condition`` holds; TimeoutError if it does not in time."""
    async with asyncio.timeout(within_s):
        while not condition():  # noqa: ASYNC110  (what is waited for has no event to tell it)
            await asyncio.sleep(0.005)
