"""A search backend that knows its answers: the demo and the tests search it, without a network."""

from collections.abc import Mapping, Sequence

from gateway.tools.base import SearchQuery
from gateway.turn.web_search import SearchResult


class CannedSearch:
    """Answers a query from ``by_query`` (exact text), any other with ``default``."""

    name = "canned"
    label = "The canned search"

    def __init__(
        self,
        by_query: Mapping[str, Sequence[SearchResult]] | None = None,
        *,
        default: Sequence[SearchResult] = (),
    ) -> None:
        self._by_query = dict(by_query or {})
        self._default = default

    async def search(self, query: SearchQuery) -> list[SearchResult]:
        """The results that belong to ``query.text``."""
        return list(self._by_query.get(query.text, self._default))

    async def aclose(self) -> None:
        """Nothing to close."""
