"""Tool search as a kind of tool: Anthropic's typed ``tool_search_tool_bm25`` and ``tool_search_tool_regex``.

The model looks for deferred tools by words or by a regular expression, and what is found is made known to it. Source:
``tool_search_tool_*`` in the types of the ``anthropic`` SDK, and Anthropic's page on the tool search tool. Shapes::

    {"type": "tool_search_tool_result", "tool_use_id": …, "content":
        {"type": "tool_search_tool_search_result", "tool_references": [{"type": "tool_reference", "tool_name": …}, …]}}
    {"type": "tool_search_tool_result", "tool_use_id": …, "content":
        {"type": "tool_search_tool_result_error", "error_code": …, "error_message": …}}

Nothing of a result is sealed: what upstream was told of it follows from the names and the request's tools.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from gateway.errors import InvalidRequest
from gateway.turn.deferred import Deferral
from gateway.turn.kind import AnyTool, Block, Conversation, Declaration, Kind, Settled, Told, Tool
from gateway.turn.references import REFERENCE, SEARCH_RESULT
from gateway.turn.seal import Sealer
from gateway.turn.tool_matching import MAX_PATTERN_CHARS, BadPattern, OutOfTime, by_pattern, by_words

BM25 = "tool_search_tool_bm25"
REGEX = "tool_search_tool_regex"
DEFAULT_LIMIT, MAX_LIMIT = 5, 10_000
MAX_QUERY_CHARS = 1000

ErrorCode = Literal["invalid_tool_input", "unavailable", "too_many_requests", "execution_time_exceeded"]
"""Anthropic's ``tool_search_tool_result_error`` codes."""

ERROR_SENTENCES: dict[ErrorCode, str] = {
    "invalid_tool_input": "The search was not run: its input cannot be used.",
    "unavailable": "The search failed: the tool search is unavailable.",
    "too_many_requests": "The search was not run: there have been too many in this turn.",
    "execution_time_exceeded": "The search took too long: try a simpler pattern.",
}
NOTHING_FOUND = "No tool was found."

_LIMIT = {"type": "integer", "description": f"How many tools to find at most; {DEFAULT_LIMIT} if absent."}
FUNCTIONS: Mapping[str, Block] = {
    BM25: {
        "name": BM25,
        "description": (
            "Find tools that are not listed here. Looks for words in the names, the descriptions and the arguments of "
            "all of them; what it finds can then be called."
        ),
        "input_schema": {
            "type": "object",
            "properties": {
                "query": {"type": "string", "description": "What the tool should do, in words."},
                "limit": _LIMIT,
            },
            "required": ["query"],
        },
    },
    REGEX: {
        "name": REGEX,
        "description": (
            "Find tools that are not listed here. Looks for a regular expression in the names, the descriptions and "
            "the arguments of all of them; what it finds can then be called."
        ),
        "input_schema": {
            "type": "object",
            "properties": {
                "pattern": {
                    "type": "string",
                    "description": (
                        f"A regular expression in Python's syntax, without look-around and back-references, of at most "
                        f"{MAX_PATTERN_CHARS} characters; (?i) at its start ignores case."
                    ),
                },
                "limit": _LIMIT,
            },
            "required": ["pattern"],
        },
    },
}
"""What the typed tools, which have no schema of their own, are declared as upstream."""


@dataclass(frozen=True, slots=True)
class ToolSearchCall:
    """One search: ``text`` are words or a pattern, as the function ``name`` says; ``deferral`` has the tools."""

    name: str
    text: str
    limit: int
    deferral: Deferral | None


@dataclass(frozen=True, slots=True)
class ToolSearchOutcome:
    """How a call ended: ``text`` is what the model reads, ``found`` are the names, the best first."""

    text: str
    found: tuple[str, ...] = ()
    error: ErrorCode | None = None


def search(call: ToolSearchCall, out_of_time: Callable[[], bool]) -> ToolSearchOutcome:
    """Run a search. ``out_of_time`` is asked often, and ends it."""
    tools = () if call.deferral is None else call.deferral.deferred
    try:
        look = by_words if call.name == BM25 else by_pattern
        found = tuple(look(call.text, tools, call.limit, out_of_time))
    except BadPattern as error:
        return ToolSearchOutcome(f"The search was not run: {error}.", error="invalid_tool_input")
    except OutOfTime:
        return _failed("execution_time_exceeded")
    if call.deferral is None or not found:
        return ToolSearchOutcome(NOTHING_FOUND)
    return ToolSearchOutcome(call.deferral.told(found), found)


