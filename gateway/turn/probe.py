"""What of the gateway's a request holds: told by one pass that decodes a few short members only."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from gateway.errors import InvalidRequest
from gateway.tokens import TokenProbe
from gateway.turn import jsonvalue
from gateway.turn.client_tools import is_client_tool
from gateway.turn.deferred import definitions, has_deferred, is_deferred_as
from gateway.turn.foreign import is_foreign
from gateway.turn.kinds import Kinds
from gateway.turn.ownership import Declared, read_tools, stands_for
from gateway.turn.references import ADDITION, REFERENCE, REMOVAL, SEARCH_RESULT
from gateway.turn.returned import is_ours
from gateway.turn.server_tools import UPLOAD, is_result, is_server_tool


class Holds(NamedTuple):
    """What a request holds. ``ours``: a gateway tool may be declared, or a block of ours is in the history.

    ``tokens``: a token field is used. ``deferred``: a tool is deferred, or the conversation speaks of tools.
    ``thread``: the conversation is one that the server is to hold.
    ``model`` is the one that is asked for, "" where none is named.
    """

    ours: bool
    tokens: bool
    deferred: bool = False
    thread: bool = False
    model: str = ""


def look(body: bytes, kinds: Kinds, aliases: Mapping[str, str]) -> Holds:
    """What a ``/v1/messages`` body holds; nothing, where it is no JSON object. Never raises."""
    try:
        probe = _PROBE.decode(body)
    except msgspec.ValidationError:
        return _look_closer(body, kinds, aliases)
    except UNREADABLE:
        return HOLDS_NOTHING
    changes, deferred = _speaks_of_tools(probe)
    ours = changes or _holds_ours(probe, kinds, aliases)
    return Holds(ours, probe.asks_for_tokens, deferred, probe.thread is not None, probe.name)


HOLDS_NOTHING = Holds(ours=False, tokens=False)
UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class _Tool(msgspec.Struct):
    type: Any = None
    name: Any = None
    defer_loading: Any = None


class _Block(msgspec.Struct):
    type: Any = None
    name: Any = None
    signature: Any = None
    content: msgspec.Raw = msgspec.Raw()


class _Message(msgspec.Struct):
    role: Any = None
    content: str | list[_Block] | None = None


class _Plain(TokenProbe):
    """The members that are read whatever they are."""

    thread: Any = None
    model: Any = None

    @property
    def name(self) -> str:
        """The model that is asked for."""
        return self.model if type(self.model) is str else ""


class _Probe(_Plain):
    tools: list[_Tool] | None = None
    messages: list[_Message] | None = None


_PROBE = msgspec.json.Decoder(_Probe)
_PLAIN = msgspec.json.Decoder(_Plain)
_SPEAKING = frozenset({ADDITION, REMOVAL, REFERENCE, SEARCH_RESULT})


def _speaks_of_tools(probe: _Probe) -> tuple[bool, bool]:
    """Whether the conversation adds tools, which may be the gateway's, and whether any is deferred or spoken of."""
    adds = deferred = False
    for tool in probe.tools or ():
        if is_deferred_as(tool.name, tool.defer_loading):
            deferred = True
            break
    for message in probe.messages or ():
        if type(message.content) is list:
            for block in message.content:
                if block.type == "tool_result":
                    deferred = deferred or _may_refer(bytes(block.content))
                elif type(block.type) is str and block.type in _SPEAKING:
                    deferred = True
                    adds = adds or block.type == ADDITION
    return adds, deferred


def _may_refer(content: bytes) -> bool:
    """Whether a result's content may hold a reference, however that is written; to decode it takes longer."""
    return content.startswith(b"[") and (b"tool_reference" in content or b"\\u" in content)


def _holds_ours(probe: _Probe, kinds: Kinds, aliases: Mapping[str, str]) -> bool:
    for tool in probe.tools or ():
        if stands_for(tool.type, tool.name, kinds, aliases) is not None:
            return True
        if type(tool.type) is str and tool.type != "custom" and _is_typed(tool, kinds):
            return True
    return any(
        _has_ours(message.content, kinds) if message.role == "assistant" else _has_upload(message.content)
        for message in probe.messages or ()
        if type(message.content) is list
    )


def _is_typed(tool: _Tool, kinds: Kinds) -> bool:
    return (
        is_server_tool(tool.type)
        or is_client_tool(tool.type)
        or kinds.of_typed({"type": tool.type, "name": tool.name}) is not None
    )


def _has_ours(content: list[_Block], kinds: Kinds) -> bool:
    types = kinds.block_types
    for block in content:
        kind = block.type
        if type(kind) is str and (kind in types or is_result(kind)) and _is_read(msgspec.structs.asdict(block), kinds):
            return True
    return False


def _has_upload(content: list[_Block]) -> bool:
    return any(block.type == UPLOAD for block in content)


def _is_read(block: object, kinds: Kinds) -> bool:
    """Whether a block of an assistant message is one that the gateway has to read."""
    return is_ours(block, kinds) or is_foreign(block, kinds)


def _look_closer(body: bytes, kinds: Kinds, aliases: Mapping[str, str]) -> Holds:
    """The same of a body whose ``tools`` or ``messages`` have members of other types than the usual."""
    fields = jsonvalue.read_fields(body)
    if fields is None:
        return HOLDS_NOTHING
    try:
        plain = _PLAIN.decode(body)
    except UNREADABLE:
        return HOLDS_NOTHING
    tokens, thread = plain.asks_for_tokens, plain.thread is not None
    try:
        tools, messages = (jsonvalue.read(fields.get(name, b"null")) for name in ("tools", "messages"))
    except jsonvalue.Unreadable:
        return Holds(ours=False, tokens=tokens, thread=thread, model=plain.name)
    try:
        ours = read_tools(tools, kinds, aliases, definitions(messages)) != Declared()
    except InvalidRequest:
        ours = True
    return Holds(ours or _in_history(messages, kinds), tokens, has_deferred(tools, messages), thread, plain.name)


def _in_history(messages: Any, kinds: Kinds) -> bool:
    return isinstance(messages, list) and any(
        _is_read(block, kinds)
        if message.get("role") == "assistant"
        else isinstance(block, dict) and block.get("type") == UPLOAD
        for message in messages
        if isinstance(message, dict) and isinstance(message.get("content"), list)
        for block in message["content"]
    )
