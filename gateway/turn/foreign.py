"""What a session brings from Anthropic's API that no other server can read, made readable before it is translated.

After this, of the blocks of server tools that the gateway has not (:mod:`gateway.turn.server_tools`) only pairs are
left: a call, and its result after it in the same message or at the beginning of the next assistant message.
"""

from collections.abc import Iterator
from typing import Any

from gateway.turn.kind import Block
from gateway.turn.kinds import Kinds
from gateway.turn.server_tools import CALLS, NOTES, UPLOAD, as_text, is_result

Place = tuple[int, int]
"""Of a block: its message, and where it stands in that."""


def make_readable(messages: list[Any], kinds: Kinds) -> set[int]:
    """Put text where blocks stand that cannot be read otherwise; returns the places of the messages that changed."""
    strange = {place: block for place, block in _blocks(messages) if is_foreign(block, kinds)}
    alone = strange.keys() - _paired(messages, strange, kinds)
    for message, position in alone:
        content = messages[message]["content"]
        content[position] = as_text(content[position])
    changed = {message for message, _ in alone}
    for message in changed:
        kept = [block for block in messages[message]["content"] if block is not None]
        messages[message]["content"] = kept or [{"type": "text", "text": ""}]
    return changed


def is_foreign(block: object, kinds: Kinds) -> bool:
    """Whether a block is of a server tool that none of ``kinds`` stands for, or a note. Looks at its type and name."""
    if not isinstance(block, dict):
        return False
    block_type = block.get("type")
    if not isinstance(block_type, str):
        return False
    if block_type in NOTES:
        return True
    if block_type in CALLS:
        return kinds.of_call(block) in (None, kinds.others)
    return is_result(block_type) and kinds.of_result(block) in (None, kinds.others)


def _blocks(messages: list[Any]) -> Iterator[tuple[Place, Any]]:
    """The blocks that may be foreign: those of assistant messages, and what a user uploaded."""
    for place, message in enumerate(messages):
        if isinstance(message, dict) and isinstance(message.get("content"), list):
            for position, block in enumerate(message["content"]):
                if message.get("role") == "assistant" or (isinstance(block, dict) and block.get("type") == UPLOAD):
                    yield (place, position), block


def _paired(messages: list[Any], strange: dict[Place, Block], kinds: Kinds) -> set[Place]:
    """The places of calls and results that belong together; of an id that comes again, no more than the first."""
    taken = {
        block["id"]
        for place, block in _blocks(messages)
        if isinstance(block, dict)
        and place not in strange
        and isinstance(block.get("id"), str)
        and (block.get("type") == "tool_use" or kinds.of_call(block) is not None)
    }
    paired: set[Place] = set()
    calls: dict[str, Place] = {}
    for place, block in strange.items():
        if block["type"] in CALLS and _can_be_called(block) and block["id"] not in calls and block["id"] not in taken:
            calls[block["id"]] = place
        elif is_result(block["type"]):
            call = block.get("tool_use_id")
            if isinstance(call, str) and call in calls and _answers(messages, calls[call], place):
                paired |= {calls.pop(call), place}
                taken.add(call)
    return paired


def _can_be_called(block: Block) -> bool:
    return (
        isinstance(block.get("id"), str)
        and bool(block["id"])
        and isinstance(block.get("name"), str)
        and isinstance(block.get("input"), dict)
    )


def _answers(messages: list[Any], call: Place, result: Place) -> bool:
    """Whether a result stands where that of a call can be: after it, or first of all in the next assistant message."""
    if call[0] == result[0]:
        return call[1] < result[1]
    between = messages[call[0] + 1 : result[0]]
    opening = messages[result[0]]["content"][: result[1]]
    return not any(_role(message) == "assistant" for message in between) and all(
        isinstance(block, dict) and is_result(block.get("type")) for block in opening
    )


def _role(message: object) -> object:
    return message.get("role") if isinstance(message, dict) else None
