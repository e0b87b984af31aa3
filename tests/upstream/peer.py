"""The other side of a connection, spoken byte by byte: a raw server that hands every connection to the test."""

import asyncio
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from gateway.upstream import Response

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


class Peer:
    """One accepted connection. ``number`` counts from 1."""

    def __init__(self, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.number = number
        self.reader = reader
        self.writer = writer

    async def head(self) -> bytes:
        """The next request's head, the empty line included."""
        return await self.reader.readuntil(b"\r\n\r\n")

    async def request(self) -> bytes:
        """The next request, whole."""
        head = await self.head()
        for line in head.split(b"\r\n"):
            if line.startswith(b"content-length: "):
                return head + await self.reader.readexactly(int(line.removeprefix(b"content-length: ")))
        return head

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def answer(self, data: bytes = OK) -> None:
        """Wait for a request, whole, and answer it."""
        await self.request()
        await self.send(data)

    async def gone(self) -> None:
        """Wait until the client has closed the connection, politely or not."""
        try:
            while await self.reader.read(65536):
                pass
        except ConnectionError:
            pass

    def reset(self) -> None:
        """Close with an RST."""
        raw: socket.socket = self.writer.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()


Talk = Callable[[Peer], Awaitable[None]]


class Server:
    """``accepted`` connections so far, and where they come in."""

    def __init__(self, talk: Talk) -> None:
        self._talk = talk
        self._tasks: list[asyncio.Task[None]] = []
        self.accepted = 0
        self.port = 0

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        self._tasks.append(asyncio.create_task(self._serve(Peer(self.accepted, reader, writer))))

    async def _serve(self, peer: Peer) -> None:
        try:
            await self._talk(peer)
        finally:
            peer.writer.close()

    async def finish(self) -> None:
        """End what still talks; raise what went wrong in a talk."""
        for task in self._tasks:
            task.cancel()
        for result in await asyncio.gather(*self._tasks, return_exceptions=True):
            if isinstance(result, Exception):
                raise result


@asynccontextmanager
async def serve(talk: Talk, *, host: str = "127.0.0.1", tls: ssl.SSLContext | None = None) -> AsyncIterator[Server]:
    """A server that has ``talk(peer)`` with every connection, and closes it when the talk is over.

    What hangs inside is a TimeoutError after ten seconds.
    """
    server = Server(talk)
    listener = await asyncio.start_server(server.connected, host, 0, ssl=tls)
    server.port = listener.sockets[0].getsockname()[1]
    try:
        async with asyncio.timeout(10):
            yield server
    finally:
        listener.close()
        await server.finish()


async def next_piece(response: Response) -> bytes:
    """The next piece of a body; empty at its end."""
    taken = []

    def take(piece: bytes) -> bool:
        taken.append(piece)
        return False

    await response.pass_to(take)
    return taken[0] if taken else b""
