"""One assistant message as it came back from the client, split into the rounds it was made of.

Anthropic's server tools come back in the message that they were in: call, result, and what the model said then. Rounds
have no mark there, but a model speaks again only after results, so that what follows one is of another round.
"""

from dataclasses import dataclass, field
from typing import Any

from gateway.errors import InvalidRequest
from gateway.turn.ids import upstream_id
from gateway.turn.marker import read_mark
from gateway.turn.ownership import WEB_SEARCH
from gateway.turn.seal import Sealer
from gateway.turn.sentences import NO_RESULTS, error_sentence

Block = dict[str, Any]
CALL = "server_tool_use"
RESULT = "web_search_tool_result"


@dataclass(slots=True)
class ReturnedRound:
    """One round: its ``blocks`` as upstream knows them, the ids of its ``calls`` in order.

    ``native`` has the gateway's calls by the client's id, ``results`` what upstream was told of them. A round without
    blocks holds the results that opened its message: they belong to the message before.
    """

    blocks: list[Block] = field(default_factory=list)
    native: dict[str, Block] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)
    results: dict[str, Block] = field(default_factory=dict)

    @property
    def client_calls(self) -> set[str]:
        """The calls that the client answers."""
        return {call for call in self.calls if call not in self.native}

    def result(self, call: str) -> Block:
        """The result of a native call; of one that has none, the sentence for ``unavailable``."""
        if call in self.results:
            return self.results[call]
        return tool_result(self.native[call]["id"], error_sentence("unavailable"), failed=True)


def is_ours(block: object) -> bool:
    """Whether a block of the history is a server block of ours or thinking with our mark."""
    if not isinstance(block, dict):
        return False
    match block.get("type"):
        case "server_tool_use":
            return bool(block.get("name") == WEB_SEARCH)
        case "web_search_tool_result":
            return True
        case "thinking":
            return read_mark(block.get("signature")) is not None
    return False


def tool_result(call: str, text: str, *, failed: bool = False) -> Block:
    """A ``tool_result`` block as the gateway sends it upstream."""
    block: Block = {"type": "tool_result", "tool_use_id": call, "content": text}
    if failed:
        block["is_error"] = True
    return block


def split(content: list[Any], path: str, sealer: Sealer) -> list[ReturnedRound]:
    """The rounds in the ``content`` of the assistant message at ``path``. A result whose call is nowhere is dropped.

    Raises :class:`InvalidRequest` with the path of what cannot be read.
    """
    rounds: list[ReturnedRound] = []
    owners: dict[str, ReturnedRound] = {}
    into: ReturnedRound | None = None
    begun: str | None = None
    for position, block in enumerate(content):
        place = f"{path}.content.{position}"
        ours = is_ours(block)
        if ours and block["type"] == RESULT:
            call = block["tool_use_id"]
            owner = owners.get(call)
            if owner is not None:
                into = None
            elif not owners and not any(one.blocks for one in rounds):
                owner = rounds[0] if rounds else ReturnedRound()
                rounds = [owner]
            if owner is not None:
                owner.results[call] = _result(block, place, sealer)
            continue
        if into is None:
            into, begun = ReturnedRound(), None
            rounds.append(into)
        if begun is not None and _is_text(block):
            into.blocks[-1] = {**block, "text": begun + block["text"]}
            begun = None
        elif ours and block["type"] == "thinking":
            begun = _think_text(into, block, place)
        else:
            begun = None
            if ours:
                _take_native(into, block, place)
                owners[block["id"]] = into
            else:
                _take(into, block)
    return rounds


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


def _take_native(into: ReturnedRound, block: Block, place: str) -> None:
    if not isinstance(block.get("input"), dict):
        raise InvalidRequest(f"{place}.input: must be an object")
    known = {"type": "tool_use", "id": upstream_id(block["id"]), "name": WEB_SEARCH, "input": block["input"]}
    into.blocks.append(known)
    into.native[block["id"]] = known
    into.calls.append(block["id"])


def _result(block: Block, place: str, sealer: Sealer) -> Block:
    """The ``tool_result`` the model saw for a ``web_search_tool_result``."""
    call, content = block["tool_use_id"], block.get("content")
    if isinstance(content, dict):
        return tool_result(upstream_id(call), error_sentence(content.get("error_code")), failed=True)
    if not isinstance(content, list):
        raise InvalidRequest(f"{place}.content: must be a list of results or an error object")
    if not content:
        return tool_result(upstream_id(call), NO_RESULTS)
    entries = [_entry(item) for item in content]
    text = sealer.open(call, [(url, title, sealed) for url, title, _, sealed in entries])
    return tool_result(upstream_id(call), _visible_text(entries) if text is None else text)


def _entry(item: object) -> tuple[str, str, str, str]:
    """url, title, page_age and encrypted_content of one visible result; "" for what is missing."""
    fields = item if isinstance(item, dict) else {}
    url, title, age, sealed = (
        value if isinstance(value := fields.get(name), str) else ""
        for name in ("url", "title", "page_age", "encrypted_content")
    )
    return url, title, age, sealed


def _visible_text(entries: list[tuple[str, str, str, str]]) -> str:
    lines = []
    for number, (url, title, age, _) in enumerate(entries, 1):
        lines.append("\n".join([f"{number}. {title}", *(part for part in (url, age) if part)]))
    return "\n\n".join(lines)