class ToolSearchKind(Kind):
    """Searches among the request's deferred tools."""

    name = "tool_search"
    result_type = SEARCH_RESULT
    none_left = "No search for tools is left in this turn: answer with what you have."

    def is_typed(self, entry: Mapping[str, Any]) -> bool:
        version = entry.get("type")
        found = _TYPED.fullmatch(version) if isinstance(version, str) else None
        return found is not None and found[1] == entry.get("name")

    def read_typed(self, declaration: Declaration) -> Sequence[AnyTool]:
        name = declaration.entry["name"]
        return [DeclaredToolSearch(self, name, native=True, function=FUNCTIONS[name])]

    def owns_call(self, block: Mapping[str, Any]) -> bool:
        return block.get("name") in (BM25, REGEX)

    def read_result(self, block: Block, path: str, sealer: Sealer) -> Told:
        """References stand there in words by now: :meth:`gateway.turn.deferred.Deferral.messages`."""
        match block.get("content"):
            case {"type": "tool_search_tool_result_error", "error_message": str(message)} if message:
                return Told(message, failed=True)
            case {"type": "tool_search_tool_result_error", "error_code": code}:
                return Told(_sentence(code), failed=True)
            case {"tool_references": [*told]}:
                texts = [item["text"] for item in told if isinstance(item, dict) and isinstance(item.get("text"), str)]
                return Told("\n".join(texts) or NOTHING_FOUND)
        raise InvalidRequest(f"{path}.content: must be a list of tool references or an error object")

    def without_result(self) -> Told:
        return Told(ERROR_SENTENCES["unavailable"], failed=True)


class DeclaredToolSearch(Tool[ToolSearchCall, ToolSearchOutcome]):
    """A tool search as a request declares it."""

    def read(
        self, arguments: dict[str, Any] | None, conversation: Conversation
    ) -> ToolSearchCall | Settled[ToolSearchOutcome]:
        wanted = "query" if self.name == BM25 else "pattern"
        most = MAX_QUERY_CHARS if self.name == BM25 else MAX_PATTERN_CHARS
        text = arguments.get(wanted) if arguments is not None else None
        if arguments is None or not isinstance(text, str) or not text.strip():
            return _refused(f"its input must be a JSON object with a non-empty string `{wanted}`")
        if len(text) > most:
            return _refused(f"the {wanted} is longer than {most} characters")
        limit = DEFAULT_LIMIT if arguments.get("limit") is None else arguments["limit"]
        if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= MAX_LIMIT:
            return _refused(f"`limit` must be an integer from 1 to {MAX_LIMIT}")
        return ToolSearchCall(self.name, text, limit, conversation.deferral)

    def one_too_many(self) -> ToolSearchOutcome:
        return _failed("too_many_requests")

    def told(self, outcome: ToolSearchOutcome) -> Told:
        return Told(outcome.text, failed=outcome.error is not None, loads=outcome.found)

    def shown(self, outcome: ToolSearchOutcome, told: Told, call_id: str, sealer: Sealer) -> Block:
        if outcome.error is not None:
            error = {"error_code": outcome.error, "error_message": outcome.text}
            return {"content": {"type": "tool_search_tool_result_error", **error}}
        references = [{"type": REFERENCE, "tool_name": name} for name in outcome.found]
        return {"content": {"type": "tool_search_tool_search_result", "tool_references": references}}


_TYPED = re.compile(r"(tool_search_tool_(?:bm25|regex))(?:_\d{8})?")


def _failed(code: ErrorCode) -> ToolSearchOutcome:
    return ToolSearchOutcome(ERROR_SENTENCES[code], error=code)


def _refused(why: str) -> Settled[ToolSearchOutcome]:
    return Settled(ToolSearchOutcome(f"The search was not run: {why}.", error="invalid_tool_input"))


def _sentence(code: object) -> str:
    """The sentence for an error code that came back; one that is not Anthropic's reads as ``unavailable``."""
    for known, sentence in ERROR_SENTENCES.items():
        if known == code:
            return sentence
    return ERROR_SENTENCES["unavailable"]
