"""Which server is upstream: does it speak the token fields itself, or must the gateway make the answer."""

from collections.abc import Collection
from typing import Any, Literal

Dialect = Literal["vllm", "lmdeploy"]


def dialect_of(owners: Collection[str], version: Any = None) -> Dialect | None:
    """The dialect of a server, or None where what it says does not tell.

    ``owners`` are the ``owned_by`` of the models it lists (asked without an ``anthropic-version`` header): the better
    witness, for each server puts its own name there. ``version`` is the decoded JSON body of a 200 answer to
    ``GET /version``, None for anything else.
    """
    if "lmdeploy" in owners:
        return "lmdeploy"
    if "vllm" in owners:
        return "vllm"
    # vLLM alone of the two has this route.
    return "vllm" if isinstance(version, dict) and "version" in version else None
