"""httpx on the gateway's own connections: the way of a search to its provider.

httpx's own way, httpcore and h11, costs a millisecond of the processor for a request, more than a whole turn besides.
It stays the way through a proxy.
"""

from collections.abc import AsyncIterator
from urllib.request import getproxies, proxy_bypass

import httpx

from gateway.errors import UpstreamBroken, UpstreamTimeout, UpstreamUnreachable
from gateway.upstream import Response, Upstream

_WRITTEN_HERE = frozenset({b"host", b"content-length", b"transfer-encoding", b"connection"})
_NEVER_S = 86_400.0


def transport_to(url: str, *, connect_timeout_s: float) -> httpx.AsyncBaseTransport | None:
    """How an ``AsyncClient`` reaches the origin of ``url``; None, httpx's own way, where a proxy is set for it."""
    parsed = httpx.URL(url)
    proxied = getproxies().keys() & {parsed.scheme, "all"} and not proxy_bypass(parsed.host)
    return None if proxied else DirectTransport(parsed, connect_timeout_s)


class DirectTransport(httpx.AsyncBaseTransport):
    """Reaches one origin. An answer is not waited for longer than its reader does; a redirect is an answer."""

    def __init__(self, url: httpx.URL, connect_timeout_s: float) -> None:
        self._upstream = Upstream(
            f"{url.scheme}://{url.netloc.decode('ascii')}",
            connect_timeout_s=connect_timeout_s,
            first_byte_timeout_s=_NEVER_S,
            idle_timeout_s=_NEVER_S,
            max_idle_connections=16,
            ssl_context=httpx.create_ssl_context() if url.scheme == "https" else None,
        )

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """As httpx asks it to. Raises its ``ConnectTimeout``, ``ConnectError`` and ``RemoteProtocolError``."""
        headers = [(name.lower(), value) for name, value in request.headers.raw if name.lower() not in _WRITTEN_HERE]
        target = request.url.raw_path.decode("ascii")
        try:
            response = await self._upstream.request(request.method, target, headers, await request.aread())
        except UpstreamTimeout as error:
            raise httpx.ConnectTimeout(str(error), request=request) from error
        except UpstreamUnreachable as error:
            raise httpx.ConnectError(str(error), request=request) from error
        except UpstreamBroken as error:
            raise httpx.RemoteProtocolError(str(error), request=request) from error
        return httpx.Response(response.status, headers=response.headers, stream=_Body(response))

    async def aclose(self) -> None:
        await self._upstream.aclose()


class _Body(httpx.AsyncByteStream):
    def __init__(self, response: Response) -> None:
        self._response = response

    async def __aiter__(self) -> AsyncIterator[bytes]:
        pieces: list[bytes] = []

        def take(piece: bytes) -> bool:
            pieces.append(piece)
            return False

        try:
            while not self._response.ended:
                await self._response.pass_to(take)
                if pieces:
                    yield pieces.pop()
        except UpstreamBroken as error:
            raise httpx.RemoteProtocolError(str(error)) from error

    async def aclose(self) -> None:
        self._response.close()
