"""The gateway's own description, served at ``/openapi.json``: what it answers itself, and what it passes on."""

from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any

Operation = dict[str, Any]
"""What OpenAPI calls so: a method of a path, its parameters and its answers."""

_ERROR = {"$ref": "#/components/schemas/Error"}
_ANY_JSON: dict[str, Any] = {}
_KEY: list[dict[str, list[str]]] = [{}, {"api-key": []}, {"bearer": []}]


def describe(routes: Mapping[str, Mapping[str, Operation]], proxy_paths: Sequence[str]) -> dict[str, Any]:
    """An OpenAPI 3.1 document.

    ``routes`` are the operations of each path by method (lower-case), ``proxy_paths`` the globs that pass to upstream
    unread.
    """
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "messages-gateway",
            "version": version("messages-gateway"),
            "description": (
                "An async proxy for the Anthropic Messages API that runs the server side of tools. "
                f"These paths pass to upstream as they are: {', '.join(proxy_paths)}."
            ),
        },
        "paths": {**routes, "/v1/models/{model_id}": {"get": _MODEL}},
        "components": {
            "schemas": {
                "Error": {
                    "type": "object",
                    "required": ["type", "error"],
                    "properties": {
                        "type": {"const": "error"},
                        "error": {
                            "type": "object",
                            "required": ["type", "message"],
                            "properties": {"type": {"type": "string"}, "message": {"type": "string"}},
                        },
                    },
                }
            },
            "securitySchemes": {
                "api-key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
                "bearer": {"type": "http", "scheme": "bearer"},
            },
        },
    }


def _json(description: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"description": description, "content": {"application/json": {"schema": schema}}}


def _error(description: str) -> dict[str, Any]:
    return _json(description, _ERROR)


def own(summary: str, description: str, *, unwell: str | None = None) -> Operation:
    """A path that the gateway answers itself; ``unwell`` says what its 503 means, where it has one."""
    answers = {"200": _json(description, {"type": "object"})}
    if unwell is not None:
        answers["503"] = _error(unwell)
    return {"summary": summary, "responses": answers}


def bodiless(summary: str, description: str) -> Operation:
    """An answer of a head alone."""
    return {"summary": summary, "responses": {"200": {"description": description}}}


def forwarded(summary: str, description: str, *, stream: bool = False) -> Operation:
    """A path whose body and errors are upstream's to judge; ours are in the same envelope as Anthropic's."""
    content: dict[str, Any] = {"application/json": {"schema": _ANY_JSON}}
    if stream:
        content["text/event-stream"] = {"schema": {"type": "string"}}
    return {
        "summary": summary,
        "security": _KEY,
        "requestBody": {"required": True, "content": {"application/json": {"schema": {"type": "object"}}}},
        "responses": {
            "200": {"description": description, "content": content},
            "401": _json("A key is missing or wrong, the gateway's or upstream's", _ANY_JSON),
            "413": _error("The body is too large"),
            "502": _error("Upstream cannot be reached, or gave no whole answer"),
            "504": _error("Upstream stalled"),
            "default": _json("Upstream's own error, as it came, or one of the gateway's", _ANY_JSON),
        },
    }


METRICS: Operation = {
    "summary": "Metrics of all worker processes",
    "security": _KEY,
    "responses": {
        "200": {"description": "In Prometheus' text format", "content": {"text/plain": {"schema": {"type": "string"}}}},
        "401": _error("A gateway key is needed"),
    },
}

MODELS: Operation = {
    "summary": "List the models",
    "description": (
        "In Anthropic's shape for a request with anthropic-version (a page of 20 where no limit is given), else "
        "upstream's as it is, which may know no parameters."
    ),
    "security": _KEY,
    "parameters": [
        {"name": "anthropic-version", "in": "header", "schema": {"type": "string"}},
        {"name": "limit", "in": "query", "schema": {"type": "integer", "minimum": 1, "maximum": 1000}},
        {"name": "after_id", "in": "query", "schema": {"type": "string"}},
        {"name": "before_id", "in": "query", "schema": {"type": "string"}},
    ],
    "responses": {"200": _json("The models", {"type": "object"}), "default": _json("An error", _ANY_JSON)},
}

_MODEL: Operation = {
    "summary": "Describe one model",
    "description": "Of the paths that pass on, the one that is answered here, for a request with anthropic-version.",
    "security": _KEY,
    "parameters": [
        {"name": "model_id", "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}},
        {"name": "anthropic-version", "in": "header", "schema": {"type": "string"}},
    ],
    "responses": {"200": _json("The model", {"type": "object"}), "default": _json("An error", _ANY_JSON)},
}
