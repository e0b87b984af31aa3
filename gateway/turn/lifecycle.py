"""The lifecycle of a round: which event may follow which.

One table; an event that is not in it ends the round as :class:`UpstreamBroken`. Shapes as vLLM sends them (its
``/v1/messages`` stream) and as Anthropic documents them ("Streaming messages"). ``ping`` may come at any time, and an
event type that is not in the documentation has no meaning here and is passed over.
"""

from collections.abc import Iterator
from enum import Enum, auto
from typing import Any

import msgspec

from gateway.errors import UpstreamBroken, UpstreamStreamError
from gateway.turn import jsonvalue

Event = dict[str, Any]
_EVENT = msgspec.json.Decoder(Event)


class State(Enum):
    """Where a round stands."""

    AWAITED = auto()
    BETWEEN_BLOCKS = auto()
    IN_BLOCK = auto()
    ENDING = auto()
    DONE = auto()


TRANSITIONS: dict[tuple[State, str], State] = {
    (State.AWAITED, "message_start"): State.BETWEEN_BLOCKS,
    (State.BETWEEN_BLOCKS, "content_block_start"): State.IN_BLOCK,
    (State.IN_BLOCK, "content_block_delta"): State.IN_BLOCK,
    (State.IN_BLOCK, "content_block_stop"): State.BETWEEN_BLOCKS,
    (State.BETWEEN_BLOCKS, "message_delta"): State.ENDING,
    (State.ENDING, "message_delta"): State.ENDING,
    (State.ENDING, "message_stop"): State.DONE,
}

EVENT_TYPES = frozenset(name for _, name in TRANSITIONS)

DELTAS: dict[str, frozenset[str]] = {
    "text": frozenset({"text_delta", "citations_delta"}),
    "thinking": frozenset({"thinking_delta", "signature_delta"}),
    "tool_use": frozenset({"input_json_delta"}),
}
"""The deltas a block of a kind may have; a kind that is not listed may have any."""

PIECE: dict[str, str] = {
    "text_delta": "text",
    "thinking_delta": "thinking",
    "signature_delta": "signature",
    "input_json_delta": "partial_json",
}
"""Which member of a delta holds its piece of text."""


def following(state: State, kind: str) -> State:
    """The state after an event of ``kind``. Raises :class:`UpstreamBroken` where it may not come now."""
    try:
        return TRANSITIONS[state, kind]
    except KeyError:
        raise UpstreamBroken(f"Upstream sent {kind} out of place.") from None


def is_error(event: Event) -> bool:
    """Whether an event, or a whole answer, is an error as servers of OpenAI's API tell it.

    ``{"error": {"message": …}}``, ``{"error": "…"}`` or ``{"object": "error", "message": …}``.
    """
    return bool(event.get("error")) or event.get("object") == "error"


def stream_error(event: Event) -> UpstreamStreamError:
    """What an ``error`` event of upstream's becomes, in Anthropic's shape or in one of :func:`is_error`."""
    error = event.get("error")
    if isinstance(error, str):
        error = {"message": error}
    elif not isinstance(error, dict):
        error = event
    message = error.get("message")
    return UpstreamStreamError(error.get("type"), message if isinstance(message, str) else "Upstream failed.")


def read_event(data: bytes) -> Event:
    """The JSON object of one SSE event, U+FFFD in it for each lone surrogate. Raises :class:`UpstreamBroken`."""
    try:
        return read_exact(data)
    except UpstreamBroken:
        return read_exact(jsonvalue.mended(data))


def read_exact(data: bytes) -> Event:
    """The same of an event without a lone surrogate: what was read is what ``data`` says."""
    try:
        return _EVENT.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise UpstreamBroken("Upstream sent an event that is not a JSON object.") from None


def read_answer(body: bytes) -> Event:
    """The JSON object of a whole answer. Raises :class:`UpstreamBroken`."""
    try:
        answer = jsonvalue.read(body)
    except jsonvalue.Unreadable:
        raise UpstreamBroken("Upstream's answer is not JSON.") from None
    if not isinstance(answer, dict):
        raise UpstreamBroken("Upstream's answer is not a JSON object.")
    return answer


def read_message(body: bytes) -> Event:
    """The message in a JSON answer. Raises :class:`UpstreamError` where it is none."""
    message = read_answer(body)
    if not isinstance(message.get("content"), list):
        if is_error(message):
            raise stream_error(message)
        raise UpstreamBroken("Upstream's answer is not a message.")
    return message


def events_of(message: Event) -> Iterator[Event]:
    """The events that a stream of this ``message`` would have carried, one delta a block."""
    ending = {name: message[name] for name in ("stop_reason", "stop_sequence", "stop_details") if name in message}
    ending.setdefault("stop_reason", None)
    opening = {**message, "content": [], "stop_reason": None, "stop_sequence": None}
    yield {"type": "message_start", "message": opening}
    for index, block in enumerate(message["content"]):
        if not isinstance(block, dict) or not isinstance(block.get("type"), str):
            raise UpstreamBroken("Upstream's answer has a content block without a type.")
        start, deltas = _taken_apart(block)
        yield {"type": "content_block_start", "index": index, "content_block": start}
        for delta in deltas:
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    yield {"type": "message_delta", "delta": ending, "usage": message.get("usage") or {}}
    yield {"type": "message_stop"}


def _taken_apart(block: Event) -> tuple[Event, list[Event]]:
    """A whole block as its start and its deltas; a kind that is not known stays whole in its start."""
    match block:
        case {"type": "text", "text": str(text)}:
            return {**block, "text": ""}, [{"type": "text_delta", "text": text}]
        case {"type": "thinking", "thinking": str(thinking)}:
            deltas = [{"type": "thinking_delta", "thinking": thinking}]
            if isinstance(block.get("signature"), str):
                deltas.append({"type": "signature_delta", "signature": block["signature"]})
            return {**block, "thinking": "", "signature": ""}, deltas
        case {"type": "tool_use", "input": value}:
            piece = jsonvalue.write(value).decode()
            return {**block, "input": {}}, [{"type": "input_json_delta", "partial_json": piece}]
    return block, []
