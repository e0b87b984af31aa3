"""A client's request, read just as far as the loop needs, and the bodies of the upstream requests made from it.

Every member of a turn's request that is not the gateway's to change goes upstream as the bytes it came in.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gateway.errors import InvalidRequest
from gateway.turn import jsonvalue
from gateway.turn.history import History, translate
from gateway.turn.kind import Block
from gateway.turn.kinds import KINDS, Kinds
from gateway.turn.ownership import NOTHING, Declared, read_tools
from gateway.turn.probe import look
from gateway.turn.seal import Sealer


@dataclass(frozen=True, slots=True)
class TurnRules:
    """What the operator decides about turns.

    ``aliases``: client function -> the function of a kind that it stands for. ``max_rounds``: upstream inferences per
    turn, at least 1. ``max_retained_bytes``: how much is kept of a turn: its request, and the texts, arguments and
    results added since. ``kinds``: the tools there are; a turn that has found others gets rules of its own.
    """

    sealer: Sealer
    aliases: Mapping[str, str] = field(default_factory=dict)
    max_rounds: int = 10
    max_retained_bytes: int = 128 * 1024 * 1024
    kinds: Kinds = KINDS


@dataclass(slots=True)
class TurnRequest:
    """A request that is a turn. ``fields`` are its members as bytes; ``added`` the messages of the rounds since."""

    rules: TurnRules
    declared: Declared
    history: History
    stream: bool
    fields: dict[str, bytes]
    tool_choice: dict[str, Any] | None
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

    def body(self, *, answered: bool, without_tools: bool) -> bytes:
        """The next upstream request.

        ``answered``: a gateway tool has answered, so a forced choice no longer holds (rule 2).
        ``without_tools``: the last allowed round, where the model may call none (rule 5).
        """
        fields = dict(self.fields)
        fields["messages"] = b"[" + b",".join(self.messages) + b"]"
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
        self.added.append(jsonvalue.write({"role": "assistant", "content": blocks}))
        self.added.append(jsonvalue.write({"role": "user", "content": results}))


def read_request(body: bytes, rules: TurnRules) -> TurnRequest | None:
    """Read a ``/v1/messages`` body; None where nothing of the gateway's is in it.

    Raises :class:`InvalidRequest` for what the loop must read and cannot.
    """
    return read_ours(body, rules) if look(body, rules.kinds, rules.aliases).ours else None


def read_ours(body: bytes, rules: TurnRules) -> TurnRequest | None:
    """The same of a body that :func:`~gateway.turn.probe.look` found something in that may be the gateway's."""
    fields = jsonvalue.read_fields(body)
    if fields is None:
        return None
    declared = read_tools(_value(fields, "tools"), rules.kinds, rules.aliases)
    if "messages" not in fields:
        raise InvalidRequest("messages: must be a list")
    stream = _value(fields, "stream")
    if stream is not None and not isinstance(stream, bool):
        raise InvalidRequest("stream: must be true or false")
    choice = _value(fields, "tool_choice")
    if choice is not None and (not isinstance(choice, dict) or not isinstance(choice.get("type"), str)):
        raise InvalidRequest("tool_choice: must be an object with a type")
    history = translate(fields["messages"], rules.kinds, rules.sealer, run_late=declared.native)
    if declared is NOTHING and not history.translated:
        return None
    return TurnRequest(rules, declared, history, bool(stream), fields, choice)


def translate_count(body: bytes, rules: TurnRules) -> bytes | None:
    """A ``count_tokens`` body as upstream can count it; None where it goes as it came.

    Raises :class:`InvalidRequest` for what must be read and cannot.
    """
    if not look(body, rules.kinds, rules.aliases).ours:
        return None
    fields = jsonvalue.read_fields(body)
    if fields is None or "messages" not in fields:
        return None
    declared = read_tools(_value(fields, "tools"), rules.kinds, rules.aliases)
    history = translate(fields["messages"], rules.kinds, rules.sealer, run_late=frozenset())
    if declared.upstream_tools is None and not history.translated:
        return None
    if declared.upstream_tools is not None:
        fields["tools"] = jsonvalue.write(declared.upstream_tools)
    fields["messages"] = b"[" + b",".join(history.messages) + b"]"
    return jsonvalue.write_fields(fields)


def _value(fields: dict[str, bytes], name: str) -> Any:
    try:
        return jsonvalue.read(fields[name]) if name in fields else None
    except jsonvalue.Unreadable:
        raise InvalidRequest(f"{name}: cannot be read") from None
