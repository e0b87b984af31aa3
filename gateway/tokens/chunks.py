"""What the streams of vLLM's chat and completions endpoints have in common: how one begins, fails and ends."""

from abc import ABC, abstractmethod
from typing import Any

from gateway.errors import UpstreamBroken
from gateway.tokens.answer import NO_TOKEN_IDS, chunk_error, usage_of
from gateway.tokens.blocks import BlockWriter
from gateway.tokens.fields import TokenFields
from gateway.tokens.trajectory import RoundTokens

Json = dict[str, Any]


class ChunkStream(ABC):
    """Chunks in, events out; one object a round. ``tokens`` are the round's, as far as they have come."""

    def __init__(self, fields: TokenFields) -> None:
        self.tokens = RoundTokens(input_ids=fields.input_ids)
        self._fields = fields
        self._writer = BlockWriter(fields)
        self._started = self._over = False
        self._finish: Json = {"finish_reason": "stop"}

    def events(self, chunk: Json) -> list[Json]:
        """The events of one chunk."""
        if self._over:
            return []
        failed = chunk_error(chunk)
        if failed is not None:
            self._over = True
            return [failed[1]]
        if not self._started:
            self._started = True
            return self._start(chunk)
        return self._go_on(chunk)

    def end(self) -> list[Json]:
        """``[DONE]`` came. Raises :class:`~gateway.errors.UpstreamBroken` if the message had not ended."""
        if not self._over:
            raise UpstreamBroken("upstream's stream ended before its message did")
        return []

    def _go_on(self, chunk: Json) -> list[Json]:
        """A choice's part, or, in a chunk without one, the usage with which the message ends."""
        if choices := chunk.get("choices"):
            if choices[0].get("finish_reason") is not None:
                self._finish = choices[0]
            return self._choice(choices[0])
        self._over = True
        usage = usage_of(chunk.get("usage"))
        if usage["output_tokens"] and not self.tokens.output_ids:
            raise UpstreamBroken(NO_TOKEN_IDS)
        return [*self._stop(usage), {"type": "message_stop"}]

    @abstractmethod
    def _start(self, chunk: Json) -> list[Json]:
        """The first chunk: the message starts."""

    @abstractmethod
    def _choice(self, choice: Json) -> list[Json]:
        """What one choice adds."""

    @abstractmethod
    def _stop(self, usage: Json) -> list[Json]:
        """The message ends."""
