"""A search tool that does what the test says, in place of the real one."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field

from gateway.turn.web_search import SearchCall, SearchOutcome, SearchResult


def found(text: str, *results: SearchResult) -> SearchOutcome:
    """A search that returned: the very ``text`` the model reads, and the results a native client sees."""
    return SearchOutcome(text=text, results=results)


@dataclass
class Held:
    """An outcome that comes only once ``release`` is set. ``started`` says that the search runs, ``let_go`` that it was
    cancelled."""

    outcome: SearchOutcome
    started: asyncio.Event = field(default_factory=asyncio.Event)
    release: asyncio.Event = field(default_factory=asyncio.Event)
    let_go: asyncio.Event = field(default_factory=asyncio.Event)


class ScriptedSearch:
    """A :class:`gateway.tools.runner.ToolRunner` of web searches: answers a query with what ``by_query`` holds for it,
    else with ``default``.

    ``calls`` are the calls as they came, ``cancelled`` the queries that were let go before they ended, ``closed``
    whether the gateway closed the tool.
    """

    def __init__(
        self,
        by_query: Mapping[str, SearchOutcome | Held] | None = None,
        *,
        default: SearchOutcome | Held | None = None,
    ) -> None:
        self._by_query = dict(by_query or {})
        self._default = default
        self.calls: list[SearchCall] = []
        self.cancelled: list[str] = []
        self.closed = False

    @property
    def queries(self) -> list[str]:
        """The queries, in the order they came."""
        return [call.query for call in self.calls]

    async def run(self, call: SearchCall) -> SearchOutcome:
        self.calls.append(call)
        answer = self._by_query.get(call.query, self._default)
        assert answer is not None, f"nothing scripted for the query {call.query!r}"
        if isinstance(answer, SearchOutcome):
            return answer
        answer.started.set()
        try:
            await answer.release.wait()
        except asyncio.CancelledError:
            self.cancelled.append(call.query)
            answer.let_go.set()
            raise
        return answer.outcome

    async def aclose(self) -> None:
        self.closed = True
