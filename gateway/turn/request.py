"""A client's request, read just as far as the loop needs, and the bodies of the upstream requests made from it.

Every member of a turn's request that is not the gateway's to change goes upstream as the bytes it came in.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec

from gateway.errors import InvalidRequest
from gateway.turn import jsonvalue
from gateway.turn.deferred import Deferral, Mode, check, definitions, has_deferred
from gateway.turn.history import History, translate
from gateway.turn.kind import Block
from gateway.turn.kinds import KINDS, Kinds
from gateway.turn.ownership import NOTHING, Declared, as_function, read_tools
from gateway.turn.probe import Holds, look
from gateway.turn.seal import Sealer
from gateway.turn.traits import ServerTraits

MEMBERS_MAX = 10_000


class Notices(Protocol):
    """Who is told what an operator may wonder about; nothing of a prompt is in it."""

    def left(self, function: str) -> None:
        """A client's function has the name of this one of the gateway's, and stays the client's for its schema."""

    def dropped(self, server_tool: str) -> None:
        """A server tool of this type, which nobody here has, was left out of a request."""


class NoNotices:
    """Nobody is told."""

    def left(self, function: str) -> None:
        pass

    def dropped(self, server_tool: str) -> None:
        pass


@dataclass(frozen=True, slots=True)
class TurnRules:
    """What the operator decides about turns.

    ``aliases``: client function -> the function of a kind that it stands for. ``max_rounds``: upstream inferences per
    turn, at least 1. ``must_answer``: whether the last of them has to be an answer also where all tools are native.
    ``max_tool_calls``: gateway calls per turn. ``max_retained_bytes``: how much is kept of a turn: its request, and the
    texts, arguments and results added since. ``kinds``: the tools there are; a turn that has found others gets rules of
    its own. ``server``: what is known of the model server, and what turns learn of it. ``drop_unknown``: whether a
    declared server tool that nobody here has is left out, or refused. ``notices``: who hears what is odd.
    """

    sealer: Sealer
    aliases: Mapping[str, str] = field(default_factory=dict)
    max_rounds: int = 10
    max_tool_calls: int = 50
    must_answer: bool = False
    max_retained_bytes: int = 128 * 1024 * 1024
    kinds: Kinds = KINDS
    drop_unknown: bool = False
    server: ServerTraits = field(default_factory=ServerTraits)
    notices: Notices = field(default_factory=NoNotices)


@dataclass(slots=True)
class TurnRequest:
    """A request that is a turn. ``fields`` are its members as bytes; ``added`` the messages of the rounds since.

    Of ``messages`` only the place is in ``fields``: they are the history's. ``size`` is that of all members, in bytes.
    """

    rules: TurnRules
    declared: Declared
    history: History
    stream: bool
    fields: dict[str, bytes]
    tool_choice: dict[str, Any] | None
    size: int
    deferral: Deferral | None = None
    added: list[bytes] = field(default_factory=list)

    @property
    def model(self) -> str:
        """The model asked for, "" where that is no string (upstream will say so)."""
        try:
            model = jsonvalue.read(self.fields.get("model", b"null"))
        except jsonvalue.Unreadable:
            return ""
        return model if isinstance(model, str) else ""

    @property
    def messages(self) -> list[bytes]:
        """The conversation as upstream knows it, up to the last round that has ended."""
        return [*self.history.messages, *self.added]

    def choice(self, *, answered: bool, without_tools: bool) -> Block | None:
        """The ``tool_choice`` that takes the place of the client's in the next request; None where that stays.

        ``answered``: a gateway tool has answered, so a forced choice no longer holds (rule 2).
        ``without_tools``: the last allowed round, where the model may call none (rule 5).
        """
        if without_tools:
            return {"type": "none"}
        if answered and self.tool_choice is not None and self.tool_choice.get("type") in ("any", "tool"):
            kept = ("disable_parallel_tool_use",)
            return {"type": "auto"} | {name: self.tool_choice[name] for name in kept if name in self.tool_choice}
        return None

    def body(self, choice: Block | None, *, refused: bool = False) -> bytes:
        """The next upstream request, with this ``choice`` of tools.

        ``refused``: upstream does not take that choice. It is then asked without one, and without the gateway's tools,
        so that none is called.
        """
        fields = dict(self.fields)
        tools = _upstream_tools(self.declared, self.deferral)
        if refused:
            fields.pop("tool_choice", None)
            known = _value(fields, "tools") or [] if tools is None else tools
            tools = [tool for tool in known if not self._is_ours(tool)]
        elif choice is not None:
            fields["tool_choice"] = jsonvalue.write(choice)
        _put_tools(fields, tools)
        return jsonvalue.write_fields(fields, messages=self.messages)

    def _is_ours(self, tool: object) -> bool:
        name = tool.get("name") if isinstance(tool, dict) else None
        return isinstance(name, str) and name in self.declared.tools

    def load(self, names: Iterable[str]) -> None:
        """Deferred tools have been found: the next request knows them."""
        if self.deferral is not None:
            self.deferral.load(names)

    def add_round(self, blocks: list[Block], results: list[Block]) -> None:
        """A round's own blocks and the results of its calls, for the requests after it."""
        self.added.append(jsonvalue.write({"role": "assistant", "content": blocks}))
        self.added.append(jsonvalue.write({"role": "user", "content": results}))


def read_request(body: bytes, rules: TurnRules, mode: Mode = "expand") -> TurnRequest | None:
    """Read a ``/v1/messages`` body; None where nothing of the gateway's is in it.

    ``mode`` is what upstream is given of deferred tools. Raises :class:`InvalidRequest` for what the loop must read and
    cannot.
    """
    holds = look(body, rules.kinds, rules.aliases)
    return read_ours(body, rules, mode if holds.deferred else None) if holds.ours else None


