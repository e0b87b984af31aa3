"""The paths that have no row in the table of routes, and pass to upstream where the operator lists them."""

from gateway.errors import MethodNotAllowed, NotFound
from gateway.handling.exchange import Exchange, Services
from gateway.handling.models import one_model, wants_anthropic
from gateway.handling.proxy import proxy


async def pass_on(exchange: Exchange, services: Services) -> None:
    """Answer with what upstream answers. Raises :class:`NotFound` for a path that is not listed."""
    path, method = exchange.scope["path"], exchange.scope["method"]
    if not services.proxied.match(path):
        raise NotFound("there is nothing at this path")
    if method == "TRACE":  # its answer is the request, the key for upstream with it
        raise MethodNotAllowed("TRACE is not passed on", headers=((b"allow", b"GET, HEAD, POST, PUT, DELETE"),))
    exchange.record.is_for("proxied")
    model_id = path.removeprefix("/v1/models/")
    if model_id != path and method == "GET" and wants_anthropic(exchange):
        await one_model(exchange, services, model_id)
    else:
        await proxy(exchange, services)
