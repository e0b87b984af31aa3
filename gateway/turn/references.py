"""Where a conversation speaks of tools: references to them, definitions of them, and their coming and going.

Sources: Anthropic's ``tool_reference`` (in the content of a ``tool_result``, and in a ``tool_search_tool_result``), and
``tool_addition`` / ``tool_removal``, which stand in a message of role ``system`` and name a tool (``tool_reference``),
bring its definition along (``tool_definition``), or mean one tool or all tools of an MCP server.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

Block = dict[str, Any]
REFERENCE = "tool_reference"
ADDITION = "tool_addition"
REMOVAL = "tool_removal"
SEARCH_RESULT = "tool_search_tool_result"


@dataclass(frozen=True, slots=True)
class Mention:
    """One place where the conversation speaks of a tool.

    ``what``: the tool becomes known (``loaded``), is brought along with its ``definition`` (``defined``), or goes
    (``removed``). ``name`` is the tool's, "" where there is none. ``server`` is an MCP server's name where one of its
    tools is meant, or all of them (with an empty ``name``).
    """

    what: Literal["loaded", "defined", "removed"]
    name: str
    definition: Block | None = None
    server: str | None = None


def mentions(messages: object) -> Iterator[tuple[str, Mention]]:
    """All of a conversation's, in order, each with the path of the content block that it stands in.

    What is malformed is passed over: it is upstream's to judge.
    """
    for place, message in enumerate(messages if isinstance(messages, list) else ()):
        content = message.get("content") if isinstance(message, dict) else None
        for position, block in enumerate(content if isinstance(content, list) else ()):
            for mention in mentions_in(block):
                yield f"messages.{place}.content.{position}", mention


def mentions_in(block: object) -> Iterator[Mention]:
    """Those of one content block."""
    if not isinstance(block, dict):
        return
    match block.get("type"):
        case "tool_result":
            yield from _listed(block.get("content"))
        case "tool_search_tool_result":
            content = block.get("content")
            yield from _listed(content.get("tool_references") if isinstance(content, dict) else None)
        case _:
            mention = mention_of(block)
            if mention is not None:
                yield mention


def mention_of(block: object) -> Mention | None:
    """What a block says that is itself a reference, an addition or a removal; None for any other."""
    if not isinstance(block, dict):
        return None
    if block.get("type") == REFERENCE:
        name = _name(block)
        return Mention("loaded", name) if name else None
    return _change(block) if block.get("type") in (ADDITION, REMOVAL) else None


def _listed(blocks: object) -> Iterator[Mention]:
    for block in blocks if isinstance(blocks, list) else ():
        mention = mention_of(block) if isinstance(block, dict) and block.get("type") == REFERENCE else None
        if mention is not None:
            yield mention


def _change(block: Block) -> Mention | None:
    tool = block.get("tool")
    if not isinstance(tool, dict):
        return None
    what: Literal["loaded", "removed"] = "loaded" if block["type"] == ADDITION else "removed"
    name, server, definition = _name(tool), tool.get("server_name"), tool.get("definition")
    match tool.get("type"):
        case "tool_reference" if name:
            return Mention(what, name)
        case "tool_definition" if what == "loaded" and isinstance(definition, dict):
            return _definition(definition)
        case "mcp_tool_reference" if name and isinstance(server, str):
            return Mention(what, name, server=server)
        case "mcp_toolset_reference" if isinstance(server, str):
            return Mention(what, "", server=server)
    return None


def _definition(tool: Block) -> Mention | None:
    """A tool, or all tools of an MCP server (``mcp_toolset``)."""
    name, server = _name(tool), tool.get("mcp_server_name")
    if isinstance(server, str):
        return Mention("defined", "", tool, server)
    return Mention("defined", name, tool) if name else None


def _name(holder: Block) -> str:
    """A reference in a result says ``tool_name``, one in an addition or removal ``name``; servers take either."""
    for key in ("tool_name", "name"):
        name = holder.get(key)
        if isinstance(name, str) and name:
            return name
    return ""
