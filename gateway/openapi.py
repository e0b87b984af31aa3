"""The gateway's own description, served at ``/openapi.json``: what it answers itself, and what it passes on."""

from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

_ERROR = {"$ref": "#/components/schemas/Error"}
_ANY_JSON: dict[str, Any] = {}
_KEY: list[dict[str, list[str]]] = [{}, {"api-key": []}, {"bearer": []}]


def describe(proxy_paths: Sequence[str]) -> dict[str, Any]:
    """An OpenAPI 3.1 document; ``proxy_paths`` are the globs that pass to upstream unread."""
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
        "paths": {
            "/v1/messages": {"post": _forwarded("Create a message", "A message, or its events", stream=True)},
            "/v1/messages/count_tokens": {"post": _forwarded("Count a request's tokens", "The count")},
            "/v1/models": {"get": _models()},
            "/v1/models/{model_id}": {"get": _model()},
            "/": {"get": _own("Tell that a gateway is here", "Its name and version"), "head": _probe()},
            "/health": {"get": _own("Tell that the process runs", "It does")},
            "/ready": {
                "get": _own("Tell whether upstream can be reached", "It can", {"503": _error("It cannot")}),
            },
            "/metrics": {"get": _metrics()},
            "/openapi.json": {"get": _own("Describe the gateway", "This document")},
        },
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


def _own(summary: str, description: str, more: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"summary": summary, "responses": {"200": _json(description, {"type": "object"}), **(more or {})}}


def _probe() -> dict[str, Any]:
    return {"summary": "The same without a body", "responses": {"200": {"description": "A gateway is here"}}}


def _metrics() -> dict[str, Any]:
    answers = {
        "200": {"description": "In Prometheus' text format", "content": {"text/plain": {"schema": {"type": "string"}}}},
        "401": _error("A gateway key is needed"),
    }
    return {"summary": "Metrics of all worker processes", "security": _KEY, "responses": answers}


def _forwarded(summary: str, description: str, *, stream: bool = False) -> dict[str, Any]:
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


def _models() -> dict[str, Any]:
    return {
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


def _model() -> dict[str, Any]:
    return {
        "summary": "Describe one model",
        "security": _KEY,
        "parameters": [
            {"name": "model_id", "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}},
            {"name": "anthropic-version", "in": "header", "schema": {"type": "string"}},
        ],
        "responses": {"200": _json("The model", {"type": "object"}), "default": _json("An error", _ANY_JSON)},
    }
