"""Tavily (docs.tavily.com, "Tavily Search" in the API reference; help.tavily.com, "Errors Code")."""

from collections.abc import Mapping
from typing import Any, ClassVar

import httpx
import msgspec

from gateway.tools.base import Cause, SearchQuery
from gateway.tools.web_search.countries import TAVILY_NAMES, country_code
from gateway.tools.web_search.domains import shorten
from gateway.tools.web_search.http import HttpSearch
from gateway.turn.web_search import SearchResult

_MAX_COUNT = 20
_MAX_CHARS = 400
_MAX_INCLUDED = 300
_MAX_EXCLUDED = 150


class TavilySearch(HttpSearch):
    """``POST /search`` with the key as a bearer token. 432 and 433 are the plan's limit and the pay-as-you-go limit."""

    name = "tavily"
    label = "Tavily"
    origin = "https://api.tavily.com"
    path = "/search"
    causes: ClassVar[Mapping[int, Cause]] = {432: Cause.QUOTA_SPENT, 433: Cause.QUOTA_SPENT}

    def __init__(self, api_key: str, origin: str | None = None) -> None:
        super().__init__(origin, {"authorization": f"Bearer {api_key}"})

    def request(self, query: SearchQuery) -> httpx.Request:
        body: dict[str, Any] = {
            "query": shorten(query.text, max_chars=_MAX_CHARS),
            "max_results": min(query.count, _MAX_COUNT),
        }
        # A list over the limit would be refused, a part of it would hide what is allowed: the tool filters then.
        if 0 < len(query.include_hosts) <= _MAX_INCLUDED:
            body["include_domains"] = list(query.include_hosts)
        if query.exclude_hosts:
            body["exclude_domains"] = list(query.exclude_hosts[:_MAX_EXCLUDED])
        country = TAVILY_NAMES.get(country_code(query.location) or "")
        if country:
            body["country"] = country
        return self.client.build_request("POST", self.url, json=body)

    def read(self, body: bytes) -> list[SearchResult]:
        return [
            SearchResult(hit.text("title"), hit.text("url"), hit.text("content"), hit.text("published_date") or None)
            for hit in self.hits(self.decode(body, _Answer).results)
        ]


class _Answer(msgspec.Struct):
    results: list[msgspec.Raw]
