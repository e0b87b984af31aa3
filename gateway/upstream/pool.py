"""The connections to one origin: opening them, keeping idle ones for the next request, ending those that stall."""

import asyncio
import os
import socket
import ssl

from gateway.errors import UpstreamBroken, UpstreamTimeout, UpstreamUnreachable
from gateway.upstream.connection import Connection
from gateway.upstream.origin import Origin

_LONGEST_TICK_S = 1.0


class Pool:
    """``connections`` are all there are, ``kept`` the idle ones, the longest idle first.

    Idle connections are used last in, first out, so that those a quiet hour does not need expire.

    Timeouts are looked after by one timer for all connections, which runs while there are any. It ticks four times
    in the shortest timeout, and at least once a second: a timeout comes at most that much late.
    """

    def __init__(
        self,
        origin: Origin,
        *,
        connect_timeout_s: float,
        first_byte_timeout_s: float,
        idle_timeout_s: float,
        keep_alive_s: float,
        max_idle: int,
        ssl_context: ssl.SSLContext | None,
    ) -> None:
        self._origin = origin
        self._connect_timeout_s = connect_timeout_s
        self._first_byte_timeout_s = first_byte_timeout_s
        self._idle_timeout_s = idle_timeout_s
        self._keep_alive_s = keep_alive_s
        self._max_idle = max_idle
        self._ssl_context = (ssl_context or ssl.create_default_context()) if origin.tls else None
        self.connections: set[Connection] = set()
        self.kept: list[Connection] = []
        self._tick_s = min(_LONGEST_TICK_S, first_byte_timeout_s / 4, idle_timeout_s / 4, keep_alive_s / 4)
        self._timer: asyncio.TimerHandle | None = None
        self._closing = False
        self._emptied: asyncio.Future[None] | None = None

    def take(self) -> Connection | None:
        """An idle connection that looks alive."""
        while self.kept:
            connection = self.kept.pop()
            if connection.is_closing():
                continue
            if connection.loop.time() - connection.idle_since < self._keep_alive_s:
                return connection
            connection.drop()
        return None

    async def connect(self) -> Connection:
        """A new connection. Raises UpstreamUnreachable and UpstreamTimeout (``connect``)."""
        loop = asyncio.get_running_loop()
        if self._closing:
            raise _closing()
        origin = self._origin
        made: list[Connection] = []

        def make() -> Connection:
            made.append(Connection(loop, self))
            return made[-1]

        try:
            async with asyncio.timeout(self._connect_timeout_s):
                _, connection = await loop.create_connection(
                    make,
                    origin.host,
                    origin.port,
                    ssl=self._ssl_context,
                    server_hostname=origin.host if origin.tls else None,
                )
                made.clear()
        except TimeoutError as error:
            text = f"no connection to upstream within {self._connect_timeout_s:g} s"
            raise UpstreamTimeout(text, stage="connect") from error
        except OSError as error:
            raise UpstreamUnreachable(f"cannot connect to upstream: {_reason(error)}") from error
        finally:
            # Cancelled in the moment in which it was made: uvloop closes it without a word to it.
            for unused in self.connections.intersection(made):
                unused.drop()
                self.closed(unused)
        if self._closing:
            connection.drop()
            raise _closing()
        if connection.is_closing():
            raise UpstreamUnreachable("upstream closed the connection as soon as it was open")
        return connection

    async def aclose(self) -> None:
        """End every connection, those in use too, and wait until they are gone."""
        self._closing = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.kept.clear()
        for connection in self.connections:
            connection.abort(UpstreamBroken("the gateway closed its connections"))
        if self.connections:
            self._emptied = self._emptied or asyncio.get_running_loop().create_future()
            await asyncio.shield(self._emptied)

    # What a connection tells its keeper

    def opened(self, connection: Connection) -> None:
        self.connections.add(connection)
        if self._timer is None and not self._closing:
            self._timer = connection.loop.call_later(self._tick_s, self._tick, connection.loop)

    def idle(self, connection: Connection) -> None:
        if len(self.kept) < self._max_idle and not self._closing:
            self.kept.append(connection)
        else:
            connection.drop()

    def closed(self, connection: Connection) -> None:
        self.connections.discard(connection)
        if connection in self.kept:
            self.kept.remove(connection)
        if self._emptied is not None and not self.connections and not self._emptied.done():
            self._emptied.set_result(None)

    def _tick(self, loop: asyncio.AbstractEventLoop) -> None:
        now = loop.time()
        for connection in self.connections:
            connection.check(now, first_byte_timeout_s=self._first_byte_timeout_s, idle_timeout_s=self._idle_timeout_s)
        while self.kept and now - self.kept[0].idle_since >= self._keep_alive_s:
            self.kept.pop(0).drop()
        self._timer = loop.call_later(self._tick_s, self._tick, loop) if self.connections else None


def _closing() -> UpstreamUnreachable:
    return UpstreamUnreachable("the gateway is closing its connections to upstream")


def _reason(error: OSError) -> str:
    """Why a connection failed, in words that hold no address (the exceptions' own do)."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return "its certificate could not be verified"
    if isinstance(error, ssl.SSLError):
        return "the TLS handshake failed"
    if isinstance(error, socket.gaierror):
        return "its name cannot be resolved"
    if error.errno is not None and error.errno > 0:
        return os.strerror(error.errno).lower()
    return "connection failed"
