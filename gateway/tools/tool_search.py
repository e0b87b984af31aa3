"""Runs tool searches: in a thread, for a long list takes its time, and for no longer than it may."""

import time

import anyio
import anyio.to_thread

from gateway.settings import Settings
from gateway.turn.tool_search import ToolSearchCall, ToolSearchOutcome, search

SEARCH_S = 2.0
"""After so long the next look at a text ends a search; one look takes about a second at the very most."""

AT_ONCE = 2
"""Searches at a time: they take a processor each, which the event loop needs too."""


class ToolSearch:
    """The runner of tool searches."""

    def __init__(self) -> None:
        self._slots = anyio.CapacityLimiter(AT_ONCE)

    async def run(self, job: ToolSearchCall, /) -> ToolSearchOutcome:
        """Run one search."""
        return await anyio.to_thread.run_sync(_search, job, limiter=self._slots, abandon_on_cancel=True)

    async def aclose(self) -> None:
        """There is nothing to close."""


def make_tool_search(settings: Settings) -> ToolSearch:
    """The runner; no setting is about it."""
    return ToolSearch()


def _search(job: ToolSearchCall) -> ToolSearchOutcome:
    end = time.monotonic() + SEARCH_S
    return search(job, lambda: time.monotonic() > end)
