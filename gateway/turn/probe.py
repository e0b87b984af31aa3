"""What of the gateway's a request holds: told by one pass that decodes a few short members only."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from gateway.errors import InvalidRequest
from gateway.tokens import TokenProbe
from gateway.turn import jsonvalue
from gateway.turn.kinds import Kinds
from gateway.turn.ownership import NOTHING, read_tools, stands_for
from gateway.turn.returned import is_ours


class Holds(NamedTuple):
    """What a request holds. ``ours``: a gateway tool may be declared, or a block of ours is in the history.

    ``tokens``: a token field is used.
    """

    ours: bool
    tokens: bool


def look(body: bytes, kinds: Kinds, aliases: Mapping[str, str]) -> Holds:
    """What a ``/v1/messages`` body holds; nothing, where it is no JSON object. Never raises."""
    try:
        probe = _PROBE.decode(body)
    except msgspec.ValidationError:
        return _look_closer(body, kinds, aliases)
    except UNREADABLE:
        return HOLDS_NOTHING
    return Holds(_holds_ours(probe, kinds, aliases), probe.asks_for_tokens)


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


def _holds_ours(probe: _Probe, kinds: Kinds, aliases: Mapping[str, str]) -> bool:
    for tool in probe.tools or ():
        if stands_for(tool.type, tool.name, kinds, aliases) is not None:
            return True
        if type(tool.type) is str and kinds.of_typed({"type": tool.type, "name": tool.name}) is not None:
            return True
    types = kinds.block_types
    return any(
        message.role == "assistant"
        and type(message.content) is list
        and any(
            type(block.type) is str and block.type in types and is_ours(msgspec.structs.asdict(block), kinds)
            for block in message.content
        )
        for message in probe.messages or ()
    )


def _look_closer(body: bytes, kinds: Kinds, aliases: Mapping[str, str]) -> Holds:
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
        ours = read_tools(tools, kinds, aliases) != NOTHING
    except InvalidRequest:
        ours = True
    return Holds(ours or _in_history(messages, kinds), tokens)


def _in_history(messages: Any, kinds: Kinds) -> bool:
    return isinstance(messages, list) and any(
        is_ours(block, kinds)
        for message in messages
        if isinstance(message, dict) and message.get("role") == "assistant" and isinstance(message.get("content"), list)
        for block in message["content"]
    )
