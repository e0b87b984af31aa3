"""One assistant message as it came back from the client, split into the rounds it was made of.

Anthropic's server tools come back in the message that they were in: call, result, and what the model said then. Rounds
have no mark there, but a model speaks again only after results, so that what follows one is of another round.
"""

from dataclasses import dataclass, field
from typing import Any

from gateway.errors import InvalidRequest
from gateway.turn.ids import upstream_id
from gateway.turn.kind import Block, Kind, tool_result
from gateway.turn.kinds import Kinds
from gateway.turn.marker import read_mark
from gateway.turn.seal import Sealer


@dataclass(frozen=True, slots=True)
class ReturnedCall:
    """A native call that came back, as the ``tool_use`` block that upstream knows."""

    kind: Kind
    block: Block


@dataclass(slots=True)
class ReturnedRound:
    """One round: its ``blocks`` as upstream knows them, the ids of its ``calls`` in order.

    ``native`` has the gateway's calls by the client's id, ``results`` what upstream was told of them. A round without
    blocks holds the results that opened its message: they belong to the message before.
    """

    blocks: list[Block] = field(default_factory=list)
    native: dict[str, ReturnedCall] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)
    results: dict[str, Block] = field(default_factory=dict)

    @property
    def client_calls(self) -> set[str]:
        """The calls that the client answers."""
        return {call for call in self.calls if call not in self.native}

    def result(self, call: str) -> Block:
        """The result of a native call; of one that has none, the sentence of its kind for that."""
        if call in self.results:
            return self.results[call]
        native = self.native[call]
        return tool_result(native.block["id"], native.kind.without_result())


def is_ours(block: object, kinds: Kinds) -> bool:
    """Whether a block of the history is a native call, the result of one, or thinking with our mark."""
    if not isinstance(block, dict):
        return False
    if block.get("type") == "thinking":
        return read_mark(block.get("signature")) is not None
    return kinds.of_call(block) is not None or kinds.of_result(block) is not None


def split(content: list[Any], path: str, kinds: Kinds, sealer: Sealer) -> list[ReturnedRound]:
    """The rounds in the ``content`` of the assistant message at ``path``. A result whose call is nowhere is dropped.

    Raises :class:`InvalidRequest` with the path of what cannot be read.
    """
    rounds: list[ReturnedRound] = []
    owners: dict[str, ReturnedRound] = {}
    into: ReturnedRound | None = None
    begun: str | None = None
    for position, block in enumerate(content):
        place = f"{path}.content.{position}"
        result_kind = kinds.of_result(block)
        if result_kind is not None:
            call = block["tool_use_id"]
            owner = owners.get(call)
            if owner is not None:
                into = None
            elif not owners and not any(one.blocks for one in rounds):
                owner = rounds[0] if rounds else ReturnedRound()
                rounds = [owner]
            if owner is not None:
                told = result_kind.read_result(block, place, sealer)
                owner.results[call] = tool_result(upstream_id(call, result_kind.id_prefix), told)
            continue
        if into is None:
            into, begun = ReturnedRound(), None
            rounds.append(into)
        if begun is not None and _is_text(block):
            into.blocks[-1] = {**block, "text": begun + block["text"]}
            begun = None
        elif _is_marked(block):
            begun = _think_text(into, block, place)
        else:
            begun = None
            call_kind = kinds.of_call(block)
            if call_kind is not None:
                _take_native(into, block, call_kind, place)
                owners[block["id"]] = into
            else:
                _take(into, block)
    return rounds


def _is_marked(block: object) -> bool:
    return isinstance(block, dict) and block.get("type") == "thinking" and read_mark(block.get("signature")) is not None


def _is_text(block: object) -> bool:
    return isinstance(block, dict) and block.get("type") == "text" and isinstance(block.get("text"), str)


def _think_text(into: ReturnedRound, block: Block, place: str) -> str | None:
    """Write marked thinking as the text it was; returns that text where the next text block goes on with it."""
    mark = read_mark(block["signature"])
    if mark is None or not isinstance(block.get("thinking"), str):
        raise InvalidRequest(f"{place}.thinking: must be a string")
    text = mark.text(block["thinking"])
    into.blocks.append({"type": "text", "text": text})
    return text if mark.text_follows else None


def _take(into: ReturnedRound, block: Any) -> None:
    into.blocks.append(block)
    if isinstance(block, dict) and block.get("type") == "tool_use" and isinstance(block.get("id"), str):
        into.calls.append(block["id"])


def _take_native(into: ReturnedRound, block: Block, kind: Kind, place: str) -> None:
    if not isinstance(block.get("input"), dict):
        raise InvalidRequest(f"{place}.input: must be an object")
    name, call = kind.function_of(block), upstream_id(block["id"], kind.id_prefix)
    known = {"type": "tool_use", "id": call, "name": name, "input": block["input"]}
    into.blocks.append(known)
    into.native[block["id"]] = ReturnedCall(kind, known)
    into.calls.append(block["id"])
