"""Serving an ASGI application on a loopback socket, inside a running event loop."""

import asyncio
import contextlib
import signal
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any
from urllib.parse import parse_qsl

import anyio
import uvicorn

from recorder.errors import RecorderError

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]


def bind(host: str, port: int) -> socket.socket:
    """A socket to serve on; port 0 takes a free one. Raises RecorderError where it is taken."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host, port))
    except OSError as error:
        sock.close()
        raise RecorderError(f"cannot listen on {host}:{port}: {error.strerror}") from error
    return sock


def origin(sock: socket.socket) -> str:
    """The URL origin of a bound socket."""
    host, port = sock.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


@contextlib.asynccontextmanager
async def serving(app: Application, sock: socket.socket, *, on_stop: Callable[[], None]) -> AsyncIterator[None]:
    """Serves until the end of the block; ``on_stop`` is called first, to end what would wait for ever."""
    config = uvicorn.Config(
        app,
        http="httptools",
        lifespan="off",
        log_config=None,
        log_level=None,
        access_log=False,
        server_header=False,
        date_header=False,
        timeout_graceful_shutdown=5,
    )
    server = _Server(config, on_stop)
    task = asyncio.create_task(server.serve(sockets=[sock]))
    try:
        await server.ready.wait()
        yield
    finally:
        server.stopping.set()
        await task


async def stopped_by_signal() -> None:
    """Returns when the process is asked to end (SIGINT, SIGTERM)."""
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async for _ in signals:
            return


async def read_body(receive: Receive) -> bytes:
    """A request's whole body."""
    body, more = bytearray(), True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
    return bytes(body)


async def client_gone(receive: Receive) -> None:
    """Returns when the client has left, or has its whole answer."""
    while (await receive())["type"] != "http.disconnect":
        pass


def query_params(scope: Scope) -> dict[str, Any]:
    """A request's query as a mapping; a name that comes twice has a list."""
    params: dict[str, Any] = {}
    for name, value in parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True):
        if name in params:
            first = params[name]
            params[name] = [*(first if isinstance(first, list) else [first]), value]
        else:
            params[name] = value
    return params


class _Server(uvicorn.Server):
    """Leaves signals to the process it runs in."""

    def __init__(self, config: uvicorn.Config, on_stop: Callable[[], None]) -> None:
        super().__init__(config)
        self.ready, self.stopping = asyncio.Event(), asyncio.Event()
        self._on_stop = on_stop

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready.set()

    async def main_loop(self) -> None:
        # uvicorn's own looks ten times a second whether it should stop
        await self.stopping.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._on_stop()
        await super().shutdown(sockets)
