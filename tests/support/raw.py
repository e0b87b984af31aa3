"""A client that sends the bytes it is told and shows the bytes it got: for what an HTTP library would not do."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RawClient:
    """One connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def head(self) -> bytes:
        """A response head, the blank line included."""
        return await asyncio.wait_for(self.reader.readuntil(b"\r\n\r\n"), 5)

    async def until(self, end: bytes) -> bytes:
        """What comes up to and with ``end``."""
        return await asyncio.wait_for(self.reader.readuntil(end), 5)

    async def rest(self) -> bytes:
        """All that comes until the connection is closed."""
        return await asyncio.wait_for(self.reader.read(), 5)

    def leave(self) -> None:
        """Drop the connection."""
        self.writer.transport.abort()


@asynccontextmanager
async def raw_client(port: int) -> AsyncIterator[RawClient]:
    """A connection to a port of this machine."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield RawClient(reader, writer)
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


def post(body: bytes, target: str = "/v1/messages", *headers: str) -> bytes:
    """A POST request of JSON."""
    fields = ["Host: gateway", "Content-Type: application/json", f"Content-Length: {len(body)}", *headers]
    lines = [f"POST {target} HTTP/1.1", *fields]
    return ("\r\n".join(lines) + "\r\n\r\n").encode() + body
