"""What the web search tool needs from a backend, and how a search can fail."""

from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from gateway.errors import MessagesGatewayError
from gateway.turn.web_search import ErrorCode, SearchOutcome, SearchResult, UserLocation

HITS_MAX = 1000
"""Of a longer list of results than that, no more is looked at."""


@dataclass(frozen=True, slots=True)
class SearchQuery:
    """One search as a backend gets it.

    ``text`` is white-space folded and valid UTF-8; ``count`` is how many results to ask for, at least 1. The hosts are
    hints (lower case, punycode): ``include_hosts`` covers at least what is allowed, ``exclude_hosts`` nothing that is
    not blocked. The tool enforces the caller's domains itself, so that a backend may ignore both.
    """

    text: str
    count: int
    include_hosts: tuple[str, ...] = ()
    exclude_hosts: tuple[str, ...] = ()
    location: UserLocation | None = None


class SearchBackend(Protocol):
    """A search provider."""

    @property
    def name(self) -> str:
        """As ``--search-provider`` spells it."""

    @property
    def label(self) -> str:
        """As the model reads it."""

    async def search(self, query: SearchQuery) -> list[SearchResult]:
        """The provider's results, best first, as it words them; an empty list where it found nothing.

        Raises:
            SearchFailed: the search did not work.

        The search counts against the tool's concurrency until this returns, also after its cancellation.
        """

    async def aclose(self) -> None:
        """Close connections."""


class Cause(Enum):
    """Why a search failed: the error code a native client sees, and the sentence the model reads of a hidden call."""

    KEY_REJECTED = (
        "unavailable",
        "{provider} rejected the API key. Searching will not work until the operator of this server sets a valid key; "
        "answer without it.",
    )
    QUOTA_SPENT = (
        "unavailable",
        "The search quota with {provider} is used up. Searching will not work until it is renewed; answer without it.",
    )
    RATE_LIMITED = (
        "too_many_requests",
        "{provider} is getting too many requests. Try again {detail}, or answer without this search.",
    )
    TOO_LARGE = (
        "request_too_large",
        "The request was too large for {provider}. Search again with a shorter query or fewer domains.",
    )
    NOT_ACCEPTED = (
        "unavailable",
        "{provider} did not accept this search (HTTP {detail}). Try other words, or answer without it.",
    )
    PROVIDER_FAILED = (
        "unavailable",
        "{provider} failed on its side (HTTP {detail}). Try again later, or answer without this search.",
    )
    BAD_ANSWER = (
        "unavailable",
        "{provider} sent an answer that cannot be read. Try again, or answer without this search.",
    )
    TIMED_OUT = (
        "unavailable",
        "{provider} did not answer in time. Try again, or answer without this search.",
    )
    UNREACHABLE = (
        "unavailable",
        "{provider} could not be reached. Try again later, or answer without this search.",
    )
    FORMAT_DISABLED = (
        "unavailable",
        "{provider} does not offer JSON results. Searching will not work until the operator of this server adds json "
        "to search.formats in its settings.yml; answer without it.",
    )
    ENGINES_SILENT = (
        "unavailable",
        "{provider} found nothing, and some of the engines it asks did not answer. Try again later, or answer without "
        "this search.",
    )
    UNEXPECTED = (
        "unavailable",
        "The search with {provider} failed inside the gateway. Answer without it.",
    )
    STOPPING = (
        "unavailable",
        "The search with {provider} was stopped because the gateway is shutting down.",
    )

    def __init__(self, code: ErrorCode, sentence: str) -> None:
        self.code = code
        self.sentence = sentence


class SearchFailed(MessagesGatewayError):
    """A search that did not work.

    ``provider`` is the backend's label, ``detail`` what the cause's sentence leaves open (an HTTP status, or when to
    try again). The text names no address and no key.
    """

    def __init__(self, cause: Cause, provider: str, *, detail: str = "") -> None:
        super().__init__(cause.sentence.format(provider=provider, detail=detail))
        self.cause = cause

    @property
    def outcome(self) -> SearchOutcome:
        """The failure as the loop takes it."""
        return SearchOutcome(text=str(self), error=self.cause.code)
