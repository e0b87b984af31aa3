"""Which server is upstream, asked once (``--upstream-dialect auto``): the first token request needs to know."""

import asyncio
from typing import Any, Literal

from gateway.errors import UpstreamError
from gateway.tokens import Dialect, dialect_of
from gateway.turn import jsonvalue
from gateway.upstream import Headers, Upstream


class UpstreamDialect:
    """What upstream speaks: as the operator says, or as upstream's own answers tell.

    A server that does not tell is taken for vLLM. That is remembered too, but nothing is where upstream cannot be
    reached, is unwell, or refuses this client's credentials.
    """

    TIMEOUT_S = 10.0

    def __init__(self, setting: Literal["auto", "vllm", "lmdeploy"], upstream: Upstream) -> None:
        self._upstream = upstream
        self._lock = asyncio.Lock()
        self._known: Dialect | None = None if setting == "auto" else setting

    async def find(self, headers: Headers) -> Dialect:
        """The dialect. ``headers`` are those to ask with: they hold the credentials, where upstream wants some."""
        if self._known is None:
            async with self._lock:
                if self._known is None:
                    self._known = await self._ask(headers)
        return self._known or "vllm"

    async def _ask(self, headers: Headers) -> Dialect | None:
        """The dialect to be remembered, None where upstream cannot be asked now."""
        try:
            async with asyncio.timeout(self.TIMEOUT_S):
                models = await self._get("/v1/models", headers)
                return dialect_of(models) or dialect_of(models, await self._get("/version", headers)) or "vllm"
        except (UpstreamError, TimeoutError):
            return None  # the request itself will tell the client what is wrong

    async def _get(self, path: str, headers: Headers) -> Any:
        """The decoded body of a 200 answer, None for another; raises where it says nothing about the server."""
        response = await self._upstream.request("GET", path, headers)
        try:
            if response.status in (401, 403) or response.status >= 500:
                raise UpstreamError(f"upstream answered {response.status}")
            return jsonvalue.read(await response.read()) if response.status == 200 else None
        except jsonvalue.Unreadable:
            return None
        finally:
            response.close()
