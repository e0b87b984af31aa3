"""Token ids on the deltas of a token request, on their way to the client.

Those of a block that is shown reach the client once each, in order: on the delta they came with, or, where that is not
shown as it came, on the block's next one. Ids of white space that is dropped go with the block after it, for they can
be the markup of a call. Ids of a hidden call, and of white space before one or at a round's end, are not on any delta:
``rounds`` has them.
"""

from collections.abc import Mapping
from typing import Any

Tokens = dict[str, list[Any]]
"""Token fields beside a delta's ``index``."""

TOKEN_FIELDS = ("output_ids", "output_token_logprobs")
"""Lists, one entry a sampled token each."""

EMPTY_DELTAS = {
    "text": {"type": "text_delta", "text": ""},
    "thinking": {"type": "thinking_delta", "thinking": ""},
    "tool_use": {"type": "input_json_delta", "partial_json": ""},
}
"""By kind of block: a delta that adds nothing."""


class Waiting:
    """Token fields of deltas that are not shown as they came: the next visible delta carries them."""

    __slots__ = ("tokens",)

    def __init__(self) -> None:
        self.tokens: Tokens = {}

    def take(self, event: Mapping[str, Any] | None) -> None:
        """The token fields of one delta, where it was decoded, or of others that waited."""
        if not event:
            return
        for name in TOKEN_FIELDS:
            value = event.get(name)
            if isinstance(value, list):
                self.tokens.setdefault(name, []).extend(value)

    def leave(self) -> Tokens:
        """All that wait, for the delta that carries them."""
        tokens = self.tokens
        if tokens:
            self.tokens = {}
        return tokens
