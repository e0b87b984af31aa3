"""Where a cassette comes from: what the upstream says of itself."""

from datetime import UTC, datetime
from typing import Any

import httpx

from recorder.cassette import Json
from recorder.errors import RecordingError


def provenance(client: httpx.Client, model: str | None, how: str) -> dict[str, Json]:
    """The ``recorded`` field of a cassette. Raises RecordingError where the upstream cannot be reached.

    What the upstream does not tell is left out. ``max_model_len`` and ``owned_by`` are vLLM's own fields of a model.
    """
    version = _get(client, "/version").get("version")
    listed = _get(client, "/v1/models").get("data")
    models = [item for item in listed if isinstance(item, dict)] if isinstance(listed, list) else []
    found = [item for item in models if item.get("id") == model] if model else models
    facts = found[0] if len(found) == 1 else {}
    fields = {
        "at": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "server": facts.get("owned_by"),
        "version": version,
        "model": model or facts.get("id"),
        "max_model_len": facts.get("max_model_len"),
        "how": how,
    }
    return {name: value for name, value in fields.items() if value is not None}


def _get(client: httpx.Client, path: str) -> dict[str, Any]:
    try:
        answer = client.get(path)
        value = answer.json()
    except httpx.TransportError as error:
        raise RecordingError(f"cannot reach the upstream: {error}") from error
    except ValueError:
        return {}
    return value if answer.is_success and isinstance(value, dict) else {}
