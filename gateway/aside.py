"""Work on a large body, aside from the event loop."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

LARGE = 256 * 1024
"""Bytes. The work on a smaller body takes less time than a thread makes others wait."""

_threads = ThreadPoolExecutor(2, thread_name_prefix="large-body")
"""No more at once, so that what the work needs beside the bodies is bounded too."""


async def aside(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """What ``work`` returns, done in a thread. Others are served meanwhile, but not during a single call into C."""
    return await asyncio.get_running_loop().run_in_executor(_threads, lambda: work(*args, **kwargs))
