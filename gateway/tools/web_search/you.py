"""You.com (you.com/docs, "Web Search API", "Request Controls", "Errors"; the models of its Python SDK)."""

from typing import Any

import httpx
import msgspec

from gateway.tools.base import SearchQuery
from gateway.tools.web_search.countries import LISTED, country_code
from gateway.tools.web_search.hit import Hit
from gateway.tools.web_search.http import HttpSearch
from gateway.turn.web_search import SearchResult

_MAX_COUNT = 100
_MAX_DOMAINS = 500


class YouSearch(HttpSearch):
    """``POST /v1/search`` with the key in ``X-API-Key``. Takes domains to include or to exclude, not both."""

    name = "you"
    label = "You.com"
    origin = "https://ydc-index.io"
    path = "/v1/search"

    def __init__(self, api_key: str, origin: str | None = None) -> None:
        super().__init__(origin, {"x-api-key": api_key})

    def request(self, query: SearchQuery) -> httpx.Request:
        body: dict[str, Any] = {"query": query.text, "count": min(query.count, _MAX_COUNT)}
        if 0 < len(query.include_hosts) <= _MAX_DOMAINS:
            body["include_domains"] = list(query.include_hosts)
        elif query.exclude_hosts:
            body["exclude_domains"] = list(query.exclude_hosts[:_MAX_DOMAINS])
        country = country_code(query.location)
        if country in LISTED:
            body["country"] = country
        return self.client.build_request("POST", self.url, json=body)

    def read(self, body: bytes) -> list[SearchResult]:
        found = self.decode(body, _Answer).results
        return [
            SearchResult(hit.text("title"), hit.text("url"), _snippet(hit), hit.text("page_age") or None)
            for hit in self.hits([*(found.web or []), *(found.news or [])])
        ]


def _snippet(hit: Hit) -> str:
    return " … ".join(hit.texts("snippets")) or hit.text("description")


class _Sections(msgspec.Struct):
    web: list[msgspec.Raw] | None = None
    news: list[msgspec.Raw] | None = None


class _Answer(msgspec.Struct):
    results: _Sections