def read_ours(body: bytes, rules: TurnRules, mode: Mode | None) -> TurnRequest | None:
    """The same of a body that :func:`~gateway.turn.probe.look` found something in that may be the gateway's.

    ``mode`` is None where it found nothing of deferred tools.
    """
    fields = _members(body)
    if fields is None:
        return None
    tools, messages = _value(fields, "tools"), None if mode is None else _value(fields, "messages")
    declared = _declared(fields, tools, messages, rules)
    if "messages" not in fields:
        raise InvalidRequest("messages: must be a list")
    stream = _value(fields, "stream")
    if stream is not None and not isinstance(stream, bool):
        raise InvalidRequest("stream: must be true or false")
    choice = _value(fields, "tool_choice")
    if choice is not None and (not isinstance(choice, dict) or not isinstance(choice.get("type"), str)):
        raise InvalidRequest("tool_choice: must be an object with a type")
    deferral = _deferral(fields, tools, messages, declared, rules, mode)
    history = translate(fields["messages"], rules.kinds, rules.sealer, run_late=declared.native)
    if not declared.concerns and not history.translated:
        return None
    size = sum(map(len, fields.values()))
    return TurnRequest(rules, declared, history, bool(stream), fields | {"messages": b""}, choice, size, deferral)


def translate_count(body: bytes, rules: TurnRules, mode: Mode = "expand") -> bytes | None:
    """A ``count_tokens`` body as upstream can count it; None where it goes as it came.

    Raises :class:`InvalidRequest` for what must be read and cannot.
    """
    return translate_body(body, look(body, rules.kinds, rules.aliases), rules, mode)


def translate_body(body: bytes, holds: Holds, rules: TurnRules, mode: Mode) -> bytes | None:
    """A body as upstream can read it, where there is no turn to be made of it; None where it goes as it came.

    ``holds`` is what was found in it. Raises :class:`InvalidRequest` for what must be read and cannot.
    """
    fields = _members(body) if holds.ours or holds.deferred else None
    if fields is None or "messages" not in fields:
        return None
    tools, messages = _value(fields, "tools"), _value(fields, "messages") if holds.deferred else None
    declared = _declared(fields, tools, messages, rules) if holds.ours else NOTHING
    before = dict(fields)
    deferral = _deferral(fields, tools, messages, declared, rules, mode if holds.deferred else None)
    if holds.ours:
        history = translate(fields["messages"], rules.kinds, rules.sealer, run_late=frozenset())
        if history.translated:
            fields["messages"] = b"[" + b",".join(history.messages) + b"]"
    _put_tools(fields, _upstream_tools(declared, deferral))
    return None if fields == before else jsonvalue.write_fields(fields)


def _deferral(
    fields: dict[str, bytes], tools: object, messages: object, declared: Declared, rules: TurnRules, mode: Mode | None
) -> Deferral | None:
    """The request's deferred tools, its conversation in ``fields`` translated; None where nothing is to be changed."""
    if mode is None or not isinstance(messages, list) or not has_deferred(tools, messages):
        return None
    if mode != "pass":
        check(tools, messages)
    upstream_tools = tools if declared.upstream_tools is None else declared.upstream_tools
    choice = _value(fields, "tool_choice")
    deferral = Deferral(upstream_tools, messages, mode, choice, lambda entry: as_function(entry, rules.kinds))
    told = deferral.messages(msgspec.json.decode(fields["messages"], type=list[msgspec.Raw]))
    if told is not None:
        fields["messages"] = b"[" + b",".join(told) + b"]"
    return deferral


def _upstream_tools(declared: Declared, deferral: Deferral | None) -> list[Any] | None:
    """The tools for upstream; None where they are the client's."""
    changed = None if deferral is None else deferral.tools()
    return declared.upstream_tools if changed is None else changed


def _put_tools(fields: dict[str, bytes], tools: list[Any] | None) -> None:
    """Declare these tools in the stead of the client's; None where those stay. Without any, none can be chosen."""
    if tools:
        fields["tools"] = jsonvalue.write(tools)
    elif tools is not None:
        fields.pop("tools", None)
        fields.pop("tool_choice", None)


def _declared(fields: dict[str, bytes], tools: object, messages: object, rules: TurnRules) -> Declared:
    defined = definitions(messages)
    declared = read_tools(tools, rules.kinds, rules.aliases, defined, drop_unknown=rules.drop_unknown)
    for server_tool in declared.dropped:
        rules.notices.dropped(server_tool)
    for function in declared.left:
        rules.notices.left(function)
    if declared.dropped:
        _leave_choice(fields, declared)
    return declared


def _leave_choice(fields: dict[str, bytes], declared: Declared) -> None:
    """Leave out a choice of a tool that was left out."""
    match _value(fields, "tool_choice"):
        case {"type": "tool", "name": name}:
            tools = declared.upstream_tools or []
            if not any(isinstance(tool, dict) and tool.get("name") == name for tool in tools):
                del fields["tool_choice"]


def _members(body: bytes) -> dict[str, bytes] | None:
    fields = jsonvalue.read_fields(body)
    if fields is not None and len(fields) > MEMBERS_MAX:
        raise InvalidRequest(f"the request has more than {MEMBERS_MAX} members")
    return fields


def _value(fields: dict[str, bytes], name: str) -> Any:
    try:
        return jsonvalue.read(fields[name]) if name in fields else None
    except jsonvalue.Unreadable:
        raise InvalidRequest(f"{name}: cannot be read") from None
