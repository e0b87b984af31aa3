"""From a call's arguments to a search, and from its outcome to what the model and the client are told."""

from dataclasses import dataclass
from typing import Any

from gateway.turn.ownership import NativeTool
from gateway.turn.returned import RESULT, Block, tool_result
from gateway.turn.seal import Sealer
from gateway.turn.sentences import ERROR_SENTENCES, NO_RESULTS
from gateway.turn.tool import ErrorCode, SearchCall, SearchOutcome

MAX_QUERY_CHARS = 1000


@dataclass(frozen=True, slots=True)
class Call:
    """A gateway call of a round that ended whole: what to search, or why there is nothing to run.

    ``server_id`` is the client's id of a native call, None for a hidden one.
    """

    upstream_id: str
    name: str
    server_id: str | None
    search: SearchCall | None
    refused: SearchOutcome | None


def make_call(
    upstream_id: str, name: str, server_id: str | None, arguments: dict[str, Any] | None, native: NativeTool | None
) -> Call:
    """Read a call's ``arguments`` (None: they were no JSON object); ``native`` holds a typed tool's restrictions."""
    search, refused = _read(arguments, native if server_id is not None else None)
    return Call(upstream_id, name, server_id, search, refused)


def refuse(call: Call, code: ErrorCode) -> Call:
    """The call, not to be run because of ``code``."""
    return Call(call.upstream_id, call.name, call.server_id, None, SearchOutcome(ERROR_SENTENCES[code], error=code))


def can_end_with_more(call: Call, outcome: SearchOutcome) -> bool:
    """Whether the result's text can end with a sentence of its own: a native one has to be sealed for that."""
    return call.server_id is None or bool(outcome.results)


def answered(call: Call, outcome: SearchOutcome, ending: str, sealer: Sealer) -> tuple[Block, Block | None]:
    """The ``tool_result`` for upstream and, for a native call, the result block for the client.

    ``ending`` is a sentence for the end of the text, "" for none (see :func:`can_end_with_more`).
    """
    if call.server_id is None:
        text = f"{outcome.text}\n\n{ending}" if ending else outcome.text
        return tool_result(call.upstream_id, text, failed=outcome.error is not None), None
    block: Block = {"type": RESULT, "tool_use_id": call.server_id}
    if outcome.error is not None:
        block["content"] = {"type": "web_search_tool_result_error", "error_code": outcome.error}
        return tool_result(call.upstream_id, ERROR_SENTENCES[outcome.error], failed=True), block
    if not outcome.results:
        block["content"] = []
        return tool_result(call.upstream_id, NO_RESULTS), block
    text = f"{outcome.text}\n\n{ending}" if ending else outcome.text
    sealed = sealer.seal(text, call.server_id, [(result.url, result.title) for result in outcome.results])
    block["content"] = [
        {
            "type": "web_search_result",
            "url": result.url,
            "title": result.title,
            "page_age": result.page_age,
            "encrypted_content": secret,
        }
        for result, secret in zip(outcome.results, sealed, strict=True)
    ]
    return tool_result(call.upstream_id, text), block


def _read(
    arguments: dict[str, Any] | None, native: NativeTool | None
) -> tuple[SearchCall | None, SearchOutcome | None]:
    query = arguments.get("query") if arguments is not None else None
    if arguments is None or not isinstance(query, str) or not query.strip():
        return None, _refused("invalid_tool_input")
    if len(query) > MAX_QUERY_CHARS:
        return None, _refused("query_too_long")
    if native is not None:
        return SearchCall(query, native.allowed_domains, native.blocked_domains, native.user_location), None
    domains: list[tuple[str, ...]] = []
    for name in ("allowed_domains", "blocked_domains"):
        value = arguments.get(name) or []
        if not isinstance(value, list) or not all(isinstance(domain, str) and domain.strip() for domain in value):
            text = f"The search was not run: `{name}` must be a list of domains."
            return None, SearchOutcome(text, error="invalid_tool_input")
        domains.append(tuple(value))
    return SearchCall(query, domains[0], domains[1]), None


def _refused(code: ErrorCode) -> SearchOutcome:
    return SearchOutcome(ERROR_SENTENCES[code], error=code)
