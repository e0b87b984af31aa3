"""The routes: one row each, which the application, its log, its metrics and its description go by."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal

from gateway import openapi
from gateway.handling import messages, models, own
from gateway.handling.exchange import Exchange, Services
from gateway.openapi import Operation

Handler = Callable[[Exchange, Services], Awaitable[None]]
"""Answers a request. Raises :class:`gateway.errors.RequestError` where nothing has been sent yet."""


@dataclass(frozen=True, slots=True)
class Route:
    """One row.

    ``path`` is matched as it is, and is the request's name in the log and the metrics. ``method`` GET answers HEAD too.
    ``described`` is what ``/openapi.json`` says of it, and ``head`` of its HEAD. ``needs_key`` counts where keys are
    set. ``quiet``: probes ask it all day, and the log shows it at debug level alone. ``any_host``: it answers whatever
    name it is asked by. ``forwards``: upstream has the path too, and answers a browser's question whether it may ask.
    """

    method: Literal["GET", "POST"]
    path: str
    handler: Handler
    described: Operation
    head: Operation | None = None
    needs_key: bool = True
    quiet: bool = False
    any_host: bool = False
    forwards: bool = False


async def _describe(exchange: Exchange, services: Services) -> None:
    await own.send_json(exchange, openapi.describe(operations(), services.settings.proxy_paths))


MESSAGES = Route(
    "POST",
    "/v1/messages",
    messages.messages,
    openapi.forwarded("Create a message", "A message, or its events", stream=True),
    forwards=True,
)

ROUTES = (
    MESSAGES,
    Route(
        "POST",
        "/v1/messages/count_tokens",
        messages.count_tokens,
        openapi.forwarded("Count a request's tokens", "The count"),
        forwards=True,
    ),
    Route("GET", "/v1/models", models.models, openapi.MODELS, forwards=True),
    Route(
        "GET",
        "/",
        own.name,
        openapi.own("Tell that a gateway is here", "Its name and version"),
        head=openapi.bodiless("The same without a body", "A gateway is here"),
        needs_key=False,
        quiet=True,
        any_host=True,
    ),
    Route(
        "GET",
        "/api/hello",
        own.name,
        openapi.own("The same, where Claude Code asks", "Its name and version"),
        head=openapi.bodiless("The same without a body", "A gateway is here"),
        needs_key=False,
        quiet=True,
    ),
    Route(
        "GET",
        "/health",
        own.health,
        openapi.own("Tell that the process runs", "It does"),
        needs_key=False,
        quiet=True,
        any_host=True,
    ),
    Route(
        "GET",
        "/ready",
        own.ready,
        openapi.own("Tell whether upstream can be reached", "It can", unwell="It cannot"),
        needs_key=False,
        quiet=True,
        any_host=True,
    ),
    Route("GET", "/metrics", own.metrics, openapi.METRICS, quiet=True),
    Route(
        "GET",
        "/openapi.json",
        _describe,
        openapi.own("Describe the gateway", "This document"),
        needs_key=False,
    ),
)

BY_PATH = {route.path: route for route in ROUTES}


def operations() -> dict[str, dict[str, Operation]]:
    """What the description says of each path, by method."""
    return {
        route.path: {route.method.lower(): route.described, **({"head": route.head} if route.head else {})}
        for route in ROUTES
    }
