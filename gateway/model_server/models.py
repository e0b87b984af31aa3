"""The models that a client can ask for, in the shape of Anthropic's list (``GET /v1/models``)."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from gateway.errors import InvalidRequest, NotFound
from gateway.model_server.listing import ServedModel
from gateway.wire.rewrite import ModelMap

DEFAULT_LIMIT = 20
MAX_LIMIT = 1000


def client_models(served: list[ServedModel], names: ModelMap) -> list[ServedModel]:
    """What a client can ask for: the served models, and the literal names of the map."""
    by_id = {model.id: model for model in served}
    for name in names.literals:
        if name not in by_id:
            target = by_id.get(names.upstream_name(name), ServedModel(name))
            by_id[name] = ServedModel(name, target.created, target.window)
    return list(by_id.values())


def model_info(model: ServedModel) -> dict[str, Any]:
    """Anthropic's ``ModelInfo``; what nobody knows of an open model is null."""
    return {
        "type": "model",
        "id": model.id,
        "display_name": model.id,
        "created_at": datetime.fromtimestamp(model.created, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "lifecycle": "active",
        "deprecated_at": None,
        "retires_at": None,
        "line": None,
        "capabilities": None,
        "max_input_tokens": model.window,
        "max_tokens": model.window,
    }


def model_page(models: list[ServedModel], query: Mapping[str, str]) -> dict[str, Any]:
    """One page of Anthropic's list: ``limit`` (1 to 1000, 20 if absent), ``after_id`` or ``before_id``.

    An id that is not listed gives an empty page. Raises :class:`InvalidRequest` for a limit that is none.
    """
    limit = query.get("limit", str(DEFAULT_LIMIT))
    if not (limit.isascii() and limit.isdigit() and 1 <= int(limit[:9]) <= MAX_LIMIT):
        raise InvalidRequest(f"limit: must be a number from 1 to {MAX_LIMIT}")
    size = int(limit)
    ids = [model.id for model in models]
    after, before = query.get("after_id"), query.get("before_id")
    if after:
        rest = models[ids.index(after) + 1 :] if after in ids else []
        page, more = rest[:size], len(rest) > size
    elif before:
        rest = models[: ids.index(before)] if before in ids else []
        page, more = rest[-size:], len(rest) > size
    else:
        page, more = models[:size], len(models) > size
    return {
        "data": [model_info(model) for model in page],
        "has_more": more,
        "first_id": page[0].id if page else None,
        "last_id": page[-1].id if page else None,
    }


def find_model(models: list[ServedModel], model_id: str) -> dict[str, Any]:
    """The ``ModelInfo`` of one model. Raises :class:`NotFound`."""
    for model in models:
        if model.id == model_id:
            return model_info(model)
    raise NotFound(f"model: {model_id}")
