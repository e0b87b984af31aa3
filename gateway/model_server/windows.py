"""The model map and the token cap in force, and the windows of upstream's models behind ``--max-tokens-cap auto``."""

import asyncio
import time
from collections.abc import Callable
from typing import Literal

from gateway.errors import UpstreamError
from gateway.model_server.models import ask, read_list
from gateway.upstream import Headers, Upstream
from gateway.wire.rewrite import ModelMap, read_request


class Windows:
    """The context windows of upstream's models: asked for once, and again when a model is not among them.

    Upstream is then asked at most once in ``RETRY_S``, whatever clients name. ``clock`` gives seconds.
    """

    RETRY_S = 10.0
    TIMEOUT_S = 10.0

    def __init__(self, upstream: Upstream, clock: Callable[[], float] = time.monotonic) -> None:
        self._upstream = upstream
        self._clock = clock
        self._lock = asyncio.Lock()
        self._windows: dict[str, int | None] = {}
        self._asked_at = float("-inf")

    async def of(self, model: str, headers: Headers) -> int | None:
        """The window of an upstream model in tokens, None where it is not known.

        ``headers`` are those to ask with: they hold the credentials, where upstream wants some.
        """
        if model not in self._windows:
            async with self._lock:
                if model not in self._windows and self._clock() - self._asked_at >= self.RETRY_S:
                    await self._ask(headers)
        return self._windows.get(model)

    async def _ask(self, headers: Headers) -> None:
        try:
            async with asyncio.timeout(self.TIMEOUT_S):
                status, _, body = await ask(self._upstream, headers)
            if status == 200:
                self._windows = {model.id: model.window for model in read_list(body)}
        except (UpstreamError, TimeoutError):
            status = 0
        if status not in (401, 403):  # one client's bad credentials say nothing about the next
            self._asked_at = self._clock()


class ModelRules:
    """The model map and the token cap in force, applied to a request on its way upstream."""

    def __init__(self, names: ModelMap, cap: int | Literal["auto"] | None, windows: Windows) -> None:
        self._names = names
        self._cap = cap
        self._windows = windows
        self.in_force = bool(names) or cap is not None

    async def apply(self, body: bytes, headers: Headers) -> tuple[bytes, str | None]:
        """The body for upstream, and the client's model where the map changed it, else None.

        ``headers`` are the request's for upstream, in case upstream has to be asked for the model's window.
        """
        request = read_request(body)
        if request is None:
            return body, None
        model = request.model and self._names.upstream_name(request.model)
        cap = self._cap
        if cap == "auto":
            cap = await self._windows.of(model, headers) if model and request.max_tokens is not None else None
        return request.rewritten(model, cap), request.model if model != request.model else None
