"""The web search tool: one backend behind slots, a timeout, a retry, domain filters and a bounded text."""

import asyncio

import structlog

from gateway.books.log import describe
from gateway.tools.base import HITS_MAX, Cause, SearchBackend, SearchFailed, SearchQuery
from gateway.tools.slots import Slots
from gateway.tools.web_search.domains import DomainFilter, read_url
from gateway.tools.web_search.text import clean, render
from gateway.turn.web_search import SearchCall, SearchOutcome, SearchResult

_log = structlog.get_logger(__name__)

DOMAINS_MAX = 2000
"""How many domains a call may allow and block: each search reads them all."""

_FILTERED_FACTOR = 3
"""How many times more results a filtered search asks for, so that enough are left."""


class WebSearch:
    """Runs searches against ``backend``.

    ``timeout_s`` bounds a call, its wait for one of ``concurrency`` slots (:mod:`gateway.tools.slots`) included;
    ``max_results`` and ``result_max_chars`` bound what the model gets to read.
    """

    def __init__(
        self,
        backend: SearchBackend,
        *,
        timeout_s: float,
        concurrency: int,
        max_results: int,
        result_max_chars: int,
    ) -> None:
        self._backend = backend
        self._timeout_s = timeout_s
        self._slots = Slots(concurrency)
        self._max_results = max_results
        self._result_max_chars = result_max_chars
        self._running: set[asyncio.Task[SearchOutcome]] = set()

    async def run(self, call: SearchCall) -> SearchOutcome:
        """Run one search. Raises nothing but cancellation: a failure is an outcome with ``error`` set.

        The backend works in a task of its own, which holds the slot: when the caller leaves or the time is up, the call
        is let go at once, while a backend that cannot stop (a library blocking a thread) keeps its slot to its end.
        """
        search = asyncio.create_task(self._search(call))
        self._running.add(search)
        search.add_done_callback(self._running.discard)
        try:
            await asyncio.wait({search}, timeout=self._timeout_s)
            if not search.done():
                return self._failed(SearchFailed(Cause.TIMED_OUT, self._backend.label))
            if search.cancelled():
                return self._failed(SearchFailed(Cause.STOPPING, self._backend.label))
            return search.result()
        finally:
            search.cancel()

    async def aclose(self) -> None:
        """Cancel what still runs and close the backend."""
        for search in self._running:
            search.cancel()
        await self._backend.aclose()

    async def _search(self, call: SearchCall) -> SearchOutcome:
        async with self._slots:
            try:
                if len(call.allowed_domains) + len(call.blocked_domains) > DOMAINS_MAX:
                    raise SearchFailed(Cause.TOO_LARGE, self._backend.label)
                domains = DomainFilter(call.allowed_domains, call.blocked_domains)
                found = await self._ask(self._query(call, domains))
                text, shown = render(self._pick(found, domains), self._result_max_chars)
            except SearchFailed as failure:
                return self._failed(failure)
            except Exception as bug:  # noqa: BLE001 - whatever a backend does wrong, the turn goes on.
                _log.error("search backend broke", provider=self._backend.name, **describe(bug))
                return SearchFailed(Cause.UNEXPECTED, self._backend.label).outcome
        return SearchOutcome(text=text, results=shown)

    def _query(self, call: SearchCall, domains: DomainFilter) -> SearchQuery:
        return SearchQuery(
            text=" ".join(call.query.encode("utf-8", "replace").decode("utf-8").split()),
            count=self._max_results * (_FILTERED_FACTOR if domains else 1),
            include_hosts=domains.include_hosts,
            exclude_hosts=domains.exclude_hosts,
            location=call.user_location,
        )

    async def _ask(self, query: SearchQuery) -> list[SearchResult]:
        try:
            return await self._backend.search(query)
        except SearchFailed as failure:
            if failure.cause is not Cause.UNREACHABLE:
                raise
        return await self._backend.search(query)

    def _pick(self, found: list[SearchResult], domains: DomainFilter) -> list[SearchResult]:
        """The first results that may be shown, each page once and each text read once."""
        picked: dict[tuple[str, ...], SearchResult] = {}
        for result in found[:HITS_MAX]:
            address = read_url(result.url)
            if address is None or not domains.admits(address):
                continue
            query_string = result.url.partition("#")[0].partition("?")[2]
            page = (address.host, address.path, query_string)
            if page in picked:
                continue
            picked[page] = clean(result)
            if len(picked) == self._max_results:
                break
        return list(picked.values())

    def _failed(self, failure: SearchFailed) -> SearchOutcome:
        _log.warning("search failed", provider=self._backend.name, cause=failure.cause.name.lower())
        return failure.outcome
