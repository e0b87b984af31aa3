"""Anthropic's server tools that the gateway has not, in the history of a session that began elsewhere.

No server but Anthropic's can read their blocks, and a session that holds one would be refused for good. So a call and
its result become the ``tool_use`` and ``tool_result`` of a round, as those of the gateway's own tools do, with what a
reader can see of the result as text; a call without its result, a result without its call, and the blocks that stand
alone (:data:`NOTES`) become text. Nothing here is an error: what cannot be made sense of becomes text, too.

Source: ``BetaContentBlockParam`` in the ``anthropic`` SDK.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gateway.turn import jsonvalue
from gateway.turn.kind import AnyTool, Block, Declaration, Kind, Told
from gateway.turn.seal import Sealer

CALLS = frozenset({"server_tool_use", "mcp_tool_use"})
NOTES = frozenset({"container_upload", "compaction", "fallback", "mcp_tool_listing"})
"""Blocks that are neither call nor result; ``container_upload`` is the only one that a user message can hold."""
UPLOAD = "container_upload"
_RESULT = "_tool_result"
_TYPE = re.compile(r"(?:code_execution|advisor|web_fetch|tool_search_tool(?:_bm25|_regex)?)(?:_\d{8})?|mcp_toolset")

_SILENT = frozenset({"type", "cache_control", "signature", "tool_use_id", "is_error", "id", "caller"})
"""Members of a result that say nothing to a reader."""
_SPEAKING = frozenset({"text", "content", "data", "stdout", "stderr", "lines", "title", "url", "tool_name"})
"""Members whose value needs no name before it."""
_DEEPEST = 32
"""How many levels of a result are looked at; Anthropic's have five."""
NOTHING_TO_SEE = "(Nothing of the result can be seen here.)"


def is_server_tool(declared_type: object) -> bool:
    """Whether the ``type`` of a declared tool is that of a server tool; which the gateway has, its kinds know."""
    return isinstance(declared_type, str) and _TYPE.fullmatch(declared_type) is not None


def is_result(block_type: object) -> bool:
    """Whether a block's ``type`` is that of a server tool's result."""
    return isinstance(block_type, str) and block_type.endswith(_RESULT) and block_type != "tool_result"


class OtherServerTools(Kind):
    """The kind of all the server tools that no other kind has: calls and results of the past, none to be made."""

    name = "other"
    result_type = "other_tool_result"
    none_left = ""
    id_prefix = "no id of theirs was made here "

    def is_typed(self, entry: Mapping[str, Any]) -> bool:
        return False

    def read_typed(self, declaration: Declaration) -> Sequence[AnyTool]:
        return []

    def read_result(self, block: Block, path: str, sealer: Sealer) -> Told:
        return Told(visible(block), failed=_failed(block))

    def without_result(self) -> Told:
        return Told(NOTHING_TO_SEE, failed=True)


def as_text(block: Block) -> Block | None:
    """The text that stands for a note, a call without result, or a result without call; None where nothing does."""
    match block:
        case {"type": "compaction", "content": str(summary)}:
            text = f"[Summary of the conversation so far]\n{summary}"
        case {"type": "compaction"}:
            return None  # it failed, and is nothing to Anthropic's models either
        case {"type": "fallback", "from": {"model": str(before)}, "to": {"model": str(after)}}:
            text = f"[From here on {after} answers in place of {before}.]"
        case {"type": "fallback"}:
            text = "[From here on another model answers.]"
        case {"type": "container_upload"}:
            text = f"[A file was uploaded, to where it cannot be seen from here: {block.get('file_id', 'no id')}]"
        case {"type": "server_tool_use" | "mcp_tool_use"}:
            text = f"[{block.get('name', 'A tool')} was called, and there is no result: {_written(block.get('input'))}]"
        case {"type": str(kind)} if kind.endswith(_RESULT):
            text = f"[{kind.removesuffix(_RESULT)} answered]\n{visible(block)}"
        case _:
            text = f"[{block['type']}]\n{visible(block)}"
    return {"type": "text", "text": text}


def visible(block: Block) -> str:
    """What a reader can see of a block: its texts and numbers, line by line, without what is sealed or encoded."""
    lines = list(_lines({name: value for name, value in block.items() if name not in _SILENT}))
    return "\n".join(lines) or NOTHING_TO_SEE


def _lines(value: Any, name: str = "", depth: int = 0) -> Iterator[str]:
    match value:
        case dict() | list() if depth == _DEEPEST:
            yield "…"
        case {"type": "base64"}:
            yield f"({value.get('media_type', 'encoded data')})"
        case dict():
            for member, one in value.items():
                if member not in _SILENT and not member.startswith("encrypted"):
                    yield from _lines(one, member, depth + 1)
        case list():
            for one in value:
                yield from _lines(one, name, depth + 1)
        case str() if value.strip():
            yield value if name in _SPEAKING else f"{name}: {value}"
        case bool() | int() | float():
            yield f"{name}: {_written(value)}"


def _failed(block: Block) -> bool:
    content = block.get("content")
    kind = content.get("type") if isinstance(content, dict) else None
    return block.get("is_error") is True or (isinstance(kind, str) and kind.endswith("_error"))


def _written(value: Any) -> str:
    return jsonvalue.write(value).decode()
