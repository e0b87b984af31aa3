"""What a ``/v1/messages`` request asks of the gateway: nothing, a turn, tokens, or both."""

from dataclasses import dataclass
from typing import Any, NamedTuple

from gateway.errors import InvalidRequest, ThreadUnsupported
from gateway.tokens import TokenFields, read_token_fields
from gateway.turn import Holds, Mode, Turn, TurnRules, jsonvalue, look, read_ours, translate_body


@dataclass(frozen=True, slots=True)
class TokenRequest:
    """A request that uses token fields. ``body`` is the whole of it, decoded."""

    fields: TokenFields
    body: dict[str, Any]

    @property
    def stream(self) -> bool:
        """Whether the client wants a stream."""
        return self.body.get("stream") is True


class Asked(NamedTuple):
    """What a request asks for; with neither it passes through, with both it is a turn whose tokens count."""

    turn: Turn | None
    tokens: TokenRequest | None


def classify(
    body: bytes, rules: TurnRules, model: str | None = None, holds: Holds | None = None, mode: Mode = "expand"
) -> Asked:
    """Read a body just as far as it takes to tell. ``model`` is as for :func:`gateway.turn.read_turn`.

    ``holds`` is what was found in it, if that was looked for already; ``mode`` is what upstream is given of deferred
    tools. Raises :class:`~gateway.errors.InvalidRequest` for a token field that is unsound, and for what must be read
    and cannot, and :class:`~gateway.errors.ThreadUnsupported`: an upstream that ignores the field would answer the last
    messages of a conversation as if they were all.
    """
    holds = holds or look(body, rules.kinds, rules.aliases)
    if holds.thread:
        raise ThreadUnsupported("thread: conversations are not held here; send all the messages, and no thread")
    tokens = _read_tokens(body) if holds.tokens else None
    request = read_ours(body, rules, mode if holds.deferred else None) if holds.ours else None
    if request is None and tokens is not None and holds.deferred:
        tokens = _read_tokens(translate_body(body, holds, rules, mode) or body)
    return Asked(None if request is None else Turn(request, model), tokens)


def _read_tokens(body: bytes) -> TokenRequest | None:
    if jsonvalue.read_fields(body) is None:
        return None  # not UTF-8 after all
    try:
        whole = jsonvalue.read(body)
    except jsonvalue.Unreadable as error:
        raise InvalidRequest(f"the request cannot be read: {error}") from None
    fields = read_token_fields(whole)
    return None if fields is None else TokenRequest(fields, whole)
