"""Token-in, token-out, routed experts on ``/v1/messages``, without IO: data in, data out.

A request is read with :func:`read_token_fields`; a :class:`RoundTranslator` from :func:`translate_round` carries one
round of it to the upstream endpoint that has the tokens, and back; :class:`Trajectory` keeps the rounds of a turn.
"""

from gateway.tokens.answer import chunk_error
from gateway.tokens.dialect import Dialect, dialect_of
from gateway.tokens.fields import TokenFields, TokenProbe, asks_for_tokens, read_token_fields
from gateway.tokens.rounds import RoundTranslator, translate_round
from gateway.tokens.trajectory import RoundTokens, TokenLogprob, Trajectory, prefix_mismatch
from gateway.tokens.unfold import message_events

__all__ = [
    "Dialect",
    "RoundTokens",
    "RoundTranslator",
    "TokenFields",
    "TokenLogprob",
    "TokenProbe",
    "Trajectory",
    "asks_for_tokens",
    "chunk_error",
    "dialect_of",
    "message_events",
    "prefix_mismatch",
    "read_token_fields",
    "translate_round",
]
