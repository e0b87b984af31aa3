"""What a ``/v1/messages`` request asks of the gateway: nothing, a turn, tokens, or both."""

from dataclasses import dataclass
from typing import Any, NamedTuple

from gateway.errors import InvalidRequest
from gateway.tokens import TokenFields, read_token_fields
from gateway.turn import Turn, TurnRules, jsonvalue, look, read_ours


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
    """What a request asks for; with neither it passes through as it is, with both it is a turn whose tokens count."""

    turn: Turn | None
    tokens: TokenRequest | None


def classify(body: bytes, rules: TurnRules, model: str | None = None) -> Asked:
    """Read a body just as far as it takes to tell. ``model`` is as for :func:`gateway.turn.read_turn`.

    Raises :class:`~gateway.errors.InvalidRequest` for a token field that is unsound, and for what must be read and
    cannot.
    """
    ours, in_tokens = look(body, rules.kinds, rules.aliases)
    tokens = _read_tokens(body) if in_tokens else None
    request = read_ours(body, rules) if ours else None
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
