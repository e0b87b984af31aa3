"""A client's request, read just as far as the loop needs, and the bodies of the upstream requests made from it.

A request without anything of the gateway's is told by one pass that decodes a few short members only; every member
of a turn's request that is not the gateway's to change goes upstream as the bytes it came in.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from gateway.errors import InvalidRequest
from gateway.turn import jsonvalue
from gateway.turn.history import Block, History, is_ours, translate
from gateway.turn.ownership import GATEWAY_TOOLS, NOTHING, Declared, is_function, is_typed, read_tools
from gateway.turn.seal import Sealer


@dataclass(frozen=True, slots=True)
class TurnRules:
    """What the operator decides about turns.

    ``aliases``: client function -> gateway tool. ``max_rounds``: upstream inferences per turn, at least 1.
    ``max_retained_chars``: how much of a turn (texts, arguments, results) is kept for its next request.
    """

    sealer: Sealer
    aliases: Mapping[str, str] = field(default_factory=dict)
    max_rounds: int = 10
    max_retained_chars: int = 32 * 1024 * 1024


@dataclass(slots=True)
class TurnRequest:
    """A request that is a turn. ``fields`` are its members as bytes; ``rounds`` the messages added since."""

    rules: TurnRules
    declared: Declared
    history: History
    stream: bool
    fields: dict[str, bytes]
    tool_choice: dict[str, Any] | None
    rounds: list[bytes] = field(default_factory=list)

    @property
    def model(self) -> str:
        """The model asked for, "" where that is no string (upstream will say so)."""
        try:
            model = jsonvalue.read(self.fields.get("model", b"null"))
        except jsonvalue.Unreadable:
            return ""
        return model if isinstance(model, str) else ""

    def body(self, *, answered: bool, without_tools: bool) -> bytes:
        """The next upstream request.

        ``answered``: a gateway tool has answered, so a forced choice no longer holds (rule 2).
        ``without_tools``: the last allowed round, where the model may call none (rule 5).
        """
        fields = dict(self.fields)
        fields["messages"] = b"[" + b",".join([*self.history.messages, *self.rounds]) + b"]"
        if self.declared.upstream_tools is not None:
            fields["tools"] = jsonvalue.write(self.declared.upstream_tools)
        if without_tools:
            fields["tool_choice"] = b'{"type":"none"}'
        elif answered and self.tool_choice is not None and self.tool_choice.get("type") in ("any", "tool"):
            choice: dict[str, Any] = {"type": "auto"}
            if "disable_parallel_tool_use" in self.tool_choice:
                choice["disable_parallel_tool_use"] = self.tool_choice["disable_parallel_tool_use"]
            fields["tool_choice"] = jsonvalue.write(choice)
        return jsonvalue.write_fields(fields)

    def add_round(self, blocks: list[Block], results: list[Block]) -> None:
        """A round's own blocks and the results of its calls, for the requests after it."""
        self.rounds.append(jsonvalue.write({"role": "assistant", "content": blocks}))
        self.rounds.append(jsonvalue.write({"role": "user", "content": results}))

    def add_late(self, results: list[Block]) -> None:
        """The results of the history's late calls, in call order: they complete the request's last message."""
        left = iter(results)
        content = [one if isinstance(one, dict) else next(left) for one in self.history.last_results]
        self.rounds.append(jsonvalue.write({"role": "user", "content": [*content, *self.history.last_rest]}))


def read_request(body: bytes, rules: TurnRules) -> TurnRequest | None:
    """Read a ``/v1/messages`` body; None where nothing of the gateway's is in it.

    Raises :class:`InvalidRequest` for what the loop must read and cannot.
    """
    if not _holds_ours(body, rules.aliases):
        return None
    fields = jsonvalue.read_fields(body)
    if fields is None:
        return None
    declared = read_tools(_value(fields, "tools"), rules.aliases)
    if "messages" not in fields:
        raise InvalidRequest("messages: must be a list")
    stream = _value(fields, "stream")
    if stream is not None and not isinstance(stream, bool):
        raise InvalidRequest("stream: must be true or false")
    choice = _value(fields, "tool_choice")
    if choice is not None and (not isinstance(choice, dict) or not isinstance(choice.get("type"), str)):
        raise InvalidRequest("tool_choice: must be an object with a type")
    history = translate(fields["messages"], rules.sealer, run_late=declared.native is not None)
    return TurnRequest(rules, declared, history, bool(stream), fields, choice)


def translate_count(body: bytes, rules: TurnRules) -> bytes | None:
    """A ``count_tokens`` body as upstream can count it; None where it goes as it came.

    Raises :class:`InvalidRequest` for what must be read and cannot.
    """
    if not _holds_ours(body, rules.aliases):
        return None
    fields = jsonvalue.read_fields(body)
    if fields is None or "messages" not in fields:
        return None
    declared = read_tools(_value(fields, "tools"), rules.aliases)
    if declared.upstream_tools is not None:
        fields["tools"] = jsonvalue.write(declared.upstream_tools)
    history = translate(fields["messages"], rules.sealer, run_late=False)
    fields["messages"] = b"[" + b",".join(history.messages) + b"]"
    return jsonvalue.write_fields(fields)


def _value(fields: dict[str, bytes], name: str) -> Any:
    try:
        return jsonvalue.read(fields[name]) if name in fields else None
    except jsonvalue.Unreadable:
        raise InvalidRequest(f"{name}: cannot be read") from None


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


class _Probe(msgspec.Struct):
    tools: list[_Tool] | None = None
    messages: list[_Message] | None = None


_PROBE = msgspec.json.Decoder(_Probe)


def _holds_ours(body: bytes, aliases: Mapping[str, str]) -> bool:
    """Whether a gateway tool is declared, or a block of ours is in the history. Never raises."""
    try:
        probe = _PROBE.decode(body)
    except msgspec.ValidationError:
        return _looks_closer(body, aliases)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
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


_OURS = ("thinking", "server_tool_use", "web_search_tool_result")


def _looks_closer(body: bytes, aliases: Mapping[str, str]) -> bool:
    """The same of a body whose ``tools`` or ``messages`` have members of other types than the usual."""
    fields = jsonvalue.read_fields(body)
    if fields is None:
        return False
    try:
        tools = _value(fields, "tools")
        messages = _value(fields, "messages")
    except InvalidRequest:
        return False
    try:
        if read_tools(tools, aliases) != NOTHING:
            return True
    except InvalidRequest:
        return True
    return isinstance(messages, list) and any(
        is_ours(block)
        for message in messages
        if isinstance(message, dict) and message.get("role") == "assistant" and isinstance(message.get("content"), list)
        for block in message["content"]
    )
