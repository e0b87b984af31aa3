"""Web search as a kind of tool: Anthropic's typed ``web_search``, and functions that are taken over for it.

Source: ``web_search_tool_*`` and ``server_tool_use`` in the types of the ``anthropic`` SDK, and Anthropic's page on the
web search tool. Shapes::

    {"type": "web_search_tool_result", "tool_use_id": …, "content": [
        {"type": "web_search_result", "url": …, "title": …, "page_age": …, "encrypted_content": …}, …]}
    {"type": "web_search_tool_result", "tool_use_id": …, "content":
        {"type": "web_search_tool_result_error", "error_code": …}}

The text that the model read of a native search is sealed in ``encrypted_content`` and comes back as it was. Where there
is nothing to seal, an error or no results, the text is one fixed sentence a case, which follows from what the client
sees. Changing a sentence changes the prompts of running conversations.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from gateway.errors import InvalidRequest
from gateway.turn.kind import AnyTool, Block, Conversation, Declaration, Kind, Settled, Told, Tool, takes
from gateway.turn.seal import Sealer
from gateway.turn.typed_fields import NO_DOMAINS, Domains, are_domains, read_domains, read_max_uses

WEB_SEARCH = "web_search"
MAX_QUERY_CHARS = 1000

FUNCTION: dict[str, Any] = {
    "name": WEB_SEARCH,
    "description": "Search the web for current information. Returns numbered results: title, url, date, snippet.",
    "input_schema": {
        "type": "object",
        "properties": {"query": {"type": "string", "description": "The search query."}},
        "required": ["query"],
    },
}
"""What a typed tool, which has no schema of its own, is declared as upstream."""

ErrorCode = Literal[
    "invalid_tool_input",
    "unavailable",
    "max_uses_exceeded",
    "too_many_requests",
    "query_too_long",
    "request_too_large",
]
"""Anthropic's ``web_search_tool_result_error`` codes."""

ERROR_SENTENCES: dict[ErrorCode, str] = {
    "invalid_tool_input": "The search was not run: its input must be a JSON object with a non-empty string `query`.",
    "query_too_long": "The search was not run: the query is longer than 1000 characters.",
    "max_uses_exceeded": "The search was not run: no search is left for this request.",
    "too_many_requests": "The search failed: too many requests. Try again later, or answer without it.",
    "request_too_large": "The search failed: the request was too large. Try a shorter query.",
    "unavailable": "The search failed: the search service is unavailable.",
}
NO_RESULTS = "No results found."
NO_SEARCH_LEFT = "No search is left in this turn: answer with what you have."


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


class WebSearchKind(Kind):
    """Searches of the web."""

    name = WEB_SEARCH
    result_type = "web_search_tool_result"
    none_left = NO_SEARCH_LEFT
    counter = "web_search_requests"
    functions = frozenset({WEB_SEARCH})

    def is_typed(self, entry: Mapping[str, Any]) -> bool:
        version = entry.get("type")
        return isinstance(version, str) and _TYPED.fullmatch(version) is not None and entry.get("name") == WEB_SEARCH

    def read_typed(self, declaration: Declaration) -> Sequence[AnyTool]:
        tool = DeclaredSearch(
            kind=self,
            name=WEB_SEARCH,
            native=True,
            function=FUNCTION,
            max_uses=read_max_uses(declaration),
            domains=read_domains(declaration),
            user_location=_read_location(declaration),
        )
        return [tool]

    def read_function(self, entry: Mapping[str, Any], *, aliased: bool) -> AnyTool | None:
        if not aliased and not takes(entry, "query", *_HIDDEN_DOMAINS):
            return None
        return DeclaredSearch(self, entry["name"])

    def read_result(self, block: Block, path: str, sealer: Sealer) -> Told:
        content = block.get("content")
        if isinstance(content, dict):
            return Told(_error_sentence(content.get("error_code")), failed=True)
        if not isinstance(content, list):
            raise InvalidRequest(f"{path}.content: must be a list of results or an error object")
        if not content:
            return Told(NO_RESULTS)
        entries = [_entry(item) for item in content]
        text = sealer.open(block["tool_use_id"], [(url, title, sealed) for url, title, _, sealed in entries])
        return Told(_visible_text(entries) if text is None else text)

    def without_result(self) -> Told:
        return Told(ERROR_SENTENCES["unavailable"], failed=True)


