"""ddgs, a library that asks public search engines as a browser would: no key, no account, no promise."""

import asyncio
import logging
import math

import anyio
import anyio.to_thread
from ddgs import DDGS
from ddgs.exceptions import DDGSException, RatelimitException, TimeoutException

from gateway.tools.base import HITS_MAX, Cause, SearchFailed, SearchQuery
from gateway.tools.web_search.countries import DDGS_REGIONS, country_code
from gateway.tools.web_search.domains import with_site_operators
from gateway.tools.web_search.hit import Hit
from gateway.turn.web_search import SearchResult

ENGINE_TIMEOUT_S = 10
"""For each engine's answer; the library asks several, a few at a time."""

# primp logs each URL, hence the query, at info level; ddgs the errors that quote one.
for _noisy in ("ddgs", "primp", "hyper_util"):
    logging.getLogger(_noisy).setLevel(logging.WARNING)


class DdgsSearch:
    """``DDGS().text`` in a thread.

    The library blocks and cannot be stopped: after a cancellation, ``search`` ends only with its thread. It takes an
    engine that refuses (rate limit, captcha) for one without results. The usual proxy variables hold, and the
    library's own ``DDGS_PROXY``.
    """

    name = "ddgs"
    label = "The ddgs search"

    def __init__(self) -> None:
        # The tool's slots bound the threads; waiting here too would be waiting twice.
        self._threads = anyio.CapacityLimiter(math.inf)

    async def search(self, query: SearchQuery) -> list[SearchResult]:
        """Ask the engines; see :class:`gateway.tools.base.SearchBackend`."""
        thread = asyncio.ensure_future(anyio.to_thread.run_sync(self._search, query, limiter=self._threads))
        try:
            return await asyncio.shield(thread)
        except asyncio.CancelledError:
            await asyncio.wait({thread})
            raise

    async def aclose(self) -> None:
        """Nothing to close: connections end with their search."""

    def _search(self, query: SearchQuery) -> list[SearchResult]:
        try:
            # One a search: its engines keep state between calls.
            pages = DDGS(timeout=ENGINE_TIMEOUT_S).text(
                with_site_operators(query),
                region=DDGS_REGIONS.get(country_code(query.location) or "", "us-en"),
                max_results=query.count,
            )
        except RatelimitException as error:
            raise SearchFailed(Cause.RATE_LIMITED, self.label, detail="in a while") from error
        except TimeoutException as error:
            raise SearchFailed(Cause.TIMED_OUT, self.label) from error
        except DDGSException as error:
            if _found_nothing(error):
                return []
            raise SearchFailed(_cause(error), self.label) from error
        hits = [Hit(page) for page in pages[:HITS_MAX]]
        return [SearchResult(hit.text("title"), hit.text("href"), hit.text("body")) for hit in hits]


def _found_nothing(error: DDGSException) -> bool:
    """The library raises the same type where no engine failed; only then is its argument a sentence, not an error."""
    return bool(error.args) and isinstance(error.args[0], str)


def _cause(error: DDGSException) -> Cause:
    """Of the last engine that failed: the library raises its error inside another.

    Its HTTP client, and nothing else in it, raises from the error of the transport.
    """
    inner = error.args[0] if error.args else None
    network = isinstance(inner, DDGSException) and inner.__cause__ is not None
    return Cause.UNREACHABLE if network else Cause.BAD_ANSWER
