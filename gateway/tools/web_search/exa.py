"""Exa (exa.ai/docs, "Search" and "Error Codes"; the openapi-spec repository of exa-labs)."""

from typing import Any

import httpx
import msgspec

from gateway.tools.base import SearchQuery
from gateway.tools.web_search.countries import country_code
from gateway.tools.web_search.http import HttpSearch
from gateway.turn.web_search import SearchResult

_MAX_COUNT = 100


class ExaSearch(HttpSearch):
    """``POST /search`` with the key in ``x-api-key``; highlights are the excerpts that answer the query."""

    name = "exa"
    label = "Exa"
    origin = "https://api.exa.ai"
    path = "/search"

    def __init__(self, api_key: str, origin: str | None = None) -> None:
        super().__init__(origin, {"x-api-key": api_key})

    def request(self, query: SearchQuery) -> httpx.Request:
        body: dict[str, Any] = {
            "query": query.text,
            "numResults": min(query.count, _MAX_COUNT),
            "contents": {"highlights": True},
        }
        if query.include_hosts:
            body["includeDomains"] = list(query.include_hosts)
        if query.exclude_hosts:
            body["excludeDomains"] = list(query.exclude_hosts)
        country = country_code(query.location)
        if country:
            body["userLocation"] = country
        return self.client.build_request("POST", self.url, json=body)

    def read(self, body: bytes) -> list[SearchResult]:
        return [
            SearchResult(
                hit.text("title"),
                hit.text("url"),
                " … ".join(hit.texts("highlights")),
                hit.text("publishedDate") or None,
            )
            for hit in self.hits(self.decode(body, _Answer).results)
        ]


class _Answer(msgspec.Struct):
    results: list[msgspec.Raw]
