"""The list of models as model servers give it: ``GET /v1/models`` in OpenAI's shape, with what vLLM adds to it."""

import json
from dataclasses import dataclass
from typing import Any

from gateway.errors import UpstreamBroken
from gateway.wire.headers import Headers


@dataclass(frozen=True, slots=True)
class ServedModel:
    """One entry of the list. What the server does not say is 0, None or empty.

    ``created`` is in seconds since 1970, ``window`` the context length in tokens (vLLM's ``max_model_len``), ``owner``
    the kind of server (``owned_by``: ``vllm``, ``lmdeploy``), ``root`` the repository or folder that vLLM loaded.
    """

    id: str
    created: float = 0
    window: int | None = None
    owner: str = ""
    root: str = ""


@dataclass(frozen=True, slots=True)
class Listing:
    """An answer to ``GET /v1/models``. ``models`` is None where it holds no list: another status, or another body."""

    status: int
    headers: Headers
    body: bytes
    models: list[ServedModel] | None

    def served(self) -> list[ServedModel]:
        """The models. Raises :class:`UpstreamBroken` where there is no list of them."""
        if self.models is None:
            raise UpstreamBroken("upstream's /v1/models is no list of models")
        return self.models

    @property
    def refused(self) -> bool:
        """Whether it was the credentials that were not accepted, which says nothing about the server."""
        return self.status in (401, 403)


def read_listing(status: int, headers: Headers, body: bytes) -> Listing:
    """What upstream answered."""
    return Listing(status, headers, body, _read_models(body) if status == 200 else None)


def _read_models(body: bytes) -> list[ServedModel] | None:
    """The models of a 200 answer. A LoRA adapter without a window has its parent's."""
    try:
        entries = json.loads(body)["data"]
        entries = [entry for entry in entries if isinstance(entry, dict) and isinstance(entry.get("id"), str)]
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    windows = {entry["id"]: entry.get("max_model_len") for entry in entries}
    return [_model(entry, windows.get(str(entry.get("parent")))) for entry in entries]


def _model(entry: dict[str, Any], parents_window: object) -> ServedModel:
    window = entry.get("max_model_len") or parents_window
    created = entry.get("created")
    return ServedModel(
        entry["id"],
        created if isinstance(created, int | float) and 0 <= created < 1e11 else 0,
        window if isinstance(window, int) and window > 0 else None,
        _text(entry, "owned_by"),
        _text(entry, "root"),
    )


def _text(entry: dict[str, Any], name: str) -> str:
    value = entry.get(name)
    return value if isinstance(value, str) else ""
