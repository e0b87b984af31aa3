"""One assistant message as it came back from the client, split into the rounds it was made of.

Anthropic's server tools come back in the message that they were in: call, result, and what the model said then. Rounds
have no mark there, but a model speaks again only after results, so that what follows one is of another round; unless a
call of the same round still follows, as the seal of the result knows. So it is where a client puts each result behind
its call, as the AI SDK does: ``server_tool_use``, its result, and then the ``tool_use`` that stood beside it.
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
    blocks holds the results that opened its message: they belong to the message before. ``order`` are the ids of its
    calls as the model made them, where that is known.
    """

    blocks: list[Block] = field(default_factory=list)
    native: dict[str, ReturnedCall] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)
    results: dict[str, Block] = field(default_factory=dict)
    order: list[str] = field(default_factory=list)
    _places: list[int] = field(default_factory=list)

    def add_call(self, call: str, block: Block) -> None:
        """One more call of the round."""
        self.calls.append(call)
        self._places.append(len(self.blocks))
        self.blocks.append(block)

    def put_in_order(self) -> None:
        """Put the calls where the model made them, if a client changed their order."""
        if sorted(self.order) != sorted(self.calls) or len(set(self.calls)) != len(self.calls):
            return
        made = dict(zip(self.calls, (self.blocks[place] for place in self._places), strict=True))
        self.calls = list(self.order)
        for place, call in zip(self._places, self.order, strict=True):
            self.blocks[place] = made[call]

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
    last = _last_places(content)
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
                opener = sealer.of_round()
                told = result_kind.read_result(block, place, opener)
                owner.results[call] = tool_result(upstream_id(call, result_kind.id_prefix), told)
                owner.order = owner.order or list(opener.calls)
                if owner.blocks and any(last.get(one, -1) > position for one in owner.order):
                    into = owner
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
    for one in rounds:
        one.put_in_order()
    return rounds


def _last_places(content: list[Any]) -> dict[str, int]:
    """Where each id of a call stands, the last time that it does."""
    ids = ((block.get("id") if isinstance(block, dict) else None, place) for place, block in enumerate(content))
    return {call: place for call, place in ids if isinstance(call, str)}


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
    if isinstance(block, dict) and block.get("type") == "tool_use" and isinstance(block.get("id"), str):
        into.add_call(block["id"], block)
    else:
        into.blocks.append(block)


def _take_native(into: ReturnedRound, block: Block, kind: Kind, place: str) -> None:
    if not isinstance(block.get("input"), dict):
        raise InvalidRequest(f"{place}.input: must be an object")
    name, call = kind.function_of(block), upstream_id(block["id"], kind.id_prefix)
    known = {"type": "tool_use", "id": call, "name": name, "input": block["input"]}
    into.add_call(block["id"], known)
    into.native[block["id"]] = ReturnedCall(kind, known)
