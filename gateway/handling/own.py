"""What the gateway answers itself, for probes, scrapers and the curious."""

import json
from importlib.metadata import version

from gateway.asgi import STOPPING
from gateway.errors import error_body, error_type
from gateway.handling.exchange import Exchange, Services
from gateway.handling.refuse import JSON, send_whole
from gateway.wire.headers import Headers

_METRICS: Headers = [(b"content-type", b"text/plain; version=1.0.0; charset=utf-8")]


async def name(exchange: Exchange, services: Services) -> None:
    """That a gateway is here, and which."""
    await send_json(exchange, {"name": "messages-gateway", "version": version("messages-gateway")})


async def health(exchange: Exchange, services: Services) -> None:
    """That the process runs."""
    await send_json(exchange, {"status": "ok"})


async def ready(exchange: Exchange, services: Services) -> None:
    """Whether it is of use to send requests here: 200, or 503 with the reason."""
    if STOPPING in exchange.scope["state"]:
        await _not_ready(exchange, "the gateway is being stopped")
        return
    if await services.upstream.is_ready():
        await send_json(exchange, {"status": "ready"})
    else:
        await _not_ready(exchange, "upstream cannot be reached, or says that it is not well")


async def metrics(exchange: Exchange, services: Services) -> None:
    """The figures of all worker processes, in Prometheus' text format."""
    services.ledger.flush()
    await send_whole(exchange.send, 200, _METRICS, services.metrics.render())


async def send_json(exchange: Exchange, value: object, status: int = 200) -> None:
    """Answer with a JSON value."""
    await send_whole(exchange.send, status, JSON, json.dumps(value, separators=(",", ":")).encode())


async def _not_ready(exchange: Exchange, why: str) -> None:
    await send_json(exchange, error_body(error_type(503), why, request_id=exchange.record.request_id), 503)
