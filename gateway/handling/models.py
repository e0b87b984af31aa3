"""``/v1/models``: for a client that asks as Anthropic's do, the list in their shape; else upstream's as it is."""

import json
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qsl

from gateway.handling.ask import Round
from gateway.handling.exchange import Exchange, Services
from gateway.handling.proxy import proxy
from gateway.handling.refuse import JSON, send_whole
from gateway.model_server.listing import ServedModel
from gateway.model_server.models import client_models, find_model, model_page
from gateway.wire.headers import header, response_headers


async def models(exchange: Exchange, services: Services) -> None:
    """The list, or a page of it."""
    if wants_anthropic(exchange):
        query = dict(parse_qsl(exchange.scope["query_string"].decode("latin-1"), keep_blank_values=True))
        await _answer(exchange, services, lambda served: model_page(served, query))
    else:
        await proxy(exchange, services)


async def one_model(exchange: Exchange, services: Services, model_id: str) -> None:
    """One of the list, in Anthropic's shape."""
    await _answer(exchange, services, lambda served: find_model(served, model_id))


def wants_anthropic(exchange: Exchange) -> bool:
    """Whether the client is one of Anthropic's API."""
    return header(exchange.scope["headers"], b"anthropic-version") is not None


async def _answer(exchange: Exchange, services: Services, view: Callable[[list[ServedModel]], dict[str, Any]]) -> None:
    with Round(exchange, services, exchange.target) as round_:
        listing = await services.upstream.list_models(exchange.scope["headers"])
        round_.head(listing.status)
    exchange.record.is_called(header(listing.headers, b"request-id"))
    if listing.status == 200:
        body = json.dumps(view(client_models(listing.served(), services.names))).encode()
        await send_whole(exchange.send, 200, JSON, body)
    else:
        await send_whole(exchange.send, listing.status, response_headers(listing.headers), listing.body)
