"""The model map and the token cap in force, applied to a request on its way to the model server."""

from typing import Literal

from gateway.aside import LARGE, aside
from gateway.model_server.server import ClientHeaders, ModelServer
from gateway.wire.rewrite import ModelMap, read_request


class ModelRules:
    """What an operator has changed of every request. ``cap`` ``auto`` is the window of the model that is asked for."""

    def __init__(self, names: ModelMap, cap: int | Literal["auto"] | None, server: ModelServer) -> None:
        self._names = names
        self._cap = cap
        self._server = server
        self.in_force = bool(names) or cap is not None

    async def apply(self, body: bytes, client: ClientHeaders) -> tuple[bytes, str | None]:
        """The body for upstream, and the client's model where the map changed it, else None.

        ``client`` are the request's headers, in case the server has to be asked for the model's window. Raises
        :class:`InvalidRequest` for a body that cannot be read here: see :func:`~gateway.wire.rewrite.read_request`.
        """
        request = await aside(read_request, body) if len(body) > LARGE else read_request(body)
        model = request.model and self._names.upstream_name(request.model)
        cap = self._cap
        if cap == "auto":
            cap = await self._server.window(model, client) if model and request.max_tokens is not None else None
        return request.rewritten(model, cap), request.model if model != request.model else None
