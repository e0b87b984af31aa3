"""Brave Search (api-dashboard.search.brave.com, "Web search": API reference, request and response headers)."""

from typing import ClassVar

import httpx
import msgspec

from gateway.tools.base import Cause, SearchQuery
from gateway.tools.web_search.countries import LISTED, country_code
from gateway.tools.web_search.domains import with_site_operators
from gateway.tools.web_search.http import HttpSearch
from gateway.turn.web_search import SearchResult, UserLocation

_MAX_COUNT = 20
_MAX_CHARS = 400
_MAX_WORDS = 50


class BraveSearch(HttpSearch):
    """``GET /res/v1/web/search`` with the key in ``X-Subscription-Token``.

    Domains become ``site:`` operators (there is no parameter for them). A rejected key is a 422 with a code of its own;
    a spent quota a 429 with another. The wait after a 429 stands in ``X-RateLimit-Reset``: seconds until each of the
    plan's windows opens again, the shortest window first.
    """

    name = "brave"
    label = "Brave Search"
    origin = "https://api.search.brave.com"
    path = "/res/v1/web/search"

    _BY_CODE: ClassVar[dict[str, Cause]] = {
        "SUBSCRIPTION_TOKEN_INVALID": Cause.KEY_REJECTED,
        "SUBSCRIPTION_NOT_FOUND": Cause.KEY_REJECTED,
        "QUOTA_LIMITED": Cause.QUOTA_SPENT,
    }

    def __init__(self, api_key: str, origin: str | None = None) -> None:
        super().__init__(origin, {"x-subscription-token": api_key})

    def request(self, query: SearchQuery) -> httpx.Request:
        params = {
            "q": with_site_operators(query, max_chars=_MAX_CHARS, max_words=_MAX_WORDS),
            "count": str(min(query.count, _MAX_COUNT)),
            "result_filter": "web",
            "text_decorations": "false",
        }
        country = country_code(query.location)
        if country in LISTED:
            params["country"] = country
        return self.client.build_request("GET", self.url, params=params, headers=_location_headers(query.location))

    def read(self, body: bytes) -> list[SearchResult]:
        answer = self.decode(body, _Answer)
        return [
            SearchResult(
                hit.text("title"), hit.text("url"), hit.text("description"), hit.text("page_age", "age") or None
            )
            for hit in self.hits(answer.web.results if answer.web else [])
        ]

    def cause(self, status: int, body: bytes) -> Cause:
        try:
            refusal = msgspec.json.decode(body, type=_Refusal)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return super().cause(status, body)
        return self._BY_CODE.get(refusal.error.code, super().cause(status, body))

    def retry_after_s(self, headers: httpx.Headers) -> float | None:
        shortest = headers.get("x-ratelimit-reset", "").partition(",")[0].strip()
        if "retry-after" not in headers and shortest.isascii() and shortest.isdigit():
            return float(shortest[:9])
        return super().retry_after_s(headers)


def _location_headers(location: UserLocation | None) -> dict[str, str]:
    """Where the user is, as the ``X-Loc-…`` headers say it; a header holds ASCII only."""
    if location is None:
        return {}
    parts = {
        "x-loc-city": location.city,
        "x-loc-state-name": location.region,
        "x-loc-country": country_code(location),
        "x-loc-timezone": location.timezone,
    }
    return {name: part.strip() for name, part in parts.items() if part and part.isascii() and part.isprintable()}


class _Web(msgspec.Struct):
    results: list[msgspec.Raw] = []


class _Answer(msgspec.Struct):
    web: _Web | None = None


class _Error(msgspec.Struct):
    code: str = ""


class _Refusal(msgspec.Struct):
    error: _Error
