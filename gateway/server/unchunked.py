"""An answer to HTTP/1.0, which knows no chunks: where nobody knows its length, the connection's end is its end."""

from uvicorn._types import ASGISendEvent
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from gateway.wire.headers import header


class UnchunkedAnswer:
    """In the place of the ``send`` of such a request. uvicorn closes its connection once it is answered."""

    def __init__(self, cycle: RequestResponseCycle) -> None:
        self._cycle = cycle
        self._send = cycle.send
        self._without_length = False

    async def send(self, message: ASGISendEvent) -> None:
        """Send it with no word of a length; each piece is all that uvicorn then expects."""
        if message["type"] == "http.response.start" and header(message.get("headers", ()), b"content-length") is None:
            self._without_length = True
            self._cycle.chunked_encoding = False
        elif message["type"] == "http.response.body" and self._without_length:
            self._cycle.expected_content_length = len(message.get("body", b""))
        await self._send(message)
