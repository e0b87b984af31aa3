"""What crosses between the core and a tool: plain data."""

from dataclasses import dataclass
from typing import Literal

ErrorCode = Literal[
    "invalid_tool_input",
    "unavailable",
    "max_uses_exceeded",
    "too_many_requests",
    "query_too_long",
    "request_too_large",
]
"""Anthropic's ``web_search_tool_result_error`` codes."""


@dataclass(frozen=True, slots=True)
class UserLocation:
    """Where the user is, as the ``user_location`` of a typed tool says; any part may be missing."""

    city: str | None = None
    region: str | None = None
    country: str | None = None
    timezone: str | None = None


@dataclass(frozen=True, slots=True)
class SearchCall:
    """One search the model asked for: the query and what restricts it.

    A domain matches itself and its subdomains; with a path, only URLs under that path.
    """

    query: str
    allowed_domains: tuple[str, ...] = ()
    blocked_domains: tuple[str, ...] = ()
    user_location: UserLocation | None = None


@dataclass(frozen=True, slots=True)
class SearchResult:
    """One result. ``page_age`` is the page's date as the backend words it, None if it gave none."""

    title: str
    url: str
    snippet: str
    page_age: str | None = None


@dataclass(frozen=True, slots=True)
class SearchOutcome:
    """How a call ended.

    ``text`` is what the model reads: the numbered results, "No results…", or, with ``error`` set, a sentence per cause.
    ``results`` are those the text shows, in its order; empty on an error.
    """

    text: str
    results: tuple[SearchResult, ...] = ()
    error: ErrorCode | None = None
