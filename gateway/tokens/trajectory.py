"""The tokens behind a message, round by round: what a trainer rebuilds its sequence from."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from gateway.tokens.fields import TokenFields

TokenLogprob = tuple[float, int]
"""``(log-probability, token id)``: natural log, of the token that was sampled."""

_ID_BYTES = 36
"""An integer and its place in a list."""
_LOGPROB_BYTES = 116
"""A pair with its float and its integer, and its place in a list."""


@dataclass(slots=True)
class RoundTokens:
    """The tokens of one round.

    ``input_ids``: shape (P,), the prompt as the model saw it; None where upstream does not tell (LMDeploy).
    ``output_ids``: shape (N,), every token sampled, markup and end of turn included.
    ``output_token_logprobs``: N pairs, entry i for ``output_ids[i]``; None when not asked for.
    ``routed_experts``: as upstream gave it, None when not asked for. From vLLM: base64 of a ``.npy`` array of shape
    (P + N - 1, layers, experts per token), uint8 or uint16. Row i holds the experts that token i of prompt and output,
    joined, was routed to. There is one row fewer than tokens: the last one sampled was never fed back to the model.
    """

    input_ids: list[int] | None = None
    output_ids: list[int] = field(default_factory=list)
    output_token_logprobs: list[TokenLogprob] | None = None
    routed_experts: Any = None

    @property
    def size(self) -> int:
        """About how many bytes of memory the tokens take, those of a JSON answer's ``routed_experts`` aside."""
        ids = len(self.input_ids or ()) + len(self.output_ids)
        return _ID_BYTES * ids + _LOGPROB_BYTES * len(self.output_token_logprobs or ())

    def add(self, ids: Sequence[int], logprobs: Sequence[TokenLogprob] | None) -> None:
        """Append sampled tokens, with their log-probabilities where those were asked for."""
        self.output_ids.extend(ids)
        if logprobs is not None:
            if self.output_token_logprobs is None:
                self.output_token_logprobs = []
            self.output_token_logprobs.extend(logprobs)


@dataclass(slots=True)
class Trajectory:
    """The rounds of one turn, in order, hidden ones too."""

    rounds: list[RoundTokens] = field(default_factory=list)

    def add(self, tokens: RoundTokens) -> None:
        self.rounds.append(tokens)

    @property
    def output_ids(self) -> list[int]:
        """The sampled tokens of all rounds, joined."""
        return [token for tokens in self.rounds for token in tokens.output_ids]

    @property
    def output_token_logprobs(self) -> list[TokenLogprob]:
        """One pair for each of :attr:`output_ids`."""
        return [pair for tokens in self.rounds for pair in tokens.output_token_logprobs or ()]

    @property
    def routed_experts(self) -> Any:
        """The last round's: its prompt holds all the rounds before it."""
        return self.rounds[-1].routed_experts if self.rounds else None

    def on_message(self, asked: TokenFields) -> dict[str, Any]:
        """What a turn's JSON message carries: the token fields asked for, over all rounds, and ``rounds``."""
        carried: dict[str, Any] = {}
        if asked.return_token_ids:
            carried["output_ids"] = self.output_ids
        if asked.return_logprob:
            carried["output_token_logprobs"] = self.output_token_logprobs
        return carried | self.on_message_delta(asked)

    def on_message_delta(self, asked: TokenFields) -> dict[str, Any]:
        """What the ``message_delta`` of a turn's stream carries beside ``delta`` and ``usage``."""
        if not asked.returns_any:
            return {}
        carried: dict[str, Any] = {"routed_experts": self.routed_experts} if asked.return_routed_experts else {}
        return carried | {"rounds": self.as_json()}

    def as_json(self) -> list[dict[str, Any]]:
        """The ``rounds`` field of a message, or of a stream's ``message_delta``.

        An entry has ``input_ids``, ``output_ids``, ``output_token_logprobs`` and ``routed_experts`` (see
        :class:`RoundTokens`). Where its prompt does not begin with the tokens of the round before, because rendering
        the conversation again changed them, ``prefix_mismatch`` is the index in its ``input_ids`` of the first that
        differs.
        """
        entries: list[dict[str, Any]] = []
        before: RoundTokens | None = None
        for tokens in self.rounds:
            entry = {
                "input_ids": tokens.input_ids,
                "output_ids": tokens.output_ids,
                "output_token_logprobs": tokens.output_token_logprobs,
                "routed_experts": tokens.routed_experts,
            }
            mismatch = prefix_mismatch(before, tokens)
            if mismatch is not None:
                entry["prefix_mismatch"] = mismatch
            entries.append(entry)
            before = tokens
        return entries


def prefix_mismatch(before: RoundTokens | None, after: RoundTokens) -> int | None:
    """Where the prompt of ``after`` leaves the prompt and output of ``before``.

    The index in ``after.input_ids`` of the first token that differs (its length, if it is shorter); None where it
    begins with all of them, where there is no round before, or where upstream does not tell the prompts.
    """
    if before is None or before.input_ids is None or after.input_ids is None:
        return None
    expected = before.input_ids + before.output_ids
    if after.input_ids[: len(expected)] == expected:
        return None
    for position, (token, wanted) in enumerate(zip(after.input_ids, expected, strict=False)):
        if token != wanted:
            return position
    return len(after.input_ids)
