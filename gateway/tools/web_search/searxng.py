"""SearXNG (docs.searxng.org, "Search API" and "search:" in the administrator's settings)."""

from collections.abc import Mapping
from typing import ClassVar

import httpx
import msgspec

from gateway.tools.base import Cause, SearchFailed, SearchQuery
from gateway.tools.web_search.domains import with_site_operators
from gateway.tools.web_search.http import HttpSearch
from gateway.turn.web_search import SearchResult


class SearxngSearch(HttpSearch):
    """``GET /search?format=json`` of an instance of one's own: no key, no count, no country (it takes a language only).

    An instance answers 403 until its settings list ``json`` under ``search.formats``, and 429 from its limiter.
    """

    name = "searxng"
    label = "SearXNG"
    path = "/search"
    causes: ClassVar[Mapping[int, Cause]] = {403: Cause.FORMAT_DISABLED}

    def request(self, query: SearchQuery) -> httpx.Request:
        return self.client.build_request("GET", self.url, params={"q": with_site_operators(query), "format": "json"})

    def read(self, body: bytes) -> list[SearchResult]:
        answer = self.decode(body, _Answer)
        if not answer.results and answer.unresponsive_engines:
            raise SearchFailed(Cause.ENGINES_SILENT, self.label)
        return [
            SearchResult(hit.text("title"), hit.text("url"), hit.text("content"), hit.text("publishedDate") or None)
            for hit in self.hits(answer.results)
        ]


class _Answer(msgspec.Struct):
    results: list[msgspec.Raw]
    unresponsive_engines: list[msgspec.Raw] = []