@dataclass(frozen=True, slots=True)
class DeclaredSearch(Tool[SearchCall, SearchOutcome]):
    """A search as a request declares it; a native one with the restrictions of the typed tool."""

    domains: Domains = NO_DOMAINS
    user_location: UserLocation | None = None

    def read(self, arguments: dict[str, Any] | None, conversation: Conversation) -> SearchCall | Settled[SearchOutcome]:
        query = arguments.get("query") if arguments is not None else None
        if arguments is None or not isinstance(query, str) or not query.strip():
            return Settled(_failed("invalid_tool_input"))
        if len(query) > MAX_QUERY_CHARS:
            return Settled(_failed("query_too_long"))
        if self.native:
            return SearchCall(query, self.domains.allowed, self.domains.blocked, self.user_location)
        domains: list[tuple[str, ...]] = []
        for name in _HIDDEN_DOMAINS:
            value = arguments.get(name) or []
            if not isinstance(value, list) or not are_domains(value):
                text = f"The search was not run: `{name}` must be a list of domains."
                return Settled(SearchOutcome(text, error="invalid_tool_input"))
            domains.append(tuple(value))
        return SearchCall(query, domains[0], domains[1])

    def one_too_many(self) -> SearchOutcome:
        return _failed("max_uses_exceeded")

    def told(self, outcome: SearchOutcome) -> Told:
        if not self.native:
            return Told(outcome.text, failed=outcome.error is not None)
        if outcome.error is not None:
            return Told(ERROR_SENTENCES[outcome.error], failed=True)
        return Told(outcome.text if outcome.results else NO_RESULTS)

    def seals(self, outcome: SearchOutcome) -> bool:
        return bool(outcome.results)

    def shown(self, outcome: SearchOutcome, told: Told, call_id: str, sealer: Sealer) -> Block:
        if outcome.error is not None:
            return {"content": {"type": "web_search_tool_result_error", "error_code": outcome.error}}
        sealed = sealer.seal(told.content, call_id, [(result.url, result.title) for result in outcome.results])
        return {
            "content": [
                {
                    "type": "web_search_result",
                    "url": result.url,
                    "title": result.title,
                    "page_age": result.page_age,
                    "encrypted_content": secret,
                }
                for result, secret in zip(outcome.results, sealed, strict=True)
            ]
        }


_HIDDEN_DOMAINS = ("allowed_domains", "blocked_domains")
"""Arguments that a hidden search has beside its query."""
_TYPED = re.compile(r"web_search_\d{8}")


def _read_location(declaration: Declaration) -> UserLocation | None:
    value, path = declaration.entry.get("user_location"), f"{declaration.path}.user_location"
    if value is None:
        return None
    if not isinstance(value, dict):
        raise InvalidRequest(f"{path}: must be an object")
    parts: dict[str, str | None] = {}
    for name in ("city", "region", "country", "timezone"):
        part = value.get(name)
        if part is not None and not isinstance(part, str):
            raise InvalidRequest(f"{path}.{name}: must be a string")
        parts[name] = part
    return UserLocation(**parts)


def _failed(code: ErrorCode) -> SearchOutcome:
    return SearchOutcome(ERROR_SENTENCES[code], error=code)


def _error_sentence(code: object) -> str:
    """The sentence for an error ``code`` that came back; one that is not Anthropic's reads as ``unavailable``."""
    for known, sentence in ERROR_SENTENCES.items():
        if known == code:
            return sentence
    return ERROR_SENTENCES["unavailable"]


def _entry(item: object) -> tuple[str, str, str, str]:
    """url, title, page_age and encrypted_content of one visible result; "" for what is missing."""
    fields = item if isinstance(item, dict) else {}
    url, title, age, sealed = (
        value if isinstance(value := fields.get(name), str) else ""
        for name in ("url", "title", "page_age", "encrypted_content")
    )
    return url, title, age, sealed


def _visible_text(entries: list[tuple[str, str, str, str]]) -> str:
    lines = []
    for number, (url, title, age, _) in enumerate(entries, 1):
        lines.append("\n".join([f"{number}. {title}", *(part for part in (url, age) if part)]))
    return "\n\n".join(lines)
