"""What of the gateway's a request holds: told by one pass that decodes a few short members only."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from gateway.errors import InvalidRequest
from gateway.tokens import TokenProbe
from gateway.turn import jsonvalue
from gateway.turn.ownership import GATEWAY_TOOLS, NOTHING, is_function, is_typed, read_tools
from gateway.turn.returned import is_ours


class Holds(NamedTuple):
    """What a request holds. ``ours``: a gateway tool is declared, or a block of ours is in the history.

    ``tokens``: a token field is used.
    """

    ours: bool
    tokens: bool


def look(body: bytes, aliases: Mapping[str, str]) -> Holds:
    """What a ``/v1/messages`` body holds; nothing, where it is no JSON object. Never raises."""
    try:
        probe = _PROBE.decode(body)
    except msgspec.ValidationError:
        return _look_closer(body, aliases)
    except UNREADABLE:
        return HOLDS_NOTHING
    return Holds(_holds_ours(probe, aliases), probe.asks_for_tokens)


HOLDS_NOTHING = Holds(ours=False, tokens=False)
UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class _Tool(msgspec.Struct):
    type: Any = None
    name: Any = None


class _Block(msgspec.Struct):
    type: Any = None
    name: Any = None
    signature: Any = None


class _Message(msgspec.Struct):
    role: Any = None
    content: str | list[_Block] | None = None


class _Probe(TokenProbe):
    tools: list[_Tool] | None = None
    messages: list[_Message] | None = None


_PROBE = msgspec.json.Decoder(_Probe)
_TOKENS = msgspec.json.Decoder(TokenProbe)
_OURS = ("thinking", "server_tool_use", "web_search_tool_result")


def _holds_ours(probe: _Probe, aliases: Mapping[str, str]) -> bool:
    for tool in probe.tools or ():
        name = tool.name
        if isinstance(name, str) and (name in GATEWAY_TOOLS or name in aliases):
            declared = {"type": tool.type, "name": name}
            if is_typed(declared) or is_function(declared):
                return True
    return any(
        message.role == "assistant"
        and type(message.content) is list
        and any(block.type in _OURS and is_ours(msgspec.structs.asdict(block)) for block in message.content)
        for message in probe.messages or ()
    )


def _look_closer(body: bytes, aliases: Mapping[str, str]) -> Holds:
    """The same of a body whose ``tools`` or ``messages`` have members of other types than the usual."""
    fields = jsonvalue.read_fields(body)
    try:
        tokens = fields is not None and _TOKENS.decode(body).asks_for_tokens
    except UNREADABLE:
        fields = None
    if fields is None:
        return HOLDS_NOTHING
    try:
        tools, messages = (jsonvalue.read(fields.get(name, b"null")) for name in ("tools", "messages"))
    except jsonvalue.Unreadable:
        return Holds(ours=False, tokens=tokens)
    try:
        ours = read_tools(tools, aliases) != NOTHING
    except InvalidRequest:
        ours = True
    return Holds(ours or _in_history(messages), tokens)


def _in_history(messages: Any) -> bool:
    return isinstance(messages, list) and any(
        is_ours(block)
        for message in messages
        if isinstance(message, dict) and message.get("role") == "assistant" and isinstance(message.get("content"), list)
        for block in message["content"]
    )
