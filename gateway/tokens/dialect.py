"""Which server is upstream: does it speak the token fields itself, or must the gateway make the answer."""

from typing import Any, Literal

Dialect = Literal["vllm", "lmdeploy"]


def dialect_of(models: Any, version: Any = None) -> Dialect | None:
    """The dialect behind the answers to ``GET /v1/models`` and ``GET /version``, or None where they do not tell.

    Both are decoded JSON bodies of 200 answers, None for anything else. ``/v1/models`` (asked for without an
    ``anthropic-version`` header) is the better witness: each server puts its own name in ``owned_by``.
    """
    owners = {model.get("owned_by") for model in _models(models)}
    if "lmdeploy" in owners:
        return "lmdeploy"
    if "vllm" in owners:
        return "vllm"
    # vLLM alone of the two has this route.
    return "vllm" if isinstance(version, dict) and "version" in version else None


def _models(answer: Any) -> list[dict[str, Any]]:
    data = answer.get("data") if isinstance(answer, dict) else None
    return [model for model in data if isinstance(model, dict)] if isinstance(data, list) else []
